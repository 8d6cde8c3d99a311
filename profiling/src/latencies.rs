//! A compact, immutable column of latencies in picoseconds.
//!
//! Cheap expressions take less than a nanosecond a row, so latencies are kept in picoseconds
//! and become nanoseconds only when they are read.

use datafusion::arrow::array::Int64Array;
use serde::{Deserialize, Serialize};

use crate::ids::Ids;
use crate::run_length::{all_equal, long_runs, merge_equal};

/// Picoseconds in a nanosecond.
const PS_PER_NS: i64 = 1000;

/// An immutable column of latencies in picoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Encoding")]
pub struct Latencies(Encoding);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Encoding {
    /// `len` times the same latency.
    Constant { ps: i64, len: usize },
    /// Runs of (length, latency of each).
    Runs { runs: Box<[(u32, i64)]>, len: usize },
    /// Latencies, offset-encoded in the same way as ids.
    Offsets(Ids),
}

/// Why stored latencies are none.
#[derive(Debug, thiserror::Error)]
#[error("runs of {records} latencies claim to be {len}")]
pub struct UnsoundLatencies {
    records: u64,
    len: usize,
}

impl TryFrom<Encoding> for Latencies {
    type Error = UnsoundLatencies;

    /// Stored bytes are not trusted: what does not fit together is refused.
    fn try_from(encoding: Encoding) -> Result<Latencies, UnsoundLatencies> {
        if let Encoding::Runs { runs, len } = &encoding {
            let records = runs.iter().map(|(records, _)| u64::from(*records)).sum();
            if records != *len as u64 {
                return Err(UnsoundLatencies { records, len: *len });
            }
        }
        Ok(Latencies(encoding))
    }
}

impl Latencies {
    /// `len` records that each took `ps` picoseconds.
    pub fn constant(ps: u64, len: usize) -> Latencies {
        Latencies(Encoding::Constant { ps: clamp(ps), len })
    }

    /// Runs of (number of records, picoseconds that each of them took).
    pub fn runs(mut runs: Vec<(u32, u64)>) -> Latencies {
        merge_equal(&mut runs);
        let len = runs.iter().map(|(records, _)| *records as usize).sum();
        match runs.as_slice() {
            [] => Latencies::constant(0, 0),
            [(_, ps)] => Latencies::constant(*ps, len),
            _ => Latencies(Encoding::Runs {
                runs: runs
                    .into_iter()
                    .map(|(records, ps)| (records, clamp(ps)))
                    .collect(),
                len,
            }),
        }
    }

    /// Encodes one latency, in picoseconds, per record. Negative latencies (a clock that
    /// stepped back) count as 0.
    pub fn encode(ps: &[i64]) -> Latencies {
        let Some(&first) = ps.first() else {
            return Latencies::constant(0, 0);
        };
        if all_equal(ps) {
            return Latencies::constant(first.max(0) as u64, ps.len());
        }
        if let Some(mut runs) = long_runs(ps, size_of::<(u32, i64)>()) {
            runs.iter_mut().for_each(|(_, ps)| *ps = (*ps).max(0));
            return Latencies(Encoding::Runs {
                runs,
                len: ps.len(),
            });
        }
        if ps.iter().any(|ps| *ps < 0) {
            let positive: Vec<i64> = ps.iter().map(|ps| (*ps).max(0)).collect();
            return Latencies(Encoding::Offsets(Ids::encode(&positive)));
        }
        Latencies(Encoding::Offsets(Ids::encode(ps)))
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        match &self.0 {
            Encoding::Constant { len, .. } | Encoding::Runs { len, .. } => *len,
            Encoding::Offsets(values) => values.len(),
        }
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the column occupies.
    pub fn memory(&self) -> usize {
        size_of::<Latencies>()
            + match &self.0 {
                Encoding::Constant { .. } => 0,
                Encoding::Runs { runs, .. } => size_of_val(runs.as_ref()),
                Encoding::Offsets(values) => values.memory(),
            }
    }

    /// The latencies in nanoseconds. What rounding takes from one record it gives to the next,
    /// so that the sum is right to the nanosecond, and each latency to within one.
    pub fn decode_ns(&self) -> Int64Array {
        let mut carry = PS_PER_NS / 2;
        let mut round = move |ps: i64| {
            let ns = ps / PS_PER_NS;
            carry += ps % PS_PER_NS;
            if carry >= PS_PER_NS {
                carry -= PS_PER_NS;
                ns + 1
            } else {
                ns
            }
        };
        match &self.0 {
            Encoding::Constant { ps, len } if ps % PS_PER_NS == 0 => {
                Int64Array::from_value(ps / PS_PER_NS, *len)
            }
            Encoding::Constant { ps, len } => {
                Int64Array::from_iter_values((0..*len).map(|_| round(*ps)))
            }
            Encoding::Runs { runs, .. } => Int64Array::from_iter_values(
                runs.iter()
                    .flat_map(|(records, ps)| (0..*records).map(|_| *ps))
                    .map(round),
            ),
            Encoding::Offsets(values) => {
                Int64Array::from_iter_values(values.decode().values().iter().map(|ps| round(*ps)))
            }
        }
    }
}

/// A latency of more than 106 days counts as 106 days.
fn clamp(ps: u64) -> i64 {
    i64::try_from(ps).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_latencies_take_no_memory_per_record() {
        let encoded = Latencies::encode(&vec![1700; 8192]);
        assert_eq!(encoded.memory(), size_of::<Latencies>());
        assert_eq!(encoded, Latencies::constant(1700, 8192));
        let runs = vec![(8000, 1700), (192, 1700)];
        assert_eq!(encoded, Latencies::runs(runs));
    }

    #[test]
    fn one_slow_record_in_a_batch_becomes_three_runs() {
        let mut ps = vec![300; 8192];
        ps[4000] = 10_000_000_000;
        let encoded = Latencies::encode(&ps);
        assert_eq!(
            encoded,
            Latencies::runs(vec![(4000, 300), (1, 10_000_000_000), (4191, 300)])
        );
        let ns = encoded.decode_ns();
        assert_eq!(ns.len(), 8192);
        assert!((ns.value(4000) - 10_000_000).abs() <= 1);
        assert_eq!(
            ns.values().iter().sum::<i64>(),
            (8191 * 300 + 10_000_000_000 + 500) / 1000
        );
    }

    #[test]
    fn whole_nanoseconds_are_exact() {
        let ns = [486_000_000, 28_848_000_000, 0, 3];
        let ps: Vec<i64> = ns.iter().map(|ns| ns * PS_PER_NS).collect();
        assert_eq!(Latencies::encode(&ps).decode_ns().values().as_ref(), ns);
    }

    #[test]
    fn negative_latencies_count_as_zero() {
        let decoded = Latencies::encode(&[-5000, 7000, -1]).decode_ns();
        assert_eq!(decoded.values().as_ref(), [0, 7, 0]);
    }

    proptest! {
        #[test]
        fn sums_are_preserved_and_each_latency_is_within_a_nanosecond(
            ps in prop::collection::vec(prop_oneof![0i64..2000, 0i64..10_000_000_000], 0..300),
        ) {
            let encoded = Latencies::encode(&ps);
            let ns = encoded.decode_ns();
            prop_assert_eq!(encoded.len(), ps.len());
            prop_assert_eq!(ns.len(), ps.len());
            prop_assert_eq!(ns.values().iter().sum::<i64>(), (ps.iter().sum::<i64>() + 500) / 1000);
            for (ns, ps) in ns.values().iter().zip(&ps) {
                prop_assert!((ns * 1000 - ps).abs() < 1000);
            }
        }
    }
}
