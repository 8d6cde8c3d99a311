//! The wire protocol: bytes in, messages out. No I/O, no clock, no task.
//!
//! Every QUIC stream carries, in each direction, a sequence of frames; the last one is END or
//! ERROR, and a direction that ends without one of them was cut off.
//!
//! - [`kind`]: the frames there are, and how long each may be;
//! - [`codec`]: frames to bytes, and bytes, however they are split, to frames;
//! - [`body`]: numbers and texts within a frame;
//! - [`hello`]: who speaks which version;
//! - [`request`]: what is asked of a node;
//! - [`coordinator`]: what a query's coordinator and its tasks tell each other;
//! - [`batch`]: record batches as Arrow IPC;
//! - [`compact`]: batches without what they do not refer to;
//! - [`metrics`]: a plan's metrics;
//! - [`failure`]: errors that keep their class on the other side;
//! - [`lost`]: nodes that are gone;
//! - [`error`]: what can be wrong with bytes.
//!
//! `docs/wire-format.md` has the byte tables.

pub mod batch;
pub mod body;
pub mod codec;
pub mod compact;
pub mod coordinator;
pub mod error;
pub mod failure;
pub mod hello;
pub mod kind;
pub mod lost;
pub mod metrics;
pub mod request;

mod variant;

#[cfg(test)]
mod tests;

pub use batch::{BatchDecoder, BatchEncoder, Compression};
pub use codec::{Decoder, Frame, encode};
pub use error::FrameError;
pub use failure::{FailureClass, RemoteFailure};
pub use hello::{Hello, PROTOCOL_VERSION};
pub use kind::FrameKind;
pub use lost::LostWorker;
pub use request::Request;
