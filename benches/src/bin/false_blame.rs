//! How often a busy machine makes a profile blame a record.
//!
//! [`skewer_benches::false_blame`] says how.

use clap::Parser;
use skewer_benches::allocator::keep_freed_memory;
use skewer_benches::error::BenchError;
use skewer_benches::false_blame::{Arguments, run};

fn main() -> Result<(), BenchError> {
    keep_freed_memory();
    run(&Arguments::parse())
}
