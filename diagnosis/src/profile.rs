//! The profile of one query.

use crate::error::Error;
use crate::excluded_rows::{ExcludedPredicate, ExcludedRows};
use crate::expensive_inputs::ExpensiveInputs;
use crate::next_steps;
use crate::plan::Plan;
use crate::predicates::Predicates;
use crate::quarantine::QuarantineProposal;
use crate::remedies::{Remedy, remedies};
use crate::source::{ProfileSource, Section, Statements};
use crate::summary::QuerySummary;
use crate::time_spent::TimeSpent;
use crate::verdict::Verdict;

/// How the profiled query came to be run.
#[derive(Debug, Clone, Default)]
pub struct RunContext {
    /// Rows that the query was run without.
    pub excluded: Vec<ExcludedPredicate>,
    /// The query that ran with these rows.
    pub baseline_query_id: Option<i64>,
    /// What limits the numbers, one sentence each.
    pub caveats: Vec<String>,
}

/// What schema `sys` tells about a query that has ended.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The query: its text, status, times and what limits the numbers.
    pub summary: QuerySummary,
    /// Why it took its time: the causes that `sys.diagnoses` names first.
    pub verdict: Verdict,
    /// Rows that `WITHOUT` or quarantines left out of the run.
    pub excluded: ExcludedRows,
    /// The operators of the plan and what each did.
    pub plan: Plan,
    /// Where the time went.
    pub time_spent: TimeSpent,
    /// The input records that cost most, anomalous ones first.
    pub expensive_inputs: ExpensiveInputs,
    /// Conditions over table columns that separate expensive records from others.
    pub predicates: Predicates,
    /// Remedies for skew that were advised or tried.
    pub remedies: Vec<Remedy>,
    /// A quarantine of the rows that cost most, if the query gains much without them.
    pub quarantine: Option<QuarantineProposal>,
    /// Statements to go on with: each runs as it stands.
    pub next_steps: Vec<String>,
    /// The statements behind all this, in the order in which they ran.
    pub statements: Vec<Section>,
}

/// What the query would take without some of its input.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf<'a> {
    /// The table as the log names it.
    pub table: &'a str,
    /// The rows to leave out, as a condition for WHERE.
    pub predicate: String,
    /// Estimated nanoseconds of the query without these rows.
    pub query_ns: i64,
}

impl Profile {
    /// Reads the profile of query `query_id`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `sys.queries` has no such query; [`Error::Source`] if `sys` cannot be
    /// read. A user table that cannot be read is no error.
    pub async fn read(
        source: &dyn ProfileSource,
        query_id: i64,
        context: &RunContext,
    ) -> Result<Self, Error> {
        let mut statements = Statements::new(source);
        let mut summary = QuerySummary::read(&mut statements, query_id).await?;
        summary.run_caveats.clone_from(&context.caveats);
        let excluded = ExcludedRows::read(&mut statements, &summary, context).await?;
        let plan = Plan::read(&mut statements, &summary).await?;
        let verdict = Verdict::read(&mut statements, &summary, &plan).await?;
        let remedies = remedies(&mut statements, &summary, &plan).await?;
        let time_spent = TimeSpent::read(&mut statements, &summary, &plan).await?;
        let expensive_inputs = ExpensiveInputs::read(&mut statements, &summary).await?;
        let mut predicates = Predicates::worth_showing(&mut statements, &summary).await?;
        // The reader who left these rows out knows the predicate already.
        predicates.found.retain(|found| {
            let mut excluded = context.excluded.iter();
            !excluded.any(|rows| rows.predicate == found.predicate)
        });
        let quarantine = QuarantineProposal::read(
            &mut statements,
            &summary,
            &excluded,
            &expensive_inputs,
            &predicates,
        );
        Ok(Self {
            quarantine: quarantine.await?,
            next_steps: next_steps::next_steps(
                &summary,
                &verdict,
                &time_spent,
                &expensive_inputs,
                &predicates,
            ),
            statements: statements.into_sections(),
            summary,
            verdict,
            excluded,
            plan,
            time_spent,
            expensive_inputs,
            predicates,
            remedies,
        })
    }

    /// What the query would take without each anomalous record, and without the rows of each
    /// predicate, where an estimate is known.
    pub fn what_if(&self) -> Vec<WhatIf<'_>> {
        let records = self.expensive_inputs.anomalous().filter_map(|input| {
            Some(WhatIf {
                table: &input.table,
                predicate: format!("_row_id = {}", input.row_id),
                query_ns: input.without_ns?,
            })
        });
        let predicates = self.predicates.found.iter().filter_map(|found| {
            Some(WhatIf {
                table: &found.table,
                predicate: found.predicate.clone(),
                query_ns: found.without_ns?,
            })
        });
        records.chain(predicates).collect()
    }
}
