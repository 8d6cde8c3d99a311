//! Conclusions from schema `sys`: where the time of a query went, on which records, and what the
//! query would take without them.
//!
//! [`Profile::read`] runs SQL over schema `sys` and the tables of the query (`sql/*.sql`) and
//! returns a [`Profile`], plain data that a program can read. Crate `skewer-report` renders one as
//! text, JSON or a graph. Each statement that was run is kept, so that a reader can repeat it.
//!
//! ```text
//!   ProfileSource (a session)
//!     └─ Statements          runs a section's SQL and keeps its text
//!          ├─ QuerySummary   status, times, level, caveats
//!          ├─ Verdict        the causes that sys.diagnoses names first
//!          ├─ ExcludedRows   rows that WITHOUT left out
//!          ├─ Plan           operators: rows, self time, waiting, skew
//!          ├─ TimeSpent      sentences: operators, latency, waiting, uneven tasks, …
//!          ├─ ExpensiveInputs  records that sys.anomalies names, and their what-if time
//!          ├─ Predicates     conditions that separate expensive records from others
//!          ├─ QuarantineProposal  a quarantine of the rows that cost most
//!          └─ next steps     statements to go on with
//! ```
//!
//! * [`source`]: what runs the SQL, and how answers are read
//! * [`profile`]: the profile of one query; [`diff`]: what changed between two
//! * [`summary`], [`verdict`], [`plan`], [`time_spent`], [`expensive_inputs`], [`excluded_rows`], [`predicates`]:
//!   the parts of a profile
//! * [`quarantine`]: rows that quarantines left out, and a quarantine that is worth creating
//! * [`what_if`]: what the query would take without some records
//! * [`source_function`]: table functions that run several statements; `what_if_function`,
//!   `critical_path_function`: two of them
//! * [`operator_text`]: what an operator does, in the words of SQL
//! * [`operator_calls`]: single calls of operators, for a trace
//! * [`remedies`]: what would make later runs faster, or did
//! * [`record`]: an input record's values; [`text`], [`units`]: text and numbers for people

mod critical_path_function;
pub mod diff;
pub mod error;
pub mod excluded_rows;
pub mod expensive_inputs;
pub mod fan_out;
mod next_steps;
pub mod operator_calls;
pub mod operator_text;
pub mod plan;
pub mod predicates;
pub mod profile;
pub mod quarantine;
pub mod record;
pub mod remedies;
pub mod source;
pub mod source_function;
pub mod summary;
pub mod text;
pub mod time_spent;
pub mod units;
mod unknown_query;
pub mod verdict;
pub mod what_if;
mod what_if_function;

pub use critical_path_function::CriticalPathFunction;
pub use diff::ProfileDiff;
pub use error::Error;
pub use excluded_rows::ExcludedRows;
pub use expensive_inputs::{Anomaly, ExpensiveInput, ExpensiveInputs};
pub use plan::{Operator, Plan};
pub use predicates::{BlameFunction, Predicate, Predicates};
pub use profile::{Profile, RunContext};
pub use quarantine::{QuarantineProposal, TableQuarantine};
pub use record::table_sql;
pub use remedies::Remedy;
pub use source::{ProfileSource, Section};
pub use summary::QuerySummary;
pub use time_spent::TimeSpent;
pub use unknown_query::unknown_query;
pub use verdict::{Diagnosis, Verdict};
pub use what_if_function::WhatIfFunction;
