//! The visual profiler over HTTP. Serves the page of `skewer-page` and the rows of its views to browsers.
//!
//! Views are read with GET and have no effects; they run in read-only sessions of the engine. What has effects
//! (cancel, verify) is a POST that only the page itself can send.
//!
//! * [`server`]: listening, TLS, draining, how many connections
//! * `routes`: which path does what
//! * `guard`: headers of every answer; which hosts and origins are served
//! * `login`: tokens, passwords and cookies
//! * `view`: rows and SQL of a view
//! * `metrics`: the server's numbers for Prometheus, from SQL; `open_metrics`: their text
//! * [`traces`]: queries as spans for a collector of OpenTelemetry
//! * `action`: cancelling a statement; verifying a what-if
//! * [`error`]: why the server does not start; answers that are errors

mod action;
pub mod error;
mod guard;
mod login;
mod metrics;
mod open_metrics;
mod routes;
pub mod server;
pub mod traces;
mod view;

pub use error::WebError;
pub use login::MetricsToken;
pub use server::{WebOptions, WebServer};
pub use traces::{TraceCounters, TraceExporter, TraceOptions};
