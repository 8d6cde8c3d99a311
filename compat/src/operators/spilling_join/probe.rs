//! Splitting the probe side: rows whose partners are in memory go on, others to disk.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

use super::build::OnDisk;
use super::disk::{Disk, Parts, PartsWriter};
use super::keys::{Hashed, Keys, PARTS, part_of};
use super::pieces::{self, NOWHERE, batch_of};
use super::spec::Spec;
use crate::operators::batch_bytes::estimated_batch_bytes;

/// The piece of rows that go on.
const GOES_ON: u32 = PARTS as u32;

/// What the probe sides of all partitions have told of themselves, for `NOT IN`.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) rows: AtomicBool,
    pub(super) null_key: AtomicBool,
}

/// A probe side that is being split.
pub(super) struct Splitter {
    spec: Arc<Spec>,
    input: Option<SendableRecordBatchStream>,
    keys: Keys,
    on_disk: Arc<OnDisk>,
    portion: usize,
    gathered: Vec<RecordBatch>,
    gathered_bytes: usize,
    going_on: VecDeque<RecordBatch>,
    writer: Option<PartsWriter>,
    written: Option<Parts>,
    seen: Arc<Seen>,
    _reservation: Option<MemoryReservation>,
}

impl Splitter {
    pub(super) fn new(
        spec: &Arc<Spec>,
        input: SendableRecordBatchStream,
        on_disk: &Arc<OnDisk>,
        disk: Disk,
    ) -> Self {
        Self {
            keys: spec.probe_keys(on_disk.depth),
            writer: Some(PartsWriter::new(disk, Arc::clone(&spec.probe_schema))),
            spec: Arc::clone(spec),
            input: Some(input),
            on_disk: Arc::clone(on_disk),
            portion: 0,
            gathered: vec![],
            gathered_bytes: 0,
            going_on: VecDeque::new(),
            written: None,
            seen: Arc::default(),
            _reservation: None,
        }
    }

    /// How much to gather before it is split, in bytes, or less if memory is short.
    pub(super) fn with_portion(mut self, portion: usize, reservation: MemoryReservation) -> Self {
        self.portion = match reservation.try_grow(portion) {
            Ok(()) => portion,
            Err(_) => portion / 4,
        };
        self._reservation = Some(reservation);
        self
    }

    /// Where to tell of rows and their keys.
    pub(super) fn telling(mut self, seen: &Arc<Seen>) -> Self {
        self.seen = Arc::clone(seen);
        self
    }

    /// What was written, once all rows have gone through.
    pub(super) fn take_written(&mut self) -> Option<Parts> {
        self.written.take()
    }

    fn split(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let targets: Vec<Vec<u32>> = batches
            .iter()
            .map(|batch| Ok(self.targets(&self.keys.hash(batch)?)))
            .collect::<Result<_>>()?;
        let schema = &self.spec.probe_schema;
        let mut pieces = pieces::split(schema, &batches, &targets, PARTS + 1)?;
        drop(batches);
        self.going_on.extend(pieces.pop().flatten());
        if let Some(writer) = &mut self.writer {
            for (part, piece) in pieces.into_iter().enumerate() {
                if let Some(piece) = piece {
                    writer.append(part, &piece)?;
                }
            }
        }
        Ok(())
    }

    fn targets(&self, hashed: &Hashed) -> Vec<u32> {
        let without_partner = match self.spec.keeps_probe() {
            true => GOES_ON,
            false => NOWHERE,
        };
        if self.spec.null_aware && !hashed.hashes.is_empty() {
            self.seen.rows.store(true, Ordering::Relaxed);
            if hashed.matchable.is_some() {
                self.seen.null_key.store(true, Ordering::Relaxed);
            }
        }
        let rows = hashed.hashes.iter().enumerate();
        rows.map(|(row, &hash)| {
            if !hashed.can_match(row) {
                return without_partner;
            }
            let part = part_of(hash);
            let filter = self.on_disk.filter.as_ref();
            match self.on_disk.spilled[part] {
                false => GOES_ON,
                true if filter.is_some_and(|filter| !filter.may_contain(hash)) => without_partner,
                true => part as u32,
            }
        })
        .collect()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if let Some(batch) = self.going_on.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            let Some(input) = &mut self.input else {
                return Poll::Ready(None);
            };
            match ready!(input.as_mut().poll_next(cx)).transpose()? {
                Some(batch) => {
                    self.gathered_bytes += estimated_batch_bytes(&batch);
                    self.gathered.push(batch);
                    if self.gathered_bytes >= self.portion {
                        self.split()?;
                    }
                }
                None => {
                    self.input = None;
                    self.split()?;
                    if let Some(writer) = self.writer.take() {
                        self.written = Some(writer.finish()?);
                    }
                }
            }
        }
    }
}

/// A splitter's rows that go on.
pub(super) struct GoingOn(pub(super) Arc<Mutex<Splitter>>);

impl Stream for GoingOn {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().poll_next(cx)
    }
}

impl RecordBatchStream for GoingOn {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.lock().spec.probe_schema)
    }
}

/// The same rows, and behind their columns one with their numbers from 0 on; `schema` has it.
pub(super) fn with_numbers(
    schema: &SchemaRef,
    rows: SendableRecordBatchStream,
) -> SendableRecordBatchStream {
    let numbered_schema = Arc::clone(schema);
    let mut next = 0;
    let numbered = rows.map(move |batch| {
        let batch = batch?;
        let rows = batch.num_rows() as u64;
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(next..next + rows));
        next += rows;
        let columns = batch.columns().iter().cloned().chain([numbers]).collect();
        batch_of(&numbered_schema, columns, batch.num_rows())
    });
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), numbered))
}
