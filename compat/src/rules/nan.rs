//! Pruning of Parquet files by floating-point numbers, among which may be a NaN.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, IsNotNullExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// Where the tables' own segments are.
const SEGMENTS: &str = "skewer-segments:";

/// Reads all row groups of a file where a condition may hold for a NaN.
///
/// NaN is greater than all other numbers, but Parquet leaves it out of bounds, so DataFusion 55.2 skips row
/// groups that have one for `f > 5`. The tables' own segments have no bounds where there is a NaN, and are
/// pruned; files of others are not, but by conditions that no NaN fulfils: less than, or equal to, a number.
#[derive(Debug)]
pub struct GuardedPruning;

impl PhysicalOptimizerRule for GuardedPruning {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match unpruned(node.as_ref()) {
                Some(scan) => Transformed::yes(scan),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "sound_pruning"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The scan without pruning, if it is one that may not be pruned.
fn unpruned(node: &dyn ExecutionPlan) -> Option<Arc<dyn ExecutionPlan>> {
    let scan = node.downcast_ref::<DataSourceExec>()?;
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    if config.object_store_url.as_str().starts_with(SEGMENTS) {
        return None;
    }
    let source = config.file_source().downcast_ref::<ParquetSource>()?;
    let schema = source.table_schema().table_schema();
    if !may_hold_for_nan(&source.filter()?, schema) {
        return None;
    }
    let mut options = source.table_parquet_options().clone();
    if !options.global.pruning && !options.global.enable_page_index {
        return None;
    }
    options.global.pruning = false;
    options.global.enable_page_index = false;
    let source = source.clone().with_table_parquet_options(options);
    let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
    Some(DataSourceExec::from_data_source(config.build()))
}

fn may_hold_for_nan(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_float = |column: &Column| {
        let field = schema.field_with_name(column.name());
        field.is_ok_and(|field| field.data_type().is_floating())
    };
    split_conjunction(predicate).into_iter().any(|condition| {
        collect_columns(condition).iter().any(is_float) && !fails_for_nan(condition.as_ref())
    })
}

/// Whether it is a comparison that no NaN fulfils, or asks only for NULL.
fn fails_for_nan(condition: &dyn PhysicalExpr) -> bool {
    if condition.is::<IsNullExpr>() || condition.is::<IsNotNullExpr>() {
        return true;
    }
    let Some(comparison) = condition.downcast_ref::<BinaryExpr>() else {
        return false;
    };
    let is_number = |side: &Arc<dyn PhysicalExpr>| {
        let number = side
            .downcast_ref::<Literal>()
            .map(|literal| literal.value());
        let number = number.and_then(|value| value.to_string().parse::<f64>().ok());
        number.is_some_and(|number| !number.is_nan())
    };
    let (left, right) = (comparison.left(), comparison.right());
    match comparison.op() {
        Operator::Lt | Operator::LtEq => left.is::<Column>() && is_number(right),
        Operator::Gt | Operator::GtEq => right.is::<Column>() && is_number(left),
        Operator::Eq => {
            (left.is::<Column>() && is_number(right)) || (right.is::<Column>() && is_number(left))
        }
        _ => false,
    }
}
