//! Which partition gets which heavy key.

use std::collections::BTreeMap;

use skewer_exec::{Destination, Routes};

use super::Prescription;

/// Rows that partitions and tasks get.
#[derive(Debug)]
struct Loads {
    partitions: Vec<f64>,
    tasks: Vec<f64>,
    per_task: usize,
}

impl Loads {
    /// Each partition has `rows`; a task has `per_task` partitions.
    fn even(rows: f64, partitions: usize, per_task: usize) -> Self {
        Self {
            partitions: vec![rows; partitions],
            tasks: vec![rows * per_task as f64; partitions.div_ceil(per_task)],
            per_task,
        }
    }

    /// The partition with the fewest rows in the task with the fewest rows.
    fn least(&self) -> usize {
        let mut least = 0;
        for partition in 1..self.partitions.len() {
            let key = |partition: usize| {
                (
                    self.tasks[partition / self.per_task],
                    self.partitions[partition],
                )
            };
            if key(partition) < key(least) {
                least = partition;
            }
        }
        least
    }

    fn add(&mut self, partition: usize, rows: f64) {
        self.partitions[partition] += rows;
        self.tasks[partition / self.per_task] += rows;
    }
}

/// Gives heavy keys partitions, the heaviest first, each the one with the fewest rows so far (LPT: Graham, Bounds
/// on multiprocessing timing anomalies, 1969). Keys in `dealt` go to all.
///
/// `prescriptions`: what is known of exchanges whose keys have to meet. A task reads `per_task` of the `partitions`.
pub(super) fn mapped(
    prescriptions: &[&Prescription],
    dealt: &[u64],
    partitions: usize,
    per_task: usize,
) -> Routes {
    let mut rows = 0.0;
    let mut keys: BTreeMap<u64, f64> = BTreeMap::new();
    for prescription in prescriptions {
        rows += prescription.rows;
        for key in &prescription.keys {
            *keys.entry(key.hash).or_default() += key.rows;
        }
    }
    let heavy: f64 = keys.values().sum();
    let mut routes = Routes::by_hash(partitions);
    let others = (rows - heavy).max(0.0) / partitions as f64;
    let mut loads = Loads::even(others, partitions, per_task.max(1));
    for key in dealt {
        let rows = keys.remove(key).unwrap_or(0.0) / partitions as f64;
        (0..partitions).for_each(|partition| loads.add(partition, rows));
        routes = routes.with_key(*key, Destination::All);
    }
    let mut keys: Vec<(u64, f64)> = keys.into_iter().collect();
    keys.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    for (key, rows) in keys {
        let partition = loads.least();
        loads.add(partition, rows);
        routes = routes.with_key(key, Destination::Partition(partition as u32));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::super::{HeavyKey, Remedy};
    use super::*;

    fn prescription(rows: f64, keys: &[(u64, f64)]) -> Prescription {
        Prescription {
            exchange: 0,
            remedy: Remedy::Map,
            rows,
            keys: keys
                .iter()
                .map(|(hash, rows)| HeavyKey {
                    hash: *hash,
                    rows: *rows,
                    has_null: false,
                })
                .collect(),
        }
    }

    fn partition_of(routes: &Routes, key: u64) -> u32 {
        match routes.keys()[&key] {
            Destination::Partition(partition) => partition,
            Destination::All => panic!("key {key} goes to all"),
        }
    }

    #[test]
    fn heavy_keys_are_spread_over_tasks_and_then_over_partitions() {
        // Two tasks of two partitions each.
        let keys = [(1, 40.0), (2, 30.0), (3, 20.0), (4, 10.0)];
        let routes = mapped(&[&prescription(140.0, &keys)], &[], 4, 2);
        let task = |key| partition_of(&routes, key) / 2;
        assert_eq!((task(1), task(2), task(3), task(4)), (0, 1, 1, 0));
        assert_ne!(partition_of(&routes, 2), partition_of(&routes, 3));
    }

    #[test]
    fn keys_of_both_inputs_count_together() {
        let left = prescription(100.0, &[(1, 30.0), (2, 20.0)]);
        let right = prescription(100.0, &[(2, 40.0), (3, 35.0)]);
        let routes = mapped(&[&left, &right], &[], 2, 1);
        // 60 rows have key 2, 35 have key 3, 30 have key 1.
        assert_eq!(partition_of(&routes, 3), partition_of(&routes, 1));
        assert_ne!(partition_of(&routes, 2), partition_of(&routes, 1));
    }

    #[test]
    fn a_dealt_key_loads_all_partitions_alike() {
        let keys = [(1, 60.0), (2, 20.0), (3, 20.0)];
        let routes = mapped(&[&prescription(100.0, &keys)], &[1], 2, 1);
        assert_eq!(routes.keys()[&1], Destination::All);
        assert_ne!(partition_of(&routes, 2), partition_of(&routes, 3));
    }
}
