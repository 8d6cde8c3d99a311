//! What all writers of a statement know.

use std::io::Cursor;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use skewer_storage::TableId;

/// The table that a statement writes, and who writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The table's number.
    pub table: u64,
    /// Its name, for messages.
    pub name: String,
    /// The user's columns.
    #[serde(serialize_with = "to_bytes", deserialize_with = "from_bytes")]
    pub columns: SchemaRef,
    /// The columns whose hash divides the rows; none if whoever is next gets them.
    pub keys: Vec<usize>,
    /// The nodes that are written to. Shard *i* belongs to writer *i*. A node may be several
    /// writers of rows that are not divided by hash.
    pub writers: Vec<u32>,
    /// Without keys: how many rows each writer gets from each that sends, one writer after the
    /// other; the last gets what remains. Empty if they take turns.
    pub quotas: Vec<u64>,
    /// Whether they are in one process and have one directory.
    pub shares_segments: bool,
    /// The number of the first segment: [`skewer_storage::Write::first_segment_id`].
    pub statement: u64,
}

impl Target {
    /// Writers that a task may have: one per partition and shard.
    pub const WRITERS_PER_TASK: u64 = 1024;

    /// The table.
    pub fn table(&self) -> TableId {
        TableId(self.table)
    }

    /// How many tasks write rows that are sent to their owners. A stage of one task would be run
    /// by whoever plans the query, so a lone writer has two.
    pub(super) fn tasks(&self) -> usize {
        self.writers.len().max(2)
    }

    /// How many writers of segments the statement may have.
    pub fn max_writers(nodes: usize) -> u64 {
        nodes.max(2) as u64 * Self::WRITERS_PER_TASK
    }
}

fn to_bytes<S: Serializer>(columns: &SchemaRef, to: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, columns)
        .and_then(|mut writer| writer.finish())
        .map_err(ser::Error::custom)?;
    to.serialize_bytes(&bytes)
}

fn from_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<SchemaRef, D::Error> {
    let bytes: Vec<u8> = Vec::deserialize(from)?;
    let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(de::Error::custom)?;
    Ok(reader.schema())
}
