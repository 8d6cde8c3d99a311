//! Skewer's statements on top of sqlparser's.
//!
//! Text goes in, a [`Statement`] or a [`SyntaxError`] with a caret comes out. What DataFusion's
//! planner understands stays sqlparser's AST; what is ours has a type of its own.
//! Dependencies go down only: of the workspace, this crate knows `skewer-compat`.
//!
//! * [`split`](mod@split): a script cut at its semicolons, and whether the last statement is finished
//! * [`parser`]: one statement's text → [`Statement`]
//! * [`statement`]: all statements; [`traits`]: what everyone else must know of each
//! * [`explain_profile`], [`export_profile`], [`copy`], [`quarantine`], [`settings`], [`streams`] (and
//!   [`stream_text`]), `rebalance`: the grammar of our own statements
//! * [`deep`]: statements that nest deeply
//! * [`parameters`]: which parameters a prepared statement has, and values put in their places
//! * [`row_ids`]: `_row_id` made visible in the blocks that name it
//! * [`fingerprint`](mod@fingerprint): what statements have in common that differ only in literals
//! * [`error`]: syntax errors that show the line
//! * [`lex`]: text cut into tokens
//! * [`quote`]: literals and identifiers as SQL text
//! * `source_location`: places in a statement's text
//! * [`trace_parent`]: the caller's span that a statement belongs to
//! * [`type_name`]: SQL names of Arrow types

pub mod copy;
pub mod deep;
pub mod error;
pub mod explain_profile;
pub mod export_profile;
pub mod fingerprint;
pub mod lex;
pub mod parameters;
pub mod parser;
pub mod quarantine;
pub mod quote;
mod rebalance;
pub mod row_ids;
pub mod settings;
mod source_location;
pub mod split;
pub mod statement;
pub mod stream_text;
pub mod streams;
pub mod trace_parent;
pub mod traits;
pub mod type_name;

pub use copy::{CopyFrom, CopyOptions, CopySource, CopyTo};
pub use error::SyntaxError;
pub use explain_profile::{ExplainProfile, ProfileFormat, Without};
pub use export_profile::ExportFormat;
pub use fingerprint::fingerprint;
pub use parser::{is_readable, parse};
pub use quarantine::CreateQuarantine;
pub use split::{ScriptStatement, is_complete, split};
pub use statement::{ObjectKind, Statement};
pub use streams::{CreateContinuousQuery, CreateStream, Every, StreamSource, Watermark};
pub use trace_parent::{TraceParent, trace_parent_in_comment};
pub use type_name::sql_name;
