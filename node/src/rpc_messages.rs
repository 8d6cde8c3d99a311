//! What nodes ask each other, as bytes.

use std::net::SocketAddr;
use std::time::SystemTime;

use datafusion::common::{DataFusionError, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use skewer_profiling::nanos_since_epoch;

/// A worker registers: [`Register`] → [`Registered`].
pub(crate) const REGISTER: &str = "members/register";
/// A worker asks what has changed about the others, and is answered when something has: [`Watch`]
/// → [`MembershipDelta`](crate::membership::MembershipDelta).
pub(crate) const WATCH: &str = "members/watch";
/// How far the tasks of a query are: its number → rows that were read, and of how many, if that is
/// known.
pub(crate) const PROGRESS: &str = "query/progress";
/// A worker is about to end: [`Leave`] → nothing, when no query needs it any more.
pub(crate) const LEAVE: &str = "members/leave";
/// A worker asks for row ids: [`ReserveRows`] → the first of them, `i64`.
pub(crate) const ROW_IDS: &str = "row-ids";
/// The master asks a worker for the time: nothing → nanoseconds since 1970, `i64`.
pub(crate) const CLOCK: &str = "clock";
/// The master reads a segment: [`ReadSegment`] → its bytes.
pub(crate) const READ: &str = "segment/read";
/// The master says that nobody needs these segments any more: [`Dropped`] → nothing.
pub(crate) const DROPPED: &str = "segment/dropped";
/// The master says that a statement has been given up: [`Abandoned`] → nothing.
pub(crate) const ABANDONED: &str = "segment/abandoned";

/// What a worker says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Register {
    /// Drawn by its process at start, and told by its lifeline.
    pub(crate) incarnation: u64,
    /// Where it listens; with an address of all interfaces it is found where it calls from.
    pub(crate) address: SocketAddr,
    /// Of its software.
    pub(crate) version: String,
    /// The segments that it has: tables and numbers.
    pub(crate) segments: Vec<(u64, u64)>,
    /// The names of the program's functions that it has.
    pub(crate) functions: Vec<String>,
}

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Registered {
    /// It takes part.
    Takes {
        /// The segments that nobody needs.
        garbage: Vec<(u64, u64)>,
    },
    /// It does not: queries may call these functions, which it does not have.
    Lacks {
        /// Their names.
        functions: Vec<String>,
    },
}

/// What a worker knows of the others.
#[derive(Debug, Serialize, Deserialize)]
pub struct Watch {
    /// Its process.
    pub incarnation: u64,
    /// The version that it knows; 0 none.
    pub known: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leave {
    pub(crate) incarnation: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReserveRows {
    pub(crate) table: u64,
    pub(crate) rows: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadSegment {
    pub(crate) owner: u32,
    pub(crate) table: u64,
    pub(crate) id: u64,
    /// From, and until before. The whole without.
    pub(crate) range: Option<(u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) table: u64,
    pub(crate) segments: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Abandoned {
    pub(crate) table: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// A message as bytes.
///
/// # Errors
/// None for messages of this file.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(message).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// The message that bytes are.
///
/// # Errors
/// If they are none.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// This process's clock, nanoseconds since 1970.
pub(crate) fn wall_ns() -> i64 {
    nanos_since_epoch(SystemTime::now())
}
