//! Views whose optimised plans are kept.
//!
//! `sys.diagnoses` reads some fifty views. Every report and every hint after a slow statement asks it about one
//! query. So each detector is optimised once, for a query id that is filled in when it is scanned, and by itself:
//! detectors are made runnable side by side.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, TableType,
    lit,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use futures::future::FutureExt;
use tokio::sync::OnceCell;

use crate::deferred_scan::DeferredScan;
use crate::planner::Planner;
use crate::query_ids::{QUERY_ID, QueryIds, concerns_only_query_ids};
use crate::store::Store;
use crate::views::View;

/// The parameter that stands for the query id in a kept plan.
const PARAMETER: &str = "$query_id";

/// A view whose optimised plan is kept, and made runnable when it is scanned.
#[derive(Debug)]
pub(crate) struct KeptView {
    store: Arc<Store>,
    view: View,
    /// Not optimised, of all queries.
    plan: LogicalPlan,
    /// Optimised, of the query [`PARAMETER`].
    of_one_query: Arc<OnceCell<LogicalPlan>>,
}

impl KeptView {
    /// The view with its plan, which is not optimised.
    pub(crate) fn new(store: Arc<Store>, view: View, plan: LogicalPlan) -> Self {
        Self {
            store,
            view,
            plan,
            of_one_query: Arc::default(),
        }
    }
}

#[async_trait]
impl TableProvider for KeptView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.plan.schema().inner())
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(self.view.sql)
    }

    /// Filters on `query_id` choose the queries that the view is computed for.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = |filter: &&Expr| {
            if concerns_only_query_ids(filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(supported).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ids = QueryIds::of_filters(filters);
        let one = match &ids {
            QueryIds::Listed(ids) if ids.len() == 1 => ids.first().copied(),
            _ => None,
        };
        let plan = match one {
            Some(_) => of_queries(self.plan.clone(), query_id().eq(parameter()))?,
            None => of_queries(self.plan.clone(), ids.condition(query_id()))?,
        };
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema().fields().len()).collect(),
        };
        let schema = Arc::new(self.schema().project(&projection)?);
        let columns = SchemaRef::clone(&schema);
        let state = Arc::new(Planner::state_of_session(&self.store, session));
        let kept = Arc::clone(&self.of_one_query);
        let queries = match one {
            Some(id) => format!("query {id}"),
            None => "several queries".to_owned(),
        };
        let description = format!("KeptView: sys.{} of {queries}", self.view.name);
        let scan = DeferredScan::new(description, schema, move |_| {
            let (plan, kept) = (plan.clone(), Arc::clone(&kept));
            let (projection, columns) = (projection.clone(), SchemaRef::clone(&columns));
            let state = Arc::clone(&state);
            async move {
                let plan = match one {
                    Some(id) => {
                        let optimised = async || state.optimize(&plan);
                        fill_in(kept.get_or_try_init(optimised).await?.clone(), id)?
                    }
                    None => state.optimize(&plan)?,
                };
                let plan = project(plan, &projection, &columns)?;
                // Not the planner of the session, which may place operators on workers.
                let planner = DefaultPhysicalPlanner::default();
                planner.create_physical_plan(&plan, state.as_ref()).await
            }
            .boxed()
        });
        Ok(Arc::new(scan))
    }
}

fn query_id() -> Expr {
    Expr::Column(Column::new_unqualified(QUERY_ID))
}

fn parameter() -> Expr {
    let field = Field::new(QUERY_ID, DataType::Int64, false);
    let parameter = Placeholder::new_with_field(PARAMETER.to_owned(), Some(Arc::new(field)));
    Expr::Placeholder(parameter)
}

/// The rows of a plan for which `condition` holds.
fn of_queries(plan: LogicalPlan, condition: Expr) -> Result<LogicalPlan> {
    LogicalPlanBuilder::from(plan).filter(condition)?.build()
}

/// Puts a query id where a plan has the parameter.
fn fill_in(plan: LogicalPlan, id: i64) -> Result<LogicalPlan> {
    let filled = plan.transform_down_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| {
                Ok(match expr {
                    Expr::Placeholder(parameter) if parameter.id == PARAMETER => {
                        Transformed::yes(lit(id))
                    }
                    other => Transformed::no(other),
                })
            })
        })
    })?;
    Ok(filled.data)
}

/// Some columns of a plan, by their places. Optimised plans may have other types of text than `schema`.
fn project(plan: LogicalPlan, places: &[usize], schema: &Schema) -> Result<LogicalPlan> {
    let columns = places.iter().zip(schema.fields()).map(|(place, field)| {
        let column = Column::from(plan.schema().qualified_field(*place));
        let column = Expr::Column(column).cast_to(field.data_type(), plan.schema())?;
        Ok(column.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
