//! Columns of ids of which few are anything but zero, in memory that is used again and again: to write zeros
//! for the records that are not traced takes longer than all that is done for those that are.

use datafusion::arrow::buffer::ScalarBuffer;
use parking_lot::Mutex;

/// So many columns are kept: those that are on their way in a query of 10 partitions, and some more.
const KEPT: usize = 32;

/// Longer ones are not: a batch has 8192 rows.
const LONGEST: usize = 1 << 14;

/// Batches below are all given memory for so many: it is counted as theirs.
const SHORT: usize = 1 << 10;

/// Columns that were made before.
struct Columns(Mutex<Vec<SparseIds>>);

/// A column, and where it is not zero.
struct SparseIds {
    numbers: ScalarBuffer<i64>,
    places: Vec<usize>,
}

impl SparseIds {
    /// Whether nobody reads it any more.
    fn is_free(&self) -> bool {
        self.numbers.inner().strong_count() == 1
    }

    /// Its memory, with zeros everywhere, and memory for places.
    fn cleared(self) -> Option<(Vec<i64>, Vec<usize>)> {
        let mut numbers = self.numbers.into_inner().into_vec::<i64>().ok()?;
        let mut places = self.places;
        for place in places.drain(..) {
            numbers[place] = 0;
        }
        Some((numbers, places))
    }
}

/// A column of `rows` ids that are zero but at `places`, where they are `first` and the place.
pub(crate) fn sparse_ids(
    rows: usize,
    first: i64,
    places: impl Iterator<Item = usize>,
) -> ScalarBuffer<i64> {
    /// Of all queries.
    static COLUMNS: Columns = Columns(Mutex::new(Vec::new()));
    COLUMNS.column(rows, first, places)
}

impl Columns {
    fn column(
        &self,
        rows: usize,
        first: i64,
        places: impl Iterator<Item = usize>,
    ) -> ScalarBuffer<i64> {
        let free = self.take(rows).and_then(SparseIds::cleared);
        let new = || (vec![0; rows.max(SHORT)], Vec::new());
        let (mut numbers, mut written) = free.unwrap_or_else(new);
        written.extend(places);
        for place in &written {
            numbers[*place] = first + *place as i64;
        }
        let numbers = ScalarBuffer::from(numbers);
        let column = numbers.slice(0, rows);
        if numbers.len() <= LONGEST {
            let places = written;
            self.keep(SparseIds { numbers, places });
        }
        column
    }

    /// One that has so many rows and that nobody reads.
    fn take(&self, rows: usize) -> Option<SparseIds> {
        let mut kept = self.0.lock();
        let most = 2 * rows.max(SHORT);
        let fits = |ids: &SparseIds| (rows..=most).contains(&ids.numbers.len()) && ids.is_free();
        let free = kept.iter().position(fits)?;
        Some(kept.swap_remove(free))
    }

    fn keep(&self, ids: SparseIds) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.push(ids);
        } else if let Some(shortest) = kept.iter_mut().min_by_key(|ids| ids.numbers.len()) {
            *shortest = ids;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns that are held while others are made have their numbers; so have those in memory of others.
    #[test]
    fn a_column_has_its_numbers_for_as_long_as_it_is_held() {
        let columns = Columns(Mutex::default());
        let mut held = Vec::new();
        for round in 0..500_usize {
            let rows = [8192, 17, 0, 5000, 20_000][round % 5];
            let places: Vec<usize> = (round % 7..rows).step_by(251).collect();
            let first = 1000 * round as i64;
            let column = columns.column(rows, first, places.iter().copied());
            held.push((column, first, places));
            if round % 3 == 0 {
                held.swap_remove(round % held.len());
            }
            if held.len() > 60 {
                held.drain(..40);
            }
            for (column, first, places) in &held {
                let mut expected = vec![0; column.len()];
                for place in places {
                    expected[*place] = first + *place as i64;
                }
                assert_eq!(column.as_ref(), expected.as_slice());
            }
        }
        let kept = columns.0.into_inner();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().all(|ids| ids.numbers.len() <= LONGEST));
    }

    #[test]
    fn the_memory_of_a_column_that_is_dropped_is_that_of_the_next() {
        let columns = Columns(Mutex::default());
        let column = columns.column(8192, 7, [3, 5].into_iter());
        let memory = column.as_ptr();
        assert_eq!(column[..6], [0, 0, 0, 10, 0, 12]);
        let other = columns.column(8192, 7, [3].into_iter());
        assert_ne!(other.as_ptr(), memory);
        drop(column);
        let next = columns.column(5000, 1, [4].into_iter());
        assert_eq!(next.as_ptr(), memory);
        assert_eq!(next[..6], [0, 0, 0, 0, 5, 0]);
        assert_eq!(next.len(), 5000);
        drop(other);
        // Much longer than it need be.
        let short = columns.column(100, 1, [4].into_iter());
        assert_eq!(short.inner().capacity(), SHORT * size_of::<i64>());
    }
}
