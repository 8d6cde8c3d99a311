//! The fault laboratory: injects faults with a known cause, place and cost into a running database, and
//! counts what `sys.diagnoses` says of them.
//!
//! - [`fault`]: which faults there are, and which diagnoses are right for each.
//! - [`cases`]: draws cases from a seed.
//! - [`workload`]: the SQL of a case, with the fault and without it.
//! - [`cgroup`], [`cable`], [`processes`], [`inject`]: the database's processes, and what is done to them.
//! - [`sql`]: runs statements and reads diagnoses.
//! - [`protocol`]: runs a case with and without its fault, interleaved.
//! - [`records`]: the log of all runs, with which a run of the laboratory continues.
//! - [`remedies`]: what remedies for skew save.
//! - [`judge`], [`scoring`], [`summary`]: compare findings with the truth, count, and print.

pub mod cable;
pub mod cases;
pub mod cgroup;
pub mod error;
pub mod fault;
pub mod inject;
pub mod judge;
pub mod processes;
pub mod protocol;
pub mod records;
pub mod remedies;
pub mod scoring;
pub mod sql;
pub mod summary;
/// The cable of the tests with hosts.
#[path = "../../tests/hosts/wire.rs"]
pub mod wire;
pub mod workload;
