//! Isolation in logs of growing size.
//!
//! [`skewer_benches::log_growth`] says how.

use clap::Parser;
use skewer_benches::allocator::keep_freed_memory;
use skewer_benches::error::BenchError;
use skewer_benches::log_growth::{Arguments, run};

fn main() -> Result<(), BenchError> {
    keep_freed_memory();
    run(&Arguments::parse())
}
