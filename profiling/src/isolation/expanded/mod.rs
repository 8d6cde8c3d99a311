//! Tables that are SQL written for each query: what SQL that is, and running it.

mod description;
mod recorded;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, cast,
};
use datafusion::physical_plan::ExecutionPlan;

pub(super) use self::recorded::run;
use self::recorded::{Recorded, newest_traced};
use super::anomalies;
use super::captured::shape;
use super::latency::{self, Question};
use super::shape::Shape;
use super::steps::{LastStep, Stepwise, planned_after_steps};
use super::trace;
use super::trace_arguments;
use crate::planner::Planner;
use crate::query_ids::{QUERY_ID, QueryIds, concerns_only_query_ids};
use crate::store::Store;
use crate::unknown_query::unknown_query;

/// A table that is SQL written for each query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// `sys.output_latency`
    OutputLatency,
    /// `sys.intermediate_latency`
    IntermediateLatency,
    /// `sys.expensive_inputs`
    ExpensiveInputs,
    /// `sys.anomaly_candidates`
    AnomalyCandidates,
    /// `backward_trace(query_id, output_row)`
    BackwardTrace { query_id: i64, output_row: i64 },
    /// `forward_trace(query_id, table_name, row_id)`
    ForwardTrace {
        query_id: i64,
        table: String,
        row_id: i64,
    },
}

impl Expansion {
    /// The views among them.
    pub(crate) const VIEWS: [Expansion; 4] = [
        Expansion::OutputLatency,
        Expansion::IntermediateLatency,
        Expansion::ExpensiveInputs,
        Expansion::AnomalyCandidates,
    ];

    /// The query for one query; a trace is of its own query, whichever is given.
    fn stepwise(&self, query_id: i64, shape: &Shape) -> Result<Stepwise> {
        match self {
            Expansion::OutputLatency => latency::stepwise(Question::Outputs, query_id, shape),
            Expansion::IntermediateLatency => {
                latency::stepwise(Question::Intermediates, query_id, shape)
            }
            Expansion::ExpensiveInputs => latency::stepwise(Question::Inputs, query_id, shape),
            Expansion::AnomalyCandidates => anomalies::stepwise(query_id),
            Expansion::BackwardTrace {
                query_id,
                output_row,
            } => trace::backward(*query_id, *output_row, shape),
            Expansion::ForwardTrace {
                query_id,
                table,
                row_id,
            } => trace::forward(*query_id, table, *row_id, shape),
        }
    }

    /// The query for one query, of what was kept of it.
    async fn of_query(&self, planner: &Planner, query_id: i64) -> Result<Stepwise> {
        if *self == Expansion::AnomalyCandidates {
            return Ok(match Recorded::of_query(planner, query_id).await? {
                Recorded::Logged | Recorded::Carried => anomalies::stepwise(query_id)?,
                Recorded::NotAtRecords | Recorded::Nothing { .. } => self.nothing(query_id),
            });
        }
        let shape = shape(planner, query_id).await?;
        if shape.is_empty() {
            let recorded = Recorded::of_query(planner, query_id).await?;
            self.is_answered_by(recorded, query_id)?;
            if recorded == Recorded::Carried {
                match self {
                    Expansion::ExpensiveInputs => return Ok(latency::of_carried(query_id)),
                    Expansion::OutputLatency => {
                        return Ok(latency::of_no_log(Question::Outputs, query_id));
                    }
                    Expansion::IntermediateLatency => {
                        return Ok(latency::of_no_log(Question::Intermediates, query_id));
                    }
                    Expansion::AnomalyCandidates
                    | Expansion::BackwardTrace { .. }
                    | Expansion::ForwardTrace { .. } => {}
                }
            }
        }
        match self {
            Expansion::BackwardTrace { output_row, .. } => {
                trace_arguments::of_a_result_row(planner, query_id, *output_row).await?;
            }
            Expansion::ForwardTrace { table, .. } => {
                trace_arguments::of_a_table(planner, query_id, table, &shape).await?;
            }
            _ => {}
        }
        self.stepwise(query_id, &shape)
    }

    /// The answer for a query that was not recorded at level `records`: no row.
    fn nothing(&self, query_id: i64) -> Stepwise {
        let schema = self.schema();
        let columns = schema.fields().iter().map(|field| {
            let value = if field.name() == QUERY_ID {
                query_id.to_string()
            } else {
                "NULL".to_owned()
            };
            format!("{value} AS {}", field.name())
        });
        let columns: Vec<String> = columns.collect();
        Stepwise::simple(format!(
            "-- {}\nSELECT\n  {}\nWHERE false",
            latency::NOT_CAPTURED,
            columns.join(", ")
        ))
    }

    /// Whether what was recorded of a query without lineage answers this. A view shows no rows of
    /// it, as of queries that never ran; who asks for a trace has to learn why there is none.
    ///
    /// # Errors
    /// What to do for a trace.
    fn is_answered_by(&self, recorded: Recorded, query_id: i64) -> Result<()> {
        let name = match self {
            Expansion::BackwardTrace { .. } | Expansion::ForwardTrace { .. } => self.name(),
            _ => return Ok(()),
        };
        match recorded {
            // It read no table, or had no rows.
            Recorded::Logged => Ok(()),
            Recorded::Carried => plan_err!(
                "{name} needs the lineage of query {query_id}, which ran with profile.lineage = \
                 'piggyback' and kept none: SET profile.lineage = 'log' and run it again"
            ),
            Recorded::NotAtRecords => plan_err!(
                "{name} needs the lineage of query {query_id}, which is recorded at \
                 profile.level = 'records' alone: EXPLAIN PROFILE QUERY {query_id} runs it again at \
                 that level"
            ),
            Recorded::Nothing { known } => plan_err!("{name}: {}", unknown_query(known, query_id)),
        }
    }

    /// The SQL of this table for one query, standing on its own.
    pub(crate) async fn sql(&self, planner: &Planner, query_id: i64) -> Result<String> {
        Ok(self.of_query(planner, query_id).await?.text())
    }

    /// The same SQL for some queries as a plan, and the steps that it reads.
    async fn plan(
        &self,
        planner: &Planner,
        ids: &QueryIds,
    ) -> Result<(LogicalPlan, Vec<LastStep>)> {
        let ids = match self {
            Expansion::BackwardTrace { query_id, .. }
            | Expansion::ForwardTrace { query_id, .. } => vec![*query_id],
            _ => match ids {
                QueryIds::Listed(ids) => ids.iter().copied().collect(),
                QueryIds::Range(_) => newest_traced(planner, ids).await?,
            },
        };
        let mut all: Option<LogicalPlan> = None;
        let mut steps = Vec::new();
        for id in ids {
            let stepwise = self.of_query(planner, id).await?;
            let (plan, last) = stepwise.plan(planner).await?;
            let plan = self.fit(plan)?;
            steps.extend(last);
            all = Some(match all {
                None => plan,
                Some(all) => LogicalPlanBuilder::from(all).union(plan)?.build()?,
            });
        }
        match all {
            Some(plan) => Ok((plan, steps)),
            None => {
                let nothing = match self {
                    Expansion::AnomalyCandidates => self.nothing(-1),
                    _ => self.stepwise(-1, &Shape::default())?,
                };
                let (nothing, _) = nothing.plan(planner).await?;
                Ok((self.fit(nothing)?, steps))
            }
        }
    }

    /// The plan with exactly the columns of the schema.
    fn fit(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let schema = self.schema();
        let columns = schema.fields().iter().enumerate().map(|(index, field)| {
            let column = Expr::Column(Column::from(plan.schema().qualified_field(index)));
            cast(column, field.data_type().clone()).alias(field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(plan).project(columns)?.build()
    }
}

/// A view or table function whose SQL is written when it is scanned.
#[derive(Debug)]
pub(crate) struct ExpandedTable {
    store: Arc<Store>,
    expansion: Expansion,
    definition: String,
}

impl ExpandedTable {
    pub(crate) fn new(store: Arc<Store>, expansion: Expansion) -> ExpandedTable {
        let name = expansion.name();
        let definition = format!(
            "-- sys.{name} follows the plan of the query that it is asked about, so its SQL is\n\
             -- written for each query: EXPLAIN PROFILE (AS SQL) prints it."
        );
        ExpandedTable {
            store,
            expansion,
            definition,
        }
    }
}

#[async_trait]
impl TableProvider for ExpandedTable {
    fn schema(&self) -> SchemaRef {
        self.expansion.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition)
    }

    /// Filters on `query_id` choose the queries that SQL is written for.
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
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = Planner::of_session(&self.store, state);
        let ids = QueryIds::of_filters(filters);
        let (mut plan, steps) = self.expansion.plan(&planner, &ids).await?;
        if let Some(projection) = projection {
            let schema = plan.schema();
            let columns = projection.iter();
            let columns = columns.map(|index| Column::from(schema.qualified_field(*index)).into());
            let columns: Vec<Expr> = columns.collect();
            plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        }
        let plan = LogicalPlanBuilder::from(plan).limit(0, limit)?.build()?;
        if steps.is_empty() {
            return planner.physical(&plan).await;
        }
        Ok(Arc::new(planned_after_steps(plan, steps, &planner)))
    }
}
