//! The engine as programs use it: statements, sessions, files, limits, workers, profiles.

mod api;
mod cache;
mod deep_statements;
mod explain_profile;
mod files;
mod limits;
mod quarantines;
mod remedies;
mod sessions;
mod streams;
mod workers;
mod writes;
