//! Recursive queries in the rewrite: what a row was made of travels through the working table.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::logical_expr::logical_plan::{
    Filter, Projection, RecursiveQuery, TableScan, TableScanBuilder,
};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use skewer_exec::recursion::state_type;
use skewer_exec::{
    AggregateSource, CarriedState, FirstSeen, Origin, RecordSource, RowCapture, StateRecord,
};

use super::{LineageRewrite, TrackedPlan, TrackedRecord, hidden_column};

/// A recursive query whose recursive term is rewritten.
#[derive(Debug)]
pub(super) struct Recursion {
    name: String,
    /// The working table's column with what its rows were made of.
    state: String,
}

impl LineageRewrite {
    /// Every row that it returns is a record, made of all that the rows before it were made of.
    pub(super) fn recursive_query(&mut self, query: &RecursiveQuery) -> Result<TrackedPlan> {
        let untracked = || TrackedPlan::untracked(LogicalPlan::RecursiveQuery(query.clone()));
        if self.sources.is_some() || makes_records(&query.recursive_term)? {
            return Ok(untracked());
        }
        let mut static_term = self.rewrite(&query.static_term)?;
        let state = self.name("state");
        self.recursions.push(Recursion {
            name: query.name.clone(),
            state: state.clone(),
        });
        let recursive_term = self.rewrite(&query.recursive_term);
        self.recursions.pop();
        let mut recursive_term = recursive_term?;
        if query.is_distinct {
            // As a column, what rows were made of would be compared, too.
            let function = Arc::new(ScalarUDF::from(FirstSeen::new()));
            static_term = first_seen(static_term, &query.static_term, &function)?;
            recursive_term = first_seen(recursive_term, &query.recursive_term, &function)?;
        }
        let mut sources = Vec::new();
        let static_term = self.carrying(static_term, &query.static_term, &state, &mut sources)?;
        let recursive_term =
            self.carrying(recursive_term, &query.recursive_term, &state, &mut sources)?;
        if sources.is_empty() {
            return Ok(untracked());
        }
        let mut columns: Vec<Expr> = query
            .schema
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let fields = query.schema.iter();
        let mut fields: Vec<_> = fields
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        fields.push((None, Arc::new(Field::new(&state, state_type(), true))));
        let schema = DFSchema::new_with_metadata(fields, query.schema.metadata().clone())?;
        let states = hidden_column(&schema, &state)?;
        let plan = LogicalPlan::RecursiveQuery(RecursiveQuery {
            name: query.name.clone(),
            static_term: Arc::new(static_term),
            recursive_term: Arc::new(recursive_term),
            is_distinct: false,
            schema: Arc::new(schema),
        });
        let rows = Arc::new(AggregateSource::default());
        let capture = RowCapture::new(Arc::clone(&self.recorder), sources, Arc::clone(&rows));
        let id = self.name("id");
        columns.push(ScalarUDF::from(capture).call(vec![states]).alias(&id));
        Ok(TrackedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?),
            records: vec![TrackedRecord {
                source: Some(RecordSource::Aggregate(rows)),
                id,
                latencies: vec![],
                of_columns: None,
                of_same_select: false,
            }],
        })
    }

    /// The columns of a term and, as `state`, what its rows are made of, by the numbers that
    /// `sources` get.
    fn carrying(
        &self,
        term: TrackedPlan,
        original: &LogicalPlan,
        state: &str,
        sources: &mut Vec<RecordSource>,
    ) -> Result<LogicalPlan> {
        let schema = term.plan.schema();
        let (mut arguments, mut records, mut scans) = (Vec::new(), Vec::new(), Vec::new());
        for record in &term.records {
            let origin = match &record.source {
                Some(source) => {
                    if let RecordSource::Scan(scan) = source {
                        scans.push(Arc::clone(scan));
                    }
                    sources.push(source.clone());
                    Origin::Source(sources.len() - 1)
                }
                None => Origin::Before,
            };
            let argument = arguments.len();
            arguments.push(hidden_column(schema, &record.id)?);
            let mut latency_arguments = Vec::new();
            for latency in &record.latencies {
                latency_arguments.push(arguments.len());
                arguments.push(hidden_column(schema, latency)?);
            }
            records.push(StateRecord {
                origin,
                argument,
                latency_arguments,
            });
        }
        let function = CarriedState::new(Arc::clone(&self.recorder), records, scans);
        let columns = original.schema().columns().into_iter();
        let mut columns: Vec<Expr> = columns.map(Expr::Column).collect();
        columns.push(ScalarUDF::from(function).call(arguments).alias(state));
        let plan = Projection::try_new(columns, Arc::new(term.plan))?;
        Ok(LogicalPlan::Projection(plan))
    }

    /// The rows of the iteration before, with what they were made of.
    pub(super) fn working_table(
        &self,
        scan: &TableScan,
        table: &CteWorkTable,
    ) -> Result<Option<TrackedPlan>> {
        let mut recursions = self.recursions.iter().rev();
        let Some(recursion) = recursions.find(|recursion| recursion.name == table.name()) else {
            return Ok(None);
        };
        let state = &recursion.state;
        let schema = table.schema();
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(state, state_type(), true)));
        let all = Schema::new_with_metadata(fields, schema.metadata().clone());
        let table = Arc::new(CteWorkTable::new(table.name(), Arc::new(all)));
        let columns = schema.fields().len();
        let mut projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..columns).collect(),
        };
        projection.push(columns);
        let scan = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(table))
            .with_projection(Some(projection))
            .with_filters(scan.filters.clone())
            .with_fetch(scan.fetch)
            .build()?;
        Ok(Some(TrackedPlan {
            plan: LogicalPlan::TableScan(scan),
            records: vec![TrackedRecord {
                source: None,
                id: state.clone(),
                latencies: vec![],
                of_columns: None,
                of_same_select: false,
            }],
        }))
    }
}

/// The rows of a term that are none of those that `function` has seen.
fn first_seen(
    mut term: TrackedPlan,
    original: &LogicalPlan,
    function: &Arc<ScalarUDF>,
) -> Result<TrackedPlan> {
    let columns = original.schema().columns().into_iter();
    let predicate = function.call(columns.map(Expr::Column).collect());
    term.plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(term.plan))?);
    Ok(term)
}

/// Whether something in a recursive term makes records of rows of the iteration before, whose state is
/// none; or whether it has another recursive query, whose functions would go on from one iteration of
/// this one to the next.
fn makes_records(term: &LogicalPlan) -> Result<bool> {
    term.exists(|node| match node {
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Window(_) => {
            reads_working_table(node)
        }
        LogicalPlan::RecursiveQuery(_) => Ok(true),
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftMark => reads_working_table(&join.right),
            JoinType::RightSemi | JoinType::RightMark => reads_working_table(&join.left),
            _ => Ok(false),
        },
        _ => Ok(false),
    })
}

fn reads_working_table(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::TableScan(scan) = node else {
            return Ok(false);
        };
        Ok(source_as_provider(&scan.source).is_ok_and(|table| table.is::<CteWorkTable>()))
    })
}
