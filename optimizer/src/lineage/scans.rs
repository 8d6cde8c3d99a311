//! Scans with the ids of their rows.

use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::logical_plan::{TableScan, TableScanBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, lit};
use skewer_exec::{
    IdColumn, IdentifiedTable, Int32RowId, ROW_ID, RecordOrigin, SampledRowId, ScanOrigin,
};

use super::{AnnotatedPlan, AnnotatedRecord, LineageRewrite};

impl LineageRewrite {
    pub(super) fn scan(&mut self, scan: &TableScan) -> Result<AnnotatedPlan> {
        let untracked = || AnnotatedPlan::untracked(LogicalPlan::TableScan(scan.clone()));
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(untracked());
        };
        if let Some(table) = provider.downcast_ref::<CteWorkTable>() {
            return Ok(self.working_table(scan, table)?.unwrap_or_else(untracked));
        }
        let Some(table) = provider.downcast_ref::<IdentifiedTable>() else {
            return Ok(untracked());
        };
        let mut id = Expr::Column(Column::new_unqualified(ROW_ID));
        let is_sampled = !self.recorder.sampling().is_complete();
        if is_sampled {
            let sampled = SampledRowId::new(Arc::clone(&self.recorder));
            id = ScalarUDF::from(sampled).call(vec![id]);
        }
        if let Some(sources) = &self.sources {
            let Some((factor, offset)) = sources.number(&table.log_name) else {
                return internal_err!("{} is none of the sources", table.log_name);
            };
            if factor > 1 {
                id = id * lit(factor) + lit(offset);
            }
        }
        let name = self.name("id");
        let narrow =
            self.joins_above > 0 && table.has_int32_ids() && self.sources.is_none() && !is_sampled;
        if narrow {
            id = ScalarUDF::from(Int32RowId::default()).call(vec![id]);
        }
        let with_ids = table.with_id_column(IdColumn {
            name: name.clone(),
            value: id,
            nullable: is_sampled,
            narrow,
        });
        let mut projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        projection.push(with_ids.schema().fields().len() - 1);
        let plan = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(with_ids))
            .with_projection(Some(projection))
            .with_filters(scan.filters.clone())
            .with_fetch(scan.fetch)
            .build()?;
        let source = Arc::new(ScanOrigin::new(&table.log_name));
        self.scans.push((vec![name.clone()], Arc::clone(&source)));
        let source = match &self.sources {
            None => Some(RecordOrigin::Scan(source)),
            Some(_) => None,
        };
        Ok(AnnotatedPlan {
            plan: LogicalPlan::TableScan(plan),
            records: vec![AnnotatedRecord::new(source, name)],
        })
    }
}
