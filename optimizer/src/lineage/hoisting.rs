//! Costly expressions, evaluated in timed nodes.

use std::sync::Arc;

use datafusion::common::{Column, Result};
use datafusion::logical_expr::logical_plan::Extension;
use datafusion::logical_expr::{Expr, LogicalPlan};
use skewer_exec::LatencyColumn;

use super::cost_attribution::{CostAttribution, attribute_cost};
use super::{AnnotatedPlan, AnnotatedRecord, LineageRewrite, columns_read};
use crate::costly::is_costly;
use crate::timed_node::TimedEvaluation;

impl LineageRewrite {
    /// Evaluates those of `exprs` that are costly in a timed node on top of `input`, and
    /// returns the node and `exprs` with columns in place of what was moved.
    pub(super) fn hoist(
        &mut self,
        input: AnnotatedPlan,
        exprs: Vec<Expr>,
    ) -> Result<(AnnotatedPlan, Vec<Expr>)> {
        let mut hoisted_exprs: Vec<(Expr, String)> = Vec::new();
        let mut kept = Vec::with_capacity(exprs.len());
        for expr in exprs {
            if input.records.is_empty() || !is_costly(&expr, input.plan.schema())? {
                kept.push(expr);
                continue;
            }
            let bare = expr.unalias();
            let same = hoisted_exprs.iter().find(|(other, _)| *other == bare);
            // Of a volatile expression each has a value of its own.
            let name = match same.filter(|_| !bare.is_volatile()) {
                Some((_, name)) => name.clone(),
                None => {
                    let name = self.name("value");
                    self.hoisted_exprs.push((name.clone(), bare.to_string()));
                    hoisted_exprs.push((bare, name.clone()));
                    name
                }
            };
            kept.push(Expr::Column(Column::new_unqualified(name)));
        }
        if hoisted_exprs.is_empty() {
            return Ok((input, kept));
        }
        // Each is the time of the records that it reads; those of the same ones are timed together.
        let of_each = !self.recorder.sampling().is_complete();
        let mut by_records: Vec<(CostAttribution, Vec<(Expr, String)>)> = Vec::new();
        for hoisted in hoisted_exprs {
            let cost = attribute_cost(&input, &hoisted.0, of_each)?;
            match by_records
                .iter_mut()
                .find(|(other, _)| other.is_of_same(&cost))
            {
                Some((_, same)) => same.push(hoisted),
                None => by_records.push((cost, vec![hoisted])),
            }
        }
        let mut timed = input;
        for (cost, hoisted) in by_records {
            timed = self.timed(timed, hoisted, &cost)?;
        }
        Ok((timed, kept))
    }

    /// Evaluates `hoisted_exprs`, expressions and the names of their columns, in a timed node on top of `input`.
    fn timed(
        &mut self,
        input: AnnotatedPlan,
        hoisted_exprs: Vec<(Expr, String)>,
        cost: &CostAttribution,
    ) -> Result<AnnotatedPlan> {
        let packed = input.packed()?;
        let AnnotatedPlan { plan, mut records } = input;
        // What a window function looked at for a column that is not read here had no part in it.
        let read = columns_read(hoisted_exprs.iter().map(|(expr, _)| expr))?;
        let takes_part = |of: &[usize], place: usize, record: &AnnotatedRecord| {
            of.contains(&place) && record.is_read(&read)
        };
        let measured = records.iter().enumerate();
        let measured = measured
            .filter(|(place, record)| takes_part(&cost.measured, *place, record))
            .filter_map(|(_, record)| Some((record.source.clone()?, record.id.clone())))
            .collect();
        let taking_longer = records.iter_mut().enumerate();
        let mut taking_longer: Vec<&mut AnnotatedRecord> = taking_longer
            .filter(|(place, record)| takes_part(&cost.total, *place, record))
            .map(|(_, record)| record)
            .collect();
        // A latency that they all share so far can be added to; otherwise it rides beside.
        let mut last = taking_longer.iter().map(|record| record.latencies.last());
        let earlier = last.next().flatten();
        let earlier = earlier
            .filter(|first| last.all(|other| other == Some(first)))
            .cloned();
        let latency = match packed {
            Some(packed) => LatencyColumn::Packed(packed),
            None => {
                let name = self.name("latency");
                for record in &mut taking_longer {
                    if earlier.is_some() {
                        record.latencies.pop();
                    }
                    record.latencies.push(name.clone());
                }
                LatencyColumn::New { name, earlier }
            }
        };
        let node = TimedEvaluation::try_new(plan, hoisted_exprs, latency, measured)?;
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        Ok(AnnotatedPlan { plan, records })
    }
}
