//! Which operators of a query captured lineage, and from which.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::common::{Result, exec_err};

/// Where records come from: an operator, and the table whose base records they are if the
/// operator is a scan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) operator_id: i64,
    pub(crate) table: Option<String>,
}

impl Origin {
    fn of_operator(operator_id: i64, table: Option<&str>) -> Self {
        Self {
            operator_id,
            table: table.map(str::to_owned),
        }
    }
}

/// Which operators of a query captured lineage, and from which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Of each operator that captured lineage, where its inputs come from.
    pub(crate) inputs: BTreeMap<i64, BTreeSet<Origin>>,
    /// Where the records come from that result rows are made of.
    pub(crate) outputs: BTreeSet<Origin>,
    /// Whether latencies of base records were recorded by themselves.
    pub(crate) record_latency: bool,
    /// The operators whose records are rows of recursive queries; known if no latencies were recorded.
    pub(crate) recursive: BTreeSet<i64>,
}

impl Shape {
    /// `operator` captured lineage from records of `input`, which are a table's if one is given.
    pub(super) fn add_input(&mut self, operator: i64, input: i64, table: Option<&str>) {
        let inputs = self.inputs.entry(operator).or_default();
        inputs.insert(Origin::of_operator(input, table));
    }

    /// Result rows are made of records of `operator`, which are a table's if one is given.
    pub(super) fn add_output(&mut self, operator: i64, table: Option<&str>) {
        self.outputs.insert(Origin::of_operator(operator, table));
    }

    /// Whether nothing was captured.
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// The operators that captured lineage, each after all that it has inputs from.
    ///
    /// # Errors
    /// If operators depend on each other in a circle, as no plan's do.
    pub(crate) fn inputs_first(&self) -> Result<Vec<i64>> {
        let mut order: Vec<i64> = Vec::new();
        while order.len() < self.inputs.len() {
            let before = order.len();
            for (operator, inputs) in &self.inputs {
                let ready =
                    |origin: &Origin| !self.captures(origin) || order.contains(&origin.operator_id);
                if !order.contains(operator) && inputs.iter().all(ready) {
                    order.push(*operator);
                }
            }
            if order.len() == before {
                return exec_err!("the recorded lineage is circular: {:?}", self.inputs);
            }
        }
        Ok(order)
    }

    /// Whether the records were made by an operator that captured their lineage.
    pub(crate) fn captures(&self, origin: &Origin) -> bool {
        origin.table.is_none() && self.inputs.contains_key(&origin.operator_id)
    }

    /// The operators that have inputs from an operator, in the order of their ids.
    pub(crate) fn consumers(&self, operator: i64) -> impl Iterator<Item = i64> {
        let consumes =
            move |origin: &Origin| origin.table.is_none() && origin.operator_id == operator;
        self.inputs
            .iter()
            .filter(move |(_, inputs)| inputs.iter().any(consumes))
            .map(|(consumer, _)| *consumer)
    }

    /// The tables that base records come from, in the order of their names.
    pub(crate) fn tables(&self) -> Vec<&str> {
        let origins = self.inputs.values().flatten().chain(&self.outputs);
        let tables: BTreeSet<&str> = origins
            .filter_map(|origin| origin.table.as_deref())
            .collect();
        tables.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operator_id: i64) -> Origin {
        Origin {
            operator_id,
            table: None,
        }
    }

    fn shape(inputs: &[(i64, &[i64])]) -> Shape {
        let inputs = inputs
            .iter()
            .map(|(operator, inputs)| (*operator, inputs.iter().copied().map(record).collect()));
        Shape {
            inputs: inputs.collect(),
            ..Shape::default()
        }
    }

    #[test]
    fn operators_come_after_their_inputs() {
        let shape = shape(&[(1, &[2, 4]), (2, &[3, 9]), (3, &[9]), (4, &[3])]);
        assert_eq!(shape.inputs_first().unwrap(), [3, 4, 2, 1]);
        assert_eq!(shape.consumers(3).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn circular_lineage_is_an_error() {
        assert!(shape(&[(1, &[2]), (2, &[1])]).inputs_first().is_err());
    }
}
