//! How many rows a scan puts into a batch, by how wide they are.

use datafusion::common::Statistics;

/// About so many bytes are read into a batch at most: a batch is what threads share among them,
/// and what stays in a core's cache from one operator to the next. 8192 rows of 46 kB would be one
/// batch of 380 MB for one thread.
const BATCH_BYTES: usize = 1 << 20;

/// Rows of a batch of the columns at `projection`, of all if it is `None`: `most`, or fewer if the
/// rows are wide. `None` if `statistics`, which are of all columns, do not say how wide they are.
pub(crate) fn batch_rows(
    statistics: &Statistics,
    projection: Option<&[usize]>,
    most: usize,
) -> Option<usize> {
    let rows = *statistics.num_rows.get_value()?;
    let all: Vec<usize> = (0..statistics.column_statistics.len()).collect();
    let sizes = projection.unwrap_or(&all).iter().map(|column| {
        let column = statistics.column_statistics.get(*column)?;
        column.byte_size.get_value().copied()
    });
    let bytes = sizes.sum::<Option<usize>>()?;
    let fitting = BATCH_BYTES.saturating_mul(rows) / bytes.max(1);
    Some(fitting.clamp(1, most.max(1)))
}

#[cfg(test)]
mod tests {
    use datafusion::common::ColumnStatistics;
    use datafusion::common::stats::Precision;

    use super::*;

    /// Of so many rows, with columns of so many bytes.
    fn statistics(rows: usize, bytes: &[Option<usize>]) -> Statistics {
        let column = |bytes: &Option<usize>| match bytes {
            Some(bytes) => {
                ColumnStatistics::new_unknown().with_byte_size(Precision::Inexact(*bytes))
            }
            None => ColumnStatistics::new_unknown(),
        };
        Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Absent,
            column_statistics: bytes.iter().map(column).collect(),
        }
    }

    #[test]
    fn a_batch_of_wide_rows_has_about_a_megabyte() {
        let wide = statistics(2_103, &[Some(98 << 20), Some(2_103 * 8)]);
        assert_eq!(batch_rows(&wide, None, 8192), Some(21));
        assert_eq!(batch_rows(&wide, Some(&[0]), 8192), Some(21));
        let one_row = statistics(1, &[Some(98 << 20)]);
        assert_eq!(batch_rows(&one_row, None, 8192), Some(1));
    }

    #[test]
    fn what_is_not_read_does_not_count() {
        let wide = statistics(100_000, &[Some(1 << 30), Some(800_000), None]);
        assert_eq!(batch_rows(&wide, Some(&[1]), 8192), Some(8192));
        assert_eq!(batch_rows(&wide, Some(&[]), 8192), Some(8192));
        assert_eq!(batch_rows(&wide, Some(&[2]), 8192), None);
        assert_eq!(batch_rows(&wide, None, 8192), None);
    }

    #[test]
    fn no_batch_has_more_rows_than_the_session_s() {
        let narrow = statistics(1 << 20, &[Some(8 << 20)]);
        assert_eq!(batch_rows(&narrow, None, 8192), Some(8192));
        assert_eq!(batch_rows(&narrow, None, 100), Some(100));
        assert_eq!(batch_rows(&statistics(0, &[Some(0)]), None, 100), Some(1));
    }
}
