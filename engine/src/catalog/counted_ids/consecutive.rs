//! What the footer of a file says of its rows' ids, if they are consecutive.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::Int64Array;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::FileRange;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use skewer_profiling::consecutive_numbers;
use skewer_storage::row_ids;

/// The ids of the rows of a file all of whose row groups have consecutive ones: an extension of a
/// [`PartitionedFile`](datafusion::datasource::listing::PartitionedFile).
#[derive(Debug, Clone)]
pub(crate) struct ConsecutiveIds(Arc<[RowGroupIds]>);

#[derive(Debug)]
struct RowGroupIds {
    /// Where it begins in the file, in bytes.
    begins: i64,
    /// How many rows of the file are before it.
    rows_before: i64,
    ids: Range<i64>,
}

impl RowGroupIds {
    /// From the place of a row in the file to its id.
    fn offset(&self) -> i64 {
        self.ids.start - self.rows_before
    }

    fn rows_end(&self) -> i64 {
        self.rows_before + self.ids.end - self.ids.start
    }
}

/// Where a row group's first page begins: it is in the part of a file where that is, as for
/// DataFusion.
pub(crate) fn begins(row_group: &RowGroupMetaData) -> i64 {
    row_group.columns().first().map_or(0, |column| {
        let dictionary = column.dictionary_page_offset();
        dictionary.unwrap_or_else(|| column.data_page_offset())
    })
}

impl ConsecutiveIds {
    /// What a segment's footer says; `None` if some ids are missing, or not in order.
    pub(crate) fn of(footer: &ParquetMetaData) -> Option<Self> {
        let mut rows_before = 0;
        let row_groups = footer.row_groups().iter().map(|row_group| {
            // Without it the reader cannot tell which rows it returns.
            row_group.ordinal()?;
            let ids = RowGroupIds {
                begins: begins(row_group),
                rows_before,
                ids: row_ids::consecutive(row_group)?,
            };
            rows_before = ids.rows_end();
            Some(ids)
        });
        row_groups.collect::<Option<_>>().map(Self)
    }

    /// Those of a part of the file, in order.
    pub(super) fn of_part(&self, part: Option<&FileRange>) -> VecDeque<Range<i64>> {
        let row_groups = self.0.iter();
        row_groups
            .filter(|row_group| part.is_none_or(|part| part.contains(row_group.begins)))
            .map(|row_group| row_group.ids.clone())
            .collect()
    }

    /// The ids of the rows at these places in the file; those of a row group follow each other.
    pub(super) fn at(&self, places: &Int64Array) -> Result<Int64Array> {
        let mut left = &places.values()[..];
        let mut ids = Vec::new();
        while let Some(first) = left.first() {
            let group = self.0.partition_point(|group| group.rows_end() <= *first);
            let Some(group) = self.0.get(group) else {
                return internal_err!("a segment has more rows than its footer says");
            };
            let of_group = group.rows_before..group.rows_end();
            let mut is_own = left.iter().map(|place| of_group.contains(place));
            // A batch is of one row group, but for a few.
            let own = match left.last().is_some_and(|last| of_group.contains(last)) {
                true => left.len(),
                false => is_own.by_ref().take_while(|is_own| *is_own).count(),
            };
            debug_assert!(own < left.len() || is_own.all(|is_own| is_own));
            let (own, rest) = left.split_at(own);
            let offset = group.offset();
            if offset == 0 && rest.is_empty() && ids.is_empty() {
                return Ok(places.clone());
            }
            ids.extend(own.iter().map(|place| place + offset));
            left = rest;
        }
        Ok(ids.into())
    }
}

/// Takes the ids of the next `rows` rows if they are of one row group, as those of nearly every batch;
/// otherwise takes none.
pub(super) fn next_range(left: &mut VecDeque<Range<i64>>, rows: usize) -> Option<Range<i64>> {
    let next = left.front_mut()?;
    let end = next.start.checked_add(i64::try_from(rows).ok()?)?;
    if end > next.end {
        return None;
    }
    let ids = next.start..end;
    next.start = end;
    if next.is_empty() {
        left.pop_front();
    }
    Some(ids)
}

/// Takes the ids of the next `rows` rows.
pub(super) fn next_ids(left: &mut VecDeque<Range<i64>>, rows: usize) -> Result<Int64Array> {
    let mut ids = Vec::new();
    while ids.len() < rows {
        let Some(next) = left.front_mut() else {
            return internal_err!("a segment has more rows than its footer says");
        };
        let missing = (rows - ids.len()) as i64;
        let end = next.end.min(next.start.saturating_add(missing));
        consecutive_numbers(next.start..end, &mut ids);
        next.start = end;
        if next.is_empty() {
            left.pop_front();
        }
    }
    Ok(ids.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_ids_by_the_row_group_that_they_are_in() {
        let group = |rows_before, ids| RowGroupIds {
            begins: 0,
            rows_before,
            ids,
        };
        let ids = |groups: Vec<RowGroupIds>, places: Vec<i64>| {
            let ids = ConsecutiveIds(groups.into()).at(&places.into());
            ids.map(|ids| ids.values().to_vec())
        };
        let two = || vec![group(0, 0..3), group(3, 10..14)];
        assert_eq!(ids(two(), vec![]).unwrap(), [0; 0]);
        assert_eq!(ids(two(), vec![0, 2]).unwrap(), [0, 2]);
        assert_eq!(ids(two(), vec![1, 2, 3, 6]).unwrap(), [1, 2, 10, 13]);
        assert_eq!(ids(two(), vec![4, 5, 0, 1]).unwrap(), [11, 12, 0, 1]);
        let error = ids(two(), vec![2, 7]).unwrap_err().to_string();
        assert!(error.contains("more rows"), "{error}");
    }

    #[test]
    fn ids_of_one_row_group_are_taken_as_a_range() {
        let mut left = VecDeque::from([5..8, 10..12]);
        assert_eq!(next_range(&mut left, 2), Some(5..7));
        assert_eq!(next_range(&mut left, 2), None);
        assert_eq!(next_ids(&mut left, 2).unwrap().values(), &[7, 10]);
        assert_eq!(next_range(&mut left, 1), Some(11..12));
        assert_eq!(next_range(&mut left, 1), None);
    }

    #[test]
    fn more_rows_than_ids_are_an_error() {
        let mut left = VecDeque::from([5..8, 10..12]);
        assert_eq!(next_ids(&mut left, 0).unwrap().len(), 0);
        let ids = next_ids(&mut left, 4).unwrap();
        assert_eq!(ids.values(), &[5, 6, 7, 10]);
        let error = next_ids(&mut left, 2).unwrap_err();
        assert!(error.to_string().contains("more rows"), "{error}");
    }
}
