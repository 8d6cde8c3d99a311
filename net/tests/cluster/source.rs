//! A plan node that produces batches for ever and can be watched doing so.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use skewer_net::TaskEnd;

/// Rows of a batch; each has 8 bytes.
pub(crate) const ROWS: usize = 8_192;

/// What can be seen of a source.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Batches that it has produced.
    pub(crate) produced: AtomicU64,
    /// Streams that have been started and not dropped.
    pub(crate) running: AtomicI64,
    /// Streams that have ever been polled.
    pub(crate) polled: AtomicI64,
}

/// How a partition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Never,
    /// After so many batches.
    After(u64),
    /// With a division by zero after so many batches.
    DivisionByZero(u64),
    /// With a panic after so many batches.
    Panic(u64),
    /// When its task is over, and until then it keeps the thread that polls it.
    Busy,
}

static SOURCES: LazyLock<Mutex<HashMap<u64, Source>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone)]
pub(crate) struct Source {
    id: u64,
    ending: Ending,
    pub(crate) watch: Arc<Watch>,
    properties: Arc<PlanProperties>,
}

impl Source {
    pub(crate) fn new(partitions: usize, ending: Ending) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let source = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ending,
            watch: Arc::default(),
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(partitions),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
        };
        SOURCES.lock().unwrap().insert(source.id, source.clone());
        source
    }
}

impl DisplayAs for Source {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl ExecutionPlan for Source {
    fn name(&self) -> &str {
        "Source"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        struct Running(Arc<Watch>);
        impl Drop for Running {
            fn drop(&mut self) {
                self.0.running.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let watch = Arc::clone(&self.watch);
        watch.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&watch));
        let (schema, ending) = (self.schema(), self.ending);
        let end = context.session_config().get_extension::<TaskEnd>();
        let batches = futures::stream::unfold((0u64, running), move |(count, running)| {
            let (watch, schema) = (Arc::clone(&watch), Arc::clone(&schema));
            let end = end.clone();
            async move {
                if count == 0 {
                    watch.polled.fetch_add(1, Ordering::SeqCst);
                }
                if ending == Ending::Busy {
                    while !end.as_ref()?.is_over() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                let last = match ending {
                    Ending::Busy => 0,
                    Ending::Never => u64::MAX,
                    Ending::After(last) | Ending::DivisionByZero(last) | Ending::Panic(last) => {
                        last
                    }
                };
                let batch = match ending {
                    _ if count < last => {
                        watch.produced.fetch_add(1, Ordering::SeqCst);
                        let first = (partition as i64) << 40 | (count as i64 * ROWS as i64);
                        let numbers = first..first + ROWS as i64;
                        let numbers = Arc::new(Int64Array::from_iter_values(numbers));
                        RecordBatch::try_new(schema, vec![numbers]).map_err(DataFusionError::from)
                    }
                    Ending::DivisionByZero(_) if count == last => {
                        Err(ArrowError::DivideByZero.into())
                    }
                    Ending::Panic(_) => panic!("an operator with a bug"),
                    _ => return None,
                };
                Some((batch, (count + 1, running)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}

/// Sends a source's number: all nodes of a test are in one process.
#[derive(Debug)]
pub(crate) struct SourceCodec;

impl PhysicalExtensionCodec for SourceCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let id = buf.try_into().map(u64::from_le_bytes);
        match id
            .ok()
            .and_then(|id| SOURCES.lock().unwrap().get(&id).cloned())
        {
            Some(source) => Ok(Arc::new(source)),
            None => internal_err!("there is no such source"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.downcast_ref::<Source>() {
            Some(source) => buf.extend(source.id.to_le_bytes()),
            None => return internal_err!("that is no source"),
        }
        Ok(())
    }
}
