//! Whether one delayed record is found.
//!
//! [`skewer_benches::injected_delay`] says how.

use clap::Parser;
use skewer_benches::allocator::keep_freed_memory;
use skewer_benches::error::BenchError;
use skewer_benches::injected_delay::{Arguments, run};

fn main() -> Result<(), BenchError> {
    keep_freed_memory();
    run(&Arguments::parse())
}
