//! Which plans can be sent to workers.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion_distributed::{DistributedCodec, MaybeEncoded};
use datafusion_proto::bytes::physical_plan_from_bytes_with_extension_codec;

/// A leaf of a plan, as far as workers are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// A scan of segments: every worker reads its own.
    Segments,
    /// No rows, wherever it runs.
    Nothing,
    /// Rows that the plan itself has: one task returns them.
    Rows,
    /// What only this process has, as schema `sys` and files in place.
    Here,
}

impl Leaf {
    /// What a leaf is; segments are the files of `store`.
    pub fn of(plan: &Arc<dyn ExecutionPlan>, store: &ObjectStoreUrl) -> Self {
        if plan.is::<EmptyExec>() {
            return Self::Nothing;
        }
        if plan.is::<PlaceholderRowExec>() {
            return Self::Rows;
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
pub enum Stays {
    /// Nothing of it is on workers.
    #[error("it reads no segments")]
    NoSegments,
    /// It reads what workers do not have.
    #[error("{0} reads what only this process has")]
    ReadsHere(String),
    /// Its rows come back to it, or it is about a plan.
    #[error("{0} does not run on workers")]
    Operator(String),
    /// There is no encoding for a part of it.
    #[error("it cannot be encoded: {0}")]
    NotEncodable(String),
}

/// Whether all of `plan` can be sent to workers.
///
/// # Errors
/// Why not.
pub fn can_travel(
    plan: &Arc<dyn ExecutionPlan>,
    store: &ObjectStoreUrl,
    context: &Arc<TaskContext>,
) -> Result<(), Stays> {
    let mut segments = false;
    let mut stays = None;
    let walked = plan.apply(|node| {
        if node.is::<RecursiveQueryExec>() || node.is::<ExplainExec>() || node.is::<AnalyzeExec>() {
            stays = Some(Stays::Operator(node.name().to_owned()));
            return Ok(TreeNodeRecursion::Stop);
        }
        if node.children().is_empty() {
            match Leaf::of(node, store) {
                Leaf::Segments => segments = true,
                Leaf::Nothing | Leaf::Rows => {}
                Leaf::Here => {
                    stays = Some(Stays::ReadsHere(node.name().to_owned()));
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    if let Err(error) = walked {
        return Err(Stays::NotEncodable(error.to_string()));
    }
    match stays {
        Some(stays) => Err(stays),
        None if !segments => Err(Stays::NoSegments),
        None => round_trip(plan, context),
    }
}

/// There and back: what cannot be decoded must not be sent.
fn round_trip(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<(), Stays> {
    let refused =
        |error: datafusion::common::DataFusionError| Stays::NotEncodable(error.strip_backtrace());
    let bytes = MaybeEncoded::Decoded(Arc::clone(plan))
        .encode(context)
        .map_err(refused)?;
    let codec = DistributedCodec::new_combined_with_user(context.session_config());
    physical_plan_from_bytes_with_extension_codec(&bytes, context, &codec).map_err(refused)?;
    Ok(())
}
