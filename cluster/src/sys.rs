//! Which node scans what of schema `sys`: each what it recorded itself.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedLeafExec;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use serde::{Deserialize, Serialize};
use skewer_profiling::{DistributedScan, ScanDescription, SysScan, SysTables};

use crate::workers::Workers;

/// The scan of a table of which nodes may have parts, if `plan` is one.
pub(crate) fn scan_of_cluster(plan: &Arc<dyn ExecutionPlan>) -> Option<&SysScan> {
    let scan = plan.downcast_ref::<SysScan>()?;
    scan.is_of_cluster().then_some(scan)
}

/// The scan `plan`, of which task *i* reads what worker *i* recorded.
pub(crate) fn placed(
    plan: Arc<dyn ExecutionPlan>,
    workers: &Workers,
    tasks: usize,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let nodes: Vec<u32> = workers.list().iter().map(|at| at.number).collect();
    if tasks != nodes.len() {
        return exec_err!("{tasks} tasks for what {} nodes recorded", nodes.len());
    }
    let Some(scans) = scan_of_cluster(&plan).and_then(|scan| scan.placed(&nodes, partitions))
    else {
        return exec_err!(
            "the master, which has a part of {}, takes no part",
            plan.name()
        );
    };
    let scans = scans.into_iter().map(|scan| Arc::new(scan) as _);
    let leaf = DistributedLeafExec::try_new(Arc::clone(&plan), scans)?;
    Ok(Arc::new(leaf))
}

/// What a node reads, for people.
pub(crate) fn read_by(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let scan = plan.downcast_ref::<DistributedScan>()?;
    Some(match scan.workers() {
        [] => "what it recorded".to_owned(),
        others => format!("what it recorded, and what workers {others:?} did"),
    })
}

/// A [`DistributedScan`] as it travels.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EncodedScan {
    description: ScanDescription,
    /// The condition that chunks must meet, as DataFusion encodes it.
    condition: Option<Vec<u8>>,
}

/// `plan` as it travels, if it is a [`DistributedScan`].
pub(crate) fn encode(
    plan: &dyn ExecutionPlan,
    codec: &dyn PhysicalExtensionCodec,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Option<EncodedScan>> {
    let Some(scan) = plan.downcast_ref::<DistributedScan>() else {
        return Ok(None);
    };
    let (description, condition) = scan.describe();
    let condition = condition.map(|condition| {
        let node = converter.physical_expr_to_proto(condition, codec)?;
        Ok::<_, DataFusionError>(node.encode_to_vec())
    });
    Ok(Some(EncodedScan {
        description,
        condition: condition.transpose()?,
    }))
}

/// What came, as a scan of what this node has.
pub(crate) fn decode(
    scan: EncodedScan,
    codec: &dyn PhysicalExtensionCodec,
    context: &TaskContext,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let EncodedScan {
        description,
        condition,
    } = scan;
    let Some(sys) = context.session_config().get_extension::<SysTables>() else {
        return internal_err!("a scan of schema sys came to a task that has none");
    };
    let condition = condition.map(|bytes| {
        let node = PhysicalExprNode::decode(bytes.as_slice())
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        let schema = description.condition_schema()?;
        let decoding = PhysicalPlanDecodeContext::new(context, codec);
        converter.proto_to_physical_expr(&node, &schema, &decoding)
    });
    Ok(Arc::new(sys.scan_of(description, condition.transpose()?)?))
}
