//! Statements and messages that nobody would send: no process ends, no error tells of a panic, and the next
//! statement works.
//!
//! Deterministic: case `n` of a seed is the same in every run. `SKEWER_SEED=n` generates others, `SKEWER_CASES=n`
//! another number of them, `SKEWER_FUZZ_SECONDS=3600` as many as that time allows, for each test. What fails is
//! printed with its seed and number.
//!
//! - [`cases`]: which cases a test has, and processes that run them
//! - [`grammar`]: statements that call all functions with extreme arguments
//! - [`deep`]: statements that nest deeply
//! - [`mutations`]: the statements of the golden scripts with parts exchanged
//! - [`statements`]: running them
//! - [`messages`]: bytes at the port of the server

mod cases;
mod deep;
mod grammar;
mod messages;
mod mutations;
mod statements;
