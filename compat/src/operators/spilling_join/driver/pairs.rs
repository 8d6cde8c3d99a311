//! Joins of what is on disk: rows of both sides with the same part of keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::compute::{filter_record_batch, is_not_null};
use datafusion::common::{Result, internal_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use parking_lot::Mutex;

use super::super::blocks::{Blocks, in_memory, one_after_the_other};
use super::super::build::{Collector, OnDisk, portion};
use super::super::disk::{Disk, Parts};
use super::super::probe::{GoingOn, Splitter};
use super::super::spec::Spec;
use super::super::stage::reservation;
use super::{Driver, InMemory, Work};

/// After so many splits a part is joined in blocks.
const DEPTHS: usize = 6;

/// Rows of both sides with the same part of keys.
pub(super) struct Pair {
    build: Arc<OnDisk>,
    probes: Vec<Arc<Parts>>,
    part: usize,
    /// `NOT IN` whose list has rows: build rows without key are none of its results.
    drops_null_keys: bool,
}

impl Driver {
    /// What was in memory is joined: the parts on disk come next.
    pub(super) async fn end_in_memory(&mut self) -> Result<()> {
        let Some(Work::InMemory(join)) = self.at_work.take() else {
            return Ok(());
        };
        let InMemory {
            rows,
            built,
            splitter,
            shared,
        } = join;
        drop(rows);
        let (Some(build), Some(splitter)) = (built.on_disk.clone(), splitter) else {
            return Ok(());
        };
        // The hash table is gone.
        drop(built);
        // A join without build rows does not ask for all probe rows.
        let mut others = GoingOn(Arc::clone(&splitter));
        while let Some(batch) = others.next().await {
            batch?;
        }
        let written = splitter.lock().take_written();
        let mut probes: Vec<_> = written.map(Arc::new).into_iter().collect();
        let mut drops_null_keys = false;
        if let Some((rest, partitions)) = shared {
            if self.spec.returns_build_at_end() {
                rest.probes.lock().append(&mut probes);
                // The last one joins what all have written.
                if rest.through.fetch_add(1, Ordering::AcqRel) + 1 < partitions {
                    return Ok(());
                }
                probes = std::mem::take(&mut *rest.probes.lock());
            }
            if self.spec.null_aware && rest.seen.null_key.load(Ordering::Acquire) {
                return Ok(());
            }
            drops_null_keys = self.spec.null_aware && rest.seen.rows.load(Ordering::Acquire);
        }
        self.pairs.extend((0..build.parts.len()).map(|part| Pair {
            build: Arc::clone(&build),
            probes: probes.clone(),
            part,
            drops_null_keys,
        }));
        Ok(())
    }

    pub(super) async fn begin_pair(&mut self, pair: Pair) -> Result<()> {
        let part = pair.part;
        let probe_rows: usize = pair.probes.iter().map(|probe| probe.rows(part)).sum();
        if pair.build.parts.rows(part) == 0 || (probe_rows == 0 && !self.spec.keeps_build()) {
            return Ok(());
        }
        let build = self.build_rows(&pair)?;
        let depth = pair.build.depth + 1;
        if pair.build.one_key[part] || depth > DEPTHS {
            let (spec, probes) = (Arc::clone(&self.spec), pair.probes);
            let blocks = Blocks::new(
                &self.spec,
                &self.unaccounted,
                build,
                Box::new(move || rows_of(&spec, &probes, part)),
                reservation(&self.context, self.partition),
            );
            self.at_work = Some(Work::Blocks(Box::new(blocks)));
            return Ok(());
        }
        let collector = Collector {
            spec: &self.spec,
            depth,
            disk: self.disk(),
            reservation: reservation(&self.context, self.partition),
            context: &self.context,
            all_or_nothing: false,
        };
        let built = Arc::new(collector.collect(build).await?);
        if let Some(counted) = &self.counted {
            counted.build_memory.set_max(built.reservation.size());
        }
        let mut probe = rows_of(&self.spec, &pair.probes, part);
        let splitter = built.on_disk.as_ref().map(|on_disk| {
            let probe = std::mem::replace(&mut probe, in_memory(&self.spec.probe_schema, vec![]));
            let splitter = Splitter::new(&self.spec, probe, on_disk, self.disk())
                .with_portion(portion(&self.context), built.reservation.new_empty());
            Arc::new(Mutex::new(splitter))
        });
        if let Some(splitter) = &splitter {
            probe = Box::pin(GoingOn(Arc::clone(splitter)));
        }
        let probe = (self.spec.pace)(probe, &self.context);
        let inputs = self.inputs(PartitionMode::Partitioned, 1)?;
        let rows = self.start_join(&inputs, &built, 0, probe)?;
        self.begin_run();
        self.at_work = Some(Work::InMemory(InMemory {
            rows,
            built,
            splitter,
            shared: None,
        }));
        Ok(())
    }

    fn disk(&self) -> Disk {
        match &self.counted {
            Some(counted) => counted.disk.clone(),
            None => Disk::new(&self.context, &self.metrics, self.partition),
        }
    }

    fn build_rows(&self, pair: &Pair) -> Result<SendableRecordBatchStream> {
        let rows = pair.build.parts.read(pair.part);
        if !pair.drops_null_keys {
            return Ok(rows);
        }
        let Some(key) = self.spec.build_key().cloned() else {
            return internal_err!("a join without keys minds their NULLs");
        };
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let key = key.evaluate(&batch)?.into_array(batch.num_rows())?;
            Ok(filter_record_batch(&batch, &is_not_null(&key)?)?)
        });
        let schema = Arc::clone(&self.spec.build_schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The rows of one part of several probe sides.
fn rows_of(spec: &Spec, probes: &[Arc<Parts>], part: usize) -> SendableRecordBatchStream {
    let streams = probes.iter().map(|probe| probe.read(part)).collect();
    one_after_the_other(&spec.probe_schema, streams)
}
