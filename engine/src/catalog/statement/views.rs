//! Views, planned where a statement names them.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;
use skewer_sql::Statement;

use super::StatementCatalog;
use crate::catalog::names::{Name, fold};
use crate::error::Error;

impl StatementCatalog {
    pub(super) async fn view(
        self: &Arc<Self>,
        name: &Name,
        sql: &str,
        views: &[Name],
    ) -> Result<Arc<dyn TableProvider>, Error> {
        if views.contains(name) {
            return Err(Error::Invalid(format!("view {name} is defined by itself")));
        }
        let Statement::CreateView(view) = skewer_sql::parse(sql)? else {
            return Err(Error::Internal(format!("{name} is not a view: {sql}")));
        };
        let columns: Vec<String> = view
            .columns
            .iter()
            .map(|column| fold(&column.name))
            .collect();
        let mut statement =
            DFStatement::Statement(Box::new(ast::Statement::Query(view.query.clone())));
        let mut below = views.to_vec();
        below.push(name.clone());
        let state = self.state_below(below.clone());
        let context = |error: Error| Error::Invalid(format!("in view {name}: {error}"));
        for reference in state.resolve_table_references(&statement)? {
            self.must_exist(&state, &reference).map_err(context)?;
        }
        Box::pin(self.prepare(&mut statement, &below))
            .await
            .map_err(context)?;
        // Views of views plan each other: the future must be boxed.
        let plan = Box::pin(self.planned(&state, statement, &below))
            .await
            .map_err(context)?;
        let plan = rename_columns(plan, &columns)?;
        Ok(Arc::new(ViewTable::new(plan, Some(sql.to_owned()))))
    }
}

/// Names the columns as CREATE VIEW v (a, b) says.
pub(crate) fn rename_columns(plan: LogicalPlan, columns: &[String]) -> Result<LogicalPlan, Error> {
    if columns.is_empty() {
        return Ok(plan);
    }
    if columns.len() != plan.schema().fields().len() {
        return Err(Error::Invalid(format!(
            "the view has {} columns and its query {}",
            columns.len(),
            plan.schema().fields().len()
        )));
    }
    let renamed: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .zip(columns)
        .map(|(column, name)| Expr::Column(column).alias(name))
        .collect();
    Ok(LogicalPlanBuilder::from(plan).project(renamed)?.build()?)
}
