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

/// Sites that have a model.
const SITES: u64 = 2_000;

/// The share of documents that one site has.
const HOT_PERCENT: u64 = 75;

/// Copies of 32 characters in the text of a document.
const COPIES_IN_TEXT: u64 = 256;

/// Copies of 32 characters in a model.
const COPIES_IN_MODEL: u64 = 32;

/// Characters of a document that are compared with the model.
const COMPARED: u64 = 256;

/// What the library has to do in a micro-batch, as time of one processor. It is more than the deadline, and less than
/// twice the deadline.
const WORK: Duration = Duration::from_millis(2_200);

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
SELECT 'site ' || value AS site, repeat(md5(CAST(value AS TEXT)), {COPIES_IN_MODEL}) AS text
FROM generate_series(0, {})",
        SITES - 1
    );
    stage.run(&models).await?;
    stage
        .run("CREATE STREAM documents (doc BIGINT, site TEXT, text TEXT) FROM INSERT")
        .await?;
    stage
        .run("CREATE TABLE scores (doc BIGINT, site TEXT, likeness DOUBLE)")
        .await?;
    let rows = plan.rows.unwrap_or_else(|| {
        let model = usize::try_from(32 * COPIES_IN_MODEL).unwrap_or(usize::MAX);
        let call = time_of_call(COMPARED as usize, model, CALIBRATION);
        (WORK.as_secs_f64() / call.as_secs_f64().max(1e-9)) as u64
    });
    let mut arrivals = Arrivals {
        rows,
        seed: plan.seed,
        so_far: 0,
    };
    stage.say(&format!(
        "{} come at a time{}.",
        units::counted(rows, "document"),
        match plan.rows {
            Some(_) => String::new(),
            None => format!(
                ": comparing them takes one processor {}",
                units::duration(WORK)
            ),
        }
    ))?;

    stage.step("Micro-batches with static partitions")?;
    stage.run(&continuous_query(rows, "off")).await?;
    arrivals.come(stage, STATIC).await?;
    stage.show(&batches_after(-1)).await?;
    let before = stage.ask(&latency("TRUE")).await?;
    let last = before.number(2, 0)? as i64;

    stage.step("Ask why, and what would help")?;
    let advised = stage.show(WHY).await?;
    if advised.rows.num_rows() == 0 {
        return stage.say(&format!(
            "With {} at a time the partitions are even enough: no remedy would save 5 %.",
            units::counted(rows, "document")
        ));
    }

    stage.step("Let micro-batches repartition by the log of earlier ones")?;
    stage.run("DROP CONTINUOUS QUERY scoring").await?;
    stage.run(&continuous_query(rows, "auto")).await?;
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

/// The statement that creates the continuous query, whose micro-batches begin when `rows` documents have come.
fn continuous_query(rows: u64, remedies: &str) -> String {
    format!(
        "CREATE CONTINUOUS QUERY scoring INTO scores
  EVERY {rows} ROWS DEADLINE INTERVAL '1500 milliseconds' REMEDIES {remedies} AS
SELECT d.doc, d.site, similarity(left(d.text, {COMPARED}), m.text)
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
SELECT doc, 'site ' || CASE WHEN random < {HOT_PERCENT} THEN 0 ELSE doc % {SITES} END AS site,
       repeat(md5(CAST(doc AS TEXT)), {COPIES_IN_TEXT}) AS text
FROM (SELECT value AS doc, (value + {}) * 40503 % 1000003 % 100 AS random
      FROM generate_series({first}, {}))",
            self.seed, self.so_far
        )
    }
}
