//! The report of EXPLAIN PROFILE. Everything in it is an answer to SQL over schema `sys`
//! (`sql/*.sql`), which `AS SQL` prints.
//!
//! 1. [`explain_profile`] asks, section by section: [`header`], [`plan_tree`], [`time_spent`],
//!    [`expensive_inputs`], and [`deeper`] from what they found.
//! 2. The answers are written as text (each section's `lines`), [`json`] or [`graphviz`], or the
//!    statements themselves are ([`as_sql`]).
//! 3. The shell adds [`colour`].
//!
//! * [`answer`]: asking SQL, reading what comes back
//! * [`details`]: what an operator does, in the words of SQL
//! * [`base_record`]: the input record itself
//! * [`units`], [`layout`]: numbers and text as they fit a person and a terminal

mod answer;
mod as_sql;
mod base_record;
mod colour;
mod deeper;
mod details;
mod expensive_inputs;
mod graphviz;
mod header;
mod json;
mod layout;
mod plan_tree;
#[cfg(test)]
mod tests;
mod time_spent;
mod units;

use datafusion::arrow::array::RecordBatch;
use skewer_sql::ProfileFormat;

use crate::error::Error;
use crate::session::Session;
use crate::statements::text_batch;
use answer::{Ask, Asked, Inquiry};
pub use colour::colourize;
use expensive_inputs::ExpensiveInputs;
use header::Header;
use plan_tree::Plan;
use time_spent::TimeSpent;

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

/// Reports on a query that has ended: one column, one row for each line.
///
/// # Errors
/// If schema `sys` does not know the query, or cannot be read.
pub(crate) async fn explain_profile(
    session: &Session,
    query_id: i64,
    options: Options,
) -> Result<RecordBatch, Error> {
    let lines = Report::read(session, query_id).await?.lines(options);
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
    let report = async move { explain_profile(&asking, query_id, options).await };
    session.database().run(report).await
}

/// What there is to say about a query.
#[derive(Debug)]
struct Report {
    header: Header,
    plan: Plan,
    time_spent: TimeSpent,
    inputs: ExpensiveInputs,
    /// Statements to go on with.
    deeper: Vec<String>,
    /// The statements behind all that.
    asked: Vec<Asked>,
}

impl Report {
    async fn read(source: &dyn Ask, query_id: i64) -> Result<Self, Error> {
        let mut inquiry = Inquiry::new(source);
        let header = Header::read(&mut inquiry, query_id).await?;
        let plan = Plan::read(&mut inquiry, &header).await?;
        let time_spent = TimeSpent::read(&mut inquiry, &header, &plan).await?;
        let inputs = ExpensiveInputs::read(&mut inquiry, &header).await?;
        Ok(Self {
            deeper: deeper::statements(&header, &time_spent, &inputs),
            asked: inquiry.asked(),
            header,
            plan,
            time_spent,
            inputs,
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
        if !self.plan.operators.is_empty() {
            sections.push(self.plan.lines());
        }
        sections.push(self.time_spent.lines(&self.header));
        sections.push(self.inputs.lines(&self.header));
        sections.push(deeper::lines(&self.deeper));
        sections.join(&String::new())
    }
}
