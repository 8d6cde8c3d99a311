//! What names mean to one statement.
//!
//! Every statement looks at the snapshot of the database that was current when it began.
//!
//! * [`names`]: `schema.table` as written → resolved
//! * [`statement`]: the catalog of one statement: what it sees, and how it is planned
//! * [`schemas`]: the same, as DataFusion asks for it
//! * [`native_table`]: a table's segments as a scan, and their statistics for the order of joins
//! * [`footers`]: what planning needs of their footers
//! * [`quarantine`]: a table without the rows of its quarantines, and views that show these rows
//! * [`row_predicate`]: a condition over the rows of one table, as a filter of its scan
//! * [`batch_rows`]: how many rows of a table a batch has
//! * [`planned`]: a statement as DataFusion plans it
//! * [`types`]: which values a column takes, and which types tables can hold
//! * [`diagnosis`]: which file was to blame when reading failed

pub(crate) mod batch_rows;
pub(crate) mod diagnosis;
pub(crate) mod footers;
pub(crate) mod names;
pub(crate) mod native_table;
pub(crate) mod planned;
pub(crate) mod quarantine;
pub(crate) mod row_predicate;
pub(crate) mod schemas;
pub(crate) mod statement;
pub(crate) mod types;

pub(crate) use names::{CATALOG, INFORMATION_SCHEMA, MAIN, Name, SYS};
pub(crate) use statement::StatementCatalog;
