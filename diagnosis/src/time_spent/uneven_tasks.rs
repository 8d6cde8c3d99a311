//! Fragments whose tasks do not share the work evenly.

use super::OPERATOR_WIDTH;
use crate::error::Error;
use crate::plan::Plan;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::units::{counted, duration, times};

/// Tasks are uneven if the longest works this many times the mean, and even work would save at
/// least this share of the query's time and this many nanoseconds.
const UNEVEN: f64 = 1.5;
const UNEVEN_SHARE: f64 = 0.1;
const UNEVEN_NS: i64 = 1_000_000;

/// The fragment whose tasks are least even.
#[derive(Debug, Clone)]
pub struct UnevenTasks {
    /// The fragment.
    pub fragment_id: i64,
    /// How many tasks ran it.
    pub tasks: i64,
    /// Nanoseconds that the longest task worked.
    pub max_ns: i64,
    /// Nanoseconds that a task worked on average.
    pub mean_ns: i64,
    /// `max_ns` over `mean_ns`.
    pub imbalance: f64,
    /// Nanoseconds that even work would save.
    pub wasted_ns: i64,
    /// The operator's partition that took longest in the longest task.
    pub straggler: Option<Straggler>,
}

/// A partition of an operator that worked longer than the others.
#[derive(Debug, Clone)]
pub struct Straggler {
    /// The operator.
    pub operator_id: i64,
    /// The partition.
    pub partition: i64,
    /// Nanoseconds that it worked.
    pub self_ns: i64,
    /// Rows that it read.
    pub rows_in: i64,
    /// Mean nanoseconds of the other partitions.
    pub others_ns: i64,
    /// Mean rows of the other partitions.
    pub others_rows: i64,
}

impl UnevenTasks {
    /// Reads it from schema `sys`; `None` if no fragment has several tasks.
    pub(crate) async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<Option<Self>, Error> {
        let query_id = summary.query_id.to_string();
        let sql = include_str!("../sql/uneven_tasks.sql").replace("$query_id", &query_id);
        let answer = statements
            .query("Where the time went: how even the tasks are", sql)
            .await?;
        let uneven = rows(&answer).next().map(|row| Self {
            fragment_id: row.sum("fragment_id"),
            tasks: row.sum("tasks"),
            max_ns: row.sum("max_ns"),
            mean_ns: row.sum("mean_ns"),
            imbalance: row.float("imbalance").unwrap_or(1.0),
            wasted_ns: row.sum("wasted_ns"),
            straggler: row.integer("operator_id").map(|operator_id| Straggler {
                operator_id,
                partition: row.sum("partition"),
                self_ns: row.sum("self_ns"),
                rows_in: row.sum("rows_in"),
                others_ns: row.sum("others_ns"),
                others_rows: row.sum("others_rows"),
            }),
        });
        Ok(uneven)
    }

    /// Which task took longest, and why; `None` if even work would save little.
    pub(crate) fn sentence(&self, summary: &QuerySummary, plan: &Plan) -> Option<String> {
        let is_notable = self.imbalance >= UNEVEN
            && self.wasted_ns >= UNEVEN_NS
            && self.wasted_ns as f64 >= UNEVEN_SHARE * summary.query_ns() as f64;
        if !is_notable {
            return None;
        }
        let mut sentence = format!(
            "Uneven tasks: the longest of {} tasks in fragment {} worked {}, {} the mean of {}; an \
             even distribution would save {}.",
            self.tasks,
            self.fragment_id,
            duration(self.max_ns),
            times(self.imbalance),
            duration(self.mean_ns),
            duration(self.wasted_ns)
        );
        if let Some(straggler) = &self.straggler {
            let operator = plan.operator(straggler.operator_id).map_or_else(
                || format!("operator {}", straggler.operator_id),
                |operator| operator.reference(OPERATOR_WIDTH),
            );
            sentence.push_str(&format!(
                " Partition {} of {operator}, took {} for {}; the other partitions took {} for {}.",
                straggler.partition,
                duration(straggler.self_ns),
                counted(straggler.rows_in, "row"),
                duration(straggler.others_ns),
                counted(straggler.others_rows, "row"),
            ));
        }
        Some(sentence)
    }
}
