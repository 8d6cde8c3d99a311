//! Whether one delayed record is found.
//!
//! [`skewer_benches::injected_delay`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::injected_delay::{Arguments, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
