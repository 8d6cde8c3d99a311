//! The most frequent keys of a stream in bounded memory: the space-saving sketch (Metwally,
//! Agrawal and El Abbadi, 2005).

use std::collections::HashMap;
use std::hash::Hash;

/// The most frequent keys of a stream, of which at most a fixed number is remembered.
///
/// After `n` keys, every key with more than `n / capacity` occurrences is among the remembered,
/// and a remembered count is too high by at most its `error`, never too low.
#[derive(Debug, Clone)]
pub struct HeavyKeys<K> {
    capacity: usize,
    seen: u64,
    counts: HashMap<K, Count>,
    /// No remembered count is less.
    at_least: u64,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    tuples: u64,
    error: u64,
}

/// A key with what is known about its frequency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeavyKey<K> {
    /// The key.
    pub key: K,
    /// How often it occurred, at most.
    pub tuples: u64,
    /// By how much that may be too high.
    pub error: u64,
}

impl<K: Hash + Eq + Clone + Ord> HeavyKeys<K> {
    /// Remembers at most `capacity` keys, at least one.
    pub fn new(capacity: usize) -> HeavyKeys<K> {
        HeavyKeys {
            capacity: capacity.max(1),
            seen: 0,
            counts: HashMap::with_capacity(capacity),
            at_least: 0,
        }
    }

    /// Counts `tuples` occurrences of a key. A key that is not remembered takes the place of one of
    /// the least frequent. To find it all remembered are looked at, unless one is met that is as
    /// rare as any can be, as in a stream of distinct keys.
    pub fn add(&mut self, key: K, tuples: u64) {
        self.seen += tuples;
        if let Some(count) = self.counts.get_mut(&key) {
            count.tuples += tuples;
            return;
        }
        let mut error = 0;
        if self.counts.len() >= self.capacity
            && let Some(least) = self.least_frequent()
            && let Some(count) = self.counts.remove(&least)
        {
            error = count.tuples;
        }
        let tuples = error + tuples;
        self.counts.insert(key, Count { tuples, error });
    }

    /// A remembered key with the lowest count.
    fn least_frequent(&mut self) -> Option<K> {
        let mut least: Option<(&K, u64)> = None;
        for (key, count) in &self.counts {
            if least.is_none_or(|(_, tuples)| count.tuples < tuples) {
                least = Some((key, count.tuples));
                if count.tuples <= self.at_least {
                    break;
                }
            }
        }
        let (key, tuples) = least?;
        // Counts only grow, and a key that comes in has more than the one that goes.
        self.at_least = tuples;
        Some(key.clone())
    }

    /// Occurrences of all keys together.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The remembered keys, the most frequent first.
    pub fn keys(&self) -> Vec<HeavyKey<K>> {
        let keys = self.counts.iter().map(|(key, count)| HeavyKey {
            key: key.clone(),
            tuples: count.tuples,
            error: count.error,
        });
        let mut keys: Vec<HeavyKey<K>> = keys.collect();
        keys.sort_by(|a, b| b.tuples.cmp(&a.tuples).then_with(|| a.key.cmp(&b.key)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few_keys_are_counted_exactly() {
        let mut heavy = HeavyKeys::new(4);
        for key in ["a", "b", "a", "c", "a"] {
            heavy.add(key, 1);
        }
        let keys = heavy.keys();
        assert_eq!((keys[0].key, keys[0].tuples, keys[0].error), ("a", 3, 0));
        assert_eq!((keys.len(), heavy.seen()), (3, 5));
    }

    proptest! {
        #[test]
        fn frequent_keys_are_found_with_counts_within_their_error(
            keys in prop::collection::vec((0u32..4).prop_flat_map(|scale| 0..(1u32 << (2 * scale))), 1..400),
            capacity in 1usize..12,
        ) {
            let mut heavy = HeavyKeys::new(capacity);
            let mut exact: HashMap<u32, u64> = HashMap::new();
            for key in keys {
                heavy.add(key, 1);
                *exact.entry(key).or_default() += 1;
            }
            let found = heavy.keys();
            prop_assert!(found.len() <= capacity);
            for heavy in &found {
                let truth = exact[&heavy.key];
                prop_assert!(truth <= heavy.tuples && heavy.tuples - heavy.error <= truth);
            }
            for (key, count) in &exact {
                if *count > heavy.seen() / capacity as u64 {
                    prop_assert!(found.iter().any(|heavy| heavy.key == *key));
                }
            }
        }
    }
}
