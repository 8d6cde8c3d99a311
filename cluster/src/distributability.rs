//! Which plans can be sent to workers.

use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_expr::window::SlidingAggregateWindowExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::windows::{
    BoundedWindowAggExec, PlainAggregateWindowExpr, WindowAggExec,
};
use datafusion_distributed::{
    DistributedCodec, DistributedExec, DistributedLeafExec, MaybeEncoded, NetworkBoundaryExt,
    ProducerHead,
};
use datafusion_proto::bytes::physical_plan_from_bytes_with_proto_converter;
use datafusion_proto::physical_plan::DeduplicatingProtoConverter;

use skewer_compat::operators::materialized::SharedRowsExec;
use skewer_exec::FrameCapture;

use crate::codec::encode_plan;
use crate::sys;

/// A leaf of a plan, as far as workers are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// A scan of segments: every worker reads its own.
    Segments,
    /// A scan of schema `sys`: every node of a cluster reads what it recorded. Workers have more of
    /// it than has been fetched already if it is `large`.
    Sys {
        /// Whether to move it is worth while.
        large: bool,
    },
    /// No rows, wherever it runs.
    Nothing,
    /// Rows that the plan itself has: one task returns them.
    Rows,
    /// What only this process has, as files in place, and schema `sys` without a cluster.
    Here,
}

impl Leaf {
    /// What a leaf is; segments are the files of `store`.
    pub fn of_plan(plan: &Arc<dyn ExecutionPlan>, store: &ObjectStoreUrl) -> Self {
        if plan.is::<EmptyExec>() {
            return Self::Nothing;
        }
        if plan.is::<PlaceholderRowExec>() {
            return Self::Rows;
        }
        if let Some(scan) = sys::scan_of_cluster(plan) {
            return Self::Sys {
                large: scan.asks_workers(),
            };
        }
        let Some(scan) = plan.downcast_ref::<DataSourceExec>() else {
            return Self::Here;
        };
        let source = scan.data_source();
        if source.downcast_ref::<MemorySourceConfig>().is_some() {
            return Self::Rows;
        }
        match source.downcast_ref::<FileScanConfig>() {
            Some(files) if files.object_store_url == *store => Self::Segments,
            _ => Self::Here,
        }
    }
}

/// Why a plan runs as it is, on one worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDistributable {
    /// Nothing of it is on workers.
    #[error("it reads nothing that workers have")]
    NoSegments,
    /// It reads what workers do not have.
    #[error("{0} reads what only this process has")]
    ReadsHere(String),
    /// Its rows come back to it, or it is about a plan.
    #[error("{0} does not run on workers")]
    Operator(String),
    /// All of it is in one task.
    #[error("it has no exchange")]
    NoExchange,
    /// It cannot be cut, or encoded, or decoded.
    #[error("it cannot be sent: {0}")]
    Refused(String),
}

impl NotDistributable {
    pub(crate) fn refused(error: &DataFusionError) -> Self {
        Self::Refused(error.strip_backtrace())
    }
}

/// Whether all that `plan` reads is on workers, and all that it does can be done there.
///
/// # Errors
/// Why not.
pub fn can_be_cut(
    plan: &Arc<dyn ExecutionPlan>,
    store: &ObjectStoreUrl,
) -> Result<(), NotDistributable> {
    let mut segments = false;
    let mut stays = None;
    let walked = plan.apply(|node| {
        if node.is::<RecursiveQueryExec>()
            || node.is::<SharedRowsExec>()
            || node.is::<ScalarSubqueryExec>()
            || node.is::<ExplainExec>()
            || node.is::<AnalyzeExec>()
        {
            stays = Some(NotDistributable::Operator(node.name().to_owned()));
            return Ok(TreeNodeRecursion::Stop);
        }
        if loses_something(node) {
            stays = Some(NotDistributable::Operator(
                "a window with FILTER or IGNORE NULLS, or from its end".to_owned(),
            ));
            return Ok(TreeNodeRecursion::Stop);
        }
        if node.children().is_empty() {
            match Leaf::of_plan(node, store) {
                Leaf::Segments | Leaf::Sys { large: true } => segments = true,
                Leaf::Nothing | Leaf::Rows | Leaf::Sys { large: false } => {}
                Leaf::Here => {
                    stays = Some(NotDistributable::ReadsHere(node.name().to_owned()));
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match (walked, stays) {
        (Err(error), _) => Err(NotDistributable::refused(&error)),
        (Ok(_), Some(stays)) => Err(stays),
        (Ok(_), None) if !segments => Err(NotDistributable::NoSegments),
        (Ok(_), None) => Ok(()),
    }
}

/// Whether `plan` is a window of which DataFusion 55.2 does not encode everything: filters, whether
/// NULLs are ignored, and whether a function is evaluated backwards would be gone on the other side.
/// Only the text of a window function tells.
fn loses_something(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let windows = if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        window.window_expr()
    } else if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        window.window_expr()
    } else {
        return false;
    };
    windows.iter().any(|window| {
        let function = window.as_any();
        let aggregate = match function.downcast_ref::<PlainAggregateWindowExpr>() {
            Some(plain) => Some(plain.get_aggregate_expr()),
            None => function
                .downcast_ref::<SlidingAggregateWindowExpr>()
                .map(SlidingAggregateWindowExpr::get_aggregate_expr),
        };
        if aggregate.is_some_and(|aggregate| aggregate.fun().inner().is::<FrameCapture>()) {
            return false;
        }
        let text = format!("{window:?}");
        ["filter: Some(", "ignore_nulls: true", "is_reversed: true"]
            .into_iter()
            .any(|lost| text.contains(lost))
    })
}

/// Whether the parts of a plan that has been cut come back from their bytes: what cannot be
/// decoded must not be sent.
///
/// # Errors
/// Why not.
pub fn can_be_sent(
    cut: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<(), NotDistributable> {
    there_and_back(cut, context).map_err(|error| NotDistributable::refused(&error))
}

fn there_and_back(
    cut: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> datafusion::common::Result<()> {
    let plan = match cut.is::<DistributedExec>() {
        true => cut.children()[0],
        false => cut,
    };
    // Each task is sent its own part of a leaf.
    let plan = Arc::clone(plan).transform_up(|node| {
        let part = node
            .downcast_ref::<DistributedLeafExec>()
            .and_then(|leaf| leaf.variants().first().cloned());
        Ok(match part {
            Some(part) => Transformed::yes(part),
            None => Transformed::no(node),
        })
    })?;
    // What exchanges deal rows by is sent beside the plan, too.
    plan.data.apply(|node| {
        if let Some(exchange) = node.as_network_boundary()
            && let ProducerHead::RepartitionExec { partitioning } = exchange.producer_head(1)?
        {
            let bytes = MaybeEncoded::Encoded(partitioning.encode(context)?);
            bytes.decode(node.schema(), context)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let bytes = encode_plan(MaybeEncoded::Decoded(plan.data))?.encode(context)?;
    let codec = DistributedCodec::new_combined_with_user(context.session_config());
    let converter = DeduplicatingProtoConverter::default();
    physical_plan_from_bytes_with_proto_converter(&bytes, context, &codec, &converter)?;
    Ok(())
}
