//! Names that a statement cannot use, and the names that may have been meant.

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DFStatement;
use skewer_compat::suggest::suggest;

use super::StatementCatalog;
use crate::catalog::names::{CATALOG, Name, split_row_ids};
use crate::error::Error;

impl StatementCatalog {
    /// The error for a name that is not there.
    pub(crate) fn unknown_table(&self, name: &Name) -> Error {
        if !self.schema_names().contains(&name.schema) {
            return Error::UnknownSchema {
                name: name.schema.clone(),
                suggestions: suggest(&name.schema, self.schema_names().iter().map(String::as_str)),
            };
        }
        let (table, _) = split_row_ids(&name.table);
        let own = self.relation_names(&name.schema);
        let mut suggestions: Vec<_> = suggest(table, own.iter().map(String::as_str))
            .into_iter()
            .map(|table| {
                Name {
                    schema: name.schema.clone(),
                    table,
                }
                .to_string()
            })
            .collect();
        if suggestions.is_empty() {
            for schema in self.schema_names() {
                if self.relation_names(&schema).iter().any(|t| t == table) {
                    suggestions.push(format!("{schema}.{table}"));
                }
            }
        }
        if suggestions.is_empty() && std::path::Path::new(table).is_dir() {
            suggestions.push(format!("'{table}/'"));
        }
        Error::UnknownTable {
            name: Name {
                schema: name.schema.clone(),
                table: table.to_owned(),
            }
            .to_string(),
            suggestions,
        }
    }

    /// Whether the tables are there that a statement names.
    pub(crate) fn check(&self, statement: &DFStatement) -> Result<(), Error> {
        for reference in self.base.resolve_table_references(statement)? {
            self.must_exist(&self.base, &reference)?;
        }
        Ok(())
    }

    pub(super) fn must_exist(
        &self,
        state: &SessionState,
        reference: &TableReference,
    ) -> Result<(), Error> {
        let resolved = reference.clone().resolve(CATALOG, self.default_schema());
        let is_bare = matches!(reference, TableReference::Bare { .. });
        if is_bare && state.table_functions().contains_key(&*resolved.table) {
            return Ok(());
        }
        let name = Name {
            schema: resolved.schema.to_string(),
            table: resolved.table.to_string(),
        };
        if &*resolved.catalog != CATALOG {
            return Err(Error::UnknownTable {
                name: reference.to_string(),
                suggestions: Vec::new(),
            });
        }
        if self.exists(&name) {
            return Ok(());
        }
        let mut error = self.unknown_table(&name);
        if let Error::UnknownTable { suggestions, .. } = &mut error {
            let functions = state.table_functions().keys().map(String::as_str);
            let near = suggest(&name.table, functions);
            suggestions.extend(near.into_iter().map(|function| format!("{function}(…)")));
        }
        Err(error)
    }
}
