//! What remedies for skew save: statements with `remedies = 'off'` and `'auto'`, interleaved, on workers with equal
//! processor quotas.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::cases::{Topology, WORKERS};
use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::inject::inject;
use crate::processes::{Processes, Start};
use crate::protocol::await_workers;
use crate::scoring::median;
use crate::sql::{Client, integer};
use crate::workload::{EXCHANGED_JOINS, Injection, Reader, SkewedRun, shared_tables, skewed};

/// Processors that each worker may use: three leave some for the master and the client.
const QUOTA: f64 = 0.5;

/// Runs after which remedies are no longer on trial, one with and one without in turn.
const TRIAL: usize = 6;

/// Runs with `auto` that may go without remedies before one has them.
const WITHOUT: usize = 2;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Measurement<'a> {
    /// The program `skewer`.
    pub binary: &'a Path,
    /// Where databases are made.
    pub directory: &'a Path,
    /// Where control groups are made.
    pub hierarchy: &'a Hierarchy,
    /// Rows of each table.
    pub rows: u64,
    /// Runs of each kind.
    pub pairs: usize,
}

/// What a statement took, in milliseconds: medians of its runs.
#[derive(Debug)]
struct Measured {
    off: f64,
    auto: f64,
    /// What the view predicted, and what the trial measured.
    predicted: Option<f64>,
    saved: Option<f64>,
    remedies: String,
}

/// What a statement took over each of its tables.
#[derive(Debug)]
struct Row {
    title: &'static str,
    limit: f64,
    runs: Vec<Measured>,
}

/// Runs all statements; a table in Markdown.
///
/// # Errors
/// If the database does not start, a statement fails, or results differ.
pub async fn measure(measurement: Measurement<'_>) -> Result<String> {
    let processes = Processes::start(&Start {
        binary: measurement.binary,
        topology: Topology::Cluster,
        directory: measurement.directory,
        hierarchy: Some(measurement.hierarchy),
    })?;
    let client = Client::connect(&processes.address).await?;
    await_workers(&client).await?;
    client.run_all(&shared_tables(1000)).await?;
    client.run_all(&EXCHANGED_JOINS.map(str::to_owned)).await?;
    client.run("SET statement_timeout = '300s'").await?;
    let mut quotas = Vec::new();
    for worker in 1..=WORKERS {
        quotas.push(inject(
            &processes,
            &Injection::Quota {
                worker,
                processors: QUOTA,
            },
        )?);
    }
    let mut rows = Vec::new();
    for skewed in skewed(measurement.rows) {
        let mut runs = Vec::new();
        for run in &skewed.runs {
            let measured = measured(&client, run, measurement.pairs).await;
            runs.push(measured.map_err(|error| Error::new(format!("{}: {error}", skewed.title)))?);
        }
        rows.push(Row {
            title: skewed.title,
            limit: skewed.limit,
            runs,
        });
    }
    drop(quotas);
    Ok(table(&rows))
}

async fn measured(client: &Client, skewed: &SkewedRun, pairs: usize) -> Result<Measured> {
    client.run_all(&skewed.setup).await?;
    client.run("SET remedies = 'off'").await?;
    let expected = client.rows(&skewed.sql).await?;
    client.run("SET remedies = 'auto'").await?;
    for _ in 0..TRIAL {
        let found = client.rows(&skewed.sql).await?;
        if found != expected {
            return Err(Error::new("results differ".to_owned()));
        }
    }
    let (mut off, mut auto) = (Vec::new(), Vec::new());
    let mut last = 0;
    for _ in 0..pairs {
        client.run("SET remedies = 'off'").await?;
        off.push(elapsed(client, skewed).await?);
        client.run("SET remedies = 'auto'").await?;
        for _ in 0..=WITHOUT {
            let time = elapsed(client, skewed).await?;
            let query_id = client.last_query(Reader::Fast).await?;
            last = query_id;
            let applied = format!(
                "SELECT count(*) FROM sys.remedies WHERE query_id = {query_id} AND is_applied"
            );
            if client.number(&applied).await? > 0 {
                auto.push(time);
                break;
            }
        }
    }
    let (off, auto) = (median(&off), median(&auto));
    let sql = format!(
        "SELECT remedy, subject, predicted_ns, measured_ns FROM sys.remedies \
         WHERE query_id = {last} ORDER BY predicted_ns DESC"
    );
    let found = client.rows(&sql).await?;
    client.run_all(&skewed.teardown).await?;
    let milliseconds = |column: &str| {
        let first = found.first()?;
        Some(integer(first, column)? as f64 / 1e6)
    };
    let text = |column: &str| {
        let cell = |row: &crate::sql::Row| {
            let cell = row.iter().find(|(name, _)| name == column);
            cell.and_then(|(_, value)| value.clone())
                .unwrap_or_default()
        };
        found.iter().map(cell).collect::<Vec<_>>()
    };
    let remedies = text("remedy").into_iter().zip(text("subject"));
    let remedies: Vec<_> = remedies
        .map(|(remedy, of)| format!("{remedy} ({of})"))
        .collect();
    Ok(Measured {
        off: off.unwrap_or(f64::NAN),
        // Without a remedy both are the same.
        auto: auto.or(off).unwrap_or(f64::NAN),
        predicted: milliseconds("predicted_ns"),
        saved: milliseconds("measured_ns"),
        remedies: match remedies.is_empty() {
            true => "none".to_owned(),
            false => remedies.join(", "),
        },
    })
}

/// How many milliseconds the statement takes.
async fn elapsed(client: &Client, skewed: &SkewedRun) -> Result<f64> {
    let time: Duration = client.read(&skewed.sql, Reader::Fast).await?;
    Ok(time.as_secs_f64() * 1e3)
}

fn table(rows: &[Row]) -> String {
    let mut text = "| statement | tables | off, ms | auto, ms | ratio | at most | remedies | predicted saving, ms | measured, ms |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let sum = |of: fn(&Measured) -> f64| row.runs.iter().map(of).sum::<f64>();
        let each = |of: fn(&Measured) -> Option<f64>| {
            let each = row.runs.iter().map(|run| match of(run) {
                Some(value) => format!("{value:.0}"),
                None => "none".to_owned(),
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let mut remedies: Vec<_> = row.runs.iter().map(|run| run.remedies.as_str()).collect();
        remedies.dedup();
        let (off, auto) = (sum(|run| run.off), sum(|run| run.auto));
        let _ = writeln!(
            text,
            "| {} | {} | {off:.0} | {auto:.0} | {:.2} | {:.2} | {} | {} | {} |",
            row.title,
            row.runs.len(),
            auto / off,
            row.limit,
            remedies.join("; "),
            each(|run| run.predicted),
            each(|run| run.saved),
        );
    }
    text
}
