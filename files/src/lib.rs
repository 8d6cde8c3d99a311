//! Parquet, CSV and JSON files as tables.
//!
//! Dependencies go down only: of the workspace, this crate knows `skewer-exec`, `skewer-sql` and
//! `skewer-compat`.
//!
//! ```text
//! file_kind    formats, and how names tell them
//! file_table   files that a query reads as one table
//! dialect      how a CSV file is written
//! locate       which files a path, a folder or a pattern means
//! partitions   columns that folders name: year=2024/
//! passes       whole files are read before the query, to learn what is in them:
//!   csv_file, csv_types     records, header, types of a CSV file
//!   json_file, json_types   records and keys of a JSON file
//!   parquet_file            columns and statistics from the footers
//! tables       what was found in each file, put together
//! scan         the table, and the operators that read it
//! json_source  JSON as batches
//! place_store  files for DataFusion's readers, whatever their names are
//! file_writer  files that batches are written to
//! diagnosis    which line of a file cannot be read
//! error        what can go wrong
//! ```

mod csv_file;
mod csv_types;
mod diagnosis;
mod dialect;
mod error;
mod file_kind;
mod file_table;
mod file_writer;
mod json_file;
mod json_source;
mod json_types;
mod locate;
mod parquet_file;
mod partitions;
mod passes;
mod place_store;
mod scan;
mod tables;

pub use diagnosis::first_mistake;
pub use dialect::CsvDialect;
pub use error::{FilesError, file_and_line};
pub use file_kind::{FileKind, is_packed};
pub use file_table::FileTable;
pub use file_writer::FileWriter;
pub use locate::Located;
pub use place_store::register;
