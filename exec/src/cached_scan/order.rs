//! The order in which row groups are read where one is asked for.

use datafusion::arrow::compute::{SortOptions, sort_to_indices};
use datafusion::arrow::datatypes::Schema;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;

/// An order that somebody above asks for, who sorts all the same: row groups with the first rows are best read
/// first, so that others can be skipped. DataFusion's scan of Parquet orders them alike.
#[derive(Debug, Clone)]
pub(super) struct RowGroupOrder {
    /// By whose smallest values they are sorted; as in the file without.
    column: Option<String>,
    is_reversed: bool,
}

impl RowGroupOrder {
    /// For rows in this order, of files with columns `schema`.
    pub(super) fn new(order: &[PhysicalSortExpr], schema: &Schema) -> Self {
        let first = order.first();
        let column = first.and_then(|first| first.expr.downcast_ref::<Column>());
        let column = column.filter(|column| schema.field_with_name(column.name()).is_ok());
        Self {
            column: column.map(|column| column.name().to_owned()),
            // What is no column is the reverse of the file's order.
            is_reversed: column.is_none() || first.is_some_and(|first| first.options.descending),
        }
    }

    /// `row_groups` of a file with columns `schema`, in this order as far as the footer tells.
    pub(super) fn apply(
        &self,
        mut row_groups: Vec<usize>,
        schema: &Schema,
        footer: &ParquetMetaData,
    ) -> Vec<usize> {
        if let Some(sorted) = self.sorted(&row_groups, schema, footer) {
            row_groups = sorted;
        }
        if self.is_reversed {
            row_groups.reverse();
        }
        row_groups
    }

    fn sorted(
        &self,
        row_groups: &[usize],
        schema: &Schema,
        footer: &ParquetMetaData,
    ) -> Option<Vec<usize>> {
        let column = self.column.as_deref()?;
        schema.field_with_name(column).ok()?;
        let described = footer.file_metadata().schema_descr();
        let statistics = StatisticsConverter::try_new(column, schema, described).ok()?;
        let groups = row_groups.iter().map(|group| footer.row_group(*group));
        let smallest = statistics.row_group_mins(groups).ok()?;
        let options = SortOptions {
            descending: false,
            // Those without bounds come last.
            nulls_first: self.is_reversed,
        };
        let places = sort_to_indices(&smallest, Some(options), None).ok()?;
        let places = places.values().iter();
        Some(places.map(|place| row_groups[*place as usize]).collect())
    }
}
