//! Tables whose rows statements can change.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use skewer_sql::StreamSource;
use skewer_storage::TableMeta;

use super::StatementCatalog;
use crate::error::Error;
use crate::streams::definition;

impl StatementCatalog {
    /// A table that statements can append to: also a stream whose source is INSERT.
    pub(crate) fn appendable_table(&self, name: &ast::ObjectName) -> Result<Arc<TableMeta>, Error> {
        let resolved = self.resolve(name)?;
        let table = self.snapshot.table(&resolved.schema, &resolved.table);
        let stream = table.and_then(|table| {
            let stream = self.snapshot.stream(table.id)?;
            Some((table, Arc::clone(stream)))
        });
        let Some((table, stream)) = stream else {
            return self.writable_table(name);
        };
        match definition::stream(&stream.sql)?.source {
            StreamSource::Insert => Ok(table),
            _ => Err(Error::ReadOnly {
                name: resolved.to_string(),
                reason:
                    "its rows come from the source of the stream; create another stream FROM INSERT"
                        .to_owned(),
            }),
        }
    }

    /// A table whose rows and columns statements can change.
    pub(crate) fn writable_table(&self, name: &ast::ObjectName) -> Result<Arc<TableMeta>, Error> {
        let name = self.resolve(name)?;
        name.must_be_writable()?;
        if let Some(table) = self.snapshot.table(&name.schema, &name.table) {
            if self.snapshot.stream(table.id).is_some() {
                return Err(Error::ReadOnly {
                    name: name.to_string(),
                    reason: "it is a stream, whose rows go when continuous queries have read them"
                        .to_owned(),
                });
            }
            return Ok(table);
        }
        if self.snapshot.view(&name.schema, &name.table).is_some() {
            return Err(Error::ReadOnly {
                name: name.to_string(),
                reason: "it is a view or an external table".to_owned(),
            });
        }
        if self.registered(&name).is_some() {
            return Err(Error::ReadOnly {
                name: name.to_string(),
                reason: "the program registered it for this session".to_owned(),
            });
        }
        Err(self.unknown_table(&name))
    }
}
