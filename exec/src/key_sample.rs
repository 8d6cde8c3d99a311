//! Which keys an exchange hashes most, from a few rows of every batch.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use parking_lot::Mutex;
use skewer_profiling::heavy_keys::HeavyKeys;
use skewer_profiling::{KeyFrequency, Recorder};

/// Rows looked at in a full batch: formatting their keys takes about 3 µs, which is less than
/// half a nanosecond for each of its 8,192 rows.
const ROWS_PER_BATCH: usize = 16;

/// One row is looked at for at least this many, so that small batches do not cost more.
const ROWS_PER_SAMPLE: usize = 64;

/// Keys remembered: a key with a hundredth of the rows is never forgotten.
const REMEMBERED: usize = 128;

/// Share of an exchange's rows from which on a key is heavy.
const HEAVY: f64 = 0.01;

/// A key seen less often than this in the sample may be chance.
const SEEN_AT_LEAST: f64 = 4.0;

/// Samples the keys of all partitions that go into one exchange. Reports to the recorder when it
/// is dropped, with the plan.
#[derive(Debug)]
pub struct KeySample {
    recorder: Arc<Recorder>,
    exchange_id: i64,
    /// Indices of the key's columns.
    columns: Vec<usize>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    keys: HeavyKeys<String>,
    rows: u64,
    samples: u64,
    /// State of the generator that picks rows.
    random: u64,
}

impl KeySample {
    /// A sample of the keys of `exchange`, if it hashes plain columns.
    pub fn of_exchange(
        exchange: &dyn ExecutionPlan,
        exchange_id: i64,
        recorder: &Arc<Recorder>,
    ) -> Option<Self> {
        let exchange = exchange.downcast_ref::<RepartitionExec>()?;
        let Partitioning::Hash(keys, _) = exchange.partitioning() else {
            return None;
        };
        let columns = keys
            .iter()
            .map(|key| Some(key.downcast_ref::<Column>()?.index()))
            .collect::<Option<_>>()?;
        Some(Self::new(columns, exchange_id, recorder))
    }

    /// A sample of the keys in `columns` of what goes into exchange `exchange_id`.
    pub fn new(columns: Vec<usize>, exchange_id: i64, recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            exchange_id,
            columns,
            counts: Mutex::new(Counts {
                keys: HeavyKeys::new(REMEMBERED),
                rows: 0,
                samples: 0,
                random: 0x9e37_79b9_7f4a_7c15,
            }),
        }
    }

    /// The exchange whose keys are counted.
    pub fn exchange_id(&self) -> i64 {
        self.exchange_id
    }

    /// Indices of the key's columns.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Counts the keys of some rows of a batch, each for its share of the batch.
    pub fn observe(&self, batch: &RecordBatch) {
        let rows = batch.num_rows();
        if rows == 0 {
            return;
        }
        let looked_at = rows.div_ceil(ROWS_PER_SAMPLE).min(ROWS_PER_BATCH);
        let options = FormatOptions::default().with_null("NULL");
        let column = |index: &usize| -> Option<&ArrayRef> { batch.columns().get(*index) };
        let Some(columns) = self
            .columns
            .iter()
            .map(|index| ArrayFormatter::try_new(column(index)?.as_ref(), &options).ok())
            .collect::<Option<Vec<_>>>()
        else {
            return;
        };
        let mut counts = self.counts.lock();
        counts.rows += rows as u64;
        counts.samples += looked_at as u64;
        for sample in 0..looked_at {
            // A row of each of `looked_at` equal parts, at a place that differs from batch to
            // batch: keys that recur at a fixed distance are not favoured.
            let part = rows * sample / looked_at..rows * (sample + 1) / looked_at;
            counts.random = counts
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let row = part.start + (counts.random >> 33) as usize % part.len().max(1);
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            counts.keys.add(cells.join(","), part.len() as u64);
        }
    }
}

impl Drop for KeySample {
    fn drop(&mut self) {
        let counts = self.counts.get_mut();
        let total = counts.rows.max(1) as f64;
        // Rows that one sampled row stands for, on average.
        let weight = total / counts.samples.max(1) as f64;
        for heavy in counts.keys.keys() {
            let tuples = (heavy.tuples - heavy.error) as f64;
            let share = tuples / total;
            if share < HEAVY || tuples < SEEN_AT_LEAST * weight {
                continue;
            }
            let deviation = (tuples * weight * (1.0 - share)).sqrt();
            self.recorder.key_frequency(KeyFrequency {
                exchange_id: self.exchange_id,
                key: heavy.key,
                tuples: tuples as i64,
                error: (2.0 * deviation) as i64,
                share,
            });
        }
    }
}
