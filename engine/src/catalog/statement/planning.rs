//! How a statement is planned against its catalog.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::CatalogProvider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, Visit};
use skewer_compat::statement::describe_in_from as described;
use skewer_compat::statement::using_join::{coalesce_join_keys, tables_of_using};
use skewer_sql::row_ids::expose_row_ids;

use super::StatementCatalog;
use crate::catalog::names::Name;
use crate::catalog::planned::shown_columns;
use crate::error::Error;
use crate::statements::describe::as_query;

impl StatementCatalog {
    /// Plans a statement that DataFusion's planner understands. Blocks that name `_row_id` see it.
    pub(crate) async fn plan(
        self: &Arc<Self>,
        statement: DFStatement,
    ) -> Result<LogicalPlan, Error> {
        self.check(&statement)?;
        self.plan_unchecked(statement).await
    }

    /// Plans a statement that may name tables which are not there yet.
    pub(crate) async fn plan_unchecked(
        self: &Arc<Self>,
        mut statement: DFStatement,
    ) -> Result<LogicalPlan, Error> {
        refuse_overlooked(&statement)?;
        self.prepare(&mut statement, &[]).await?;
        let state = self.planning_state();
        self.planned(&state, statement, &[]).await
    }

    /// Says in a statement what the planner would overlook: what columns of USING stand for, and row
    /// ids. `views` are those that it is part of.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        statement: &mut DFStatement,
        views: &[Name],
    ) -> Result<(), Error> {
        let statement = match statement {
            DFStatement::Explain(explain) => {
                return Box::pin(self.prepare(&mut explain.statement, views)).await;
            }
            DFStatement::Statement(statement) => &mut **statement,
            _ => return Ok(()),
        };
        Box::pin(self.describe(statement, views)).await?;
        let mut columns = HashMap::new();
        for table in tables_of_using(statement) {
            if let Some(names) = self.columns(&table, views).await {
                columns.insert(table, names);
            }
        }
        coalesce_join_keys(statement, &|name| columns.get(name).cloned())
            .map_err(Error::Invalid)?;
        expose_row_ids(statement, &|name| self.has_row_ids(name));
        Ok(())
    }

    /// Puts descriptions in the places of queries in FROM that are to be described.
    async fn describe(
        self: &Arc<Self>,
        statement: &mut ast::Statement,
        views: &[Name],
    ) -> Result<(), Error> {
        let mut descriptions = Vec::new();
        for query in described::take(statement) {
            let query = ast::Statement::Query(Box::new(query));
            let mut query = DFStatement::Statement(Box::new(query));
            Box::pin(self.prepare(&mut query, views)).await?;
            let state = self.state_below(views.to_vec());
            let plan = Box::pin(self.planned(&state, query, views)).await?;
            descriptions.push(as_query(&shown_columns(&Arc::new(
                plan.schema().as_arrow().clone(),
            )))?);
        }
        described::put(statement, descriptions);
        Ok(())
    }

    /// The columns of what `name` stands for in FROM, if there are such: it may name a CTE. What
    /// cannot be read is for the planner to complain of.
    pub(in crate::catalog) async fn columns(
        self: &Arc<Self>,
        name: &ast::ObjectName,
        views: &[Name],
    ) -> Option<Vec<String>> {
        let name = self.resolve(name).ok()?;
        let schema = match self.snapshot.table(&name.schema, &name.table) {
            Some(table) => Arc::clone(&table.schema),
            None => {
                let schemas = self.schemas(views.to_vec());
                let schema = schemas.schema(&name.schema)?;
                Box::pin(schema.table(&name.table)).await.ok()??.schema()
            }
        };
        let fields = schema.fields().iter();
        Some(fields.map(|field| field.name().clone()).collect())
    }
}

/// Refuses what DataFusion's planner overlooks, which would give wrong rows: it reads the whole
/// table for TABLESAMPLE, and no numbers for WITH ORDINALITY.
fn refuse_overlooked(statement: &DFStatement) -> Result<(), Error> {
    struct Overlooked;
    impl ast::Visitor for Overlooked {
        type Break = &'static str;
        fn pre_visit_table_factor(
            &mut self,
            factor: &ast::TableFactor,
        ) -> ControlFlow<Self::Break> {
            match factor {
                ast::TableFactor::Table {
                    sample: Some(_), ..
                }
                | ast::TableFactor::Derived {
                    sample: Some(_), ..
                } => ControlFlow::Break("TABLESAMPLE; WHERE random() < 0.1 takes a tenth"),
                ast::TableFactor::Table {
                    with_ordinality: true,
                    ..
                }
                | ast::TableFactor::Function {
                    with_ordinality: true,
                    ..
                } => ControlFlow::Break(
                    "WITH ORDINALITY of other than lists and series; row_number() OVER () numbers rows",
                ),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match statement {
        DFStatement::Statement(statement) => match statement.visit(&mut Overlooked) {
            ControlFlow::Break(what) => Err(Error::Unsupported(what.to_owned())),
            ControlFlow::Continue(()) => Ok(()),
        },
        DFStatement::Explain(explain) => refuse_overlooked(&explain.statement),
        _ => Ok(()),
    }
}
