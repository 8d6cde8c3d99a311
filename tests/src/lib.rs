//! The whole database, tested from outside: what the suites under `tests/` share.
//!
//! * [`slt`]: golden scripts as sqllogictest runs them
//! * [`sqlite`]: scripts in the dialect of SQLite's sqllogictest
//! * [`contents`]: all tables of a database as text, to compare before and after
//! * [`served`]: a database served in this process, for clients
//! * [`cluster`]: a master in this process and workers in processes of their own
//! * [`watchdog`]: queries that must end, or tell who waits for whom
//! * [`delays`]: functions that are slow for one record, on every node
//! * [`crash`]: statements whose effect a model predicts, a process that is killed running them
//! * [`stream_crash`]: a process that is killed while it runs continuous queries
//!
//! Golden scripts are in `tests/slt`. After a change that is meant,
//! `SKEWER_REGENERATE=1 cargo test -p skewer-tests --test slt` writes their results anew, to be reviewed
//! as a diff.

pub mod cluster;
pub mod contents;
pub mod crash;
pub mod delays;
pub mod served;
pub mod slt;
pub mod sqlite;
pub mod stream_crash;
pub mod watchdog;
