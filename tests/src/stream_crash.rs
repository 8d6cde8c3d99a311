//! A process that is killed while it fills a stream and runs continuous queries.
//!
//! The child inserts rows with ascending ids and writes the number of acknowledged rows to its
//! standard output. The parent kills it at a random moment and opens the database. Each acknowledged
//! row must be in the target table once, and each complete window must have exactly its rows. The
//! next child goes on with the same database.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, Error, Session};

use crate::contents::query;

/// A row comes at most nine seconds after a later one, so none is too late.
const SETUP: &str = "
    CREATE STREAM IF NOT EXISTS events
      (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10 seconds') FROM INSERT;
    CREATE TABLE IF NOT EXISTS every_event (id BIGINT, ts TIMESTAMP);
    CREATE TABLE IF NOT EXISTS windows (begins TIMESTAMP, n BIGINT, ids BIGINT);
    CREATE TABLE IF NOT EXISTS sliding (begins TIMESTAMP, n BIGINT);
    CREATE CONTINUOUS QUERY IF NOT EXISTS each INTO every_event EVERY INTERVAL '2 milliseconds' AS
      SELECT id, ts FROM events;
    CREATE CONTINUOUS QUERY IF NOT EXISTS tumbling INTO windows EVERY 20 ROWS AS
      SELECT tumble(ts, INTERVAL '30 seconds'), count(*), sum(id) FROM events GROUP BY 1;
    CREATE CONTINUOUS QUERY IF NOT EXISTS hopping INTO sliding EVERY INTERVAL '5 milliseconds' AS
      SELECT hop(ts, INTERVAL '30 seconds', INTERVAL '15 seconds'), count(*) FROM events GROUP BY 1;";

/// Rows of one INSERT.
const ROWS: i64 = 7;

fn open(path: &Path) -> Result<Database, Error> {
    Database::builder().path(path).worker_threads(2).build()
}

/// Inserts rows as long as it lives; the first has the id `next`. Writes the number of
/// acknowledged rows, one a line, to standard output.
pub async fn run_child(path: &Path, mut next: i64) -> Result<(), Error> {
    let db = open(path)?;
    let session = db.session();
    session.execute_script(SETUP).await?;
    let mut out = std::io::stdout().lock();
    loop {
        let rows: Vec<String> = (next..next + ROWS)
            .map(|id| {
                format!(
                    "({id}, to_timestamp({}))",
                    1_700_000_000 + id - (id * 7) % 10
                )
            })
            .collect();
        let sql = format!("INSERT INTO events VALUES {}", rows.join(", "));
        session.sql(&sql).await?;
        next += ROWS;
        // A parent that is gone is a reason to stop.
        if writeln!(out, "{next}").and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
}

/// Kills children `kills` times, one after the other, which share one database. `child` is the
/// program, to be called with `--stream-child <path> <next>`. Gives the number of rows in the end.
///
/// # Errors
/// A text that says what was lost or doubled after which kill.
pub async fn kill_repeatedly(child: &Path, kills: u64, seed: u64) -> Result<i64, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = scratch.path().join("db");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut next = 0;
    for kill in 1..=kills {
        let patience = Duration::from_micros(100_000 + random.next_u64() % 900_000);
        let acknowledged = kill_once(child, &path, next, patience)?;
        next = check(&path, acknowledged.max(next))
            .await
            .map_err(|error| format!("kill {kill} of seed {seed}: {error}"))?;
    }
    Ok(next)
}

/// Gives how many rows were acknowledged in all; 0 if none was.
fn kill_once(child: &Path, path: &Path, next: i64, patience: Duration) -> Result<i64, String> {
    let mut process = Command::new(child)
        .arg("--stream-child")
        .arg(path)
        .arg(next.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| error.to_string())?;
    let output = process.stdout.take().ok_or("the child has no output")?;
    let lines = std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // A last line that was cut off is an acknowledgement that was not given.
        lines.filter_map(|line| line.parse::<i64>().ok()).last()
    });
    let started = Instant::now();
    while started.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(200));
        if let Some(status) = process.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the child ended by itself: {status}"));
        }
    }
    process.kill().map_err(|error| error.to_string())?;
    process.wait().map_err(|error| error.to_string())?;
    let last = lines.join().map_err(|_| "reading panicked")?;
    Ok(last.unwrap_or(0))
}

/// Whether the database has each of the `acknowledged` rows once, with or without the statement
/// in flight. Gives the id of the next row.
async fn check(path: &Path, acknowledged: i64) -> Result<i64, String> {
    let db = open(path).map_err(|error| format!("opening again: {error}"))?;
    let session = db.session();
    let fails = |error: Error| error.to_string();
    session.execute_script(SETUP).await.map_err(fails)?;
    for name in ["each", "tumbling", "hopping"] {
        let refresh = format!("REFRESH CONTINUOUS QUERY {name}");
        session.sql(&refresh).await.map_err(fails)?;
    }
    let rows = number(&session, "SELECT count(*) FROM every_event").await?;
    let ids = number(&session, "SELECT count(DISTINCT id) FROM every_event").await?;
    let next = number(&session, "SELECT coalesce(max(id) + 1, 0) FROM every_event").await?;
    if rows != ids || rows != next {
        return Err(format!(
            "there are {rows} rows with {ids} ids below {next}: each id must be there once"
        ));
    }
    if next != acknowledged && next != acknowledged + ROWS {
        return Err(format!(
            "{acknowledged} rows were acknowledged and {next} are there: neither those nor one statement more"
        ));
    }
    let watermark = "(SELECT max(ts) - INTERVAL '10 seconds' FROM every_event)";
    let window = "INTERVAL '30 seconds'";
    let half = "INTERVAL '15 seconds'";
    let expected = format!(
        "SELECT date_bin({window}, ts) AS b, count(*), sum(id) FROM every_event GROUP BY b HAVING b + {window} <= {watermark}"
    );
    compare(&session, "SELECT begins, n, ids FROM windows", &expected).await?;
    let expected = format!(
        "SELECT b, count(*) FROM (SELECT ts, unnest([date_bin({half}, ts), date_bin({half}, ts) - {half}]) AS b \
         FROM every_event) GROUP BY b HAVING b + {window} <= {watermark}"
    );
    compare(&session, "SELECT begins, n FROM sliding", &expected).await?;
    db.close().await.map_err(fails)?;
    Ok(next)
}

/// Whether two queries have the same rows, however often each.
async fn compare(session: &Session, found: &str, expected: &str) -> Result<(), String> {
    for (left, right, what) in [
        (found, expected, "too many or wrong"),
        (expected, found, "missing"),
    ] {
        let sql = format!("({left}) EXCEPT ALL ({right})");
        let rows = query(session, &sql)
            .await
            .map_err(|error| error.to_string())?;
        if !rows.is_empty() {
            return Err(format!("of {found}, rows are {what}: {}", rows.join(", ")));
        }
    }
    Ok(())
}

async fn number(session: &Session, sql: &str) -> Result<i64, String> {
    let rows = query(session, sql)
        .await
        .map_err(|error| error.to_string())?;
    let number = rows.first().and_then(|row| row.parse().ok());
    number.ok_or_else(|| format!("{sql}: {rows:?}"))
}
