//! Whose time an evaluation's is: that of the records whose columns it reads.
//!
//! The rows of a join stem from records of both sides. `length(a.body)` is as slow without the row
//! of the other side, so its time is that of the record of `a`. What reads columns of both sides takes its
//! time for both. Without either, the row would not be, so for the total latency it counts for one of them
//! alone: if it counted for both, each would still be there without the other, and neither would make a
//! difference. It counts for the one that has taken time before, whose latency the row's then is; for both
//! if both have, or if the one may be missing from a row.

use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::annotated_plan::hidden_column;
use super::{AnnotatedPlan, AnnotatedRecord};
use crate::timed_node::TimedEvaluation;

/// Records of a plan, by their places in [`AnnotatedPlan::records`].
#[derive(Debug)]
pub(super) struct CostAttribution {
    /// Those whose time it is.
    pub(super) measured: Vec<usize>,
    /// Those of them whose total latency it adds to.
    pub(super) total: Vec<usize>,
    /// Whether every row has one of the latter.
    is_present: bool,
    /// Whether they may have taken time before.
    took_before: bool,
}

impl CostAttribution {
    /// All of `records`, about which no more is known.
    fn all(records: Vec<usize>) -> Self {
        Self {
            measured: records.clone(),
            total: records,
            is_present: false,
            took_before: true,
        }
    }

    /// Whether both are the time of the same records.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        self.measured == other.measured && self.total == other.total
    }

    /// What reads records of both sides of a join.
    fn both(left: Self, right: Self) -> Self {
        let total = match (left.took_before, right.took_before) {
            (true, false) if left.is_present => left.total,
            (false, true) if right.is_present => right.total,
            (false, false) if left.is_present => left.total,
            (false, false) if right.is_present => right.total,
            _ => [left.total, right.total].concat(),
        };
        Self {
            measured: [left.measured, right.measured].concat(),
            total,
            is_present: left.is_present || right.is_present,
            took_before: left.took_before || right.took_before,
        }
    }
}

/// Whose time it is that `evaluated` takes over `input`. With `of_each` it counts for the total latency of
/// each of several records that it reads: some of them may not be traced.
pub(super) fn attribute_cost(
    input: &AnnotatedPlan,
    evaluated: &Expr,
    of_each: bool,
) -> Result<CostAttribution> {
    let all = || CostAttribution::all((0..input.records.len()).collect());
    let read = columns_of(evaluated);
    if input.records.len() < 2 || read.is_empty() {
        return Ok(all());
    }
    let schema = input.plan.schema();
    let ids = input.records.iter().enumerate().map(|(record, annotated)| {
        let id = hidden_column(schema, &annotated.id)?;
        Ok((record, columns_of(&id)))
    });
    let ids = ids.collect::<Result<_>>()?;
    let mut cost = followed(&input.plan, &input.records, read, ids);
    // What is read may be of rows that are no records.
    if cost.measured.is_empty() {
        return Ok(all());
    }
    if of_each {
        cost.total = cost.measured.clone();
    }
    Ok(cost)
}

fn columns_of(expr: &Expr) -> Vec<Column> {
    expr.column_refs().into_iter().cloned().collect()
}

/// Columns that the id of a record is made of, by the record.
type Ids = Vec<(usize, Vec<Column>)>;

/// Follows what is read, and the ids, down to the joins that put their rows together.
fn followed(
    plan: &LogicalPlan,
    records: &[AnnotatedRecord],
    read: Vec<Column>,
    ids: Ids,
) -> CostAttribution {
    if let LogicalPlan::Join(join) = plan {
        return of_sides(join, records, read, ids);
    }
    if let [input] = plan.inputs()[..]
        && let Some(read) = made_of(plan, &read)
    {
        // Records that are made here are of columns that are made here.
        let below = ids.into_iter().filter_map(|(record, columns)| {
            let columns = made_of(plan, &columns)?;
            Some((record, columns))
        });
        return followed(input, records, read, below.collect());
    }
    let found: Vec<usize> = ids.into_iter().map(|(record, _)| record).collect();
    let is_scan = matches!(plan, LogicalPlan::TableScan(_));
    let has_taken = |record: &usize| !records[*record].latencies.is_empty();
    CostAttribution {
        is_present: is_scan || matches!(plan, LogicalPlan::Aggregate(_)),
        took_before: !is_scan || found.iter().any(has_taken),
        ..CostAttribution::all(found)
    }
}

/// The columns of its only input that columns of a node are made of, row by row; `None` if it makes rows
/// of several, or nothing is known.
fn made_of(plan: &LogicalPlan, columns: &[Column]) -> Option<Vec<Column>> {
    let of_input = |input: &DFSchema, place: usize| Column::from(input.qualified_field(place));
    let mut all = Vec::new();
    for column in columns {
        let place = plan.schema().maybe_index_of_column(column)?;
        let made_of = match plan {
            LogicalPlan::Projection(projection) => columns_of(&projection.expr[place]),
            LogicalPlan::SubqueryAlias(alias) => vec![of_input(alias.input.schema(), place)],
            LogicalPlan::Unnest(unnest) => {
                let below = *unnest.dependency_indices.get(place)?;
                vec![of_input(unnest.input.schema(), below)]
            }
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_) => vec![column.clone()],
            // What it appends is made of rows of a frame.
            LogicalPlan::Window(window) if place < window.input.schema().fields().len() => {
                vec![column.clone()]
            }
            LogicalPlan::Extension(extension) => {
                let timed = extension.node.as_any().downcast_ref::<TimedEvaluation>()?;
                match timed.expression_of(&column.name) {
                    Some(expr) => columns_of(expr),
                    None => vec![column.clone()],
                }
            }
            _ => return None,
        };
        for column in made_of {
            if !all.contains(&column) {
                all.push(column);
            }
        }
    }
    Some(all)
}

/// Which sides of the join are read.
fn of_sides(
    join: &Join,
    records: &[AnnotatedRecord],
    read: Vec<Column>,
    ids: Ids,
) -> CostAttribution {
    let is_left = |column: &Column| join.left.schema().has_column(column);
    // A mark is of neither side: it says whether there are rows at the other one.
    let is_known = |column: &Column| is_left(column) || join.right.schema().has_column(column);
    let are_known = |columns: &[Column]| !columns.is_empty() && columns.iter().all(is_known);
    if !read.iter().all(is_known) || !ids.iter().all(|(_, columns)| are_known(columns)) {
        return CostAttribution::all(ids.into_iter().map(|(record, _)| record).collect());
    }
    let (read_left, read_right): (Vec<_>, Vec<_>) = read.into_iter().partition(is_left);
    let (left_ids, right_ids): (Ids, Ids) = ids
        .into_iter()
        .partition(|(_, columns)| columns.iter().all(is_left));
    let (pads_left, pads_right) = match join.join_type {
        JoinType::Left => (false, true),
        JoinType::Right => (true, false),
        JoinType::Full => (true, true),
        _ => (false, false),
    };
    let side = |plan: &LogicalPlan, is_padded: bool, read: Vec<Column>, ids: Ids| {
        if read.is_empty() || ids.is_empty() {
            return None;
        }
        let mut side = followed(plan, records, read, ids);
        side.is_present &= !is_padded;
        (!side.measured.is_empty()).then_some(side)
    };
    let left = side(&join.left, pads_left, read_left, left_ids);
    let right = side(&join.right, pads_right, read_right, right_ids);
    match (left, right) {
        (Some(left), Some(right)) => CostAttribution::both(left, right),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => CostAttribution::all(vec![]),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::logical_plan::table_scan;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};

    use super::*;

    /// Columns `k`, `x` and `id_<name>`.
    fn table(name: &str) -> LogicalPlan {
        let columns = ["k", "x", &format!("id_{name}")]
            .map(|column| Field::new(column, DataType::Int64, true));
        let schema = Schema::new(columns.to_vec());
        table_scan(Some(name), &schema, None)
            .unwrap()
            .build()
            .unwrap()
    }

    fn join(left: LogicalPlan, right: LogicalPlan, how: JoinType, on: [&str; 2]) -> LogicalPlan {
        let [left_key, right_key] = on.map(|key| vec![key]);
        let joined = LogicalPlanBuilder::from(left).join(right, how, (left_key, right_key), None);
        joined.unwrap().build().unwrap()
    }

    /// Whose time it is, and to whose total latency it adds, by the first letters of tables; those in
    /// upper case have taken time before.
    fn charges(plan: &LogicalPlan, tables: &str, evaluated: &Expr, of_each: bool) -> [String; 2] {
        let records = tables.chars().map(|table| {
            let mut record =
                AnnotatedRecord::new(None, format!("id_{}", table.to_ascii_lowercase()));
            if table.is_ascii_uppercase() {
                record.latencies.push("took".to_owned());
            }
            record
        });
        let input = AnnotatedPlan {
            plan: plan.clone(),
            records: records.collect(),
        };
        let CostAttribution {
            measured, total, ..
        } = attribute_cost(&input, evaluated, of_each).unwrap();
        [measured, total].map(|places| {
            let tables = places.iter().filter_map(|place| tables.chars().nth(*place));
            tables.collect()
        })
    }

    #[test]
    fn time_is_that_of_the_side_that_is_read() {
        let inner = join(table("a"), table("b"), JoinType::Inner, ["a.k", "b.k"]);
        assert_eq!(charges(&inner, "ab", &col("a.x"), false), ["a", "a"]);
        assert_eq!(charges(&inner, "ab", &col("b.x"), false), ["b", "b"]);
        assert_eq!(charges(&inner, "ab", &lit(1), false), ["ab", "ab"]);
        // Above nodes that put nothing together, under other names.
        let above = LogicalPlanBuilder::from(inner)
            .filter(col("a.k").gt(lit(1)))
            .and_then(|plan| {
                let made = col("b.x") + lit(1);
                plan.project([made.alias("made"), col("a.k"), col("id_a"), col("id_b")])
            })
            .and_then(|plan| plan.alias("q"))
            .and_then(LogicalPlanBuilder::build)
            .unwrap();
        assert_eq!(charges(&above, "ab", &col("q.made"), false), ["b", "b"]);
        assert_eq!(charges(&above, "ab", &col("q.k"), false), ["a", "a"]);
    }

    #[test]
    fn what_reads_both_sides_counts_for_one_that_is_always_there() {
        let both = col("a.x") + col("b.x");
        let joined = |how| join(table("a"), table("b"), how, ["a.k", "b.k"]);
        let total = |how, tables, of_each| {
            let [measured, total] = charges(&joined(how), tables, &both, of_each);
            assert_eq!(measured, tables);
            total
        };
        assert_eq!(total(JoinType::Inner, "ab", false), "a");
        assert_eq!(total(JoinType::Inner, "ab", true), "ab");
        assert_eq!(total(JoinType::Inner, "aB", false), "B");
        assert_eq!(total(JoinType::Inner, "AB", false), "AB");
        assert_eq!(total(JoinType::Left, "ab", false), "a");
        assert_eq!(total(JoinType::Left, "aB", false), "aB");
        assert_eq!(total(JoinType::Right, "ab", false), "b");
        assert_eq!(total(JoinType::Full, "ab", false), "ab");
    }

    #[test]
    fn of_several_joins_those_are_followed_that_are_read() {
        let three = |how| {
            let two = join(table("a"), table("b"), how, ["a.k", "b.k"]);
            join(two, table("c"), JoinType::Inner, ["a.k", "c.k"])
        };
        let inner = three(JoinType::Inner);
        assert_eq!(charges(&inner, "abc", &col("b.x"), false), ["b", "b"]);
        let read = col("b.x") + col("c.x");
        assert_eq!(charges(&inner, "abc", &read, false), ["bc", "b"]);
        // Padding has nobody's id.
        assert_eq!(
            charges(&three(JoinType::Left), "abc", &read, false),
            ["bc", "c"]
        );
        // Rows of `a` are no records.
        let read = col("a.x") + col("c.x");
        assert_eq!(charges(&inner, "bc", &read, false), ["c", "c"]);
        assert_eq!(charges(&inner, "bc", &col("a.x"), false), ["bc", "bc"]);
    }
}
