//! Sequential writes to the file of a segment.

use std::hash::Hasher;
use std::io::{self, Write};
use std::sync::Arc;

use twox_hash::XxHash64;

use crate::disk::DiskFile;

/// Size of a write to the file.
const WRITE_BYTES: usize = 1 << 20;

/// Sequential writes to a file, in large pieces, with a running checksum.
pub(super) struct Sink {
    pub(super) file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    pub(super) offset: u64,
    pub(super) hasher: XxHash64,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("file", &self.file).finish()
    }
}

impl Sink {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            offset: 0,
            hasher: XxHash64::with_seed(0),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_at(self.offset, &self.buffer)?;
        self.hasher.write(&self.buffer);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
