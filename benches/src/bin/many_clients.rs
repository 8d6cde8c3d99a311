//! How many small statements a second a server answers to many connections.
//!
//! [`skewer_benches::many_clients`] says how.

use clap::Parser;
use skewer_benches::error::BenchError;
use skewer_benches::many_clients::{Arguments, run};

fn main() -> Result<(), BenchError> {
    run(&Arguments::parse())
}
