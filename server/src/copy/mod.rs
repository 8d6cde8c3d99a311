//! COPY over the connection: FROM STDIN and TO STDOUT, as text and CSV.
//!
//! * [`statement`]: what is copied and how
//! * [`reader`]: bytes to rows of texts, with their lines
//! * [`columns`]: rows of texts to Arrow
//! * [`writer`]: Arrow to bytes

mod columns;
mod reader;
mod statement;
mod writer;

pub(crate) use columns::Batches;
pub(crate) use reader::Reader;
pub(crate) use statement::{CopyStatement, Source};
pub(crate) use writer::CopyWriter;
