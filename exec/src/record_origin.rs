//! Where the records that an operator sees come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::RwLock;

/// Bits of a record id that number the records of one accumulator: more than a log has room for.
///
/// ```text
/// 0 | worker (12 bits) | operator (4) | accumulator (15) | record (32)
/// ```
///
/// So ids are unique over all partitions and workers without anybody asking anybody, and tell
/// which of the aggregate's operators made the record.
const SEQUENCE_BITS: u32 = 32;

/// Bits that number the accumulators of an aggregate on one worker: one for each partition, and
/// one for each that has spilled.
const ACCUMULATOR_BITS: u32 = 15;

/// Bits that number the operators of an aggregate. There are at most three (partial, reduced,
/// final), each with a second number for merging what it has spilled; a window has frames, and the
/// levels of their parts.
const OPERATOR_BITS: u32 = 4;

/// Bits of a worker's number.
const WORKER_BITS: u32 = 12;

const OPERATOR_SHIFT: u32 = SEQUENCE_BITS + ACCUMULATOR_BITS;
const WORKER_SHIFT: u32 = OPERATOR_SHIFT + OPERATOR_BITS;

/// Stands for an operator that is not the aggregate's.
const NO_OPERATOR: i64 = (1 << OPERATOR_BITS) - 1;

/// The accumulator of records that are made of one row each.
const OF_SINGLE_ROWS: i64 = 0;

/// An operator number that is not known yet (or a scan that vanished from the plan).
const UNKNOWN: i64 = -1;

/// The operator that made records: a scan, or an aggregate.
#[derive(Debug, Clone)]
pub enum RecordOrigin {
    /// Base records of a table.
    Scan(Arc<ScanOrigin>),
    /// Groups of an aggregate, or frames of a window.
    Aggregate(Arc<AggregateOrigin>),
}

impl RecordOrigin {
    /// The table of base records; `None` for groups.
    pub fn table_name(&self) -> Option<Arc<str>> {
        match self {
            RecordOrigin::Scan(scan) => Some(Arc::clone(&scan.table_name)),
            RecordOrigin::Aggregate(_) => None,
        }
    }

    /// The operator that made record `id`.
    pub fn operator_of(&self, id: i64) -> i64 {
        match self {
            RecordOrigin::Scan(scan) => scan.operator_id(),
            RecordOrigin::Aggregate(aggregate) => aggregate.operator_of(id),
        }
    }

    /// Records with the same key were made by the same operator and have ids close together.
    pub fn run_key(&self, id: i64) -> i64 {
        match self {
            RecordOrigin::Scan(_) => 0,
            RecordOrigin::Aggregate(_) => id >> SEQUENCE_BITS,
        }
    }

    /// Records with the same key were made by the same operator of one worker.
    pub(crate) fn operator_key(&self, id: i64) -> i64 {
        match self {
            RecordOrigin::Scan(_) => 0,
            RecordOrigin::Aggregate(_) => id >> OPERATOR_SHIFT,
        }
    }
}

/// A scan whose rows have ids.
#[derive(Debug)]
pub struct ScanOrigin {
    /// What `table_name` says of its rows in the log.
    pub table_name: Arc<str>,
    operator_id: AtomicI64,
}

impl ScanOrigin {
    /// A scan of the table that the log calls `table_name`.
    pub fn new(table_name: &str) -> Self {
        Self::with_operator(table_name, UNKNOWN)
    }

    /// The same scan on a worker that has got its plan.
    pub fn with_operator(table_name: &str, operator_id: i64) -> Self {
        Self {
            table_name: table_name.into(),
            operator_id: AtomicI64::new(operator_id),
        }
    }

    /// Sets the scan's number in the physical plan.
    pub fn set_operator_id(&self, operator_id: i64) {
        self.operator_id.store(operator_id, Ordering::Relaxed);
    }

    /// The scan's number in the physical plan; −1 before it is known.
    pub fn operator_id(&self) -> i64 {
        self.operator_id.load(Ordering::Relaxed)
    }
}

/// An aggregate that gives its groups ids: one or more operators (partial and final), each with
/// an accumulator for every partition. Every worker has its own. So has a window of the frames of
/// its rows, whose operators are whole frames and the levels of their parts.
#[derive(Debug, Default)]
pub struct AggregateOrigin {
    /// Its operators, each with the operator number for merging groups that it had spilled:
    /// those groups are inputs of the merged ones, so they need two numbers.
    operators: RwLock<Vec<(i64, i64)>>,
    accumulators: AtomicI64,
    single_rows: AtomicI64,
}

impl AggregateOrigin {
    /// The aggregate of [`operators`](Self::operators), on a worker that has got its plan.
    pub fn with_operators(operators: Vec<(i64, i64)>) -> Self {
        Self {
            operators: RwLock::new(operators),
            ..Self::default()
        }
    }

    /// The aggregate's operators, each with the number for merging what it has spilled.
    pub fn operators(&self) -> Vec<(i64, i64)> {
        self.operators.read().clone()
    }

    /// The first record id of a new accumulator of operator `operator_id` on worker `worker_id`.
    pub(crate) fn add_accumulator(&self, worker_id: i64, operator_id: i64) -> i64 {
        let number = self.accumulators.fetch_add(1, Ordering::Relaxed) + 1;
        self.first_id(worker_id, operator_id, number)
    }

    /// The first of `rows` record ids for groups of one row each, which operator `operator_id`
    /// makes on worker `worker_id`.
    pub(crate) fn add_single_rows(&self, worker_id: i64, operator_id: i64, rows: usize) -> i64 {
        let before = self.single_rows.fetch_add(rows as i64, Ordering::Relaxed);
        self.first_id(worker_id, operator_id, OF_SINGLE_ROWS) + before
    }

    fn first_id(&self, worker_id: i64, operator_id: i64, accumulator: i64) -> i64 {
        let field = |value: i64, bits: u32| value & ((1 << bits) - 1);
        let operator = self
            .operators
            .read()
            .iter()
            .zip(0..)
            .find_map(|(known, n)| {
                let (operator, merge) = *known;
                (operator == operator_id)
                    .then_some(2 * n)
                    .or((merge == operator_id).then_some(2 * n + 1))
            });
        field(worker_id, WORKER_BITS) << WORKER_SHIFT
            | field(operator.unwrap_or(NO_OPERATOR), OPERATOR_BITS) << OPERATOR_SHIFT
            | field(accumulator, ACCUMULATOR_BITS) << SEQUENCE_BITS
    }

    /// The operator that made record `id`, on whichever worker.
    pub fn operator_of(&self, id: i64) -> i64 {
        let number = id >> OPERATOR_SHIFT & ((1 << OPERATOR_BITS) - 1);
        let operators = self.operators.read();
        match operators.get(number as usize / 2) {
            Some((operator, _)) if number % 2 == 0 => *operator,
            Some((_, merge)) => *merge,
            None => UNKNOWN,
        }
    }

    /// Adds operator `operator_id`, and `merge_id` for what it makes when it merges groups that
    /// it had spilled.
    pub fn add_operator(&self, operator_id: i64, merge_id: i64) {
        self.operators.write().push((operator_id, merge_id));
    }

    /// The number for merging groups spilled by `operator_id`.
    pub(crate) fn merge_operator(&self, operator_id: i64) -> Option<i64> {
        let operators = self.operators.read();
        let known = operators.iter().find(|known| known.0 == operator_id);
        known.map(|(_, merge)| *merge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_different_workers_operators_and_accumulators_never_meet() {
        let aggregates = [(), ()].map(|()| AggregateOrigin::with_operators(vec![(7, 8), (3, 4)]));
        let mut runs = Vec::new();
        for (worker, aggregate) in [1, 4095].into_iter().zip(&aggregates) {
            for operator in [7, 8, 3, 4, 99] {
                for _ in 0..3 {
                    runs.push((
                        aggregate.add_accumulator(worker, operator),
                        1 << 32,
                        operator,
                    ));
                }
                for rows in [8192, 1] {
                    let first = aggregate.add_single_rows(worker, operator, rows);
                    runs.push((first, rows as i64, operator));
                }
            }
        }
        runs.sort_unstable();
        assert!(runs[0].0 >= 0);
        for pair in runs.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        // Whoever has the aggregate knows who made a record, wherever that was.
        for (first, rows, operator) in runs {
            let known = if operator == 99 { UNKNOWN } else { operator };
            for id in [first, first + rows - 1] {
                assert_eq!(aggregates[0].operator_of(id), known);
            }
        }
    }
}
