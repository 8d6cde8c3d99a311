//! The shuffle over QUIC against that over gRPC.
//!
//! [`skewer_benches::transport`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::transport::{Arguments, run};

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
