//! Skewer against DuckDB and plain DataFusion.
//!
//! [`skewer_benches::versus`] says how.

use clap::Parser;
use skewer_benches::allocator::give_back_as_the_shell_does;
use skewer_benches::error::BenchError;
use skewer_benches::versus::{Arguments, run};

fn main() -> Result<(), BenchError> {
    give_back_as_the_shell_does();
    run(&Arguments::parse())
}
