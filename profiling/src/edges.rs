//! Edges of lineage that come a few at a time.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::common::HashMap;

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

    pub(crate) fn bytes(&self) -> usize {
        self.len() * 3 * size_of::<i64>()
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

/// Edges that make a chunk of their own.
const FULL_CHUNK: usize = 8192;

/// Edges that wait for others of their kind.
#[derive(Debug, Default)]
pub(crate) struct PendingEdges {
    kinds: HashMap<EdgesOf, Edges>,
    bytes: usize,
}

impl PendingEdges {
    /// Adds edges. Returns those that need not wait: of their kind if there are enough for a chunk, and
    /// of all kinds if they take more than `most` bytes together.
    pub(crate) fn add(
        &mut self,
        of: EdgesOf,
        edges: Edges,
        most: usize,
    ) -> HashMap<EdgesOf, Edges> {
        self.bytes += edges.bytes();
        if self.bytes > most {
            self.kinds.entry(of).or_default().append(edges);
            return self.take();
        }
        let waiting = self.kinds.entry(of.clone()).or_default();
        waiting.append(edges);
        if waiting.len() < FULL_CHUNK {
            return HashMap::new();
        }
        let full = std::mem::take(waiting);
        self.kinds.remove(&of);
        self.bytes -= full.bytes();
        HashMap::from([(of, full)])
    }

    /// Takes out what waits.
    pub(crate) fn take(&mut self) -> HashMap<EdgesOf, Edges> {
        std::mem::take(self).kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(operator_id: i64) -> EdgesOf {
        EdgesOf {
            fragment_id: 0,
            operator_id,
            partition: 0,
            input_operator_id: 9,
            table_name: None,
            run_key: 0,
        }
    }

    fn edges(count: usize) -> Edges {
        let mut edges = Edges::default();
        (0..count as i64).for_each(|id| edges.push(id, id, 0));
        edges
    }

    #[test]
    fn edges_wait_until_they_are_enough_of_a_kind_or_too_many_of_all() {
        let mut pending = PendingEdges::default();
        let most = edges(2 * FULL_CHUNK).bytes();
        let mut add = |kind, count| {
            let ready = pending.add(edges_of(kind), edges(count), most).into_iter();
            let mut ready: Vec<_> = ready.map(|(of, e)| (of.operator_id, e.len())).collect();
            ready.sort_unstable();
            ready
        };
        assert_eq!(add(1, FULL_CHUNK - 1), []);
        assert_eq!(add(2, 10), []);
        assert_eq!(add(1, 1), [(1, FULL_CHUNK)]);
        // What was taken out counts no longer.
        assert_eq!(add(1, 20), []);
        assert_eq!(add(3, FULL_CHUNK - 5), []);
        assert_eq!(add(4, FULL_CHUNK - 25), []);
        assert_eq!(
            add(5, 1),
            [
                (1, 20),
                (2, 10),
                (3, FULL_CHUNK - 5),
                (4, FULL_CHUNK - 25),
                (5, 1)
            ]
        );
        assert_eq!(add(5, 1), []);
        let rest = pending.take();
        assert_eq!(rest.len(), 1);
        assert!(pending.take().is_empty());
    }
}
