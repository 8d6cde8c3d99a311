//! Heavy keys of a tag index, which later runs spread over all partitions: the second use of *Optimizing Distributed
//! Data Stream Processing by Tracing* (sections 2.1 and 6.2).

use super::Plan;
use super::stage::Stage;
use crate::error::ShellError;
use crate::units;

/// Rows of the index.
const DEFAULT_ROWS: u64 = 1_500_000;

/// Tags that there are.
const TAGS: u64 = 20_000;

/// Runs of a trial, one with remedies and one without in turn.
const TRIAL: usize = 6;

const QUERY: &str = "SELECT count(*) AS postings, max(place) AS longest, sum(gap) AS gaps
FROM (SELECT row_number() OVER (PARTITION BY tag ORDER BY score DESC, doc) AS place,
             doc - lag(doc, 1, 0) OVER (PARTITION BY tag ORDER BY doc) AS gap FROM postings)";

/// What the log of the last query speaks for.
const REMEDIES: &str = "SELECT remedy, subject, round(predicted_ns / 1e6) AS predicted_ms, because
FROM sys.remedies WHERE query_id = last_query_id()";

/// What the trial has shown.
const TRIED: &str =
    "SELECT query_id, is_applied, verdict, round(execution_ns / 1e6) AS execution_ms
FROM sys.remedies JOIN sys.queries USING (query_id) ORDER BY query_id";

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    let rows = plan.rows.unwrap_or(DEFAULT_ROWS);
    stage.title(
        "A tag index",
        "Documents have tags, and an index lists the documents of each tag by score. A few tags have most documents: \
         whoever gets them works while the others wait.",
    )?;

    stage.step("Make the postings")?;
    // The inverse of Zipf's distribution with exponent 1.8, of numbers that look random.
    let create = format!(
        "CREATE TABLE postings AS
SELECT 'tag-' || CAST(power((power({TAGS}, -0.8) - 1) * random + 1, -1.25) AS BIGINT) AS tag,
       doc, score
FROM (SELECT value AS doc, ((value + {}) * 40503 % 1000003) / 1000003.0 AS random,
             value * 7919 % 100003 AS score FROM generate_series(1, {rows}))",
        plan.seed
    );
    stage.run(&create).await?;
    stage
        .show(
            "SELECT tag, count(*) AS postings,
       round(100.0 * count(*) / (SELECT count(*) FROM postings), 1) AS percent
FROM postings GROUP BY tag ORDER BY postings DESC LIMIT 3",
        )
        .await?;

    stage.step("The slow query")?;
    let before = stage.measure(QUERY).await?;

    stage.step("Ask why, and what would help")?;
    stage
        .show(
            "SELECT rule, subject, cause FROM sys.diagnoses
WHERE query_id = last_query_id() AND place <= 2",
        )
        .await?;
    let advised = stage.show(REMEDIES).await?;
    if advised.rows.num_rows() == 0 {
        return stage.say(&format!(
            "With {} the partitions are even enough: no remedy would save 5 %.",
            units::counted(rows, "posting")
        ));
    }

    stage.step("Let later runs do it, and measure")?;
    stage.run("SET remedies = 'auto'").await?;
    for _ in 0..=TRIAL {
        stage.ask(QUERY).await?;
    }
    stage.show(TRIED).await?;
    let after = stage.measure(QUERY).await?;
    stage.verdict(before.time, after.time)
}
