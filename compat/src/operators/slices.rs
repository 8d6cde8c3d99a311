//! Cutting batches into slices that take about as long as they should.

use std::time::Duration;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteArray, GenericByteViewArray, GenericListArray,
    OffsetSizeTrait, RecordBatch,
};
use datafusion::arrow::datatypes::{ArrowNativeType, ByteArrayType, ByteViewType, DataType};

/// A join should be done with a slice of its input after this time: what is cancelled ends within
/// 200 ms then.
const SLICE: Duration = Duration::from_millis(150);

/// An operator should be done with a slice after this time that calls functions for each row.
const SHORT_SLICE: Duration = Duration::from_millis(20);

/// Rows of the first slice, before anything is known of their cost: a nested loop join compares
/// each with all rows of its other input.
const FIRST_SLICE: usize = 1;

/// The same for functions, and the bytes of a column in it: what a function takes often goes by them.
const FIRST_ROWS: usize = 16;
const FIRST_BYTES: usize = 16 << 10;

/// Slices grow by this factor as long as they take less than they should divided by it.
const GROWTH: u32 = 8;

/// What slices are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The probe side of a join.
    Join,
    /// Functions, patterns and lists.
    Function,
    /// A timed evaluation, which finds slow rows among others: it gets whole batches as long as those are
    /// quick.
    Timed,
}

impl Target {
    /// How long a slice should take.
    fn time(self) -> Duration {
        match self {
            Self::Join => SLICE,
            Self::Function | Self::Timed => SHORT_SLICE,
        }
    }

    /// How much the first slice has at most.
    fn first(self) -> Limits {
        let (rows, bytes) = match self {
            Self::Join => (FIRST_SLICE, usize::MAX),
            Self::Function => (FIRST_ROWS, FIRST_BYTES),
            Self::Timed => (usize::MAX, usize::MAX),
        };
        Limits { rows, bytes }
    }
}

/// How much the next slice has at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows.
    pub rows: usize,
    /// Bytes of a column, unless one row has more.
    pub bytes: usize,
}

impl Limits {
    /// So many rows and bytes took so long, and should have taken `target`.
    pub fn learn(&mut self, took: Duration, target: Duration, rows: usize, bytes: usize) {
        if took > target {
            let share = target.as_secs_f64() / took.as_secs_f64();
            let part = |all: usize| ((all as f64 * share) as usize).max(1);
            self.rows = part(rows);
            if bytes > 0 {
                self.bytes = part(bytes);
            }
        } else if took * GROWTH < target {
            let growth = GROWTH as usize;
            self.rows = self.rows.max(rows.saturating_mul(growth));
            self.bytes = self.bytes.max(bytes.saturating_mul(growth));
        }
    }
}

/// Cuts batches into slices that take about as long as they should, or leaves them whole.
#[derive(Debug)]
pub struct Slices {
    target: Target,
    /// What is left of a batch.
    rest: Option<RecordBatch>,
    limits: Limits,
    /// The last slice.
    given: Option<Given>,
}

/// A slice that the consumer works on.
#[derive(Debug, Clone, Copy)]
struct Given {
    /// When it was given, by the clock of the task.
    at: Duration,
    rows: usize,
    bytes: usize,
}

impl Slices {
    /// None yet.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            rest: None,
            limits: target.first(),
            given: None,
        }
    }

    /// Whether another batch is needed.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    /// Cuts this batch next.
    pub fn take(&mut self, batch: RecordBatch) {
        self.rest = Some(batch);
    }

    /// The consumer is done with the last slice, at `now` by the clock of the task.
    pub fn asked_again(&mut self, now: Duration) {
        let Some(Given { at, rows, bytes }) = self.given.take() else {
            return;
        };
        let took = now.saturating_sub(at);
        self.limits.learn(took, self.target.time(), rows, bytes);
    }

    /// The next slice, given at `now` by the clock of the task.
    pub fn next(&mut self, now: Duration) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        let (rows, bytes) = rows_within(batch.columns().iter(), batch.num_rows(), self.limits);
        self.given = Some(Given {
            at: now,
            rows,
            bytes,
        });
        if rows == batch.num_rows() {
            return Some(batch);
        }
        self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        Some(batch.slice(0, rows))
    }
}

/// How many of the first rows of `columns`, which have so many `rows`, are within `limits`: at least one, if there
/// is one. And the bytes of the column that has most of them in these rows.
pub fn rows_within<'a>(
    columns: impl Iterator<Item = &'a ArrayRef> + Clone,
    rows: usize,
    limits: Limits,
) -> (usize, usize) {
    let mut rows = rows.min(limits.rows);
    // Most batches are within the limits: what a column has is asked for once then.
    let (mut most, first) = (0, rows);
    for column in columns.clone() {
        let bytes = bytes_of(column, rows);
        if bytes > limits.bytes && rows > 1 {
            let (mut fits, mut too_many) = (1, rows);
            while fits + 1 < too_many {
                let middle = fits.midpoint(too_many);
                match bytes_of(column, middle) > limits.bytes {
                    true => too_many = middle,
                    false => fits = middle,
                }
            }
            rows = fits;
        } else {
            most = most.max(bytes);
        }
    }
    if rows != first {
        let bytes = columns.map(|column| bytes_of(column, rows));
        most = bytes.max().unwrap_or(0);
    }
    (rows, most)
}

/// The bytes of the first rows of a column whose values vary in size; 0 of others.
fn bytes_of(column: &dyn Array, rows: usize) -> usize {
    fn of_bytes<T: ByteArrayType>(array: &GenericByteArray<T>, rows: usize) -> usize {
        let offsets = array.value_offsets();
        (offsets[rows] - offsets[0]).as_usize()
    }
    fn of_views<T: ByteViewType>(array: &GenericByteViewArray<T>, rows: usize) -> usize {
        // The lower half of a view is the value's length.
        let views = array.views()[..rows].iter();
        views.fold(0, |bytes, view| bytes + *view as u32 as usize)
    }
    fn of_lists<O: OffsetSizeTrait>(array: &GenericListArray<O>, rows: usize) -> usize {
        let offsets = array.value_offsets();
        let (start, end) = (offsets[0].as_usize(), offsets[rows].as_usize());
        let values = array.values().slice(start, end - start);
        let width = values.data_type().primitive_width().unwrap_or(1);
        (width * values.len()).max(bytes_of(&values, values.len()))
    }
    match column.data_type() {
        DataType::Utf8 => of_bytes(column.as_string::<i32>(), rows),
        DataType::LargeUtf8 => of_bytes(column.as_string::<i64>(), rows),
        DataType::Binary => of_bytes(column.as_binary::<i32>(), rows),
        DataType::LargeBinary => of_bytes(column.as_binary::<i64>(), rows),
        DataType::Utf8View => of_views(column.as_string_view(), rows),
        DataType::BinaryView => of_views(column.as_binary_view(), rows),
        DataType::List(_) => of_lists(column.as_list::<i32>(), rows),
        DataType::LargeList(_) => of_lists(column.as_list::<i64>(), rows),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, StringViewArray};
    use datafusion::arrow::compute::cast;

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    /// Rows of the slices of a batch whose slices take `time`.
    fn slices_of(
        target: Target,
        batch: RecordBatch,
        time: impl Fn(usize) -> Duration,
    ) -> Vec<usize> {
        let mut slices = Slices::new(target);
        slices.take(batch);
        let mut lengths = vec![];
        let mut now = Duration::ZERO;
        while let Some(slice) = slices.next(now) {
            lengths.push(slice.num_rows());
            now += time(slice.num_rows());
            slices.asked_again(now);
        }
        lengths
    }

    fn slices(rows: i64, time: impl Fn(usize) -> Duration) -> Vec<usize> {
        slices_of(Target::Join, batch(rows), time)
    }

    #[test]
    fn slices_grow_as_long_as_they_are_quick() {
        assert_eq!(
            slices(20_000, |_| Duration::from_micros(10)),
            [1, 8, 64, 512, 4096, 15319]
        );
        assert_eq!(slices(10, |_| Duration::ZERO), [1, 8, 1]);
        let quick = |_| Duration::from_micros(10);
        assert_eq!(
            slices_of(Target::Function, batch(8_192), quick),
            [16, 128, 1024, 7024]
        );
        assert_eq!(slices_of(Target::Timed, batch(8_192), quick), [8_192]);
    }

    #[test]
    fn slices_take_no_longer_than_they_should() {
        let slow = |rows| Duration::from_millis(10 * rows as u64);
        let mut expected = [8; 26];
        (expected[0], expected[25]) = (1, 7);
        assert_eq!(slices(200, slow), expected);
        let slower = |rows| Duration::from_secs(rows as u64);
        assert_eq!(slices(4, slower), [1, 1, 1, 1]);
        let well = |rows| Duration::from_micros(250 * rows as u64);
        assert_eq!(slices(1500, well), [1, 8, 64, 512, 512, 403]);
        let in_the_end_slow = |rows| Duration::from_micros(200 * (rows * rows) as u64);
        assert_eq!(slices(90, in_the_end_slow), [1, 8, 64, 11, 6]);
        let ms = |rows| Duration::from_millis(rows as u64);
        // 16 rows take less than they may, and not so little that there could be eight times as many.
        let expected = [16, 16, 16, 16, 16, 16, 4];
        assert_eq!(slices_of(Target::Function, batch(100), ms), expected);
    }

    /// Short texts, and then long ones: what is learned from the first must not make slices of the others
    /// too long.
    #[test]
    fn rows_that_become_longer_make_slices_shorter() {
        let lengths = (0..4_000).map(|row| if row < 2_000 { 10 } else { 10_000 });
        let texts: StringArray = lengths.map(|length| Some("x".repeat(length))).collect();
        let views: StringViewArray = texts.iter().collect();
        let columns: [ArrayRef; 2] = [Arc::new(texts), Arc::new(views)];
        for column in columns {
            let batch = RecordBatch::try_from_iter([("s", column)]).unwrap();
            let rows = slices_of(Target::Function, batch, |_| Duration::from_millis(1));
            // Eight times the bytes of the slice before: 832 short rows and seven long ones, then 62.
            assert_eq!(rows[..5], [16, 128, 1024, 839, 62], "{rows:?}");
        }
    }

    #[test]
    fn long_lists_count_as_long_rows() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["1,2,3,4,5,6,7,8"; 5]));
        let one = DataType::new_list(DataType::Utf8, true);
        let lists = cast(&texts, &one).unwrap();
        assert_eq!(bytes_of(&lists, 3), 45);
        let batch = RecordBatch::try_from_iter([("l", lists)]).unwrap();
        let within = |batch: &RecordBatch, rows, bytes| {
            let limits = Limits { rows, bytes };
            rows_within(batch.columns().iter(), batch.num_rows(), limits)
        };
        assert_eq!(within(&batch, 5, 30), (2, 30));
        assert_eq!(within(&batch, 5, 1), (1, 15));
        assert_eq!(within(&batch, 4, 1_000), (4, 60));
        assert_eq!(within(&batch.slice(5, 0), 4, 1), (0, 0));
    }
}
