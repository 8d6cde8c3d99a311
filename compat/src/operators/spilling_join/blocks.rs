//! Joining a part that no hash splits any further: each block of its build side that fits into memory
//! with all of its probe side.
//!
//! What build rows get is known at the end of their block. Whether a probe row has a partner is known at
//! the end of all blocks: probe rows are numbered, and a bit of each says whether it had one.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::array::{BooleanBufferBuilder, new_null_array};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{JoinType, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::build::table_bytes;
use super::pieces::batch_of;
use super::probe::with_numbers;
use super::spec::{Spec, numbered};

/// Gives the probe side of a part from its beginning.
pub(super) type Probe = Box<dyn Fn() -> SendableRecordBatchStream + Send>;

/// A join of a part, block by block.
pub(super) struct Blocks {
    spec: Arc<Spec>,
    context: Arc<TaskContext>,
    build: Option<SendableRecordBatchStream>,
    /// A build batch that did not fit into the last block.
    next: Option<RecordBatch>,
    probe: Probe,
    /// That of probe rows with their numbers.
    schema: SchemaRef,
    reservation: MemoryReservation,
    /// Which probe rows had a partner.
    matched: BooleanBufferBuilder,
    state: State,
}

enum State {
    /// Between two blocks.
    Between,
    Joining(SendableRecordBatchStream),
    /// Returns probe rows by whether they had a partner.
    Finishing(SendableRecordBatchStream, usize),
    Done,
}

/// What comes next.
pub(super) enum Next {
    /// Rows, in the order of the probe side since the last time that another turn began.
    Rows(RecordBatch),
    /// Another turn through the probe side.
    Turn,
    Nothing,
}

impl Blocks {
    pub(super) fn new(
        spec: &Arc<Spec>,
        context: &Arc<TaskContext>,
        build: SendableRecordBatchStream,
        probe: Probe,
        reservation: MemoryReservation,
    ) -> Self {
        Self {
            spec: Arc::clone(spec),
            context: Arc::clone(context),
            build: Some(build),
            next: None,
            probe,
            schema: numbered(&spec.probe_schema),
            reservation,
            matched: BooleanBufferBuilder::new(0),
            state: State::Between,
        }
    }

    /// Whether it matters for probe rows whether they have a partner.
    fn marks(&self) -> bool {
        self.spec.keeps_probe() || self.spec.kind == JoinType::RightSemi
    }

    /// How a block is joined, and which columns it returns.
    fn of_block(&self) -> (JoinType, Vec<usize>) {
        let extra = self.spec.numbers() + usize::from(self.marks());
        match self.spec.kind {
            JoinType::Right => (JoinType::Inner, self.spec.columns(extra)),
            JoinType::Full => (JoinType::Left, self.spec.columns(extra)),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                let columns = self.spec.extra_columns(JoinType::RightSemi, extra);
                (JoinType::RightSemi, columns)
            }
            kind => (kind, self.spec.columns(extra)),
        }
    }

    /// # Errors
    /// Those of joining, and of reading temporary files.
    pub(super) async fn next(&mut self) -> Result<Next> {
        loop {
            match &mut self.state {
                State::Between => match self.block().await? {
                    Some(block) => {
                        self.state = State::Joining(self.join(block)?);
                        return Ok(Next::Turn);
                    }
                    None if self.marks() => {
                        self.state = State::Finishing((self.probe)(), 0);
                        return Ok(Next::Turn);
                    }
                    None => self.state = State::Done,
                },
                State::Joining(stream) => match stream.next().await.transpose()? {
                    Some(batch) => {
                        if let Some(rows) = self.marked(batch)? {
                            return Ok(Next::Rows(rows));
                        }
                    }
                    None => {
                        self.reservation.free();
                        self.state = State::Between;
                    }
                },
                State::Finishing(stream, first) => match stream.next().await.transpose()? {
                    Some(batch) => {
                        let from = *first;
                        *first += batch.num_rows();
                        return Ok(Next::Rows(self.finished(&batch, from)?));
                    }
                    None => self.state = State::Done,
                },
                State::Done => return Ok(Next::Nothing),
            }
        }
    }

    /// The next build rows, as many as fit, and one batch at least.
    async fn block(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let mut block = vec![];
        let (mut bytes, mut rows) = (0, 0);
        while let Some(build) = &mut self.build {
            let batch = match self.next.take() {
                Some(batch) => Some(batch),
                None => build.next().await.transpose()?,
            };
            let Some(batch) = batch else {
                self.build = None;
                break;
            };
            bytes += get_record_batch_memory_size(&batch);
            rows += batch.num_rows();
            let needed = bytes + table_bytes(&self.spec, rows)?;
            if self.reservation.try_resize(needed).is_err() {
                if !block.is_empty() {
                    self.next = Some(batch);
                    break;
                }
                self.reservation.resize(needed);
            }
            block.push(batch);
        }
        Ok((!block.is_empty()).then_some(block))
    }

    fn join(&mut self, block: Vec<RecordBatch>) -> Result<SendableRecordBatchStream> {
        let (kind, columns) = self.of_block();
        let schema = match self.marks() {
            true => &self.schema,
            false => &self.spec.probe_schema,
        };
        let mode = PartitionMode::Partitioned;
        let inputs = self.spec.part(kind, mode, schema, 1, columns)?;
        inputs
            .left
            .put(0, in_memory(&self.spec.build_schema, block));
        let mut probe = (self.probe)();
        if self.marks() {
            probe = with_numbers(&self.schema, probe);
        }
        let probe = (self.spec.pace)(probe, &self.context);
        inputs.right.put(0, probe);
        inputs.join.execute(0, Arc::clone(&self.context))
    }

    /// Notes the partners of a block, and returns its rows if they are the join's.
    fn marked(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        if !self.marks() {
            return Ok(Some(batch));
        }
        let number = batch.num_columns() - 1;
        let numbers = batch.column(number).as_primitive::<UInt64Type>();
        for number in numbers.iter().flatten() {
            let number = number as usize;
            if self.matched.len() <= number {
                self.matched
                    .append_n(number + 1 - self.matched.len(), false);
            }
            self.matched.set_bit(number, true);
        }
        let is_result = matches!(self.spec.kind, JoinType::Right | JoinType::Full);
        let columns: Vec<usize> = (0..number).collect();
        Ok(match is_result {
            true => Some(batch.project(&columns)?),
            false => None,
        })
    }

    /// What the join returns of these probe rows, of which the first has this number, after all blocks.
    fn finished(&mut self, batch: &RecordBatch, first: usize) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        if self.matched.len() < first + rows {
            self.matched
                .append_n(first + rows - self.matched.len(), false);
        }
        let matched: BooleanArray = (first..first + rows)
            .map(|row| Some(self.matched.get_bit(row)))
            .collect();
        let kind = self.spec.kind;
        let wanted = match kind {
            JoinType::RightMark => None,
            JoinType::RightSemi => Some(matched.clone()),
            _ => Some(datafusion::arrow::compute::not(&matched)?),
        };
        let (batch, matched) = match wanted {
            Some(wanted) => (filter_record_batch(batch, &wanted)?, None),
            None => (batch.clone(), Some(matched)),
        };
        let rows = batch.num_rows();
        let mut columns: Vec<ArrayRef> = vec![];
        if matches!(kind, JoinType::Right | JoinType::Full) {
            let fields = self.spec.build_schema.fields().iter();
            columns.extend(fields.map(|field| new_null_array(field.data_type(), rows)));
        }
        let own = batch.columns().iter().take(self.spec.probe_width);
        columns.extend(own.cloned());
        if let Some(matched) = matched {
            columns.push(Arc::new(matched));
        }
        let shown = self.spec.own_columns().iter();
        let mut shown: Vec<ArrayRef> = shown.map(|&column| Arc::clone(&columns[column])).collect();
        let numbers = batch.columns().iter().skip(self.spec.probe_width);
        shown.extend(numbers.cloned());
        let schema = match self.spec.ordered {
            true => numbered(&self.spec.schema),
            false => Arc::clone(&self.spec.schema),
        };
        batch_of(&schema, shown, rows)
    }
}

/// A stream of batches that are there.
pub(super) fn in_memory(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
) -> SendableRecordBatchStream {
    let batches = futures::stream::iter(batches).map(Ok);
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), batches))
}

/// The rows of several streams, one after the other.
pub(super) fn one_after_the_other(
    schema: &SchemaRef,
    streams: Vec<SendableRecordBatchStream>,
) -> SendableRecordBatchStream {
    let rows = futures::stream::iter(streams).flatten();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
}
