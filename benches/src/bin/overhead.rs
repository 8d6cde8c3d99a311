//! What each profile level costs.
//!
//! [`skewer_benches::overhead`] says how.

use clap::Parser;
use skewer_benches::allocator::keep_freed_memory;
use skewer_benches::error::BenchError;
use skewer_benches::overhead::{Arguments, run};

fn main() -> Result<(), BenchError> {
    keep_freed_memory();
    run(&Arguments::parse())
}
