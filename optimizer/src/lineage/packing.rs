//! Rows of one record between an unnest and the aggregate above it: its id and latency in one column.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::logical_plan::{Projection, Unnest};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use skewer_exec::RecordColumn;

use super::{AnnotatedPlan, AnnotatedRecord, LineageRewrite, aliased, hidden_type, of_rows};
use skewer_compat::logical::decorrelate::is_domain;

impl AnnotatedPlan {
    /// The column that has its records, if those are packed: there are no others then.
    pub(super) fn packed(&self) -> Result<Option<String>> {
        let [record] = self.records.as_slice() else {
            return Ok(None);
        };
        let id_type = hidden_type(self.plan.schema(), &record.id)?;
        Ok((id_type == RecordColumn::data_type()).then(|| record.id.clone()))
    }
}

impl LineageRewrite {
    /// Rewrites an input of an aggregate, which reads records that are packed, too.
    pub(super) fn rewrite_for_aggregate(&mut self, plan: &LogicalPlan) -> Result<AnnotatedPlan> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.rewrite_for_aggregate(&projection.input)?;
                self.projection(projection, input)
            }
            LogicalPlan::SubqueryAlias(alias) if !is_domain(alias) => {
                let input = self.rewrite_for_aggregate(&alias.input)?;
                aliased(alias, input)
            }
            LogicalPlan::Unnest(unnest) => {
                let input = self.rewrite_for_aggregate(&unnest.input)?;
                let input = self.packed(input)?;
                unnested(unnest, input)
            }
            other => self.rewrite(other),
        }
    }

    /// The plan with its records as [`RecordColumn`] makes them, if it is a projection with one kind of
    /// record, whose ids are `BIGINT`.
    fn packed(&mut self, input: AnnotatedPlan) -> Result<AnnotatedPlan> {
        let (LogicalPlan::Projection(projection), [record]) =
            (&input.plan, input.records.as_slice())
        else {
            return Ok(input);
        };
        let id_type = hidden_type(input.plan.schema(), &record.id)?;
        if record.of_before || id_type != DataType::Int64 || record.latencies.len() > 1 {
            return Ok(input);
        }
        let hidden = input.hidden();
        let name_of = |expr: &Expr| expr.qualified_name().1;
        let exprs = projection.expr.iter();
        let arguments = hidden
            .iter()
            .filter_map(|name| exprs.clone().find(|expr| name_of(expr) == *name));
        let arguments: Vec<_> = arguments.cloned().collect();
        if arguments.len() != hidden.len() {
            return Ok(input);
        }
        let visible = exprs.filter(|expr| !hidden.contains(&name_of(expr)));
        let mut exprs: Vec<_> = visible.cloned().collect();
        let name = self.name("record");
        let mut scans = self.scans.iter_mut();
        if let Some((names, _)) = scans.find(|(names, _)| names.contains(&record.id)) {
            names.push(name.clone());
        }
        let function = ScalarUDF::from(RecordColumn::default());
        exprs.push(function.call(arguments).alias(&name));
        let below = Arc::clone(&projection.input);
        Ok(AnnotatedPlan {
            records: vec![AnnotatedRecord {
                id: name,
                latencies: vec![],
                ..record.clone()
            }],
            plan: LogicalPlan::Projection(Projection::try_new(exprs, below)?),
        })
    }
}

pub(super) fn unnested(unnest: &Unnest, input: AnnotatedPlan) -> Result<AnnotatedPlan> {
    let rewritten = Unnest::try_new(
        Arc::new(input.plan),
        unnest.exec_columns.clone(),
        unnest.options.clone(),
    )?;
    Ok(AnnotatedPlan {
        plan: LogicalPlan::Unnest(rewritten),
        records: of_rows(input.records),
    })
}
