//! Estimates of how many rows the nodes of a logical plan return.
//!
//! A join returns the product of its inputs' rows by the greater number of distinct keys, as if each value of the
//! side with fewer were among the other's. A predicate above a scan is evaluated on a sample of the table; rules
//! take over where that says too little.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, FetchType, Filter, Join, Limit, Projection, TableScan,
};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use skewer_compat::logical::common_subplan::Shared;
use skewer_compat::rules::join_sides::{JoinInput, JoinInputs};

use super::estimate::{Estimate, narrow};
use super::feedback::Feedback;
use super::sample::{can_be_sampled, hits};
use super::selectivity::{ColumnEstimate, Rules};
use super::statistics::{Summaries, TableSummary, as_number};

/// Hits below which a sample says little.
const FEW_HITS: usize = 20;
/// Rows of a nested plan are not estimated any more.
const MOST_NESTED: usize = 200;
/// Bytes in memory of a text with unknown length.
const TEXT_BYTES: f64 = 24.0;
/// The share of an outer join's rows that have no partner, at least.
const LEAST_UNMATCHED: f64 = 0.1;
/// How much larger than estimated a filter's output is at worst, if it was estimated by rules.
const WORSE_BY_RULES: f64 = 32.0;
/// The same, if it was counted in a sample.
const WORSE_BY_SAMPLE: f64 = 2.0;

/// Estimates plans over tables with known statistics.
#[derive(Debug)]
pub(super) struct Estimator<'a> {
    summaries: &'a Summaries,
    /// Of the predicates that have been evaluated: the share of rows, and how much larger it is at worst.
    filters: RefCell<HashMap<String, (f64, f64)>>,
    /// The inputs of joins, in the order in which they are met.
    joins: RefCell<Option<Vec<Option<JoinInputs>>>>,
    depth: Cell<usize>,
    /// Rows that earlier queries counted.
    feedback: Option<&'a Feedback<'a>>,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(summaries: &'a Summaries, feedback: Option<&'a Feedback<'a>>) -> Self {
        Self {
            summaries,
            filters: RefCell::default(),
            joins: RefCell::default(),
            depth: Cell::new(0),
            feedback,
        }
    }

    /// Rows that earlier queries counted, if there are any.
    pub(super) fn feedback(&self) -> Option<&'a Feedback<'a>> {
        self.feedback
    }

    /// What the joins of `plan` get from their inputs: of each join after its inputs' joins, the left's first.
    pub(super) fn join_inputs(&self, plan: &LogicalPlan) -> Vec<Option<JoinInputs>> {
        self.joins.replace(Some(Vec::new()));
        self.estimate(plan);
        self.joins.take().unwrap_or_default()
    }

    /// How many rows `plan` returns; `None` if it reads something without statistics.
    pub(super) fn estimate(&self, plan: &LogicalPlan) -> Option<Estimate> {
        if self.depth.get() > MOST_NESTED {
            return None;
        }
        self.depth.set(self.depth.get() + 1);
        let inputs = plan.inputs();
        let mut inputs: Vec<_> = inputs
            .into_iter()
            .map(|input| self.estimate(input))
            .collect();
        self.depth.set(self.depth.get() - 1);
        if let LogicalPlan::Join(join) = plan {
            let (right, left) = (inputs.pop()?, inputs.pop()?);
            if let Some(joins) = self.joins.borrow_mut().as_mut() {
                let inputs = left.as_ref().zip(right.as_ref());
                joins.push(inputs.map(|(left, right)| JoinInputs {
                    left: input_of_join(left),
                    right: input_of_join(right),
                }));
            }
            let estimate = joined(join, &left?, &right?);
            return Some(self.corrected(plan, estimate));
        }
        let mut inputs = inputs.into_iter().collect::<Option<Vec<_>>>()?;
        let estimate = match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan)?,
            LogicalPlan::Filter(filter) => self.filter(filter, inputs.pop()?),
            LogicalPlan::Projection(projection) => projected(projection, &inputs.pop()?),
            LogicalPlan::Aggregate(aggregate) => aggregated(aggregate, &inputs.pop()?),
            LogicalPlan::Limit(limit) => limited(limit, inputs.pop()?),
            LogicalPlan::Sort(sort) => match sort.fetch {
                Some(fetch) => at_most(inputs.pop()?, fetch),
                None => inputs.pop()?,
            },
            LogicalPlan::SubqueryAlias(_) | LogicalPlan::Repartition(_) => inputs.pop()?,
            LogicalPlan::Distinct(Distinct::All(_)) => {
                let mut input = inputs.pop()?;
                let distinct = input.columns.iter().map(|column| column.distinct);
                input.rows = distinct.product::<f64>().min(input.rows);
                input
            }
            LogicalPlan::Distinct(Distinct::On(_)) => {
                Estimate::of_rows(inputs.pop()?.rows, plan.schema().fields().len())
            }
            LogicalPlan::Window(window) => {
                let mut input = inputs.pop()?;
                let other = ColumnEstimate::with_distinct(input.rows);
                input.columns.resize(window.schema.fields().len(), other);
                input
            }
            LogicalPlan::Union(_) => united(&inputs)?,
            LogicalPlan::Values(values) => {
                Estimate::of_rows(values.values.len() as f64, values.schema.fields().len())
            }
            LogicalPlan::EmptyRelation(empty) => {
                let rows = f64::from(u8::from(empty.produce_one_row));
                Estimate::of_rows(rows, empty.schema.fields().len())
            }
            LogicalPlan::Analyze(_) | LogicalPlan::Explain(_) => inputs.pop()?,
            LogicalPlan::Extension(_) => match inputs.pop() {
                Some(made) => made,
                // They are made, and their joins are met, at another place.
                None => {
                    let joins = self.joins.take();
                    let rows = self.estimate(Shared::from_plan(plan)?.rows());
                    self.joins.replace(joins);
                    rows?
                }
            },
            _ => return None,
        };
        (estimate.columns.len() == plan.schema().fields().len()
            || matches!(plan, LogicalPlan::Analyze(_) | LogicalPlan::Explain(_)))
        .then(|| self.corrected(plan, estimate))
    }

    /// `estimate` of `plan`, with the number of rows that it returned before.
    fn corrected(&self, plan: &LogicalPlan, estimate: Estimate) -> Estimate {
        match self.feedback {
            Some(feedback) => feedback.corrected(plan, estimate),
            None => estimate,
        }
    }

    fn scan(&self, scan: &TableScan) -> Option<Estimate> {
        let summary = self.summaries.get(scan)?;
        let rows = summary.rows as f64;
        let fields = scan.projected_schema.fields().iter();
        let columns = fields.map(|field| column_of(summary, field.name(), field.data_type()));
        let estimate = Estimate {
            rows,
            worst: rows,
            columns: columns.collect(),
        };
        Some(match scan.fetch {
            Some(fetch) => at_most(estimate, fetch),
            None => estimate,
        })
    }

    fn filter(&self, filter: &Filter, input: Estimate) -> Estimate {
        let schema = filter.input.schema();
        let predicates = split_conjunction(&filter.predicate);
        let (share, worse) = match filter.input.as_ref() {
            LogicalPlan::TableScan(scan) => {
                let key = format!("{:p} {}", scan.source, filter.predicate);
                let known = self.filters.borrow().get(&key).copied();
                known.unwrap_or_else(|| {
                    let share = self.of_scan(scan, &predicates, &input);
                    self.filters.borrow_mut().insert(key, share);
                    share
                })
            }
            _ => {
                let columns = |column: &Column| input.column(schema, column);
                let share = Rules { columns: &columns }.all(predicates.iter().copied());
                (share, WORSE_BY_RULES)
            }
        };
        let rows = input.rows;
        let worst = (rows * share * worse).max(1.0).min(input.worst);
        let mut filtered = input.clone().thinned(share, worst);
        narrow(&mut filtered, &input, schema, &predicates);
        filtered
    }

    /// The share of rows of a scan for which `predicates` hold, and how much larger it is at worst.
    fn of_scan(&self, scan: &TableScan, predicates: &[&Expr], input: &Estimate) -> (f64, f64) {
        let schema = &scan.projected_schema;
        let columns = |column: &Column| input.column(schema, column);
        let rules = Rules { columns: &columns };
        let by_rules = rules.all(predicates.iter().copied());
        let sample = self
            .summaries
            .get(scan)
            .and_then(|summary| summary.sample.as_ref());
        let (sampled, rest): (Vec<&Expr>, Vec<&Expr>) = predicates
            .iter()
            .copied()
            .partition(|predicate| can_be_sampled(predicate));
        let together = sampled.iter().map(|predicate| (*predicate).clone());
        let together = together.reduce(Expr::and);
        let counted = sample.zip(together).and_then(|(sample, together)| {
            let all = sample.rows.num_rows() >= input.rows as usize;
            hits(sample, &together)
                .ok()
                .filter(|hits| hits.rows > 0)
                .map(|hits| (hits, all))
        });
        let Some((counted, is_all)) = counted else {
            return (by_rules, WORSE_BY_RULES);
        };
        let of_rest = rules.all(rest);
        let worse = if of_rest < 1.0 {
            WORSE_BY_RULES
        } else {
            WORSE_BY_SAMPLE
        };
        let (hits, rows) = (counted.hits as f64, counted.rows as f64);
        if is_all || (counted.hits >= FEW_HITS && counted.runs > 2) {
            return (hits / rows * of_rest, worse);
        }
        // Few hits, or hits in few places, only say what it is not.
        let by_rules = rules.all(sampled);
        let (least, most) = (hits / rows / 4.0, (hits + 2.0) / rows * 2.0);
        (by_rules.clamp(least, most) * of_rest, WORSE_BY_RULES)
    }
}

fn input_of_join(estimate: &Estimate) -> JoinInput {
    JoinInput {
        rows: estimate.rows,
        worst_rows: estimate.worst,
        width: estimate.width(),
    }
}

/// The estimate of a column of a table.
fn column_of(summary: &TableSummary, name: &str, data_type: &DataType) -> ColumnEstimate {
    let rows = summary.rows as f64;
    let fixed = data_type.primitive_width().map(|width| width as f64);
    let known = summary.columns.get(name);
    let bounds = known.and_then(|known| {
        let min = as_number(known.min.as_ref()?)?;
        Some((min, as_number(known.max.as_ref()?)?))
    });
    // As many whole numbers as there are between the bounds.
    let in_bounds = bounds
        .filter(|_| data_type.is_integer() || *data_type == DataType::Date32)
        .map_or(f64::INFINITY, |(min, max)| max - min + 1.0);
    let distinct = known.and_then(|known| known.distinct);
    let nulls = known
        .and_then(|known| known.nulls)
        .map_or(0.0, |nulls| nulls as f64);
    ColumnEstimate {
        distinct: distinct.unwrap_or(rows).min(rows).min(in_bounds).max(1.0),
        nulls: nulls / rows.max(1.0),
        bounds,
        bytes: fixed.or_else(|| known?.bytes).unwrap_or(TEXT_BYTES),
    }
}

fn projected(projection: &Projection, input: &Estimate) -> Estimate {
    let schema = projection.input.schema();
    let columns = |column: &Column| input.column(schema, column);
    let rules = Rules { columns: &columns };
    let fields = projection.schema.fields().iter();
    let estimates = projection.expr.iter().zip(fields).map(|(expr, field)| {
        let bare = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        if let Expr::Column(column) = bare
            && let Some(estimate) = columns(column)
        {
            return estimate;
        }
        let distinct = match bare {
            Expr::Literal(..) => 1.0,
            _ => rules.distinct(bare).unwrap_or(input.rows).min(input.rows),
        };
        ColumnEstimate {
            bytes: field
                .data_type()
                .primitive_width()
                .map_or(TEXT_BYTES, |width| width as f64),
            ..ColumnEstimate::with_distinct(distinct)
        }
    });
    Estimate {
        columns: estimates.collect(),
        ..*input
    }
}

fn aggregated(aggregate: &Aggregate, input: &Estimate) -> Estimate {
    let schema = aggregate.input.schema();
    let width = aggregate.schema.fields().len();
    if aggregate.group_expr.is_empty() {
        return Estimate::of_rows(1.0, width);
    }
    let is_plain = !aggregate
        .group_expr
        .iter()
        .any(|expr| matches!(expr, Expr::GroupingSet(_)));
    // Some of the keys have far fewer values than all together.
    let sets = if is_plain { 1.0 } else { 2.0 };
    let keys = input
        .keys(schema, aggregate.group_expr.iter())
        .at_most_rows();
    let rows = (keys * sets).min(input.rows * sets);
    let mut estimate = Estimate::of_rows(rows, width);
    // Each row may be a group of its own.
    estimate.worst = (input.worst * sets).min(rows * WORSE_BY_RULES).max(rows);
    for (expr, column) in aggregate.group_expr.iter().zip(&mut estimate.columns) {
        if let Expr::Column(of) = expr
            && let Some(known) = input.column(schema, of)
        {
            *column = known;
            column.distinct = column.distinct.min(rows).max(1.0);
        }
    }
    // One key has each value once.
    if let ([_], Some(column)) = (
        aggregate.group_expr.as_slice(),
        estimate.columns.first_mut(),
    ) && is_plain
    {
        column.distinct = rows.max(1.0);
    }
    estimate
}

fn at_most(input: Estimate, rows: usize) -> Estimate {
    let rows = rows as f64;
    if input.rows <= rows {
        return Estimate {
            worst: input.worst.min(rows),
            ..input
        };
    }
    let kept = rows / input.rows;
    input.thinned(kept, rows)
}

fn limited(limit: &Limit, input: Estimate) -> Estimate {
    match limit.get_fetch_type() {
        Ok(FetchType::Literal(Some(rows))) => at_most(input, rows),
        _ => input,
    }
}

fn united(inputs: &[Estimate]) -> Option<Estimate> {
    let mut inputs = inputs.iter();
    let mut sum = inputs.next()?.clone();
    for input in inputs {
        sum.rows += input.rows;
        sum.worst += input.worst;
        for (column, other) in sum.columns.iter_mut().zip(&input.columns) {
            column.distinct += other.distinct;
            column.bounds = column
                .bounds
                .zip(other.bounds)
                .map(|((min, max), (least, greatest))| (min.min(least), max.max(greatest)));
        }
    }
    Some(sum)
}

fn joined(join: &Join, left: &Estimate, right: &Estimate) -> Estimate {
    let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
    let left_keys = left.keys(left_schema, join.on.iter().map(|(key, _)| key));
    let right_keys = right.keys(right_schema, join.on.iter().map(|(_, key)| key));
    let columns = |column: &Column| {
        let of_left = left.column(left_schema, column);
        of_left.or_else(|| right.column(right_schema, column))
    };
    let rules = Rules { columns: &columns };
    let filter = join.filter.as_ref();
    let share = filter.map_or(1.0, |filter| rules.all(split_conjunction(filter)));
    let keys = match join.on.is_empty() {
        true => 1.0,
        false => left_keys.matching(right_keys),
    };
    let (left_keys, right_keys) = (left_keys.at_most_rows(), right_keys.at_most_rows());
    let inner = left.rows * right.rows / keys * share;
    let worst = left.worst * right.worst / keys * (share * WORSE_BY_RULES).min(1.0);
    // A condition beside the keys seldom fails for all rows of a key.
    let of_left = (right_keys / left_keys).min(1.0) * share.sqrt();
    let of_right = (left_keys / right_keys).min(1.0) * share.sqrt();
    let rest = |share: f64| (1.0 - share).max(0.1);
    // Rows of one side without a partner have NULL in all columns of the other.
    let unmatched = |rows: f64| ((rows - inner) / rows.max(1.0)).max(LEAST_UNMATCHED);
    let columns = |nulls_left: f64, nulls_right: f64| -> Vec<ColumnEstimate> {
        let left = left.columns.iter().map(|column| (column, nulls_left));
        let right = right.columns.iter().map(|column| (column, nulls_right));
        let columns = left.chain(right).map(|(column, nulls)| ColumnEstimate {
            nulls: nulls + column.nulls * (1.0 - nulls),
            ..column.clone()
        });
        columns.collect()
    };
    let (rows, worst, columns): (f64, f64, Vec<_>) = match join.join_type {
        JoinType::Inner => (inner, worst, columns(0.0, 0.0)),
        JoinType::Left => {
            let rows = inner.max(left.rows);
            (rows, worst.max(left.worst), columns(0.0, unmatched(rows)))
        }
        JoinType::Right => {
            let rows = inner.max(right.rows);
            (rows, worst.max(right.worst), columns(unmatched(rows), 0.0))
        }
        JoinType::Full => {
            let rows = inner.max(left.rows + right.rows);
            let nulls = unmatched(rows) / 2.0;
            (
                rows,
                worst.max(left.worst + right.worst),
                columns(nulls, nulls),
            )
        }
        JoinType::LeftSemi => return left.clone().thinned(of_left, left.worst),
        JoinType::RightSemi => return right.clone().thinned(of_right, right.worst),
        JoinType::LeftAnti => return left.clone().thinned(rest(of_left), left.worst),
        JoinType::RightAnti => return right.clone().thinned(rest(of_right), right.worst),
        JoinType::LeftMark | JoinType::RightMark => {
            let kept = match join.join_type {
                JoinType::LeftMark => left,
                _ => right,
            };
            let mut marked = kept.clone();
            marked.columns.push(ColumnEstimate::with_distinct(2.0));
            return marked;
        }
    };
    let mut columns = columns;
    for column in &mut columns {
        column.distinct = column.distinct.min(rows).max(1.0);
    }
    Estimate {
        rows,
        worst: worst.max(rows),
        columns,
    }
}
