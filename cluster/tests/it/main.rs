//! Plans as bytes, and the queries of a worker.

mod codec;
mod queries;
