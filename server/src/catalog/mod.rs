//! `pg_catalog`, as far as psql's `\d` and drivers ask.
//!
//! Its tables are queries over `information_schema` ([`tables`]), its functions mostly constants
//! ([`functions`]), and queries that name them are brought into the SQL that the engine
//! understands ([`rewrite`]). An oid is a hash of the names ([`oid`]): the same in every
//! connection, with nothing to keep.

mod functions;
pub(crate) mod oid;
pub(crate) mod parameters;
pub(crate) mod rewrite;
mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::datasource::MemTable;
use skewer::Session;

use crate::settings::SharedSettings;

/// The schema's name.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The only database.
pub(crate) const DATABASE: &str = "skewer";
/// The schema of names without schema.
pub(crate) const MAIN: &str = "main";

/// Gives a session the catalog and its functions.
pub(crate) fn install(session: &Session, user: &str, process: i32, settings: SharedSettings) {
    let questions = session.database().session();
    functions::install_own(&questions);
    functions::install(session, user, process);
    functions::install_settings(session, settings);
    let catalog = PgCatalog {
        questions,
        user: user.to_owned(),
    };
    session.register_schema(PG_CATALOG, Arc::new(catalog));
}

/// The schema.
#[derive(Debug)]
struct PgCatalog {
    /// A session of its own, so that asking leaves no trace in the user's.
    questions: Session,
    user: String,
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        tables::names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some(sql) = tables::query(name, &self.user) else {
            return Ok(None);
        };
        let external = |error: skewer::Error| DataFusionError::External(Box::new(error));
        let stream = self.questions.sql(&sql).await.map_err(external)?;
        let schema = stream.schema();
        let batches = stream.collect().await.map_err(external)?;
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![batches])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        tables::names().any(|known| known == name)
    }
}
