//! Whose time an evaluation's is: that of the records whose columns it reads.
//!
//! The rows of a join stem from records of both sides. `length(a.body)` is as slow without the row
//! of the other side, so its time is that of the record of `a`. What reads columns of both sides takes its
//! time for both; but for the total latency it counts for one of them alone: without either the row
//! would not be, so neither record's latency remains without the other.

use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::TrackedPlan;
use super::tracked::hidden_column;
use crate::timed_node::TimedEvaluation;

/// Records of a plan, by their places in [`TrackedPlan::records`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charged {
    /// Those whose time it is.
    pub(super) measured: Vec<usize>,
    /// Those of them whose total latency it adds to.
    pub(super) total: Vec<usize>,
}

impl Charged {
    fn all(records: Vec<usize>) -> Self {
        Self {
            measured: records.clone(),
            total: records,
        }
    }
}

/// Whose time it is that `evaluated` takes over `input`. `of_one` says that what several
/// records of a row share counts for the total latency of one: not where the others may not be traced.
pub(super) fn charged(input: &TrackedPlan, evaluated: &Expr, of_one: bool) -> Result<Charged> {
    let all = || (0..input.records.len()).collect();
    if input.records.len() < 2 {
        return Ok(Charged::all(all()));
    }
    let schema = input.plan.schema();
    let ids = input.records.iter().enumerate().map(|(record, tracked)| {
        let id = hidden_column(schema, &tracked.id)?;
        Ok((record, columns_of(&id)))
    });
    let ids = ids.collect::<Result<_>>()?;
    let mut charged = below(&input.plan, columns_of(evaluated), ids);
    // What is read may be of rows that are no records.
    if charged.measured.is_empty() {
        return Ok(Charged::all(all()));
    }
    if !of_one {
        charged.total = charged.measured.clone();
    }
    Ok(charged)
}

fn columns_of(expr: &Expr) -> Vec<Column> {
    expr.column_refs().into_iter().cloned().collect()
}

/// Columns that the id of a record is made of, by the record.
type Ids = Vec<(usize, Vec<Column>)>;

/// Follows what is read, and the ids, down to the joins that put their rows together.
fn below(plan: &LogicalPlan, read: Vec<Column>, ids: Ids) -> Charged {
    if let LogicalPlan::Join(join) = plan {
        return of_sides(join, read, ids);
    }
    let inputs = plan.inputs();
    if let [input] = inputs[..]
        && let Some(read) = made_of(plan, &read)
        && let Some(ids) = ids
            .iter()
            .map(|(record, columns)| Some((*record, made_of(plan, columns)?)))
            .collect()
    {
        return below(input, read, ids);
    }
    Charged::all(ids.into_iter().map(|(record, _)| record).collect())
}

/// The columns of its only input that columns of a node are made of, row by row; `None` if it makes rows
/// of several, or nothing is known.
fn made_of(plan: &LogicalPlan, columns: &[Column]) -> Option<Vec<Column>> {
    let of_input = |input: &DFSchema, place: usize| Column::from(input.qualified_field(place));
    let mut all = Vec::new();
    for column in columns {
        let place = plan.schema().maybe_index_of_column(column)?;
        match plan {
            LogicalPlan::Projection(projection) => all.extend(columns_of(&projection.expr[place])),
            LogicalPlan::SubqueryAlias(alias) => all.push(of_input(alias.input.schema(), place)),
            LogicalPlan::Unnest(unnest) => {
                let below = *unnest.dependency_indices.get(place)?;
                all.push(of_input(unnest.input.schema(), below));
            }
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_) => all.push(column.clone()),
            // What it appends is made of rows of a frame.
            LogicalPlan::Window(window) if place < window.input.schema().fields().len() => {
                all.push(column.clone());
            }
            LogicalPlan::Extension(extension) => {
                let timed = extension.node.as_any().downcast_ref::<TimedEvaluation>()?;
                match timed.expression_of(&column.name) {
                    Some(expr) => all.extend(columns_of(expr)),
                    None => all.push(column.clone()),
                }
            }
            _ => return None,
        }
    }
    Some(all)
}

/// Which sides of the join are read.
fn of_sides(join: &Join, read: Vec<Column>, ids: Ids) -> Charged {
    let is_of = |side: &LogicalPlan, column: &Column| side.schema().has_column(column);
    let is_left = |column: &Column| is_of(&join.left, column);
    // A mark says whether there are rows at the other side.
    let is_known = |column: &Column| is_left(column) || is_of(&join.right, column);
    let are_known = read.iter().all(is_known)
        && ids
            .iter()
            .all(|(_, columns)| !columns.is_empty() && columns.iter().all(is_known));
    if !are_known {
        return Charged::all(ids.into_iter().map(|(record, _)| record).collect());
    }
    let reads_nothing = read.is_empty();
    let (read_left, read_right): (Vec<_>, Vec<_>) = read.into_iter().partition(is_left);
    let (left_ids, right_ids): (Ids, Ids) = ids
        .into_iter()
        .partition(|(_, columns)| columns.iter().all(is_left));
    let is_read =
        |columns: &[Column], ids: &Ids| !ids.is_empty() && (reads_nothing || !columns.is_empty());
    let left = is_read(&read_left, &left_ids).then(|| below(&join.left, read_left, left_ids));
    let right = is_read(&read_right, &right_ids).then(|| below(&join.right, read_right, right_ids));
    match (left, right) {
        (Some(left), Some(right)) => {
            let total = match join.join_type {
                // A row that is padded has one side alone.
                JoinType::Full => [left.total, right.total].concat(),
                JoinType::Right => right.total,
                _ => left.total,
            };
            Charged {
                measured: [left.measured, right.measured].concat(),
                total,
            }
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Charged::all(vec![]),
    }
}
