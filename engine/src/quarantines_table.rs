//! `sys.quarantines`: the quarantines that there are, as a statement sees them.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use skewer_profiling::{OneMoreTable, nanos_since_epoch};
use skewer_storage::{QuarantineMeta, Snapshot, TableMeta};

/// `sys` with the quarantines of `snapshot`.
pub(crate) fn with_quarantines(
    sys: Arc<dyn SchemaProvider>,
    snapshot: Arc<Snapshot>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "quarantines", move || {
        let schemas = snapshot.schemas();
        let tables: Vec<_> = schemas.iter().flat_map(|s| snapshot.tables(s)).collect();
        let all = tables.iter().flat_map(|table| {
            let quarantines = table.quarantines.values();
            quarantines.map(move |quarantine| (table, quarantine))
        });
        rows(&all.collect::<Vec<_>>()).map(Some)
    })
}

/// One row for each quarantine and its table.
fn rows(quarantines: &[(&Arc<TableMeta>, &Arc<QuarantineMeta>)]) -> Result<RecordBatch> {
    let each = || quarantines.iter().map(|(_, quarantine)| quarantine);
    let tables = || quarantines.iter().map(|(table, _)| table);
    let views = quarantines.iter().map(|(table, quarantine)| {
        let view = quarantine.view.as_ref()?;
        Some(format!("{}.{view}", table.schema_name))
    });
    let created = each().map(|quarantine| nanos_since_epoch(quarantine.created_at()));
    let columns: [(&str, ArrayRef, bool); 6] = [
        (
            "table_id",
            Arc::new(Int64Array::from_iter_values(
                tables().map(|table| table.id.0.cast_signed()),
            )),
            false,
        ),
        (
            "table_name",
            Arc::new(StringArray::from_iter_values(
                tables().map(|table| table.qualified_name()),
            )),
            false,
        ),
        (
            "name",
            Arc::new(StringArray::from_iter_values(each().map(|q| &q.name))),
            false,
        ),
        (
            "predicate",
            Arc::new(StringArray::from_iter_values(each().map(|q| &q.predicate))),
            false,
        ),
        ("view_name", Arc::new(StringArray::from_iter(views)), true),
        (
            "created_at",
            Arc::new(TimestampNanosecondArray::from_iter_values(created).with_timezone("+00:00")),
            false,
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
