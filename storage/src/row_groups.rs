//! The row groups of a Parquet file, whose columns several threads encode.
//!
//! The file is that of parquet's `ArrowWriter`, byte by byte: rows are divided among row groups as there. Encoding
//! takes most of the time of loading a table, and one thread would do all of it.

use std::io::Write;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory, compute_leaves,
};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;

/// The most threads that encode columns of one file.
const MOST_THREADS: usize = 4;

/// Values of a batch that one thread encodes sooner than several have begun.
const FEW_VALUES: usize = 1 << 14;

/// A Parquet file that is being written.
pub(crate) struct RowGroups<W: Write + Send> {
    file: SerializedFileWriter<W>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// Rows and encoded bytes at which a row group is closed.
    most_rows: usize,
    most_bytes: usize,
    open: Option<RowGroup>,
    threads: usize,
}

/// A row group that is being written.
struct RowGroup {
    /// One for each leaf of the columns.
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

impl<W: Write + Send> std::fmt::Debug for RowGroups<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowGroups")
            .field("rows", &self.rows())
            .finish_non_exhaustive()
    }
}

impl<W: Write + Send> RowGroups<W> {
    /// A file of rows of `schema`, encoded by as many threads as there are processors, within bounds.
    ///
    /// # Errors
    /// If Parquet has no such column, or the beginning cannot be written.
    pub(crate) fn try_new(
        sink: W,
        schema: &SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_threads(sink, schema, properties, threads.min(MOST_THREADS))
    }

    fn with_threads(
        sink: W,
        schema: &SchemaRef,
        properties: WriterProperties,
        threads: usize,
    ) -> Result<Self> {
        let most_rows = properties.max_row_group_row_count().unwrap_or(usize::MAX);
        let most_bytes = properties.max_row_group_bytes().unwrap_or(usize::MAX);
        let writer = ArrowWriter::try_new(sink, SchemaRef::clone(schema), Some(properties))?;
        let (file, factory) = writer.into_serialized_writer()?;
        Ok(Self {
            file,
            factory,
            schema: SchemaRef::clone(schema),
            most_rows,
            most_bytes,
            open: None,
            threads,
        })
    }

    /// Rows of the open row group.
    pub(crate) fn rows(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.rows)
    }

    /// Bytes of the open row group, as far as they are encoded or can be told.
    pub(crate) fn bytes(&self) -> usize {
        self.open.as_ref().map_or(0, RowGroup::bytes)
    }

    /// Bytes of the row groups before it.
    pub(crate) fn bytes_written(&self) -> usize {
        self.file.bytes_written()
    }

    /// What is written to. What is written there past this writer is lost.
    pub(crate) fn sink_mut(&mut self) -> &mut W {
        self.file.inner_mut()
    }

    /// Encodes rows, and closes row groups that are full.
    ///
    /// # Errors
    /// If a column cannot be encoded, or the file cannot be written.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut rest = batch.clone();
        while rest.num_rows() > 0 {
            let rows = rest.num_rows().min(self.room()?);
            if rows == 0 {
                self.close_row_group()?;
                continue;
            }
            self.encode(&rest.slice(0, rows))?;
            rest = rest.slice(rows, rest.num_rows() - rows);
            if self.rows() >= self.most_rows || self.bytes() >= self.most_bytes {
                self.close_row_group()?;
            }
        }
        Ok(())
    }

    /// How many rows the open row group takes, if they are like those that it has.
    fn room(&mut self) -> Result<usize> {
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let number = self.file.flushed_row_groups().len();
                none.insert(RowGroup {
                    columns: self.factory.create_column_writers(number)?,
                    rows: 0,
                })
            }
        };
        let rows = self.most_rows - open.rows;
        let bytes = open.bytes();
        match bytes.checked_div(open.rows) {
            Some(of_row) if of_row > 0 => {
                Ok(rows.min(self.most_bytes.saturating_sub(bytes) / of_row))
            }
            _ => Ok(rows),
        }
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<()> {
        let threads = self.threads_for(batch.num_rows() * batch.num_columns());
        let Some(open) = &mut self.open else {
            return Err(ParquetError::General("no open row group".to_owned()));
        };
        open.rows += batch.num_rows();
        let mut leaves = Vec::with_capacity(open.columns.len());
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            leaves.extend(compute_leaves(field, column)?);
        }
        let mut work: Vec<(&mut ArrowColumnWriter, ArrowLeafColumn)> =
            open.columns.iter_mut().zip(leaves).collect();
        // The longest first, so that no thread begins it when the others are through.
        work.sort_by_key(|(column, _)| std::cmp::Reverse(column.get_estimated_total_bytes()));
        in_parallel(threads, work, |(column, leaf)| column.write(&leaf))?;
        Ok(())
    }

    fn close_row_group(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let threads = self.threads_for(open.rows * open.columns.len());
        let chunks = in_parallel(threads, open.columns, ArrowColumnWriter::close)?;
        let mut row_group = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// How many threads are worth beginning for so many values.
    pub(crate) fn threads_for(&self, values: usize) -> usize {
        if values <= FEW_VALUES {
            1
        } else {
            self.threads
        }
    }

    /// Closes the last row group and writes `bytes` behind it, where Parquet's readers skip them. The footer says
    /// where they are, by the `note` made of their offset and length.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn append(
        &mut self,
        bytes: &[u8],
        note: impl FnOnce(usize, usize) -> KeyValue,
    ) -> Result<()> {
        self.close_row_group()?;
        let offset = self.file.bytes_written();
        self.file.write_all(bytes)?;
        self.file
            .append_key_value_metadata(note(offset, bytes.len()));
        Ok(())
    }

    /// Writes the end of the file; nothing can be written after it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.close_row_group()?;
        self.file.finish()?;
        Ok(())
    }
}

impl RowGroup {
    fn bytes(&self) -> usize {
        let columns = self.columns.iter();
        columns
            .map(ArrowColumnWriter::get_estimated_total_bytes)
            .sum()
    }
}

/// What `work` makes of each item, in their order, by so many threads.
///
/// # Errors
/// The first of those of `work`.
pub(crate) fn in_parallel<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let queue = Mutex::new(items.into_iter().enumerate());
    let take_turns = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, item)) = next else {
                return done;
            };
            done.push((place, work(item)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(take_turns)).collect();
        let mut done = take_turns();
        for helper in helpers {
            match helper.join() {
                Ok(by_helper) => done.extend(by_helper),
                Err(panic) => resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    /// Rows of a number, a text of some length, and a list; some are NULL.
    fn rows(from: i64, rows: i64, length: usize) -> RecordBatch {
        let numbers = (from..from + rows).map(|n| (n % 7 != 0).then_some(n));
        let texts = (from..from + rows).map(|n| Some(format!("{n:0length$}")));
        let lists = (from..from + rows).map(|n| (n % 5 != 0).then(|| vec![Some(n), None]));
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(numbers.collect::<Int64Array>())),
            ("b", Arc::new(texts.collect::<StringViewArray>())),
            (
                "c",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    fn properties() -> WriterProperties {
        WriterProperties::builder()
            .set_max_row_group_row_count(Some(20_000))
            .set_max_row_group_bytes(Some(1 << 20))
            .set_data_page_row_count_limit(1_000)
            .build()
    }

    #[test]
    fn files_are_those_of_parquets_writer() {
        // Narrow rows fill row groups by their number, wide ones by their bytes.
        for length in [1, 60, 2_000] {
            let batches: Vec<_> = (0..6).map(|n| rows(n * 9_000, 9_000, length)).collect();
            let schema = batches[0].schema();
            let mut expected =
                ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties())).unwrap();
            for batch in &batches {
                expected.write(batch).unwrap();
            }
            let expected = expected.into_inner().unwrap();
            for threads in [1, 3] {
                let mut file =
                    RowGroups::with_threads(Vec::new(), &schema, properties(), threads).unwrap();
                for batch in &batches {
                    file.write(batch).unwrap();
                }
                file.finish().unwrap();
                let written = std::mem::take(file.sink_mut());
                assert!(
                    written == expected,
                    "{length} characters, {threads} threads"
                );
            }
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_work() {
        let squares = in_parallel(3, (0..100).collect(), |n: i32| Ok(n * n)).unwrap();
        assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());
        let failing = |n: i32| match n {
            7 => Err(ParquetError::General("seven".to_owned())),
            n => Ok(n),
        };
        assert!(in_parallel(3, (0..100).collect(), failing).is_err());
    }
}
