//! Tables that are SQL written for each query: what SQL that is, and running it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, cast,
};
use datafusion::physical_plan::{ExecutionPlan, collect};

use super::anomalies;
use super::captured::shape;
use super::latency::{self, Question};
use super::shape::Shape;
use super::steps::{LastStep, Stepwise, planned_after_steps};
use super::trace;
use super::trace_arguments;
use crate::level::Level;
use crate::lineage_mode::LineageMode;
use crate::planner::Planner;
use crate::query_ids::{QUERY_ID, QueryIds, concerns_only_query_ids};
use crate::store::Store;
use crate::unknown_query::unknown_query;

/// Without a filter on `query_id` the views show so many of the newest queries of level
/// `records`: each costs about as much as asking for it alone.
const QUERIES_WITHOUT_FILTER: usize = 16;

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

    /// Name of the view or table function.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Expansion::OutputLatency => "output_latency",
            Expansion::IntermediateLatency => "intermediate_latency",
            Expansion::ExpensiveInputs => "expensive_inputs",
            Expansion::AnomalyCandidates => "anomaly_candidates",
            Expansion::BackwardTrace { .. } => "backward_trace",
            Expansion::ForwardTrace { .. } => "forward_trace",
        }
    }

    /// What one row is, as Markdown.
    pub(crate) fn doc(&self) -> &'static str {
        match self {
            Expansion::OutputLatency => {
                "One row per result row: its total latency, of which `computation_ns` and\n\
                 `shuffle_ns` along the slowest way, the base record that it came from, and what the\n\
                 total would be without that record. Of a query that ran with\n\
                 `profile.lineage = 'piggyback'` there are none."
            }
            Expansion::IntermediateLatency => {
                "The same for each record that an operator which captures lineage (an aggregate, a\n\
                 window) made on the way to the result."
            }
            Expansion::ExpensiveInputs => {
                "The base records that are the most impactful source of a result row, by descending\n\
                 impact (`rank` 1 is the greatest): how many result rows (`outputs`), their greatest\n\
                 total and remediated latency. `self_ns` is a second attribution: the sum of all\n\
                 computation latencies of the record, on the slowest way or not (from\n\
                 `sys.record_latency`, or where that has nothing for the query, from the edges of\n\
                 lineage; in a recursive query, the greatest latency that a row made of it carried).\n\
                 `method` says how more than half of that was found, and `error_ns` by how much it may\n\
                 be off. Of a query that ran with `profile.lineage = 'piggyback'` the\n\
                 answer is in `sys.impactful_sources`, and `self_ns`, `method` and `error_ns` are\n\
                 NULL."
            }
            Expansion::AnomalyCandidates => {
                "The records of a query that are judged: the five of the highest impact, the three of the\n\
                 highest self time, and those of which many rows were made. `reason` says why a record stands\n\
                 out; it is NULL if the record does not. [`sys.anomalies`](#sysanomalies) has the records that\n\
                 do, and describes the columns.\n\n\
                 - `critical path`: the impact of the record is at least `threshold_ns`. That is the greatest of\n\
                 a millisecond, 5 % of `query_ns`, twice `even_ns`, and 10 times `median_ns` (10 times `even_ns`\n\
                 where no self time was measured).\n\
                 - `self time`: the self time of the record is at least the same threshold.\n\
                 - `fan-out`: an unnest, a join or a recursive query makes rows of the records of a table. A join\n\
                 does if it returns twice as many rows as the larger of its inputs, a recursive query if it returns\n\
                 twice as many as its static term. Rows are counted at the first operator that captures lineage,\n\
                 or in the result. Ten times more descend from the record than from each record with fewer rows,\n\
                 in the mean. Operators took at least `threshold_ns` for its rows: a millisecond, 5 % of\n\
                 `query_ns`, and 5 % of all self time. Each scan has up to three such records."
            }
            Expansion::BackwardTrace { .. } => {
                "The base records that a result row was computed from, and the computation latency\n\
                 of each on its way there (on the slowest, if there are several). An error says why\n\
                 where no lineage was recorded of the query, or it returned no such row."
            }
            Expansion::ForwardTrace { .. } => {
                "The result rows that were computed from a base record. An error says why where no\n\
                 lineage was recorded of the query, or it read no such table."
            }
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        const BIGINT: DataType = DataType::Int64;
        const VARCHAR: DataType = DataType::Utf8;
        let columns: &[(&str, DataType)] = match self {
            Expansion::OutputLatency => &[
                ("query_id", BIGINT),
                ("output_row", BIGINT),
                ("total_ns", BIGINT),
                ("source_table", VARCHAR),
                ("source_row_id", BIGINT),
                ("remediated_ns", BIGINT),
                ("computation_ns", BIGINT),
                ("shuffle_ns", BIGINT),
            ],
            Expansion::IntermediateLatency => &[
                ("query_id", BIGINT),
                ("operator_id", BIGINT),
                ("record_id", BIGINT),
                ("total_ns", BIGINT),
                ("source_table", VARCHAR),
                ("source_row_id", BIGINT),
                ("remediated_ns", BIGINT),
                ("computation_ns", BIGINT),
                ("shuffle_ns", BIGINT),
            ],
            Expansion::ExpensiveInputs => &[
                ("query_id", BIGINT),
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("impact_ns", BIGINT),
                ("max_total_ns", BIGINT),
                ("max_remediated_ns", BIGINT),
                ("outputs", BIGINT),
                ("self_ns", BIGINT),
                ("method", VARCHAR),
                ("error_ns", BIGINT),
                ("rank", BIGINT),
            ],
            Expansion::AnomalyCandidates => &[
                ("query_id", BIGINT),
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("reason", VARCHAR),
                ("cost_ns", BIGINT),
                ("threshold_ns", BIGINT),
                ("rank", BIGINT),
                ("impact_ns", BIGINT),
                ("max_total_ns", BIGINT),
                ("max_remediated_ns", BIGINT),
                ("outputs", BIGINT),
                ("self_ns", BIGINT),
                ("method", VARCHAR),
                ("error_ns", BIGINT),
                ("median_ns", BIGINT),
                ("even_ns", BIGINT),
                ("query_ns", BIGINT),
                ("operator_id", BIGINT),
                ("rows_made", BIGINT),
                ("table_rows", BIGINT),
                ("apportioned_ns", BIGINT),
                ("unknown", VARCHAR),
            ],
            Expansion::BackwardTrace { .. } => &[
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("latency_ns", BIGINT),
            ],
            Expansion::ForwardTrace { .. } => &[("output_row", BIGINT)],
        };
        let fields = columns.iter();
        let fields = fields.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

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

/// The newest queries of level `records` in a range, up to a limit.
async fn newest_traced(planner: &Planner, ids: &QueryIds) -> Result<Vec<i64>> {
    let range = match ids {
        QueryIds::Range(range) => format!("BETWEEN {} AND {}", range.start(), range.end()),
        QueryIds::Listed(_) => "IS NOT NULL".to_owned(),
    };
    let sql = format!(
        "SELECT query_id FROM sys.queries WHERE profile_level = 'records' AND query_id {range}
         ORDER BY query_id DESC LIMIT {QUERIES_WITHOUT_FILTER}"
    );
    let ids = integers(&run(planner, &sql).await?);
    Ok(ids.into_iter().flatten().collect())
}

/// The values of columns of integers, row by row.
fn integers(batches: &[RecordBatch]) -> Vec<Option<i64>> {
    let rows = batches.iter().flat_map(|batch| {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| column.as_primitive::<Int64Type>())
            .collect();
        (0..batch.num_rows()).flat_map(move |row| {
            let values = columns.clone().into_iter();
            values.map(move |column| column.is_valid(row).then(|| column.value(row)))
        })
    });
    rows.collect()
}

/// What there is of a query's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// Lineage, as far as there was any.
    Logged,
    /// They carried their latencies instead of being logged.
    Carried,
    /// The query ran at another level.
    NotAtRecords,
    /// There is no such query.
    Nothing {
        /// The least and the greatest id that there is.
        known: Option<(i64, i64)>,
    },
}

impl Recorded {
    async fn of_query(planner: &Planner, query_id: i64) -> Result<Recorded> {
        let sql = format!(
            "SELECT profile_level = '{}', coalesce(lineage = '{}', false)
             FROM sys.queries WHERE query_id = {query_id}",
            Level::Records,
            LineageMode::Piggyback
        );
        let batches = run(planner, &sql).await?;
        let Some(row) = batches.iter().find(|batch| batch.num_rows() > 0) else {
            let sql = "SELECT min(query_id), max(query_id) FROM sys.queries";
            let ids = integers(&run(planner, sql).await?);
            let known = ids
                .first()
                .copied()
                .flatten()
                .zip(ids.last().copied().flatten());
            return Ok(Recorded::Nothing { known });
        };
        let [at_records, carried] = [0, 1].map(|index| row.column(index).as_boolean().value(0));
        Ok(match (at_records, carried) {
            (false, _) => Recorded::NotAtRecords,
            (true, true) => Recorded::Carried,
            (true, false) => Recorded::Logged,
        })
    }
}

pub(super) async fn run(planner: &Planner, sql: &str) -> Result<Vec<RecordBatch>> {
    let plan = planner.physical(&planner.logical(sql).await?).await?;
    collect(plan, planner.task_context()).await
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
