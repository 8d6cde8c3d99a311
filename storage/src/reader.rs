//! Reading one segment's rows, for compaction and for tests. Queries read through DataFusion.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::new_null_array;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{ObjectStore, ObjectStoreExt};
use datafusion::parquet::arrow::ParquetRecordBatchStreamBuilder;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};

use crate::snapshot::{SegmentMeta, TableMeta};
use crate::storage::Storage;
use crate::{Result, StorageError};

impl Storage {
    /// Rows of one segment of a table, in the table's physical schema: columns added after the
    /// segment was written are NULL.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the file is missing or cannot be decoded. Damage inside of
    /// encoded values can pass unnoticed: that is what [`Storage::verify`] is for.
    pub async fn read_segment(
        &self,
        table: &TableMeta,
        segment: &Arc<SegmentMeta>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        self.verify(segment, false).await?;
        let schema = table.physical_schema();
        // Held until the stream ends, so that the file is there until then.
        let segment = Arc::clone(segment);
        let reader = Reader {
            store: self.object_store(),
            location: segment.location.clone(),
            bytes: segment.bytes,
        };
        let batches = ParquetRecordBatchStreamBuilder::new(reader)
            .await
            .and_then(ParquetRecordBatchStreamBuilder::build)
            .map_err(|error| StorageError::corrupt(segment.path(), error))?;
        Ok(batches
            .map_err(ArrowError::from)
            .and_then(move |batch| std::future::ready(complete(&batch, &schema)))
            .map_err(move |error| StorageError::corrupt(segment.path(), error))
            .boxed())
    }
}

/// A batch with the columns of now.
fn complete(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), batch.num_rows()),
        })
        .collect();
    RecordBatch::try_new(Arc::clone(schema), columns)
}

struct Reader {
    store: Arc<dyn ObjectStore>,
    location: Location,
    bytes: u64,
}

fn external(error: datafusion::object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.store
            .get_range(&self.location, range)
            .map_err(external)
            .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move {
            let chunks = self.store.get_ranges(&self.location, &ranges).await;
            chunks.map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let bytes = self.bytes;
            let metadata = ParquetMetaDataReader::new()
                .load_and_finish(self, bytes)
                .await?;
            Ok(Arc::new(metadata))
        }
        .boxed()
    }
}
