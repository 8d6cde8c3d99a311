//! The events of level `records`, a batch at a time and columnar, as operators hand them over.

use std::sync::Arc;

use crate::ids::Ids;
use crate::latencies::Latencies;

/// The most records that a chunk may have: a batch has a few thousand. Whoever reads chunks from
/// a file takes more for damage, not for a wish for gigabytes of memory.
pub const MAX_RECORDS: usize = 1 << 24;

/// Lineage edges of one partition of a capturing operator (an aggregate).
///
/// An edge says that record `output_ids[i]` of operator `operator_id` was computed from record
/// `input_ids[i]` of `input_operator_id`. Edges to absent inputs (the padding of outer joins
/// and unions) are left out by the caller. All columns have the same length.
#[derive(Debug, Clone)]
pub struct LineageChunk {
    /// Fragment of the capturing operator.
    pub fragment_id: i64,
    /// The capturing operator.
    pub operator_id: i64,
    /// Partition of the capturing operator.
    pub partition: i64,
    /// The operator that made the inputs: a scan or another capturing operator.
    pub input_operator_id: i64,
    /// The table whose base records the inputs are, if `input_operator_id` is a scan.
    pub table_name: Option<Arc<str>>,
    /// Ids of outputs, unique over all partitions of the operator.
    pub output_ids: Ids,
    /// Row ids of base records, or output ids of `input_operator_id`.
    pub input_ids: Ids,
    /// Computation latency of the input for the output, since the input was made.
    pub latency: Latencies,
}

/// Latencies of records in one partition of a measured operator.
#[derive(Debug, Clone)]
pub struct LatencyChunk {
    /// Fragment of the measured operator.
    pub fragment_id: i64,
    /// The measured operator.
    pub operator_id: i64,
    /// Partition of the measured operator.
    pub partition: i64,
    /// The table whose base records were measured; `None`: records of a capturing operator.
    pub table_name: Option<Arc<str>>,
    /// Row ids of base records, or output ids of a capturing operator.
    pub row_ids: Ids,
    /// What each record took.
    pub latency: Latencies,
    /// What the records took this time for.
    pub kind: LatencyKind,
    /// How the latencies were found.
    pub method: Method,
    /// By how much each latency may be off.
    pub error: Latencies,
}

/// Which records a run of result rows was made from. A result row of a join has several.
#[derive(Debug, Clone)]
pub struct OutputChunk {
    /// Number, in the result, of the first row of the run; the `i`th id belongs to row
    /// `first_output_row + i`. The first row of a result has the number 0.
    pub first_output_row: i64,
    /// The scan or capturing operator that the records belong to.
    pub operator_id: i64,
    /// The table whose base records they are, if the operator is a scan.
    pub table_name: Option<Arc<str>>,
    /// The records; none where the row has no record of this operator.
    pub record_ids: Ids,
    /// Computation latency between the record and the result row.
    pub latency: Latencies,
}

/// What a record took its time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LatencyKind {
    /// Evaluating expressions on the record.
    Computation,
    /// Bringing its inputs together.
    Shuffle,
}

impl LatencyKind {
    /// The kind's name in `sys.record_latency.kind`.
    pub fn name(self) -> &'static str {
        match self {
            LatencyKind::Computation => "computation",
            LatencyKind::Shuffle => "shuffle",
        }
    }
}

/// How a latency was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// The record was timed by itself.
    Measured,
    /// The record's even share of a batch that was timed.
    Apportioned,
    /// The record was found in a slow batch by evaluating it again.
    Replayed,
}

impl Method {
    /// The method's name in `sys.record_latency.method`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Measured => "measured",
            Method::Apportioned => "apportioned",
            Method::Replayed => "replayed",
        }
    }
}

impl LineageChunk {
    /// Number of edges.
    pub fn len(&self) -> usize {
        self.output_ids.len()
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the chunk occupies.
    pub fn memory(&self) -> usize {
        size_of::<LineageChunk>()
            + self.output_ids.memory()
            + self.input_ids.memory()
            + self.latency.memory()
    }
}

impl LatencyChunk {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.row_ids.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the chunk occupies.
    pub fn memory(&self) -> usize {
        size_of::<LatencyChunk>()
            + self.row_ids.memory()
            + self.latency.memory()
            + self.error.memory()
    }
}

impl OutputChunk {
    /// Number of result rows.
    pub fn len(&self) -> usize {
        self.record_ids.len()
    }

    /// Whether there is no result row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the chunk occupies.
    pub fn memory(&self) -> usize {
        size_of::<OutputChunk>() + self.record_ids.memory() + self.latency.memory()
    }
}
