//! What the footer of a segment says of its row ids.
//!
//! A row group whose ids ascend says so, as Parquet has it: it names `_row_id` as the column by
//! which it is sorted. As no two rows have the same id, its statistics tell whether any is missing
//! between the first and the last. If not, a scan need not read the ids: it can count.

use std::ops::Range;

use datafusion::arrow::datatypes::Schema;
use datafusion::parquet::arrow::ArrowSchemaConverter;
use datafusion::parquet::file::metadata::{RowGroupMetaData, SortingColumn};
use datafusion::parquet::file::statistics::Statistics;

use crate::{Result, StorageError};

/// What a row group of rows of `physical` says of itself if its row ids, the last column, ascend.
pub(crate) fn ascending(physical: &Schema) -> Result<SortingColumn> {
    let leaves = ArrowSchemaConverter::new()
        .convert(physical)
        .map_err(StorageError::invalid)?;
    Ok(by_column(leaves.num_columns() - 1))
}

fn by_column(column: usize) -> SortingColumn {
    SortingColumn {
        column_idx: i32::try_from(column).unwrap_or(i32::MAX),
        descending: false,
        nulls_first: false,
    }
}

/// The ids of the rows of a segment's row group, if they are these in this order, as far as its
/// footer tells.
pub fn consecutive(row_group: &RowGroupMetaData) -> Option<Range<i64>> {
    let last = row_group.num_columns().checked_sub(1)?;
    if row_group.sorting_columns()? != &vec![by_column(last)] {
        return None;
    }
    let Statistics::Int64(ids) = row_group.column(last).statistics()? else {
        return None;
    };
    let (first, greatest) = (*ids.min_opt()?, *ids.max_opt()?);
    let is_exact = ids.min_is_exact() && ids.max_is_exact();
    let ids = first..greatest.checked_add(1)?;
    (is_exact && ids.end.checked_sub(first)? == row_group.num_rows()).then_some(ids)
}
