//! Plans whose rows carry the ids of their records, and what these are.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use skewer_exec::{CapturedInput, CarriedInput, RecordOrigin};

/// A kind of record that the rows of a plan stem from.
#[derive(Debug, Clone)]
pub struct AnnotatedRecord {
    /// Where the records come from; `None` if nothing is logged of them.
    pub source: Option<RecordOrigin>,
    /// The column with their ids, or with what they carry; NULL where a row has none.
    pub id: String,
    /// The columns whose sum is the latency since the record was made, in picoseconds.
    pub latencies: Vec<String>,
    /// The columns that rows have it for, which window functions have made; `None`: it is the row's.
    pub(super) of_columns: Option<Vec<String>>,
    /// Whether nothing but windows and filters is above the function that made it. Functions in several orders
    /// are stacked, although none looks at what the others return.
    pub(super) of_same_select: bool,
    /// Whether it is no record yet, but what a row of a recursive query's iteration before was made of.
    pub(super) of_before: bool,
}

impl AnnotatedRecord {
    /// One whose ids, or what it carries, column `id` has.
    pub(super) fn new(source: Option<RecordOrigin>, id: String) -> Self {
        Self {
            source,
            id,
            latencies: vec![],
            of_columns: None,
            of_same_select: false,
            of_before: false,
        }
    }

    /// What rows of an iteration before were made of, which column `id` has.
    pub(super) fn of_before(id: String) -> Self {
        Self {
            of_before: true,
            ..Self::new(None, id)
        }
    }

    /// Whether it is among what is read where only these columns of a row are.
    pub(super) fn is_read(&self, columns: &HashSet<String>) -> bool {
        self.of_columns
            .as_ref()
            .is_none_or(|of| of.iter().any(|column| columns.contains(column)))
    }

    /// As it is above a projection that makes these columns, each of the columns it is said to read.
    pub(super) fn projected(mut self, made: &[(String, HashSet<String>)]) -> Self {
        if let Some(of) = &self.of_columns {
            let is_made_of = |read: &HashSet<String>| of.iter().any(|column| read.contains(column));
            let columns = made.iter().filter(|(_, read)| is_made_of(read));
            self.of_columns = Some(columns.map(|(name, _)| name.clone()).collect());
        }
        self
    }
}

/// A plan whose rows carry the ids of their records.
#[derive(Debug, Clone)]
pub struct AnnotatedPlan {
    /// The plan: the original's columns and hidden ones, in any order.
    pub plan: LogicalPlan,
    /// What the rows stem from; empty if nothing is known.
    pub records: Vec<AnnotatedRecord>,
}

impl AnnotatedPlan {
    /// Whether its rows are made of rows of a recursive query's iteration before.
    pub(super) fn is_of_before(&self) -> bool {
        self.records.iter().any(|record| record.of_before)
    }

    pub(super) fn untracked(plan: LogicalPlan) -> Self {
        Self {
            plan,
            records: vec![],
        }
    }

    /// The names of all hidden columns still needed, each once.
    pub fn hidden(&self) -> Vec<String> {
        let mut names = Vec::new();
        for record in &self.records {
            for name in std::iter::once(&record.id).chain(&record.latencies) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// References to the hidden columns, however they are qualified by now.
    pub fn hidden_columns(&self) -> Result<Vec<Expr>> {
        let schema = self.plan.schema();
        let column = |name: &String| hidden_column(schema, name);
        self.hidden().iter().map(column).collect()
    }

    /// The plan's records as arguments.
    pub(super) fn arguments(&self) -> Result<Arguments> {
        let schema = self.plan.schema();
        let mut exprs = Vec::new();
        let (mut captured, mut carried) = (Vec::new(), Vec::new());
        for record in &self.records {
            let id_argument = exprs.len();
            exprs.push(hidden_column(schema, &record.id)?);
            let mut latency_arguments = Vec::new();
            for latency in &record.latencies {
                latency_arguments.push(exprs.len());
                exprs.push(hidden_column(schema, latency)?);
            }
            match &record.source {
                Some(source) => captured.push(CapturedInput {
                    source: source.clone(),
                    id_argument,
                    latency_arguments,
                }),
                None => carried.push(CarriedInput {
                    records: id_argument,
                    latencies: latency_arguments,
                }),
            }
        }
        Ok(Arguments {
            exprs,
            captured,
            carried,
        })
    }
}

/// The records of a plan as arguments of a function: the ids and latencies of each.
pub(super) struct Arguments {
    pub(super) exprs: Vec<Expr>,
    /// Those that are logged.
    pub(super) captured: Vec<CapturedInput>,
    /// Those whose latencies are carried.
    pub(super) carried: Vec<CarriedInput>,
}

/// A reference to hidden column `name`, which is unique in the plan.
pub(super) fn hidden_column(schema: &DFSchema, name: &str) -> Result<Expr> {
    match schema.iter().find(|(_, field)| field.name() == name) {
        Some((qualifier, field)) => Ok(Expr::Column(Column::new(qualifier.cloned(), field.name()))),
        None => internal_err!("the hidden column {name} was lost on the way"),
    }
}

/// The type of hidden column `name`.
pub(super) fn hidden_type(schema: &DFSchema, name: &str) -> Result<DataType> {
    hidden_column(schema, name)?.get_type(schema)
}
