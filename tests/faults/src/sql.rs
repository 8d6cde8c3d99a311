//! Runs statements, and reads what schema `sys` says of them.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::error::{Context, Error, Result};
use crate::workload::Reader;

/// No statement of the laboratory takes a tenth of it, even on a busy machine.
const BOUND: Duration = Duration::from_secs(180);

/// Views of HybridTune's rules. (Debug builds cannot list views: arrow asserts too much.)
const HYBRIDTUNE: [&str; 5] = [
    "hybridtune_abnormal_nodes",
    "hybridtune_data_skew",
    "hybridtune_straggler_nodes",
    "hybridtune_straggler_tasks",
    "hybridtune_task_assignment",
];

/// Pauses of a slow client.
const PAUSES: u32 = 10;

/// A connection of one client.
#[derive(Debug)]
pub struct Client {
    client: tokio_postgres::Client,
    connection: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A row of a result: each column's name and text.
pub type Row = Vec<(String, Option<String>)>;

impl Client {
    /// Connects to a server at `host:port`.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn connect(address: &str) -> Result<Client> {
        let url = format!("postgresql://lab@{address}/skewer?sslmode=disable");
        let connecting = tokio_postgres::connect(&url, NoTls);
        let connected = within("a connection", connecting).await?;
        let (client, connection) = connected.context(address)?;
        let connection = tokio::spawn(async move {
            // The client learns of it from its next statement.
            let _ = connection.await;
        });
        Ok(Client { client, connection })
    }

    /// Runs a statement; its rows.
    ///
    /// # Errors
    /// Those of the statement, or if it does not end.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>> {
        let messages = within(sql, self.client.simple_query(sql)).await?;
        let messages = messages.map_err(|error| describe(sql, &error))?;
        Ok(messages.iter().filter_map(row).collect())
    }

    /// Runs a statement without looking at its rows.
    ///
    /// # Errors
    /// Those of the statement, or if it does not end.
    pub async fn run(&self, sql: &str) -> Result<()> {
        self.rows(sql).await.map(drop)
    }

    /// Runs statements in turn.
    ///
    /// # Errors
    /// That of the first that fails.
    pub async fn run_all(&self, statements: &[String]) -> Result<()> {
        for sql in statements {
            self.run(sql).await?;
        }
        Ok(())
    }

    /// The first column of the first row, as a number.
    ///
    /// # Errors
    /// Those of the statement, or if there is no number.
    pub async fn number(&self, sql: &str) -> Result<i64> {
        let rows = self.rows(sql).await?;
        let value = rows
            .first()
            .and_then(|row| row.first())
            .and_then(|(_, value)| value.as_deref());
        let number = value.and_then(|value| value.parse().ok());
        number.ok_or_else(|| Error::new(format!("no number from {sql}")))
    }

    /// Runs a query and reads its rows as the reader does; how long the client took.
    ///
    /// # Errors
    /// Those of the query, or if it does not end.
    pub async fn read(&self, sql: &str, reader: Reader) -> Result<Duration> {
        let begun = Instant::now();
        match reader {
            Reader::Fast => self.run(sql).await?,
            Reader::Pauses(total) => within(sql, self.read_with_pauses(sql, total)).await??,
            Reader::Cursor(total) => within(sql, self.read_by_cursor(sql, total)).await??,
        }
        Ok(begun.elapsed())
    }

    async fn read_with_pauses(&self, sql: &str, total: Duration) -> Result<()> {
        // A pause after so many rows: the tables of the laboratory have more than ten times as many.
        const ROWS: u32 = 8192;
        let stream = self.client.simple_query_raw(sql).await;
        let mut stream = pin!(stream.map_err(|error| describe(sql, &error))?);
        let (mut rows, mut pauses) = (0_u32, 0);
        while let Some(message) = stream.next().await {
            if let SimpleQueryMessage::Row(_) = message.map_err(|error| describe(sql, &error))? {
                rows += 1;
                if rows.is_multiple_of(ROWS) && pauses < PAUSES {
                    pauses += 1;
                    tokio::time::sleep(total / PAUSES).await;
                }
            }
        }
        Ok(())
    }

    async fn read_by_cursor(&self, sql: &str, total: Duration) -> Result<()> {
        self.run("BEGIN").await?;
        self.run(&format!("DECLARE reader CURSOR FOR {sql}"))
            .await?;
        let mut pauses = 0;
        loop {
            let rows = self.rows("FETCH 16384 FROM reader").await?;
            if rows.is_empty() {
                break;
            }
            if pauses < PAUSES {
                pauses += 1;
                tokio::time::sleep(total / PAUSES).await;
            }
        }
        self.run("CLOSE reader").await?;
        self.run("COMMIT").await
    }

    /// The id of the last query of this connection.
    ///
    /// # Errors
    /// If there is none.
    pub async fn last_query(&self, reader: Reader) -> Result<i64> {
        // A query that reads schema `sys` alone leaves no record.
        let sql = match reader {
            // The last statement is the one that closes the cursor. Nobody else runs any.
            Reader::Cursor(_) => "SELECT max(query_id) FROM sys.queries WHERE rows_returned > 0",
            _ => "SELECT query_id FROM sys.queries WHERE query_id = last_query_id()",
        };
        self.number(sql).await
    }

    /// What a query's row in `sys.queries` says.
    ///
    /// # Errors
    /// If there is none.
    pub async fn times(&self, query_id: i64) -> Result<Times> {
        // An older program may lack some columns.
        let sql = format!("SELECT * FROM sys.queries WHERE query_id = {query_id}");
        let rows = self.rows(&sql).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::new(format!("no query {query_id}")))?;
        Ok(Times {
            queued_ns: integer(row, "queued_ns").unwrap_or_default(),
            planning_ns: integer(row, "planning_ns").unwrap_or_default(),
            execution_ns: integer(row, "execution_ns").unwrap_or_default(),
        })
    }

    /// The rows of `sys.diagnoses` for a query, and how long it took to read them.
    ///
    /// # Errors
    /// Those of the statement.
    pub async fn diagnoses(&self, query_id: i64) -> Result<(Vec<Finding>, Duration)> {
        let begun = Instant::now();
        let sql = format!("SELECT * FROM sys.diagnoses WHERE query_id = {query_id}");
        let mut findings: Vec<Finding> = self.rows(&sql).await?.iter().map(diagnosis).collect();
        place_by_cost(&mut findings);
        findings.sort_by_key(|finding| finding.place.unwrap_or(i64::MAX));
        Ok((findings, begun.elapsed()))
    }

    /// The views of HybridTune's rules as published, of those that the database has.
    pub async fn hybridtune_views(&self) -> Vec<&'static str> {
        let mut views = Vec::new();
        for view in HYBRIDTUNE {
            if self
                .run(&format!("SELECT * FROM sys.{view} WHERE query_id = 0"))
                .await
                .is_ok()
            {
                views.push(view);
            }
        }
        views
    }

    /// What HybridTune's rules say of a query: the most conspicuous first.
    ///
    /// # Errors
    /// Those of a statement.
    pub async fn hybridtune(&self, views: &[&str], query_id: i64) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for view in views {
            let sql = format!("SELECT * FROM sys.{view} WHERE query_id = {query_id}");
            findings.extend(self.rows(&sql).await?.iter().map(detected));
        }
        findings.retain(|finding| !finding.innocent);
        findings.sort_by(|a, b| b.conspicuous().total_cmp(&a.conspicuous()));
        for (place, finding) in (1..).zip(&mut findings) {
            finding.place = Some(place);
        }
        Ok(findings)
    }
}

/// Times of `sys.queries`, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Waiting for admission.
    pub queued_ns: i64,
    /// Planning.
    pub planning_ns: i64,
    /// Execution.
    pub execution_ns: i64,
}

/// A row of `sys.diagnoses`, or of a detector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// The rule.
    pub rule: String,
    /// `critical`, `warning` or `info`; `warning` for all that a detector finds.
    pub severity: String,
    /// 1 for the verdict; `None` for what is folded or innocent.
    pub place: Option<i64>,
    /// The place in words.
    pub subject: String,
    /// The cause in words.
    pub cause: String,
    /// What to do.
    pub advice: String,
    /// What would be saved.
    pub cost_ns: Option<i64>,
    /// The worker.
    pub worker_id: Option<i64>,
    /// The operator.
    pub operator_id: Option<i64>,
    /// The table, with its schema.
    pub table_name: Option<String>,
    /// The row of the table.
    pub row_id: Option<i64>,
    /// How conspicuous it is.
    pub score: Option<f64>,
    /// From which score on it is a finding.
    pub threshold: Option<f64>,
    /// How often it is right.
    pub confidence: Option<f64>,
    /// The rule that explains it.
    pub explained_by: Option<String>,
    /// Whether it calls for no action.
    pub innocent: bool,
}

impl Finding {
    /// Whether it is shown as a warning.
    pub fn is_warning(&self) -> bool {
        self.place.is_some() && matches!(self.severity.as_str(), "warning" | "critical")
    }

    /// All that it says.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.subject, self.cause, self.advice)
    }

    fn conspicuous(&self) -> f64 {
        match (self.score, self.threshold) {
            (Some(score), Some(threshold)) if threshold > 0.0 => score / threshold,
            (Some(score), _) => score,
            _ => 0.0,
        }
    }
}

/// Gives places to findings of a binary whose `sys.diagnoses` has no column `place`: warnings by severity
/// and cost.
fn place_by_cost(findings: &mut [Finding]) {
    if findings
        .iter()
        .any(|finding| finding.place.is_some() || finding.score.is_some())
    {
        return;
    }
    let mut order: Vec<usize> = (0..findings.len()).collect();
    order.retain(|index| findings[*index].severity != "info");
    order.sort_by_key(|index| {
        let finding = &findings[*index];
        (
            finding.severity != "critical",
            std::cmp::Reverse(finding.cost_ns.unwrap_or_default()),
        )
    });
    for (place, index) in (1..).zip(order) {
        findings[index].place = Some(place);
    }
}

fn diagnosis(row: &Row) -> Finding {
    Finding {
        rule: text(row, "rule"),
        severity: text(row, "severity"),
        place: integer(row, "place"),
        cost_ns: integer(row, "wasted_ns"),
        ..common(row)
    }
}

fn detected(row: &Row) -> Finding {
    Finding {
        rule: text(row, "detector"),
        severity: "warning".to_owned(),
        cost_ns: integer(row, "cost_ns"),
        innocent: text(row, "innocent") == "t",
        ..common(row)
    }
}

fn common(row: &Row) -> Finding {
    Finding {
        subject: text(row, "subject"),
        cause: text(row, "cause"),
        advice: text(row, "advice"),
        worker_id: integer(row, "worker_id"),
        operator_id: integer(row, "operator_id"),
        table_name: value(row, "table_name").map(str::to_owned),
        row_id: integer(row, "row_id"),
        score: real(row, "score"),
        threshold: real(row, "threshold"),
        confidence: real(row, "confidence"),
        explained_by: value(row, "explained_by").map(str::to_owned),
        ..Finding::default()
    }
}

fn value<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    let found = row.iter().find(|(name, _)| name == column);
    found.and_then(|(_, value)| value.as_deref())
}

fn text(row: &Row, column: &str) -> String {
    value(row, column).unwrap_or_default().to_owned()
}

/// A column of a row as a whole number.
pub fn integer(row: &Row, column: &str) -> Option<i64> {
    value(row, column).and_then(|value| value.parse().ok())
}

fn real(row: &Row, column: &str) -> Option<f64> {
    value(row, column).and_then(|value| value.parse().ok())
}

fn row(message: &SimpleQueryMessage) -> Option<Row> {
    let SimpleQueryMessage::Row(row) = message else {
        return None;
    };
    let columns = row.columns().iter().enumerate();
    Some(
        columns
            .map(|(at, column)| (column.name().to_owned(), row.get(at).map(str::to_owned)))
            .collect(),
    )
}

fn describe(sql: &str, error: &tokio_postgres::Error) -> Error {
    let reason = error
        .as_db_error()
        .map_or_else(|| error.to_string(), |error| error.message().to_owned());
    Error::new(format!("{sql}: {reason}"))
}

/// What a future returns, unless it takes too long: then an error that says what did not happen.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(BOUND, future)
        .await
        .context(format!("not ended in {BOUND:?}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: &str, cost_ns: i64) -> Finding {
        Finding {
            severity: severity.to_owned(),
            cost_ns: Some(cost_ns),
            ..Finding::default()
        }
    }

    #[test]
    fn without_places_warnings_are_ordered_by_severity_and_cost() {
        let mut findings = vec![
            finding("info", 900),
            finding("warning", 100),
            finding("critical", 50),
            finding("warning", 200),
        ];
        place_by_cost(&mut findings);
        let places: Vec<_> = findings.iter().map(|finding| finding.place).collect();
        assert_eq!(places, [None, Some(3), Some(1), Some(2)]);
    }

    #[test]
    fn places_of_the_database_are_kept() {
        let mut findings = vec![finding("warning", 900), finding("critical", 100)];
        findings[1].place = Some(1);
        place_by_cost(&mut findings);
        assert_eq!(findings[0].place, None);
    }
}
