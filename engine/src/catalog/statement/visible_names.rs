//! Which names a statement can use.

use std::collections::BTreeSet;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;
use skewer_files::FileTable;

use super::{Relation, StatementCatalog};
use crate::catalog::names::{CATALOG, INFORMATION_SCHEMA, MAIN, Name, SYS, split_row_ids};

impl StatementCatalog {
    /// All schemas, sorted.
    pub(crate) fn schema_names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.snapshot.schemas().into_iter().collect();
        names.insert(SYS.to_owned());
        names.insert(INFORMATION_SCHEMA.to_owned());
        names.into_iter().collect()
    }

    /// The tables, views and external tables of a schema, sorted.
    pub(crate) fn relation_names(&self, schema: &str) -> Vec<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        match schema {
            SYS => names.extend(self.sys.table_names()),
            INFORMATION_SCHEMA => names.extend(
                datafusion::catalog::information_schema::INFORMATION_SCHEMA_TABLES
                    .iter()
                    .map(|t| (*t).to_owned()),
            ),
            _ => {
                names.extend(self.snapshot.tables(schema).iter().map(|t| t.name.clone()));
                names.extend(self.snapshot.views(schema).iter().map(|v| v.name.clone()));
                if schema == MAIN {
                    names.extend(self.registered.keys().cloned());
                }
            }
        }
        names.into_iter().collect()
    }

    /// Whether `name` in FROM has row ids to show.
    pub(crate) fn has_row_ids(&self, name: &ast::ObjectName) -> bool {
        let Ok(name) = self.resolve(name) else {
            return false;
        };
        match self.relation(&name) {
            Ok(Some(Relation::Table(_))) => true,
            Ok(Some(Relation::Quarantined(..))) => true,
            // Files whose rows have none are asked too, to say so.
            Ok(Some(Relation::External(_))) => true,
            Ok(Some(Relation::View(_))) => false,
            Ok(None) | Err(_) => FileTable::is_path(&name.table),
        }
    }

    /// Whether a query can name it.
    pub(crate) fn exists(&self, name: &Name) -> bool {
        let (table, _) = split_row_ids(&name.table);
        if let Some(schema) = self.extra.get(&name.schema) {
            return schema.table_exist(table);
        }
        self.relation_names(&name.schema).iter().any(|n| n == table) || FileTable::is_path(table)
    }

    /// Whether a statement reads schema `sys` or `information_schema`, and nothing else.
    pub(crate) fn reads_only_system(&self, statement: &DFStatement) -> bool {
        let Ok(references) = self.base.resolve_table_references(statement) else {
            return false;
        };
        let mut system = references.iter().map(|reference| {
            let resolved = reference.clone().resolve(CATALOG, self.default_schema());
            matches!(&*resolved.schema, SYS | INFORMATION_SCHEMA)
                || self.extra.contains_key(&*resolved.schema)
                || self.is_system_function(&Name {
                    schema: resolved.schema.to_string(),
                    table: resolved.table.to_string(),
                })
        });
        match system.next() {
            None => false,
            Some(first) => first && system.all(|is| is),
        }
    }

    /// A table function over schema `sys` and no table of the same name.
    fn is_system_function(&self, name: &Name) -> bool {
        self.base.table_functions().contains_key(&name.table)
            && (name.table.ends_with("_trace")
                || matches!(name.table.as_str(), "blame" | "critical_path" | "what_if"))
            && !self.exists(name)
    }
}
