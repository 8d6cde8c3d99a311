//! Recursive queries in the rewrite: what a row was made of travels through the working table.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::logical_plan::{
    Filter, Projection, RecursiveQuery, TableScan, TableScanBuilder,
};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF};
use skewer_exec::recursion::state_type;
use skewer_exec::{
    AggregateSource, CarriedState, FirstSeen, MergedState, Origin, RecordSource, RowCapture,
    StateRecord,
};

use skewer_profiling::Recorder;

use super::{Arguments, LineageRewrite, TrackedPlan, TrackedRecord, hidden_column};

/// A recursive query whose recursive term is rewritten.
#[derive(Debug)]
pub(super) struct Recursion {
    name: String,
    /// The working table's column with what its rows were made of.
    state: String,
    /// What the numbers in states mean.
    sources: Vec<RecordSource>,
}

impl Recursion {
    /// The records of `plan` as arguments of a function, and what it does with them: first those of the
    /// iteration before.
    fn records(&mut self, plan: &TrackedPlan) -> Result<(Vec<Expr>, Vec<StateRecord>)> {
        let Arguments {
            exprs,
            captured,
            carried,
        } = plan.arguments()?;
        let mut records: Vec<StateRecord> = Vec::with_capacity(captured.len() + carried.len());
        records.extend(carried.into_iter().map(|input| StateRecord {
            origin: Origin::Before,
            argument: input.records,
            latency_arguments: input.latencies,
        }));
        for input in captured {
            self.sources.push(input.source);
            records.push(StateRecord {
                origin: Origin::Source(self.sources.len() - 1),
                argument: input.id_argument,
                latency_arguments: input.latency_arguments,
            });
        }
        Ok((exprs, records))
    }

    /// The columns of a term and, as its state, what its rows are made of.
    fn carrying(
        &mut self,
        recorder: &Arc<Recorder>,
        term: TrackedPlan,
        original: &LogicalPlan,
    ) -> Result<LogicalPlan> {
        let sources = term
            .records
            .iter()
            .filter_map(|record| record.source.as_ref());
        let scans = sources.filter_map(|source| match source {
            RecordSource::Scan(scan) => Some(Arc::clone(scan)),
            _ => None,
        });
        let scans = scans.collect();
        let (arguments, records) = self.records(&term)?;
        let function = CarriedState::new(Arc::clone(recorder), records, scans);
        let columns = original.schema().columns().into_iter();
        let mut columns: Vec<Expr> = columns.map(Expr::Column).collect();
        let state = ScalarUDF::from(function).call(arguments);
        columns.push(state.alias(&self.state));
        let plan = Projection::try_new(columns, Arc::new(term.plan))?;
        Ok(LogicalPlan::Projection(plan))
    }
}

impl LineageRewrite {
    /// Every row that it returns is a record, made of all that the rows before it were made of.
    pub(super) fn recursive_query(&mut self, query: &RecursiveQuery) -> Result<TrackedPlan> {
        let untracked = || TrackedPlan::untracked(LogicalPlan::RecursiveQuery(query.clone()));
        if self.sources.is_some() {
            return Ok(untracked());
        }
        let mut static_term = self.rewrite(&query.static_term)?;
        let state = self.name("state");
        // Within the recursive term of another, the numbers in states mean what they mean there.
        let known = self.recursions.last_mut();
        let known = known.map(|outer| std::mem::take(&mut outer.sources));
        self.recursions.push(Recursion {
            name: query.name.clone(),
            state: state.clone(),
            sources: known.unwrap_or_default(),
        });
        let recursive_term = self.rewrite(&query.recursive_term);
        let Some(mut recursion) = self.recursions.pop() else {
            return internal_err!("a recursive query was left twice");
        };
        let mut recursive_term = recursive_term?;
        if query.is_distinct {
            // As a column, what rows were made of would be compared, too.
            let function = Arc::new(ScalarUDF::from(FirstSeen::new()));
            static_term = first_seen(static_term, &query.static_term, &function)?;
            recursive_term = first_seen(recursive_term, &query.recursive_term, &function)?;
        }
        let is_own = |record: &TrackedRecord| record.id == state;
        let mut records = static_term.records.iter().chain(&recursive_term.records);
        let is_made_of_nothing = records.all(is_own);
        let recorder = &self.recorder;
        let static_term = recursion.carrying(recorder, static_term, &query.static_term)?;
        let recursive_term = recursion.carrying(recorder, recursive_term, &query.recursive_term)?;
        let sources = recursion.sources;
        let outer = self.recursions.last_mut();
        let is_inner = outer.is_some();
        let sources = match outer {
            Some(outer) => {
                outer.sources = sources;
                Vec::new()
            }
            None => sources,
        };
        if is_made_of_nothing {
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
        if is_inner {
            self.nests_recursions = true;
            return Ok(TrackedPlan {
                plan,
                records: vec![of_before(state)],
            });
        }
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

    /// In a recursive term, the aggregate function that merges what the rows of `input` were made of, and
    /// its arguments; `None` if they are made of none of the iteration before.
    pub(super) fn merged(
        &mut self,
        input: &TrackedPlan,
    ) -> Result<Option<(AggregateUDF, Vec<Expr>)>> {
        let is_of_before = input.records.iter().any(|record| record.source.is_none());
        if self.sources.is_some() || !is_of_before {
            return Ok(None);
        }
        let name = self.name("merged");
        let Some(recursion) = self.recursions.last_mut() else {
            return internal_err!("rows of an iteration before outside of a recursive term");
        };
        let (arguments, records) = recursion.records(input)?;
        let function = MergedState::new(name, Arc::clone(&self.recorder), records);
        Ok(Some((AggregateUDF::from(function), arguments)))
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
            records: vec![of_before(state.clone())],
        }))
    }
}

/// All that a row was made of, which column `state` has.
fn of_before(state: String) -> TrackedRecord {
    TrackedRecord {
        source: None,
        id: state,
        latencies: vec![],
        of_columns: None,
        of_same_select: false,
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
