//! A statement's catalog, as DataFusion asks for it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::logical_expr::TableType;

use super::names::{CATALOG, INFORMATION_SCHEMA, Name, SYS};
use super::statement::{Relation, StatementCatalog};

/// [`StatementCatalog`] as DataFusion sees it.
#[derive(Debug, Clone)]
pub(super) struct Schemas {
    pub(super) catalog: Arc<StatementCatalog>,
    /// The views that are being planned, outermost first.
    pub(super) views: Vec<Name>,
    /// Whether a view that cannot be planned is left out, as lists of tables want it.
    pub(super) skip_broken: bool,
}

impl CatalogProviderList for Schemas {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        self.catalog.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SYS => Some(Arc::clone(self.catalog.sys())),
            INFORMATION_SCHEMA => {
                let all = Arc::new(Self {
                    skip_broken: true,
                    ..self.clone()
                });
                let functions = self.catalog.base().table_functions().clone();
                Some(Arc::new(
                    InformationSchemaProvider::new(all).with_table_functions(functions),
                ))
            }
            extra if self.catalog.extra.contains_key(extra) => {
                self.catalog.extra.get(extra).map(Arc::clone)
            }
            _ => self
                .catalog
                .snapshot()
                .schemas()
                .iter()
                .any(|schema| schema == name)
                .then(|| {
                    Arc::new(UserSchema {
                        schemas: self.clone(),
                        name: name.to_owned(),
                    }) as Arc<dyn SchemaProvider>
                }),
        }
    }
}

/// A schema of tables, views and external tables; files answer to their paths in any.
#[derive(Debug)]
struct UserSchema {
    schemas: Schemas,
    name: String,
}

#[async_trait]
impl SchemaProvider for UserSchema {
    fn table_names(&self) -> Vec<String> {
        self.schemas.catalog.relation_names(&self.name)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let name = Name {
            schema: self.name.clone(),
            table: name.to_owned(),
        };
        match self
            .schemas
            .catalog
            .provider(&name, &self.schemas.views)
            .await
        {
            Ok(provider) => Ok(provider),
            Err(_) if self.schemas.skip_broken => Ok(None),
            Err(error) => Err(error.into_datafusion()),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        let name = Name {
            schema: self.name.clone(),
            table: name.to_owned(),
        };
        Ok(match self.schemas.catalog.relation(&name) {
            Ok(Some(Relation::View(_) | Relation::Quarantined(..))) => Some(TableType::View),
            Ok(Some(_)) => Some(TableType::Base),
            Ok(None) => {
                let registered = self.schemas.catalog.registered(&name);
                registered.map(|_| TableType::Temporary)
            }
            Err(_) => None,
        })
    }

    fn table_exist(&self, name: &str) -> bool {
        self.schemas.catalog.exists(&Name {
            schema: self.name.clone(),
            table: name.to_owned(),
        })
    }
}
