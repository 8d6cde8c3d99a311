//! Where the records that an operator sees come from.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::RwLock;

/// Bits of a record id that number the records of one accumulator: 10^12 of them. The bits
/// above are the accumulator's number, so that ids are unique over all partitions of an
/// aggregate and tell which of its operators made them.
const SEQUENCE_BITS: u32 = 40;

/// An operator number that is not known yet (or a scan that vanished from the plan).
const UNKNOWN: i64 = -1;

/// The operator that made records: a scan, or an aggregate.
#[derive(Debug, Clone)]
pub enum RecordSource {
    /// Base records of a table.
    Scan(Arc<ScanSource>),
    /// Groups of an aggregate.
    Aggregate(Arc<AggregateSource>),
}

impl RecordSource {
    /// The table of base records; `None` for groups.
    pub fn table_name(&self) -> Option<Arc<str>> {
        match self {
            RecordSource::Scan(scan) => Some(Arc::clone(&scan.table_name)),
            RecordSource::Aggregate(_) => None,
        }
    }

    /// Whether these are the records of one scan, or of one aggregate.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (RecordSource::Scan(one), RecordSource::Scan(other)) => Arc::ptr_eq(one, other),
            (RecordSource::Aggregate(one), RecordSource::Aggregate(other)) => {
                Arc::ptr_eq(one, other)
            }
            _ => false,
        }
    }

    /// The operator that made record `id`.
    pub fn operator_of(&self, id: i64) -> i64 {
        match self {
            RecordSource::Scan(scan) => scan.operator_id(),
            RecordSource::Aggregate(aggregate) => aggregate.operator_of(id),
        }
    }

    /// Records with the same key were made by the same operator and have ids close together.
    pub fn run_key(&self, id: i64) -> i64 {
        match self {
            RecordSource::Scan(_) => 0,
            RecordSource::Aggregate(_) => id >> SEQUENCE_BITS,
        }
    }
}

/// A scan whose rows have ids.
#[derive(Debug)]
pub struct ScanSource {
    /// What `table_name` says of its rows in the log.
    pub table_name: Arc<str>,
    operator_id: AtomicI64,
}

impl ScanSource {
    /// A scan of the table that the log calls `table_name`.
    pub fn new(table_name: &str) -> Self {
        Self {
            table_name: table_name.into(),
            operator_id: AtomicI64::new(UNKNOWN),
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

/// An aggregate that gives its groups ids: one or two operators (partial and final), each with
/// an accumulator for every partition.
#[derive(Debug, Default)]
pub struct AggregateSource {
    /// The operator of accumulator `n`.
    accumulators: RwLock<Vec<i64>>,
    /// operator → the operator number for merging its spilled groups
    merges: RwLock<HashMap<i64, i64>>,
}

impl AggregateSource {
    /// Gives an accumulator of operator `operator_id` its first record id.
    pub(crate) fn add_accumulator(&self, operator_id: i64) -> i64 {
        let mut accumulators = self.accumulators.write();
        accumulators.push(operator_id);
        (accumulators.len() as i64) << SEQUENCE_BITS
    }

    /// The operator that made record `id`.
    pub fn operator_of(&self, id: i64) -> i64 {
        let number = (id >> SEQUENCE_BITS) - 1;
        usize::try_from(number)
            .ok()
            .and_then(|number| self.accumulators.read().get(number).copied())
            .unwrap_or(UNKNOWN)
    }

    /// Reserves `merge_id` for what operator `operator_id` makes when it merges groups that it
    /// had spilled: those groups are inputs of the merged ones, so they need two numbers.
    pub fn reserve_merge_operator(&self, operator_id: i64, merge_id: i64) {
        self.merges.write().insert(operator_id, merge_id);
    }

    /// The reserved number for merging groups spilled by `operator_id`.
    pub(crate) fn merge_operator(&self, operator_id: i64) -> Option<i64> {
        self.merges.read().get(&operator_id).copied()
    }
}
