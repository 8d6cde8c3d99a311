//! Recursive queries in the rewrite: what a row was made of travels through the working table.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::logical_plan::{
    Filter, Projection, RecursiveQuery, TableScan, TableScanBuilder,
};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF, lit, when};
use skewer_exec::{
    AggregateOrigin, CarriedState, FirstSeen, MergedState, Origin, RecordOrigin, RowCapture,
    RowState, StateRecord, carried_of_nothing,
};

use super::{AnnotatedPlan, AnnotatedRecord, Arguments, LineageRewrite, hidden_column};

/// A recursive query whose recursive term is rewritten.
#[derive(Debug)]
pub(super) struct Recursion {
    name: String,
    /// The working table's column with what its rows were made of.
    state: String,
    /// The names that it has where the working table is read again.
    again: Vec<String>,
    /// What the numbers in states mean.
    sources: Vec<RecordOrigin>,
}

impl Recursion {
    /// Takes note that column `name`, if it is the state, is called `again` at another place.
    pub(super) fn read_again(&mut self, name: &String, again: &str) {
        if self.is_state(name) {
            self.again.push(again.to_owned());
        }
    }

    fn is_state(&self, name: &String) -> bool {
        self.state == *name || self.again.contains(name)
    }

    /// The records of `plan` as arguments of a function, and what it does with them: first those of the
    /// iteration before.
    fn records(&mut self, plan: &AnnotatedPlan) -> Result<(Vec<Expr>, Vec<StateRecord>)> {
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
        rewrite: &LineageRewrite,
        term: AnnotatedPlan,
        original: &LogicalPlan,
    ) -> Result<LogicalPlan> {
        let ids = term.records.iter().map(|record| &record.id);
        let scans = ids.filter_map(|id| {
            let scan = rewrite.scans.iter().find(|(names, _)| names.contains(id));
            scan.map(|(_, scan)| Arc::clone(scan))
        });
        let scans = scans.collect();
        let (arguments, state) = if rewrite.sources.is_some() {
            let Arguments { exprs, carried, .. } = term.arguments()?;
            (exprs, RowState::Carried(carried))
        } else {
            let (exprs, records) = self.records(&term)?;
            (exprs, RowState::Records(records))
        };
        let function = CarriedState::new(Arc::clone(&rewrite.recorder), state, scans);
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
    pub(super) fn recursive_query(&mut self, query: &RecursiveQuery) -> Result<AnnotatedPlan> {
        let untracked = || AnnotatedPlan::untracked(LogicalPlan::RecursiveQuery(query.clone()));
        let mut static_term = self.rewrite(&query.static_term)?;
        let shared: Vec<usize> = self.shared.keys().copied().collect();
        let state = self.name("state");
        // Within the recursive term of another, the numbers in states mean what they mean there.
        let known = self.recursions.last_mut();
        let known = known.map(|outer| std::mem::take(&mut outer.sources));
        self.recursions.push(Recursion {
            name: query.name.clone(),
            state: state.clone(),
            again: Vec::new(),
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
        let is_own = |record: &AnnotatedRecord| recursion.is_state(&record.id);
        let mut records = static_term.records.iter().chain(&recursive_term.records);
        let is_made_of_nothing = records.all(is_own);
        let static_term = recursion.carrying(self, static_term, &query.static_term)?;
        let recursive_term = recursion.carrying(self, recursive_term, &query.recursive_term)?;
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
            // Nor do its working table, and what is made of it, carry anything.
            self.shared.retain(|number, _| shared.contains(number));
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
        let state_field = Arc::new(Field::new(&state, self.state_type(), true));
        fields.push((None, state_field));
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
            return Ok(AnnotatedPlan {
                plan,
                records: vec![AnnotatedRecord::of_before(state)],
            });
        }
        let (record, source) = self.record_of(states, sources)?;
        let id = self.name("id");
        columns.push(record.alias(&id));
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?),
            records: vec![AnnotatedRecord::new(source, id)],
        })
    }

    /// The record that a returned row is, made of what its state says: its id, or what it carries; and
    /// where such records come from.
    fn record_of(
        &self,
        states: Expr,
        sources: Vec<RecordOrigin>,
    ) -> Result<(Expr, Option<RecordOrigin>)> {
        let recorder = Arc::clone(&self.recorder);
        if self.sources.is_none() {
            let rows = Arc::new(AggregateOrigin::default());
            let capture = RowCapture::new(recorder, sources, Arc::clone(&rows));
            let id = ScalarUDF::from(capture).call(vec![states]);
            return Ok((id, Some(RecordOrigin::Aggregate(rows))));
        }
        // Where all records are traced, a row that is made of none is a record all the same.
        if recorder.sampling().is_complete() {
            let of_nothing = lit(carried_of_nothing()?);
            let carried = when(states.clone().is_not_null(), states).otherwise(of_nothing)?;
            return Ok((carried, None));
        }
        Ok((states, None))
    }

    /// The type of the columns that say what rows were made of.
    fn state_type(&self) -> DataType {
        match self.sources {
            None => RowState::Records(vec![]).data_type(),
            Some(_) => RowState::Carried(vec![]).data_type(),
        }
    }

    /// In a recursive term, the aggregate function that merges what the rows of `input` were made of, and
    /// its arguments; `None` if they are made of none of the iteration before, or carry latencies.
    pub(super) fn merged(
        &mut self,
        input: &AnnotatedPlan,
    ) -> Result<Option<(AggregateUDF, Vec<Expr>)>> {
        if self.sources.is_some() || !input.is_of_before() {
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
    ) -> Result<Option<AnnotatedPlan>> {
        let mut recursions = self.recursions.iter().rev();
        let Some(recursion) = recursions.find(|recursion| recursion.name == table.name()) else {
            return Ok(None);
        };
        let state = &recursion.state;
        let schema = table.schema();
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(state, self.state_type(), true)));
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
        Ok(Some(AnnotatedPlan {
            plan: LogicalPlan::TableScan(scan),
            records: vec![AnnotatedRecord::of_before(state.clone())],
        }))
    }
}

/// The rows of a term that are none of those that `function` has seen.
fn first_seen(
    mut term: AnnotatedPlan,
    original: &LogicalPlan,
    function: &Arc<ScalarUDF>,
) -> Result<AnnotatedPlan> {
    let columns = original.schema().columns().into_iter();
    let predicate = function.call(columns.map(Expr::Column).collect());
    term.plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(term.plan))?);
    Ok(term)
}
