//! How long a database with many segments takes to open, and to answer first queries.
//!
//! [`skewer_benches::many_segments`] says how.

use clap::Parser;
use skewer_benches::allocator::keep_freed_memory;
use skewer_benches::error::BenchError;
use skewer_benches::many_segments::{Arguments, run};

fn main() -> Result<(), BenchError> {
    keep_freed_memory();
    run(&Arguments::parse())
}
