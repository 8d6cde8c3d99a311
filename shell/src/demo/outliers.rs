//! Outliers in a pipeline of documents, which a quarantine keeps out: the first use of *Optimizing Distributed Data
//! Stream Processing by Tracing* (sections 2.4 and 6.1).

use super::Plan;
use super::generate::documents::{DEFAULT_DOCUMENTS, generate};
use super::stage::{Answer, Stage};
use crate::error::ShellError;
use crate::units;

/// Pairs of runs: one with all documents, and one without the outliers.
const PAIRS: usize = 7;

const QUERY: &str = "SELECT shelf, count(*) AS documents, sum(cardinality(tokens)) AS tokens,
       sum(cardinality(array_distinct(tokens))) AS terms
FROM (SELECT id % 4 AS shelf, string_to_array(lower(clean), ' ') AS tokens
      FROM (SELECT id, regexp_replace(text, '[^A-Za-z0-9]+', ' ', 'g') AS clean FROM documents))
GROUP BY shelf ORDER BY shelf";

const COUNT: &str = "SELECT count(*) AS documents FROM documents";

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    let documents = plan.rows.unwrap_or(DEFAULT_DOCUMENTS);
    stage.title(
        "A pipeline of documents",
        "A pipeline cuts documents into tokens and counts their terms. A few documents are no texts, and hold up all \
         the others. Which? And how many more documents a second does the pipeline take without them?",
    )?;

    stage.step("Load the file")?;
    let path = plan.directory.join("documents.txt");
    let mut planted = Vec::new();
    let what = format!(
        "{}, seed {}",
        units::counted(documents, "document"),
        plan.seed
    );
    stage.file(&path, &what, |path| {
        let file = generate(path, documents, plan.seed)?;
        planted = file.outliers;
        Ok(file.bytes)
    })?;
    stage
        .run("CREATE TABLE documents (id BIGINT NOT NULL, text TEXT NOT NULL)")
        .await?;
    let copy = format!(
        "COPY documents\nFROM '{}'\n(FORMAT csv, HEADER false, DELIMITER '|')",
        path.display()
    );
    stage.run(&copy).await?;

    stage.step("The pipeline")?;
    stage.measure(QUERY).await?;

    stage.step("Ask why it takes so long")?;
    stage.explain(QUERY).await?;
    let last = stage.show("SELECT last_query_id() AS query_id").await?;
    let query_id = last.number(0, 0)? as i64;
    let profile = stage.session().profile_of(query_id).await?;
    let Some(proposal) = profile.quarantine else {
        return stage.say(&format!(
            "The report proposes no quarantine: of {} none takes much longer than others.",
            units::counted(documents, "document")
        ));
    };
    let slow = format!(
        "SELECT id, length(text) AS characters, left(text, 40) AS begins FROM documents
WHERE {} ORDER BY characters DESC, id",
        proposal.predicate
    );
    let slow = stage.show(&slow).await?;
    expect_planted(&slow, &planted, documents)?;

    stage.step("Do what the report proposes")?;
    for statement in &proposal.statements {
        stage.run(statement.trim_end_matches(';')).await?;
    }

    stage.step("Measure, with all documents and without these in turn")?;
    let settings = ["SET quarantine = 'off'", "SET quarantine = 'on'"];
    let [all, others] = stage.pairs(settings, QUERY, PAIRS).await?;
    let quarantined = slow.rows.num_rows() as u64;
    let before = per_second(documents, &all);
    let after = per_second(documents - quarantined, &others);
    stage.say(&format!(
        "The pipeline takes {} documents a second with all of them, and {} without {}: {:+.0} %.",
        units::count(before as u64),
        units::count(after as u64),
        units::counted(quarantined, "document"),
        100.0 * (after / before - 1.0)
    ))?;

    stage.step("No document is lost")?;
    stage.show(COUNT).await?;
    stage.run("SET quarantine = 'off'").await?;
    stage.show(COUNT).await?;
    if let Some(undo) = &proposal.undo {
        stage.run(undo.trim_end_matches(';')).await?;
    }
    stage.verdict(all.time, others.time)
}

/// Documents that a run took in a second.
fn per_second(documents: u64, run: &Answer) -> f64 {
    documents as f64 / run.time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// The share of documents that a quarantine may have beside those that were planted: long ones among the others.
const MOST_OTHERS: f64 = 0.01;

/// Makes sure that the profile leads to all documents that were `planted` among `documents`, and to few others.
fn expect_planted(slow: &Answer, planted: &[u64], documents: u64) -> Result<(), ShellError> {
    let mut found = Vec::new();
    for row in 0..slow.rows.num_rows() {
        found.push(slow.number(0, row)? as u64);
    }
    if let Some(missing) = planted.iter().find(|id| !found.contains(id)) {
        return Err(ShellError::Demo(format!(
            "the report proposes no quarantine of document {missing}, which is an outlier"
        )));
    }
    let others = found.len().saturating_sub(planted.len());
    if others as f64 > documents as f64 * MOST_OTHERS {
        return Err(ShellError::Demo(format!(
            "the report proposes a quarantine of {others} documents that are no outliers"
        )));
    }
    Ok(())
}
