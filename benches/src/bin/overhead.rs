//! What each profile level costs.
//!
//! [`skewer_benches::overhead`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::overhead::{Arguments, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
