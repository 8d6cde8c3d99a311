//! Record batches as Arrow IPC.
//!
//! The payloads of a stream's BATCH frames, put together, are an Arrow IPC stream without its end
//! marker: the first begins with the schema; each has the dictionaries that its batch needs and no
//! earlier one brought, and one batch. Uncompressed buffers are sent from where they lie and used
//! where they arrive.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamEncoder};
use datafusion::arrow::ipc::{CompressionType, Message, root_as_message};

use super::codec::{HEADER, header};
use super::compact::compact;
use super::error::FrameError;
use super::kind::FrameKind;

/// A batch that holds more bytes than this is sent in parts, so that what a stream has in flight
/// is bounded by its window and not by what operators produce. A single row can be larger.
const PART: usize = FrameKind::BATCH_LIMIT / 16;

/// How the buffers of batches are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all: the fastest where the network is.
    #[default]
    None,
    /// LZ4: for links slower than some 2 Gbit/s.
    Lz4,
}

/// Encodes the batches of one stream.
pub struct BatchEncoder {
    encoder: StreamEncoder,
}

/// A BATCH frame.
#[derive(Debug, Clone)]
pub struct BatchFrame {
    /// Header and payload, to be sent one after the other.
    pub buffers: Vec<Buffer>,
    /// How many rows are in it.
    pub rows: usize,
}

impl std::fmt::Debug for BatchEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchEncoder")
    }
}

impl BatchEncoder {
    /// For batches of this schema.
    ///
    /// # Errors
    /// If Arrow IPC cannot represent the schema.
    pub fn new(schema: &Schema, compression: Compression) -> Result<Self, ArrowError> {
        let compression = match compression {
            Compression::None => None,
            Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
        };
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        Ok(Self {
            encoder: StreamEncoder::try_new_with_options(schema, options)?,
        })
    }

    /// A batch as one or more frames.
    ///
    /// # Errors
    /// If a single row is larger than a frame may be, or Arrow refuses.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<BatchFrame>, ArrowError> {
        let batch = compact(batch)?;
        let bytes: usize = batch.columns().iter().map(size).sum();
        let parts = bytes.div_ceil(PART).clamp(1, batch.num_rows().max(1));
        let rows = batch.num_rows().div_ceil(parts).max(1);
        let mut frames = Vec::with_capacity(parts);
        let mut from = 0;
        loop {
            let until = batch.num_rows().min(from + rows);
            let part = match parts {
                1 => batch.clone(),
                _ => compact(&batch.slice(from, until - from))?,
            };
            frames.push(BatchFrame {
                rows: part.num_rows(),
                buffers: self.frame(&part)?,
            });
            from = until;
            if from == batch.num_rows() {
                return Ok(frames);
            }
        }
    }

    fn frame(&mut self, batch: &RecordBatch) -> Result<Vec<Buffer>, ArrowError> {
        let mut buffers = vec![Buffer::from(&[0; HEADER])];
        buffers.extend(self.encoder.encode(batch)?);
        let length = buffers.iter().map(Buffer::len).sum::<usize>() - HEADER;
        let header = header(FrameKind::Batch, length).map_err(|error| {
            ArrowError::ComputeError(format!("a row is too large to be sent: {error}"))
        })?;
        buffers[0] = Buffer::from(&header);
        Ok(buffers)
    }
}

/// What an array's own rows hold, however much more its buffers do.
fn size(array: &ArrayRef) -> usize {
    let slice = array.to_data().get_slice_memory_size();
    slice.unwrap_or_else(|_| array.get_array_memory_size())
}

/// Decodes the batches of one stream.
#[derive(Debug, Default)]
pub struct BatchDecoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl BatchDecoder {
    /// The batch of a BATCH frame. It refers to the payload's memory.
    ///
    /// # Errors
    /// If the payload is not exactly one batch, with what it needs. Whatever the bytes are, no
    /// more is allocated than a frame may have.
    pub fn decode(&mut self, payload: &Buffer) -> Result<RecordBatch, FrameError> {
        // What `messages` lets through can still name buffers that do not fit its types, on which
        // Arrow panics. A peer's bug is no reason to take this process down.
        std::panic::catch_unwind(AssertUnwindSafe(|| self.messages(payload)))
            .unwrap_or_else(|_| Err("its buffers do not fit its types".to_owned()))
            .map_err(|reason| FrameError::malformed(FrameKind::Batch, reason))
    }

    /// Reads one message after the other. That every message and buffer lies within the payload,
    /// and that what compressed buffers claim to hold is within the limit, is checked before
    /// Arrow believes it.
    fn messages(&mut self, payload: &Buffer) -> Result<RecordBatch, String> {
        let text = |error: ArrowError| error.to_string();
        let mut at = 0;
        let mut inflated = 0usize;
        let mut found = None;
        while at < payload.len() {
            let rest = &payload[at..];
            let (prefix, after) = rest.split_at_checked(8).ok_or(SHORT)?;
            let length = match prefix.split_at(4) {
                ([0xff, 0xff, 0xff, 0xff], length) => length,
                _ => return Err("it holds no Arrow message".to_owned()),
            };
            let length = u32::from_le_bytes(std::array::from_fn(|i| length[i])) as usize;
            let (metadata, after) = after.split_at_checked(length).ok_or(SHORT)?;
            let message = root_as_message(metadata).map_err(|error| error.to_string())?;
            let body_length =
                usize::try_from(message.bodyLength()).map_err(|error| error.to_string())?;
            let body = after.get(..body_length).ok_or(SHORT)?;
            inflated = inflated.saturating_add(claimed(&message, body)?);
            if inflated > FrameKind::Batch.limit() {
                return Err("it would be too large when decompressed".to_owned());
            }
            let body = payload.slice_with_length(at + 8 + length, body_length);
            at += 8 + length + body_length;
            if found.is_some() {
                return Err("it goes on after its batch".to_owned());
            }
            if let Some(schema) = message.header_as_schema() {
                self.schema = Some(Arc::new(fb_to_schema(schema)));
                continue;
            }
            let schema = self.schema.as_ref().ok_or("its schema has not come")?;
            let version = message.version();
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                let dictionaries = &mut self.dictionaries;
                read_dictionary(&body, dictionary, schema, dictionaries, &version).map_err(text)?;
            } else if let Some(batch) = message.header_as_record_batch() {
                let schema = Arc::clone(schema);
                let decoder =
                    RecordBatchDecoder::try_new(&body, batch, schema, &self.dictionaries, &version);
                let batch = decoder.and_then(RecordBatchDecoder::read_record_batch);
                found = Some(batch.map_err(text)?);
            } else {
                return Err("it holds a message of another kind".to_owned());
            }
        }
        found.ok_or_else(|| "it holds no batch".to_owned())
    }
}

const SHORT: &str = "it is too short";

/// How many bytes a message's compressed buffers claim to hold.
fn claimed(message: &Message<'_>, body: &[u8]) -> Result<usize, String> {
    let batch = match message.header_as_dictionary_batch() {
        Some(dictionary) => dictionary.data(),
        None => message.header_as_record_batch(),
    };
    let Some(batch) = batch else {
        return Ok(0);
    };
    let mut claimed = 0usize;
    for buffer in batch.buffers().iter().flatten() {
        let range = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(from, length)| Some(from..from.checked_add(length)?));
        let bytes = range
            .and_then(|range| body.get(range))
            .ok_or("a buffer lies outside")?;
        if batch.compression().is_some()
            && let Some(prefix) = bytes.first_chunk::<8>()
        {
            // -1 says that the rest is not compressed.
            let length = i64::from_le_bytes(*prefix).max(0);
            claimed = claimed.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        }
    }
    Ok(claimed)
}
