//! The report of EXPLAIN PROFILE. Everything in it is an answer to SQL over schema `sys`
//! (`sql/*.sql`), which `AS SQL` prints.
//!
//! 1. [`explain_profile`] asks, section by section: [`header`], [`left_out`], [`plan_tree`],
//!    [`time_spent`], [`expensive_inputs`], [`blame`], and [`deeper`] from what they found.
//! 2. The answers are written as text (each section's `lines`), [`json`] or [`graphviz`], or the
//!    statements themselves are ([`as_sql`]).
//! 3. The shell adds [`colour`].
//!
//! [`diff`] compares two queries.
//!
//! * [`answer`]: asking SQL, reading what comes back
//! * [`details`]: what an operator does, in the words of SQL
//! * [`base_record`]: the input record itself
//! * [`fan_out`]: records that an unnest or a join made many rows of
//! * [`without`]: what the query would have taken without some records
//! * [`unknown`]: ids of queries that `sys` does not have
//! * [`units`], [`layout`]: numbers and text as they fit a person and a terminal

mod answer;
mod as_sql;
mod base_record;
mod blame;
mod colour;
mod deeper;
mod details;
mod diff;
mod expensive_inputs;
mod fan_out;
mod graphviz;
mod header;
mod json;
mod layout;
mod left_out;
mod plan_tree;
#[cfg(test)]
mod tests;
mod time_spent;
mod units;
mod unknown;
mod without;

use datafusion::arrow::array::RecordBatch;
use skewer_sql::ProfileFormat;

use crate::error::Error;
use crate::session::Session;
use crate::statements::show_profile::changed_since;
use crate::statements::text_batch;
use crate::statements::without::LeftOut;
use answer::{Ask, Asked, Inquiry};
pub(crate) use base_record::table_sql as logged_as_sql;
pub(crate) use blame::Blame;
use blame::Predicates;
pub use colour::colourize;
pub(crate) use details::title as operator_title;
pub(crate) use diff::explain_diff;
use expensive_inputs::ExpensiveInputs;
use header::Header;
use left_out::LeftOutRows;
use plan_tree::Plan;
use time_spent::TimeSpent;
pub(crate) use unknown::unknown_query;

/// The name of the report's only column.
pub(crate) const COLUMN: &str = "EXPLAIN PROFILE";

/// How the report is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// For whom.
    pub(crate) format: ProfileFormat,
    /// Whether to print the SQL behind each section instead of its result.
    pub(crate) as_sql: bool,
}

/// How the query came to be run that a report is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    /// Rows that it was run without.
    pub(crate) left_out: Vec<LeftOut>,
    /// The query that ran with them.
    pub(crate) with: Option<i64>,
    /// What limits its numbers, one sentence each.
    pub(crate) reservations: Vec<String>,
}

/// Reports on a query that has ended: one column, one row for each line.
///
/// # Errors
/// If schema `sys` does not know the query, or cannot be read.
pub(crate) async fn explain_profile(
    session: &Session,
    query_id: i64,
    options: Options,
    circumstances: &Circumstances,
) -> Result<RecordBatch, Error> {
    let report = Report::read(session, query_id, circumstances).await?;
    let lines = report.lines(options);
    let lines = lines.into_iter().map(|line| vec![Some(line)]);
    text_batch(&[COLUMN], lines.collect())
}

/// What EXPLAIN PROFILE would say about a query that has ended already, from what was recorded
/// of it: one column, one row for each line.
///
/// # Errors
/// If schema `sys` does not know the query, or cannot be read.
pub async fn of_query(session: &Session, query_id: i64) -> Result<RecordBatch, Error> {
    let asking = session.clone();
    let options = Options {
        format: ProfileFormat::Text,
        as_sql: false,
    };
    let report = async move {
        let circumstances = Circumstances {
            reservations: changed_since(&asking, query_id).await?,
            ..Circumstances::default()
        };
        explain_profile(&asking, query_id, options, &circumstances).await
    };
    session.database().run(report).await
}

/// What there is to say about a query.
#[derive(Debug)]
struct Report {
    header: Header,
    left_out: LeftOutRows,
    plan: Plan,
    time_spent: TimeSpent,
    inputs: ExpensiveInputs,
    predicates: Predicates,
    /// Statements to go on with.
    deeper: Vec<String>,
    /// The statements behind all that.
    asked: Vec<Asked>,
}

impl Report {
    async fn read(
        source: &dyn Ask,
        query_id: i64,
        circumstances: &Circumstances,
    ) -> Result<Self, Error> {
        let mut inquiry = Inquiry::new(source);
        let mut header = Header::read(&mut inquiry, query_id).await?;
        header.circumstances = circumstances.reservations.clone();
        let left_out = LeftOutRows::read(&mut inquiry, circumstances).await?;
        let plan = Plan::read(&mut inquiry, &header).await?;
        let time_spent = TimeSpent::read(&mut inquiry, &header, &plan).await?;
        let inputs = ExpensiveInputs::read(&mut inquiry, &header).await?;
        let mut predicates = Predicates::worth_showing(&mut inquiry, &header).await?;
        // Rows that were left out have been read, to find that out: nobody wants to hear that twice.
        predicates.blamed.retain(|blamed| {
            let mut left_out = circumstances.left_out.iter();
            !left_out.any(|rows| rows.predicate == blamed.predicate)
        });
        Ok(Self {
            deeper: deeper::statements(&header, &time_spent, &inputs, &predicates),
            asked: inquiry.asked(),
            header,
            left_out,
            plan,
            time_spent,
            inputs,
            predicates,
        })
    }

    fn lines(&self, options: Options) -> Vec<String> {
        match options.format {
            _ if options.as_sql => as_sql::lines(&self.asked),
            ProfileFormat::Text => self.text(),
            ProfileFormat::Json => json::lines(self),
            ProfileFormat::Graphviz => {
                let title = self.header.lines().swap_remove(0);
                graphviz::lines(&self.plan, &title)
            }
        }
    }

    fn text(&self) -> Vec<String> {
        let mut sections = vec![self.header.lines()];
        sections.push(self.left_out.lines(&self.header));
        if !self.plan.operators.is_empty() {
            sections.push(self.plan.lines());
        }
        sections.push(self.time_spent.lines(&self.header));
        sections.push(self.inputs.lines(&self.header));
        sections.push(self.predicates.lines(&self.header));
        sections.push(deeper::lines(&self.deeper));
        sections.retain(|section| !section.is_empty());
        sections.join(&String::new())
    }
}
