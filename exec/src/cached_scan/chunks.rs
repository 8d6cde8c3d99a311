//! The columns of a row group, some from the cache, some decoded.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, make_array};
use datafusion::common::{Result, internal_err};
use datafusion::parquet::DecodeResult;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::push_decoder::ParquetPushDecoder;

use crate::column_cache::{CHUNK_ROWS, Decoded, Filling};

/// The columns of a row group, chunk by chunk.
pub(super) struct Chunks {
    rows: usize,
    columns: Vec<Source>,
    /// Decodes those that are not in the cache.
    decoder: Option<ParquetPushDecoder>,
    /// The chunk that begins at a row, of all columns.
    chunk: Option<(usize, Vec<ArrayRef>)>,
    /// Where the next chunk begins.
    next: usize,
}

/// Where a column's chunks come from.
pub(super) enum Source {
    Cache(Arc<Decoded>),
    /// The decoder, and what becomes an entry of the cache.
    Decoder(Option<Filling>),
}

impl Chunks {
    /// The chunks of a row group of `rows` rows, whose columns come from these sources.
    pub(super) fn new(
        rows: usize,
        columns: Vec<Source>,
        decoder: Option<ParquetPushDecoder>,
    ) -> Self {
        Self {
            rows,
            columns,
            decoder,
            chunk: None,
            next: 0,
        }
    }

    /// The next rows of `ranges`, which are taken from them, at most `most`; `None` at the end.
    pub(super) async fn next(
        &mut self,
        ranges: &mut VecDeque<Range<usize>>,
        most: usize,
        reader: &mut Box<dyn AsyncFileReader>,
    ) -> Result<Option<(Vec<ArrayRef>, Range<usize>)>> {
        loop {
            if let Some((begin, columns)) = &self.chunk {
                let end = begin + CHUNK_ROWS.min(self.rows - begin);
                if let Some(range) = ranges.front_mut()
                    && range.start < end
                {
                    // In equal parts.
                    let parts = (end - begin).div_ceil(most.max(1));
                    let part = (end - begin).div_ceil(parts);
                    let piece = range.start..range.end.min(end).min(range.start + part);
                    range.start = piece.end;
                    if range.start == range.end {
                        ranges.pop_front();
                    }
                    let columns = columns.iter();
                    let columns = columns.map(|column| slice(column, *begin, &piece));
                    let columns = columns.collect::<Result<_>>()?;
                    return Ok(Some((columns, piece)));
                }
                self.chunk = None;
            }
            if !self.advance(ranges, reader).await? {
                return Ok(None);
            }
        }
    }

    /// Goes to the next chunk; `false` at the end.
    async fn advance(
        &mut self,
        ranges: &VecDeque<Range<usize>>,
        reader: &mut Box<dyn AsyncFileReader>,
    ) -> Result<bool> {
        match (&self.decoder, ranges.front()) {
            // Chunks that nobody reads are not looked at.
            (None, Some(range)) => self.next = range.start / CHUNK_ROWS * CHUNK_ROWS,
            (None, None) => return Ok(false),
            (Some(_), None) if !self.is_filling() => return Ok(false),
            // What will be in the cache is decoded to the end.
            (Some(_), _) => {}
        }
        if self.next >= self.rows {
            self.finish();
            return Ok(false);
        }
        let begin = self.next;
        let rows = CHUNK_ROWS.min(self.rows - begin);
        let mut decoded = Vec::new().into_iter();
        if let Some(decoder) = &mut self.decoder {
            let batch = decode(decoder, reader).await?;
            let Some(batch) = batch.filter(|batch| batch.num_rows() == rows) else {
                return internal_err!("a row group's rows are not those that its footer says");
            };
            let (_, columns, _) = batch.into_parts();
            decoded = columns.into_iter();
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for source in &mut self.columns {
            let chunk = match source {
                Source::Cache(cached) => cached.chunk_at(begin).cloned(),
                Source::Decoder(filling) => {
                    let chunk = decoded.next();
                    if let (Some(fill), Some(chunk)) = (filling.as_mut(), &chunk)
                        && !fill.add(chunk)
                    {
                        *filling = None;
                    }
                    chunk
                }
            };
            let Some(chunk) = chunk else {
                return internal_err!("a row group lacks rows of a column");
            };
            columns.push(chunk);
        }
        self.next = begin + rows;
        self.chunk = Some((begin, columns));
        if self.next >= self.rows {
            self.finish();
        }
        Ok(true)
    }

    fn is_filling(&self) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|source| matches!(source, Source::Decoder(Some(_))))
    }

    /// Everything is decoded: makes entries of it.
    fn finish(&mut self) {
        for source in &mut self.columns {
            if let Source::Decoder(filling) = source
                && let Some(filling) = filling.take()
            {
                filling.finish(self.rows);
            }
        }
    }
}

/// The next batch of a decoder, which is given what it needs of the file.
pub(super) async fn decode(
    decoder: &mut ParquetPushDecoder,
    reader: &mut Box<dyn AsyncFileReader>,
) -> Result<Option<RecordBatch>> {
    loop {
        match decoder.try_decode()? {
            DecodeResult::NeedsData(ranges) => {
                let bytes = reader.get_byte_ranges(ranges.clone()).await?;
                decoder.push_ranges(ranges, bytes)?;
            }
            DecodeResult::Data(batch) => return Ok(Some(batch)),
            DecodeResult::Finished => return Ok(None),
        }
    }
}

/// The rows of `piece` in a chunk that begins at row `begin`. A small part is copied: whoever keeps it would keep,
/// and count, all of the chunk.
fn slice(chunk: &ArrayRef, begin: usize, piece: &Range<usize>) -> Result<ArrayRef> {
    let (offset, rows) = (piece.start - begin, piece.len());
    if rows == chunk.len() {
        return Ok(Arc::clone(chunk));
    }
    if rows >= chunk.len() / 4 {
        return Ok(chunk.slice(offset, rows));
    }
    let data = chunk.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, rows);
    copy.try_extend(0, offset, offset + rows)?;
    Ok(make_array(copy.freeze()))
}
