//! `schema.table` as written → resolved.

use std::fmt;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use skewer_sql::row_ids::WITH_ROW_IDS;
use skewer_storage::DEFAULT_SCHEMA;

use crate::error::Error;

/// The only catalog.
pub(crate) const CATALOG: &str = "skewer";
/// The schema of names without schema.
pub(crate) const MAIN: &str = DEFAULT_SCHEMA;
/// The schema of the profiler's tables.
pub(crate) const SYS: &str = "sys";
/// The standard's description of all schemas.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// A table's or view's name with its schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl Name {
    /// Resolves `name`; without a schema it means `default_schema`.
    pub(crate) fn resolve(name: &ObjectName, default_schema: &str) -> Result<Self, Error> {
        let mut parts = Vec::with_capacity(name.0.len());
        for part in &name.0 {
            match part.as_ident() {
                Some(ident) => parts.push(fold(ident)),
                None => return Err(Error::Invalid(format!("{name} is not a name"))),
            }
        }
        match parts.as_slice() {
            [table] => Ok(Self {
                schema: default_schema.to_owned(),
                table: table.clone(),
            }),
            [schema, table] => Ok(Self {
                schema: schema.clone(),
                table: table.clone(),
            }),
            [catalog, schema, table] if catalog == CATALOG => Ok(Self {
                schema: schema.clone(),
                table: table.clone(),
            }),
            _ => Err(Error::UnknownTable {
                name: name.to_string(),
                suggestions: Vec::new(),
            }),
        }
    }

    /// Whether it is in a schema that only Skewer itself writes to.
    pub(crate) fn is_system(&self) -> bool {
        self.schema == SYS || self.schema == INFORMATION_SCHEMA
    }

    /// The error for a statement that would change it, if it is in such a schema.
    pub(crate) fn must_be_writable(&self) -> Result<(), Error> {
        if self.is_system() {
            return Err(read_only(&self.to_string()));
        }
        Ok(())
    }
}

/// The error for a statement that would change `name` in a system schema.
pub(crate) fn read_only(name: &str) -> Error {
    Error::ReadOnly {
        name: name.to_owned(),
        reason: "its schema is written by Skewer itself".to_owned(),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.schema == MAIN {
            f.write_str(&self.table)
        } else {
            write!(f, "{}.{}", self.schema, self.table)
        }
    }
}

/// An identifier as names compare: lower-case unless quoted.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// `t$rowid` → (`t`, true).
pub(crate) fn split_row_ids(table: &str) -> (&str, bool) {
    match table.strip_suffix(WITH_ROW_IDS) {
        Some(table) => (table, true),
        None => (table, false),
    }
}
