//! Which chunks a statement asks for, as far as its filters tell from what all records of a
//! chunk have in common: the operator, the table, the kind of latency.

use std::fmt::Display;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;

use crate::chunk_columns::{Form, forms};
use crate::tables::Table;

/// A condition that chunks meet in which there may be wanted records.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkFilter {
    condition: Option<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    /// Of the table, those that the predicate is about; it is one over a batch of these.
    columns: Arc<[usize]>,
    predicate: Arc<dyn PhysicalExpr>,
}

/// Whether an expression says something about columns that are the same for all records of a
/// chunk, and about nothing else.
pub(crate) fn concerns_only_chunks(table: Table, filter: &Expr) -> bool {
    let columns = filter.column_refs();
    let same = |name: &str| constants(table).any(|index| column_name(table, index) == name);
    !columns.is_empty() && columns.iter().all(|column| same(&column.name)) && is_plain(filter)
}

/// Whether an expression depends on nothing but its columns.
fn is_plain(filter: &Expr) -> bool {
    let subquery = filter.exists(|expression| {
        Ok(matches!(
            expression,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
        ))
    });
    !filter.is_volatile() && !subquery.unwrap_or(true)
}

/// The columns of a table that are the same for all records of a chunk.
fn constants(table: Table) -> impl Iterator<Item = usize> {
    let forms = forms(table).unwrap_or_default().iter().enumerate();
    forms
        .filter(|(_, form)| matches!(form, Form::Number | Form::Text))
        .map(|(index, _)| index)
}

fn column_name(table: Table, index: usize) -> &'static str {
    table.definition().columns[index].name
}

impl ChunkFilter {
    /// The condition that follows from filters, all of which must hold.
    pub(crate) fn of_filters(
        table: Table,
        filters: &[Expr],
        state: &dyn Session,
    ) -> Result<ChunkFilter> {
        let about_chunks = filters.iter();
        let about_chunks = about_chunks
            .filter(|filter| concerns_only_chunks(table, filter))
            .cloned();
        let Some(filter) = conjunction(about_chunks) else {
            return Ok(ChunkFilter::default());
        };
        let named = filter.column_refs();
        let columns: Arc<[usize]> = constants(table)
            .filter(|index| {
                let name = column_name(table, *index);
                named.iter().any(|column| column.name == name)
            })
            .collect();
        let schema = table.definition().schema().project(&columns)?;
        let schema = DFSchema::try_from(schema)?;
        let predicate = state.create_physical_expr(filter.clone(), &schema)?;
        Ok(ChunkFilter {
            condition: Some(Condition { columns, predicate }),
        })
    }

    /// The condition, if there is one.
    pub(crate) fn condition(&self) -> Option<&dyn Display> {
        let condition = self.condition.as_ref();
        condition.map(|condition| &condition.predicate as &dyn Display)
    }

    /// The condition of a predicate over these columns of a table.
    pub(crate) fn of_predicate(columns: Vec<usize>, predicate: Arc<dyn PhysicalExpr>) -> Self {
        ChunkFilter {
            condition: Some(Condition {
                columns: columns.into(),
                predicate,
            }),
        }
    }

    /// The predicate over the [columns](Self::columns) that the condition is about.
    pub(crate) fn predicate(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        let condition = self.condition.as_ref();
        condition.map(|condition| &condition.predicate)
    }

    /// The table's columns that the condition is about.
    pub(crate) fn columns(&self) -> &[usize] {
        let condition = self.condition.as_ref();
        condition.map_or(&[], |condition| &condition.columns)
    }

    /// The rows of a batch of at least these columns, a chunk each, that may have wanted records.
    pub(crate) fn wanted(&self, table: Table, chunks: &RecordBatch) -> Vec<usize> {
        let wanted = self.condition.as_ref().and_then(|condition| {
            let columns = condition.columns.iter();
            let indices: Option<Vec<usize>> = columns
                .map(|index| chunks.schema().index_of(column_name(table, *index)).ok())
                .collect();
            let chunks = chunks.project(&indices?).ok()?;
            let wanted = condition.predicate.evaluate(&chunks).ok()?;
            let wanted = wanted.into_array(chunks.num_rows()).ok()?;
            let wanted = wanted.as_boolean_opt()?;
            let met = |chunk: &usize| wanted.is_valid(*chunk) && wanted.value(*chunk);
            Some((0..chunks.num_rows()).filter(met).collect())
        });
        // A condition that cannot be evaluated is left to whoever filters rows: it says why.
        wanted.unwrap_or_else(|| (0..chunks.num_rows()).collect())
    }
}
