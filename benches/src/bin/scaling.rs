//! What grows with the number of workers.
//!
//! [`skewer_benches::scaling`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::scaling::{Arguments, run};

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
