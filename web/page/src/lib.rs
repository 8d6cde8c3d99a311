//! The visual profiler's page: its views over schema `sys`, and its files. Knows no HTTP and no database.
//!
//! * [`views`]: named SELECT statements with parameters; the server runs them, an exported file has their rows
//! * [`rows`]: rows of a view as an Arrow IPC stream, as the page reads them
//! * [`assets`]: the page, its script and its style sheet, built from `web/ui`
//! * [`file`]: the page and the rows of one query in one HTML file

pub mod assets;
pub mod file;
pub mod rows;
pub mod views;
