//! Aggregates in the rewrite, whose groups are records.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, LogicalPlan};
use skewer_exec::{AggregateOrigin, CarriedLatency, LineageCapture, RecordOrigin};

use super::{AnnotatedPlan, AnnotatedRecord, Arguments, LineageRewrite, unaliased};

impl LineageRewrite {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<AnnotatedPlan> {
        let input = match rearranges_rows(aggregate) {
            true => self.rewrite(&aggregate.input)?,
            false => self.rewrite_for_aggregate(&aggregate.input)?,
        };
        if input.records.is_empty() {
            let plan = LogicalPlan::Aggregate(aggregate.clone());
            return Ok(AnnotatedPlan::untracked(
                plan.with_new_exprs(plan.expressions(), vec![input.plan])?,
            ));
        }
        let (input, group_expr, aggr_expr) = self.hoist_arguments(input, aggregate)?;
        // The types of many functions take longer to find than the rest of the rewrite.
        let is_same = group_expr == aggregate.group_expr && aggr_expr == aggregate.aggr_expr;
        let schema = is_same.then_some(&aggregate.schema);
        self.captured_as(input, group_expr, aggr_expr, schema)
    }

    /// An aggregate whose groups are records, made of those of `input`.
    pub(super) fn captured(
        &mut self,
        input: AnnotatedPlan,
        group_expr: Vec<Expr>,
        aggr_expr: Vec<Expr>,
    ) -> Result<AnnotatedPlan> {
        self.captured_as(input, group_expr, aggr_expr, None)
    }

    /// The same, with the columns of `schema`, if that is known, besides its own.
    fn captured_as(
        &mut self,
        input: AnnotatedPlan,
        group_expr: Vec<Expr>,
        mut aggr_expr: Vec<Expr>,
        schema: Option<&DFSchemaRef>,
    ) -> Result<AnnotatedPlan> {
        let (function, arguments, source) = self.capture(&input)?;
        let of_before = input.is_of_before();
        let capture =
            AggregateFunction::new_udf(Arc::new(function), arguments, false, None, vec![], None);
        let id = self.name("id");
        let capture = Expr::AggregateFunction(capture).alias(&id);
        let input = Arc::new(input.plan);
        let schema = match schema {
            Some(schema) => {
                let own = capture.to_field(input.schema())?;
                let own = DFSchema::new_with_metadata(vec![own], HashMap::new())?;
                Some(Arc::new(schema.join(&own)?))
            }
            None => None,
        };
        aggr_expr.push(capture);
        let aggregate = match schema {
            Some(schema) => Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema)?,
            None => Aggregate::try_new(input, group_expr, aggr_expr)?,
        };
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Aggregate(aggregate),
            records: vec![AnnotatedRecord {
                of_before,
                ..AnnotatedRecord::new(source, id)
            }],
        })
    }

    /// The function that logs the records of `input`, or carries their latencies or what they are made of
    /// on; its arguments; and where the records come from that an aggregate with it makes.
    fn capture(
        &mut self,
        input: &AnnotatedPlan,
    ) -> Result<(AggregateUDF, Vec<Expr>, Option<RecordOrigin>)> {
        if let Some((function, arguments)) = self.merged(input)? {
            return Ok((function, arguments, None));
        }
        let Arguments {
            exprs,
            captured,
            carried,
        } = input.arguments()?;
        let name = self.name("capture");
        let recorder = Arc::clone(&self.recorder);
        if self.sources.is_some() {
            let function = match input.is_of_before() {
                true => CarriedLatency::in_recursion(name, recorder, carried),
                false => CarriedLatency::new(name, recorder, carried),
            };
            return Ok((AggregateUDF::from(function), exprs, None));
        }
        let groups = Arc::new(AggregateOrigin::default());
        let function = LineageCapture::new(name, recorder, captured, Arc::clone(&groups));
        let source = RecordOrigin::Aggregate(groups);
        Ok((AggregateUDF::from(function), exprs, Some(source)))
    }

    /// Hoists costly group keys and costly arguments of aggregate functions; the columns of the
    /// aggregate keep their names.
    fn hoist_arguments(
        &mut self,
        input: AnnotatedPlan,
        aggregate: &Aggregate,
    ) -> Result<(AnnotatedPlan, Vec<Expr>, Vec<Expr>)> {
        let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        let mut candidates = Vec::new();
        if !aggregate.group_expr.iter().any(is_set) {
            candidates.extend(aggregate.group_expr.iter().cloned());
        }
        let keys = candidates.len();
        // Without groups rows are filtered before arguments are evaluated, which may fail for
        // those that are left out.
        let is_hoisted = |function: &AggregateFunction| {
            !aggregate.group_expr.is_empty() || function.params.filter.is_none()
        };
        for expr in &aggregate.aggr_expr {
            if let Expr::AggregateFunction(function) = unaliased(expr)
                && is_hoisted(function)
            {
                candidates.extend(function.params.args.iter().cloned());
            }
        }
        let (input, mut hoisted) = self.hoist(input, candidates)?;
        let mut arguments = hoisted.split_off(keys).into_iter();
        let fields: Vec<_> = aggregate.schema.iter().collect();
        let mut group_expr = aggregate.group_expr.clone();
        for (new, old) in hoisted.into_iter().zip(&mut group_expr) {
            if new != *old {
                let name = old.schema_name().to_string();
                *old = new.alias(name);
            }
        }
        let first_aggregate = fields.len() - aggregate.aggr_expr.len();
        let mut aggr_expr = Vec::with_capacity(aggregate.aggr_expr.len());
        for (position, expr) in aggregate.aggr_expr.iter().enumerate() {
            let replaced = expr.clone().transform_down(|node| match node {
                Expr::AggregateFunction(mut function) if is_hoisted(&function) => {
                    let count = function.params.args.len();
                    function.params.args = arguments.by_ref().take(count).collect();
                    Ok(Transformed::new(
                        Expr::AggregateFunction(function),
                        true,
                        TreeNodeRecursion::Stop,
                    ))
                }
                other => Ok(Transformed::no(other)),
            })?;
            let (_, field) = fields[first_aggregate + position];
            aggr_expr.push(if replaced.data == *expr {
                expr.clone()
            } else {
                replaced.data.unalias().alias(field.name())
            });
        }
        Ok((input, group_expr, aggr_expr))
    }
}

/// Whether rows are sorted or divided anew for an aggregate before it takes them.
fn rearranges_rows(aggregate: &Aggregate) -> bool {
    aggregate
        .aggr_expr
        .iter()
        .any(|expr| match unaliased(expr) {
            Expr::AggregateFunction(function) => {
                function.params.distinct || !function.params.order_by.is_empty()
            }
            _ => true,
        })
}
