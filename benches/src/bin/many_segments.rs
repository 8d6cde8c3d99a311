//! How long a database with many segments takes to open, and to answer first queries.
//!
//! [`skewer_benches::many_segments`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::many_segments::{Arguments, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
