//! Exchanges that send some keys elsewhere than their hash says.
//!
//! An exchange of DataFusion sends a row to partition `hash(keys) % n`. Below it, [`RouteRowsExec`] adds a column
//! with a number by [`Routes`], and the exchange hashes that number instead. Rows of most keys go where they went
//! before. Rows of a few keys go to a partition that a map names, or are dealt over all partitions. Where rows of a
//! key are dealt in one input of a join, the rows of that key in the other input are copied for every partition.
//!
//! (A function as the exchange's key would need no column. But datafusion-distributed 4.0 encodes the keys of
//! exchanges without the codec of our functions.)
//!
//! Source of the map: Gedik, Partitioning functions for stateful data parallelism in stream processing, VLDB
//! Journal 2014. Source of the copies: Xu et al., Handling data skew in parallel joins in shared-nothing systems
//! (PRPD), SIGMOD 2008.

mod route_rows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::Result;
use datafusion::common::hash_utils::create_hashes;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use serde::{Deserialize, Serialize};

pub use self::route_rows::{RouteRowsExec, SpreadKeys};

/// Bits of the filter that most rows do not pass.
const FILTER_BITS: usize = 1 << 12;

/// Where rows of one key go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Destination {
    /// To this partition.
    Partition(u32),
    /// To all partitions: each row to another one, or a copy to each.
    All,
}

/// Where an exchange with `partitions` outputs sends the rows of some keys. The others go where their hash says.
///
/// A key is known by its hash, as exchanges compute it. Two keys of one hash have one destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Routes {
    partitions: usize,
    keys: BTreeMap<u64, Destination>,
    /// Whether rows with a NULL in their key are dealt over all partitions.
    deals_nulls: bool,
}

impl Routes {
    /// All keys go where their hash says.
    pub fn by_hash(partitions: usize) -> Self {
        Self {
            partitions,
            keys: BTreeMap::new(),
            deals_nulls: false,
        }
    }

    /// The same, but that rows whose key has the hash `key` go to `destination`.
    #[must_use]
    pub fn with_key(mut self, key: u64, destination: Destination) -> Self {
        self.keys.insert(key, destination);
        self
    }

    /// The same, but that rows with a NULL in their key are dealt over all partitions.
    #[must_use]
    pub fn dealing_nulls(mut self) -> Self {
        self.deals_nulls = true;
        self
    }

    /// Outputs of the exchange.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Keys by their hashes.
    pub fn keys(&self) -> &BTreeMap<u64, Destination> {
        &self.keys
    }

    /// Whether rows with a NULL in their key are dealt over all partitions.
    pub fn deals_nulls(&self) -> bool {
        self.deals_nulls
    }

    /// Whether rows of equal keys always meet in one partition.
    pub fn keeps_keys_together(&self) -> bool {
        let mut destinations = self.keys.values();
        !self.deals_nulls && destinations.all(|destination| *destination != Destination::All)
    }
}

/// The hashes of keys, as an exchange of DataFusion computes them.
///
/// # Errors
/// If a column's type cannot be hashed.
pub fn exchange_hashes(keys: &[ArrayRef]) -> Result<Vec<u64>> {
    let rows = keys.first().map_or(0, |column| column.len());
    let mut hashes = vec![0; rows];
    create_hashes(keys, REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
    Ok(hashes)
}

/// [`Routes`] ready for use.
#[derive(Debug)]
struct Router {
    routes: Routes,
    /// For each partition a number that the exchange sends there.
    numbers: Vec<i64>,
    /// A bit for each hash that `keys` has, by the hash's lowest bits.
    filter: Vec<u64>,
    keys: HashMap<u64, Destination>,
    /// The partition of the next row that is dealt.
    next: AtomicUsize,
}

impl Router {
    fn new(routes: Routes) -> Result<Self> {
        let mut filter = vec![0; FILTER_BITS / 64];
        for key in routes.keys.keys() {
            let bit = *key as usize % FILTER_BITS;
            filter[bit / 64] |= 1 << (bit % 64);
        }
        Ok(Self {
            numbers: numbers(routes.partitions)?,
            filter,
            keys: routes.keys.iter().map(|(key, to)| (*key, *to)).collect(),
            routes,
            next: AtomicUsize::new(0),
        })
    }

    /// Where rows of a hash go, if the map says so.
    fn destination(&self, hash: u64) -> Option<Destination> {
        let bit = hash as usize % FILTER_BITS;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        self.keys.get(&hash).copied()
    }

    /// The number of the partition that the hash says.
    fn by_hash(&self, hash: u64) -> i64 {
        self.numbers[(hash % self.numbers.len() as u64) as usize]
    }

    /// The number of the next partition in turn.
    fn deal(&self) -> i64 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.numbers[next % self.numbers.len()]
    }

    /// For each row a number whose hash is its partition.
    fn route(&self, keys: &[ArrayRef]) -> Result<Vec<i64>> {
        let hashes = exchange_hashes(keys)?;
        let route = |hash: &u64| match self.destination(*hash) {
            None => self.by_hash(*hash),
            Some(Destination::Partition(partition)) => self.numbers[partition as usize],
            Some(Destination::All) => self.deal(),
        };
        let mut routes: Vec<i64> = hashes.iter().map(route).collect();
        let has_null = nulls(keys).filter(|_| self.routes.deals_nulls);
        for row in has_null.iter().flat_map(null_rows) {
            routes[row] = self.deal();
        }
        Ok(routes)
    }
}

/// Which rows have no NULL in any column; `None` if all rows have none.
fn nulls(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let columns = keys.iter().map(|column| column.logical_nulls());
    let all = columns.fold(None, |all: Option<NullBuffer>, column| {
        NullBuffer::union(all.as_ref(), column.as_ref())
    });
    all.filter(|nulls| nulls.null_count() > 0)
}

fn null_rows(nulls: &NullBuffer) -> impl Iterator<Item = usize> {
    (0..nulls.len()).filter(|row| nulls.is_null(*row))
}

/// For each of `partitions` outputs of an exchange a number that the exchange sends there.
fn numbers(partitions: usize) -> Result<Vec<i64>> {
    let mut found: Vec<Option<i64>> = vec![None; partitions];
    let mut missing = partitions;
    let mut first = 0;
    while missing > 0 {
        let candidates: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 1024));
        for (number, hash) in (first..).zip(exchange_hashes(&[candidates])?) {
            let place = &mut found[(hash % partitions as u64) as usize];
            missing -= usize::from(place.is_none());
            place.get_or_insert(number);
        }
        first += 1024;
    }
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, RecordBatch, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::metrics::Time;
    use datafusion::physical_plan::repartition::BatchPartitioner;

    use super::*;

    /// The partition of each number, as an exchange of DataFusion finds it.
    fn partitions_of(numbers: Vec<i64>, partitions: usize) -> Vec<usize> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int64, false),
            Field::new("row", DataType::Int64, false),
        ]));
        let rows = Int64Array::from_iter_values(0..numbers.len() as i64);
        let mut found = vec![usize::MAX; numbers.len()];
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(rows)];
        let batch = RecordBatch::try_new(schema, columns).unwrap();
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("number", 0));
        let mut partitioner =
            BatchPartitioner::new_hash_partitioner(vec![key], partitions, Time::new()).unwrap();
        partitioner
            .partition(batch, |partition, batch| {
                for row in batch.column(1).as_primitive::<Int64Type>().values() {
                    found[*row as usize] = partition;
                }
                Ok(())
            })
            .unwrap();
        found
    }

    fn route(routes: Routes, keys: &[ArrayRef]) -> Vec<usize> {
        let partitions = routes.partitions();
        let numbers = Router::new(routes).unwrap().route(keys).unwrap();
        partitions_of(numbers, partitions)
    }

    #[test]
    fn without_a_map_rows_go_where_an_exchange_sends_them() {
        let keys = Int64Array::from_iter_values(0..1000);
        for partitions in [1, 2, 6, 48] {
            let expected = partitions_of(keys.values().to_vec(), partitions);
            let keys: ArrayRef = Arc::new(keys.clone());
            assert_eq!(route(Routes::by_hash(partitions), &[keys]), expected);
        }
    }

    #[test]
    fn keys_of_the_map_go_where_it_says_and_others_stay() {
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(
            (0..600).map(|row| ["a", "b", "c"][row % 3]),
        ));
        let hashes = exchange_hashes(&[Arc::clone(&keys)]).unwrap();
        let before = route(Routes::by_hash(6), &[Arc::clone(&keys)]);
        let elsewhere = (before[0] as u32 + 1) % 6;
        let routes = Routes::by_hash(6)
            .with_key(hashes[0], Destination::Partition(elsewhere))
            .with_key(hashes[1], Destination::All);
        assert!(!routes.keeps_keys_together());
        let after = route(routes, &[keys]);
        let mut dealt = [0; 6];
        for row in 0..600 {
            match row % 3 {
                0 => assert_eq!(after[row], elsewhere as usize),
                1 => dealt[after[row]] += 1,
                _ => assert_eq!(after[row], before[row]),
            }
        }
        assert!(
            dealt.iter().all(|rows| (33..=34).contains(rows)),
            "{dealt:?}"
        );
    }

    #[test]
    fn rows_with_a_null_in_their_key_are_dealt() {
        let first: ArrayRef = Arc::new(Int64Array::from_iter(
            (0..400).map(|row| (row % 2 == 0).then_some(7)),
        ));
        let second: ArrayRef = Arc::new(Int64Array::from_iter(
            (0..400).map(|row| (row % 4 != 0).then_some(8)),
        ));
        let after = route(Routes::by_hash(4).dealing_nulls(), &[first, second]);
        let mut dealt = [0; 4];
        let complete = after[2];
        for (row, partition) in after.iter().enumerate() {
            match row % 4 {
                2 => assert_eq!(*partition, complete),
                _ => dealt[*partition] += 1,
            }
        }
        assert_eq!(dealt, [75; 4]);
    }
}
