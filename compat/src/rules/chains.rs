//! Long chains of AND and OR, which DataFusion's rules make deep trees of, whatever they were.
//!
//! What looks at each part of a tree with all that is in it, as for its type, takes the square of the depth.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::expressions::BinaryExpr as PhysicalBinary;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};

/// Chains of so many are left as they are.
const SHORT: usize = 64;

/// Makes flat trees of the conditions of filters and joins, in logical plans.
#[derive(Debug)]
pub struct FlatChains;

impl OptimizerRule for FlatChains {
    fn name(&self) -> &'static str {
        "flat_chains"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        node: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &node {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
                node.map_expressions(|expression| Ok(flat(expression)))
            }
            _ => Ok(Transformed::no(node)),
        }
    }
}

fn flat(expression: Expr) -> Transformed<Expr> {
    let operator = match &expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) if matches!(op, Operator::And | Operator::Or) => {
            *op
        }
        _ => return Transformed::no(expression),
    };
    let mut length = 1;
    let mut first = &expression;
    while let Expr::BinaryExpr(BinaryExpr { left, op, .. }) = first
        && *op == operator
    {
        length += 1;
        first = left;
    }
    if length <= SHORT {
        return Transformed::no(expression);
    }
    let mut operands = Vec::with_capacity(length);
    let mut rest = expression;
    let first = loop {
        match rest {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == operator => {
                operands.push(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    operands.push(first);
    operands.reverse();
    let joined = halved(operands, |left, right| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
    });
    Transformed::yes(joined)
}

/// Joins neighbours until one is left of parts that are not none.
fn halved<T>(mut parts: Vec<T>, join: impl Fn(T, T) -> T) -> T {
    while parts.len() > 1 {
        let mut fewer = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            fewer.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        parts = fewer;
    }
    parts.swap_remove(0)
}

/// A flat tree of a condition that is a long chain of AND; nothing if it is none.
fn flat_condition(condition: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let mut length = 1;
    let mut first = condition;
    while let Some(binary) = first.downcast_ref::<PhysicalBinary>()
        && *binary.op() == Operator::And
    {
        length += 1;
        first = binary.left();
    }
    if length <= SHORT {
        return None;
    }
    let operands = split_conjunction(condition);
    let operands = operands.into_iter().map(Arc::clone).collect();
    Some(halved(operands, |left, right| {
        Arc::new(PhysicalBinary::new(left, Operator::And, right)) as _
    }))
}

/// `source` with a flat tree, if it reads Parquet and its condition is a long chain of AND.
pub fn flat_source(source: &Arc<dyn FileSource>) -> Option<Arc<dyn FileSource>> {
    let source = source.downcast_ref::<ParquetSource>()?;
    let condition = flat_condition(&source.filter()?)?;
    Some(Arc::new(source.with_predicate(condition)))
}

/// The same of filters and of scans of Parquet, in physical plans.
#[derive(Debug)]
pub struct FlatConditions;

impl PhysicalOptimizerRule for FlatConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let flat = plan.transform_up(|plan| {
            if let Some(filter) = plan.downcast_ref::<FilterExec>()
                && let Some(condition) = flat_condition(filter.predicate())
            {
                let filter = FilterExecBuilder::from(filter).with_predicate(condition);
                return Ok(Transformed::yes(Arc::new(filter.build()?) as _));
            }
            if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
                && let Some(files) = scan.data_source().downcast_ref::<FileScanConfig>()
                && let Some(source) = flat_source(files.file_source())
            {
                let files = FileScanConfigBuilder::from(files.clone()).with_source(source);
                let scan = DataSourceExec::from_data_source(files.build());
                return Ok(Transformed::yes(scan as _));
            }
            Ok(Transformed::no(plan))
        })?;
        Ok(flat.data)
    }

    fn name(&self) -> &'static str {
        "flat_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
