//! A database served to PostgreSQL clients: psql, drivers, and `skewer --connect`.
//!
//! The protocol's messages and TLS come from pgwire; what they mean here is this crate. Above it
//! is the shell's `skewer serve`, below it the engine: one connection is one
//! [`skewer::Session`].
//!
//! * [`server`]: listening, accepting, draining
//! * `connection`: one client from its first message to its last
//! * `startup`: who it is
//! * `simple`, `extended`: the two ways of sending statements
//! * `statement`: what a statement asks for, `execution`: carrying it out
//! * `transaction`: BEGIN, COMMIT and ROLLBACK over statements that commit one by one
//! * `settings`: what drivers set that is PostgreSQL's alone
//! * `encode`, `decode`: values
//! * `copy`: COPY FROM STDIN and TO STDOUT
//! * `catalog`: `pg_catalog` as far as psql and drivers ask
//! * `cancel`: stopping statements from outside
//! * [`users`], [`tls`]: who may connect, and how that stays secret; `login_limiter`: who guesses passwords
//! * [`client`]: the other direction, for the shell
//! * [`error`]: why the server does not start; SQLSTATEs

mod cancel;
mod catalog;
pub mod client;
mod connection;
mod copy;
mod cursor;
mod decode;
mod encode;
pub mod error;
mod execution;
mod extended;
mod login_limiter;
pub mod server;
mod settings;
mod simple;
mod startup;
mod statement;
pub mod tls;
mod transaction;
pub mod users;

pub use error::ServerError;
pub use login_limiter::LoginLimiter;
pub use server::{Server, ServerOptions};
pub use tls::Identity;
pub use users::Users;
