//! Micro-batches that call a heavy library and have a deadline: the third use of *Optimizing Distributed Data Stream
//! Processing by Tracing* (section 6.3).

use std::path::Path;
use std::time::Duration;

use skewer::Database;

use super::Plan;
use super::similarity::{functions, time_of_call};
use super::stage::{Answer, Stage};
use crate::error::ShellError;
use crate::units;

/// Workers of the cluster, all in this process.
const WORKERS: usize = 2;

/// Documents of a micro-batch.
const DEFAULT_ROWS: u64 = 160_000;

/// Sites that have a model. The join collects a table of fewer rows, and then the stream needs no partitions by key.
const SITES: u64 = 150_000;

/// The share of documents that one site has.
const HOT_PERCENT: u64 = 75;

/// Characters of each text and of each model: hexadecimal digits of SHA-512.
const CHARACTERS: usize = 128;

/// What the library has to do for [`DEFAULT_ROWS`] documents, as time of one processor. Joining and storing them takes
/// about as long again: more than the deadline on one processor, and less on two.
const WORK: Duration = Duration::from_millis(1_000);

/// How long the speed of the library is measured.
const CALIBRATION: Duration = Duration::from_millis(300);

/// Micro-batches with static partitions.
const STATIC: u64 = 5;

/// Micro-batches with remedies.
const REMEDIED: u64 = 10;

/// What a micro-batch that missed its deadline is explained by.
const WHY: &str = "SELECT remedy, subject, round(predicted_ns / 1e6) AS predicted_ms, because
FROM sys.remedies WHERE query_id = (SELECT max(query_id) FROM sys.micro_batches)";

/// Opens a database whose queries are distributed: there, partitions have their rows by key.
///
/// # Errors
/// If it cannot be created.
pub(super) fn database(path: &Path) -> Result<Database, ShellError> {
    let builder = Database::builder().path(path).functions(functions());
    Ok(builder.workers(WORKERS).build()?)
}

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    stage.title(
        "A stream with a deadline",
        "Documents come all the time, and each is compared with the model of its site. The library that does so is \
         heavy and not thread-safe, so that a partition calls it for one document after the other. A micro-batch has \
         to end within 1.5 seconds. One site has most documents.",
    )?;

    stage.step("Make the models, and the stream")?;
    let models = format!(
        "CREATE TABLE models AS
SELECT value AS site, encode(sha512(CAST(value AS TEXT)), 'hex') AS text
FROM generate_series(0, {})",
        SITES - 1
    );
    stage.run(&models).await?;
    stage
        .run("CREATE STREAM documents (doc BIGINT, site BIGINT, text TEXT) FROM INSERT")
        .await?;
    stage
        .run("CREATE TABLE scores (doc BIGINT, site BIGINT, likeness DOUBLE)")
        .await?;
    let rows = plan.rows.unwrap_or(DEFAULT_ROWS);
    let compared = compared_characters();
    let mut arrivals = Arrivals {
        rows,
        seed: plan.seed,
        so_far: 0,
    };
    stage.say(&format!(
        "{} come at a time. The library compares {} of each with the model: so {} take one processor about {}.",
        units::counted(rows, "document"),
        units::counted(compared, "character"),
        units::counted(DEFAULT_ROWS, "document"),
        units::duration(WORK)
    ))?;

    stage.step("Micro-batches with static partitions")?;
    stage.run(&continuous_query(rows, compared, "off")).await?;
    arrivals.come(stage, STATIC).await?;
    stage.show(&batches_after(-1)).await?;
    let before = stage.ask(&latency("TRUE")).await?;
    let last = before.number(2, 0)? as i64;

    stage.step("Ask why, and what would help")?;
    let advised = stage.show(WHY).await?;
    if advised.rows.num_rows() == 0 {
        return stage.say(&format!(
            "With {} at a time no remedy would save 5 %: a join collects an input of so few rows, and then the others \
             need no partitions by key.",
            units::counted(rows, "document")
        ));
    }

    stage.step("Let micro-batches repartition by the log of earlier ones")?;
    stage.run("DROP CONTINUOUS QUERY scoring").await?;
    stage.run(&continuous_query(rows, compared, "auto")).await?;
    arrivals.come(stage, REMEDIED).await?;
    stage.show(&batches_after(last)).await?;
    stage
        .show("SELECT count(*) AS scores, count(DISTINCT doc) AS documents FROM scores")
        .await?;
    let all = stage.ask(&latency(&format!("query_id > {last}"))).await?;
    stage.say(&format!(
        "With static partitions {} of {STATIC} micro-batches missed the deadline, with remedies {} of {REMEDIED}.",
        before.text(1, 0)?,
        all.text(1, 0)?,
    ))?;
    let with = "query_id IN (SELECT query_id FROM sys.remedies WHERE is_applied)";
    let with = stage.ask(&latency(with)).await?;
    if with.text(1, 0)? == "NULL" {
        return stage.say("No micro-batch had a remedy: without one they were fast enough.");
    }
    let time = |answer: &Answer| {
        let nanos = answer.number(0, 0)?;
        Ok::<_, ShellError>(Duration::from_nanos(nanos as u64))
    };
    stage.verdict(time(&before)?, time(&with)?)
}

/// How many characters of a text the library compares with a model, so that [`DEFAULT_ROWS`] documents are [`WORK`].
fn compared_characters() -> u64 {
    let all = time_of_call(CHARACTERS, CHARACTERS, CALIBRATION);
    let one = all.as_secs_f64().max(1e-12) / CHARACTERS as f64;
    let each = WORK.as_secs_f64() / DEFAULT_ROWS as f64;
    (each / one).clamp(1.0, CHARACTERS as f64) as u64
}

/// The statement that creates the continuous query, whose micro-batches begin when `rows` documents have come.
fn continuous_query(rows: u64, compared: u64, remedies: &str) -> String {
    format!(
        "CREATE CONTINUOUS QUERY scoring INTO scores
  EVERY {rows} ROWS DEADLINE INTERVAL '1500 milliseconds' REMEDIES {remedies} AS
SELECT d.doc, d.site, similarity(left(d.text, {compared}), m.text)
FROM documents AS d JOIN models AS m ON m.site = d.site"
    )
}

/// The query for the micro-batches after query `last`.
fn batches_after(last: i64) -> String {
    format!(
        "SELECT batch, rows_in, round(latency_ns / 1e6) AS latency_ms, deadline_missed,
       max(remedy) FILTER (WHERE is_applied) AS remedy, max(verdict) AS verdict
FROM sys.micro_batches LEFT JOIN sys.remedies USING (query_id)
WHERE query_id > {last} GROUP BY batch, rows_in, latency_ns, deadline_missed ORDER BY batch"
    )
}

/// The query for the median latency of micro-batches, how many missed the deadline, and the last of their queries.
fn latency(condition: &str) -> String {
    format!(
        "SELECT median(latency_ns), sum(CASE WHEN deadline_missed THEN 1 ELSE 0 END), max(query_id)
FROM sys.micro_batches WHERE {condition}"
    )
}

/// Documents that come.
#[derive(Debug)]
struct Arrivals {
    /// Documents that come at a time.
    rows: u64,
    seed: u64,
    /// Documents that have come.
    so_far: u64,
}

impl Arrivals {
    /// Inserts the documents of so many micro-batches, and waits for each micro-batch.
    async fn come(&mut self, stage: &mut Stage, batches: u64) -> Result<(), ShellError> {
        const REFRESH: &str = "REFRESH CONTINUOUS QUERY scoring";
        stage.run(&self.insert()).await?;
        stage.run(REFRESH).await?;
        for _ in 1..batches {
            stage.ask(&self.insert()).await?;
            stage.ask(REFRESH).await?;
        }
        stage.say(&format!(
            "And so on, until {} have come.",
            units::counted(self.so_far, "document")
        ))
    }

    /// The statement that inserts the next documents.
    fn insert(&mut self) -> String {
        let first = self.so_far + 1;
        self.so_far += self.rows;
        format!(
            "INSERT INTO documents
SELECT value AS doc,
       CASE WHEN (value + {}) * 40503 % 1000003 % 100 < {HOT_PERCENT} THEN 0
            ELSE value % {SITES} END AS site,
       encode(sha512(CAST(-value AS TEXT)), 'hex') AS text
FROM generate_series({first}, {})",
            self.seed, self.so_far
        )
    }
}
