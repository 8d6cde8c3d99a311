//! Skewer's statements on top of sqlparser's.
//!
//! Text goes in, a [`Statement`] or a [`SyntaxError`] with a caret comes out. What DataFusion's
//! planner understands stays sqlparser's AST; what is ours has a type of its own.
//! This crate depends on no other crate of the workspace.
//!
//! * [`split`](mod@split): a script cut at its semicolons, and whether the last statement is finished
//! * [`parser`]: one statement's text → [`Statement`]
//! * [`statement`]: what can be said
//! * [`explain_profile`], [`export_profile`], [`copy`], [`settings`], `rebalance`: the grammar of our
//!   own statements
//! * `spell_out`: what DataFusion would read otherwise than PostgreSQL and DuckDB do
//! * [`described`]: DESCRIBE in FROM
//! * [`deep`]: statements that nest deeply
//! * `distinct_from`: how strongly IS DISTINCT FROM binds
//! * `first_rows`: FETCH FIRST, with ties, and subqueries in LIMIT, said with plain LIMIT and ranks
//! * [`from_functions`]: functions in FROM, of columns beside them, and the names of their columns
//! * `row_values`: comparisons of rows, said with comparisons of their columns
//! * `recursive`: what stands behind the terms of a recursive query
//! * `shadowing`: queries of a `WITH` with the name of one further out
//! * [`parameters`]: which parameters a prepared statement has, and values put in their places
//! * [`row_ids`]: `_row_id` made visible in the blocks that name it
//! * [`using`]: joins with USING, and natural ones, said with ON
//! * [`repeated`]: output columns of one name
//! * [`nearest`](mod@nearest): "did you mean …?"
//! * [`fingerprint`](mod@fingerprint): what statements have in common that differ only in literals
//! * [`error`]: syntax errors that show the line
//! * `calls`: which functions an expression calls, and calls to be put into one
//! * `place`: places in a statement's text

mod calls;
pub mod copy;
pub mod deep;
pub mod described;
mod distinct_from;
pub mod error;
pub mod explain_profile;
pub mod export_profile;
pub mod fingerprint;
mod first_rows;
pub mod from_functions;
pub mod nearest;
pub mod parameters;
pub mod parser;
mod place;
mod rebalance;
mod recursive;
pub mod repeated;
pub mod row_ids;
mod row_values;
pub mod settings;
mod shadowing;
mod spell_out;
pub mod split;
pub mod statement;
pub mod using;

pub use copy::{CopyFrom, CopyOptions, CopySource, CopyTo};
pub use error::SyntaxError;
pub use explain_profile::{ExplainProfile, ProfileFormat, Without};
pub use export_profile::ExportFormat;
pub use fingerprint::fingerprint;
pub use nearest::{did_you_mean, nearest};
pub use parser::{is_readable, parse};
pub use split::{Piece, is_complete, split};
pub use statement::{ObjectKind, Statement};
