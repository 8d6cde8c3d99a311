//! What the footer of a file says of its rows' ids, if they are consecutive.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::Int64Array;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::FileRange;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use skewer_profiling::consecutive_numbers;

/// The ids of the rows of a file all of whose row groups have consecutive ones: an extension of a
/// [`PartitionedFile`](datafusion::datasource::listing::PartitionedFile).
#[derive(Debug, Clone)]
pub struct ConsecutiveIds(Arc<[RowGroupIds]>);

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

    /// The places of its rows in the file.
    fn rows(&self) -> Range<i64> {
        self.rows_before..self.rows_end()
    }

    fn rows_end(&self) -> i64 {
        self.rows_before + self.ids.end - self.ids.start
    }
}

/// Where a row group's first page begins: it is in the part of a file where that is, as for
/// DataFusion.
pub fn first_page(row_group: &RowGroupMetaData) -> i64 {
    row_group.columns().first().map_or(0, |column| {
        let dictionary = column.dictionary_page_offset();
        dictionary.unwrap_or_else(|| column.data_page_offset())
    })
}

impl ConsecutiveIds {
    /// What the footer of a file says; `None` if some ids are missing, or not in order. `ids_of` gives
    /// the ids of a row group if they are consecutive.
    pub fn from_footer(
        footer: &ParquetMetaData,
        ids_of: impl Fn(&RowGroupMetaData) -> Option<Range<i64>>,
    ) -> Option<Self> {
        let mut rows_before = 0;
        let row_groups = footer.row_groups().iter().map(|row_group| {
            // Without it the reader cannot tell which rows it returns.
            row_group.ordinal()?;
            let ids = RowGroupIds {
                begins: first_page(row_group),
                rows_before,
                ids: ids_of(row_group)?,
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

    /// The ids of the rows at these places in the file, in their memory if nobody else has it; those of a row
    /// group follow each other.
    pub(super) fn ids_at(&self, places: Int64Array) -> Result<Int64Array> {
        let [Some(first), Some(last)] = [places.values().first(), places.values().last()] else {
            return Ok(places);
        };
        let group = self.group_of(*first)?;
        // A batch is of one row group, but for a few.
        if group.rows().contains(last) {
            debug_assert!(
                places
                    .values()
                    .iter()
                    .all(|place| group.rows().contains(place))
            );
            let offset = group.offset();
            return Ok(match offset {
                0 => places,
                _ => match places.unary_mut(|place| place + offset) {
                    Ok(ids) => ids,
                    Err(places) => places.unary(|place| place + offset),
                },
            });
        }
        let mut ids = Vec::with_capacity(places.len());
        let mut left = &places.values()[..];
        while let Some(first) = left.first() {
            let group = self.group_of(*first)?;
            let of_group = group.rows();
            let own = left.iter().take_while(|place| of_group.contains(place));
            let (own, rest) = left.split_at(own.count());
            ids.extend(own.iter().map(|place| place + group.offset()));
            left = rest;
        }
        Ok(ids.into())
    }

    /// The row group of the row at a place in the file.
    fn group_of(&self, place: i64) -> Result<&RowGroupIds> {
        let group = self.0.partition_point(|group| group.rows_end() <= place);
        match self.0.get(group) {
            Some(group) => Ok(group),
            None => internal_err!("a segment has more rows than its footer says"),
        }
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
            let ids = ConsecutiveIds(groups.into()).ids_at(places.into());
            ids.map(|ids| ids.values().to_vec())
        };
        let two = || vec![group(0, 0..3), group(3, 10..14)];
        assert_eq!(ids(two(), vec![]).unwrap(), [0; 0]);
        assert_eq!(ids(two(), vec![0, 2]).unwrap(), [0, 2]);
        assert_eq!(ids(two(), vec![1, 2, 3, 6]).unwrap(), [1, 2, 10, 13]);
        assert_eq!(ids(two(), vec![4, 5, 0, 1]).unwrap(), [11, 12, 0, 1]);
        let places = Int64Array::from(vec![4, 5]);
        let memory = places.values().as_ptr();
        let alone = ConsecutiveIds(two().into()).ids_at(places).unwrap();
        assert_eq!(alone.values(), &[11, 12]);
        assert_eq!(alone.values().as_ptr(), memory);
        // Places that somebody else has, too, and some of them, remain what they are.
        let places = Int64Array::from(vec![3, 4, 5]);
        let some = ConsecutiveIds(two().into())
            .ids_at(places.slice(1, 2))
            .unwrap();
        assert_eq!(some.values(), &[11, 12]);
        assert_eq!(places.values(), &[3, 4, 5]);
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
