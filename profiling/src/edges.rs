//! Edges of lineage that come a few at a time.

use std::sync::Arc;

use crate::chunks::LineageChunk;
use crate::ids::Ids;
use crate::latencies::Latencies;

/// What edges have in common that one [`LineageChunk`] can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EdgesOf {
    /// Fragment of the capturing operator.
    pub fragment_id: i64,
    /// The capturing operator.
    pub operator_id: i64,
    /// Partition of the capturing operator.
    pub partition: i64,
    /// The operator that made the inputs.
    pub input_operator_id: i64,
    /// The table whose base records the inputs are, if that is a scan.
    pub table_name: Option<Arc<str>>,
    /// Inputs with the same key have ids close together, which take little memory in one chunk.
    pub run_key: i64,
}

/// Edges: output, input, and the latency of the input for the output, in picoseconds.
#[derive(Debug, Default)]
pub struct Edges {
    outputs: Vec<i64>,
    inputs: Vec<i64>,
    latencies: Vec<i64>,
}

impl Edges {
    /// Adds an edge.
    pub fn push(&mut self, output: i64, input: i64, latency: i64) {
        self.outputs.push(output);
        self.inputs.push(input);
        self.latencies.push(latency);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.outputs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    pub(crate) fn append(&mut self, mut others: Edges) {
        self.outputs.append(&mut others.outputs);
        self.inputs.append(&mut others.inputs);
        self.latencies.append(&mut others.latencies);
    }

    pub(crate) fn into_chunk(self, of: EdgesOf) -> LineageChunk {
        LineageChunk {
            fragment_id: of.fragment_id,
            operator_id: of.operator_id,
            partition: of.partition,
            input_operator_id: of.input_operator_id,
            table_name: of.table_name,
            output_ids: Ids::encode(&self.outputs),
            input_ids: Ids::encode(&self.inputs),
            latency: Latencies::encode(&self.latencies),
        }
    }
}
