//! A condition over the rows of one table, as `WITHOUT` and quarantines have them.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unalias;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan, not,
};
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Location;
use skewer_exec::{IdentifiedTable, ROW_ID};
use skewer_sql::SyntaxError;

use super::names::fold;
use crate::error::Error;

/// A condition as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPredicate<'a> {
    /// What takes it, for errors: `WITHOUT`.
    pub(crate) taker: &'static str,
    pub(crate) expr: &'a ast::Expr,
    /// The statement that it is part of; empty if no error can show it.
    pub(crate) source: &'a str,
    /// Where it begins there.
    pub(crate) at: Location,
}

/// A column that a predicate names.
pub(crate) struct NamedColumn {
    /// The qualifier.
    pub(crate) table: Option<String>,
    pub(crate) column: String,
    pub(crate) at: Location,
}

/// Which rows of a scan to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Rows for which the predicate is true.
    Matching,
    /// All others. Rows for which it is NULL are among them.
    Others,
}

impl RowPredicate<'_> {
    /// The columns that it names, in their order, and the predicate without their qualifiers.
    ///
    /// # Errors
    /// If it has a subquery.
    pub(crate) fn columns(&self) -> Result<(ast::Expr, Vec<NamedColumn>), Error> {
        let mut predicate = self.expr.clone();
        let mut finder = ColumnFinder {
            columns: Vec::new(),
            subquery: false,
        };
        let _: ControlFlow<()> = predicate.visit(&mut finder);
        if finder.subquery {
            let error = Error::Unsupported(format!("a subquery in {}", self.taker));
            return Err(self.placed(error, self.at));
        }
        Ok((predicate, finder.columns))
    }

    /// The condition over rows of `schema`.
    ///
    /// # Errors
    /// If it is no condition over single rows.
    pub(crate) fn condition(&self, schema: &DFSchema, state: &SessionState) -> Result<Expr, Error> {
        let in_place = |error| self.placed(error, self.at);
        let sql = ast::ExprWithAlias {
            expr: self.expr.clone(),
            alias: None,
        };
        let planned = state.create_logical_expr_from_sql_expr(sql, schema);
        let condition = unalias(planned.map_err(|error| in_place(error.into()))?);
        let of_many = condition.exists(|node| {
            let of_many = matches!(
                node,
                Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_)
            );
            Ok(of_many)
        })?;
        let taker = self.taker;
        if of_many {
            return Err(in_place(Error::Invalid(format!(
                "{taker} takes a condition over single rows, without aggregate functions, window functions and unnest"
            ))));
        }
        let kind = condition.get_type(schema);
        match kind.map_err(|error| in_place(error.into()))? {
            DataType::Boolean | DataType::Null => Ok(condition),
            other => Err(in_place(Error::Invalid(format!(
                "{taker} takes a condition, and this is {other}"
            )))),
        }
    }

    /// An error that shows its place in the statement.
    pub(crate) fn placed(&self, error: Error, place: Location) -> Error {
        if self.source.is_empty() {
            return error;
        }
        let at = SyntaxError::at_location(self.source, place, error.to_string());
        match at.line {
            0 => error,
            _ => Error::Placed {
                error: Box::new(error),
                place: at,
            },
        }
    }
}

/// A scan with only some of its rows, and the same columns.
///
/// # Errors
/// The errors of [`RowPredicate::condition`].
pub(crate) fn filtered(
    scan: TableScan,
    predicates: &[RowPredicate<'_>],
    keep: Keep,
    state: &SessionState,
) -> Result<LogicalPlan, Error> {
    let columns = scan.projected_schema.columns();
    let hidden = scan
        .projected_schema
        .field_with_unqualified_name(ROW_ID)
        .is_err();
    let plain = LogicalPlan::TableScan(scan.clone());
    let over_ids = match identified(&scan) {
        Some(table) if hidden => {
            let source = provider_as_source(Arc::new(table.showing_ids()));
            LogicalPlanBuilder::scan(scan.table_name.clone(), source, None)?.build()?
        }
        _ => plain.clone(),
    };
    let conditions = predicates.iter().map(|predicate| {
        let condition = predicate.condition(over_ids.schema(), state)?;
        Ok(match keep {
            Keep::Matching => condition,
            Keep::Others if !condition.nullable(over_ids.schema())? => not(condition),
            // Not IS NOT TRUE: DataFusion's operator for it may say NULL where its plan says it may not.
            Keep::Others => condition.clone().is_null().or(not(condition)),
        })
    });
    let Some(condition) = conjunction(conditions.collect::<Result<Vec<_>, Error>>()?) else {
        return Ok(plain);
    };
    // Without need the scan stays as it is: there it may be read without row ids.
    let needs_ids = hidden
        && condition
            .column_refs()
            .iter()
            .any(|column| column.name == ROW_ID);
    let input = if needs_ids { over_ids } else { plain };
    let filtered = LogicalPlanBuilder::from(input).filter(condition)?;
    let filtered = match needs_ids {
        true => filtered.project(columns.into_iter().map(Expr::Column))?,
        false => filtered,
    };
    Ok(filtered.build()?)
}

/// The table of a scan whose rows have ids.
pub(crate) fn identified(scan: &TableScan) -> Option<IdentifiedTable> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<IdentifiedTable>().cloned()
}

/// Finds columns, and takes their qualifiers away.
struct ColumnFinder {
    columns: Vec<NamedColumn>,
    subquery: bool,
}

impl VisitorMut for ColumnFinder {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.subquery = true;
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let (table, column) = match &*expr {
            ast::Expr::Identifier(column) => (None, column.clone()),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, column] => (Some(fold(table)), column.clone()),
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        self.columns.push(NamedColumn {
            table,
            column: fold(&column),
            at: column.span.start,
        });
        *expr = ast::Expr::Identifier(column);
        ControlFlow::Continue(())
    }
}
