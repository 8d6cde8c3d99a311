//! A query's operator calls in Chrome's trace format, which ui.perfetto.dev and chrome://tracing
//! show: workers are processes, and each partition of a fragment is a thread.

use std::collections::BTreeMap;
use std::path::Path;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::explain_profile::{untraced_query, untraced_stream};
use super::export_profile::{Unfinished, at};
use crate::error::Error;
use crate::report::operator_title;
use crate::session::Session;

/// The calls with what their operator is, outer calls before those within.
const SQL: &str = "\
SELECT
  calls.worker_id, calls.fragment_id, calls.partition, calls.operator_id,
  CAST(calls.started_at AS BIGINT) AS started_at, CAST(calls.ended_at AS BIGINT) AS ended_at,
  calls.rows, operators.name, operators.details, operators.table_name
FROM sys.operator_calls AS calls
JOIN sys.operators AS operators
  ON calls.query_id = operators.query_id AND calls.operator_id = operators.operator_id
WHERE calls.query_id = $query_id
ORDER BY worker_id, fragment_id, partition, started_at, ended_at DESC, operator_id";

/// Nanoseconds of a microsecond, which the format counts in.
const MICROSECOND: f64 = 1000.0;

/// Threads that a partition of a fragment may take where calls overlap without one being within
/// the other: operators that read ahead call their inputs in tasks of their own.
const LANES: i64 = 1000;

/// Writes the file; gives the number of calls.
pub(super) async fn write(session: &Session, query_id: i64, target: &Path) -> Result<u64, Error> {
    let first = format!(
        "SELECT CAST(min(started_at) AS BIGINT) AS started_at \
         FROM sys.operator_calls WHERE query_id = {query_id}"
    );
    let first = untraced_query(session, &first).await?;
    let Some(origin) = first.first().and_then(first_number) else {
        return Err(Error::Invalid(format!(
            "no calls of operators were recorded of query {query_id}, as from level calls on: \
             EXPLAIN PROFILE (LEVEL calls) QUERY {query_id} runs it again at that level"
        )));
    };
    let sql = SQL.replace("$query_id", &query_id.to_string());
    let mut batches = untraced_stream(session, &sql).await?;
    let unfinished = Unfinished::beside(target);
    let path = unfinished.path();
    let failed = |error: std::io::Error| at(path, &error);
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut events = Events::new(query_id, origin);
    while let Some(batch) = batches.try_next().await? {
        let text = events.of(&batch);
        file.write_all(text.as_bytes()).await.map_err(failed)?;
    }
    file.write_all(events.end().as_bytes())
        .await
        .map_err(failed)?;
    file.sync_all().await.map_err(failed)?;
    let written = events.written;
    unfinished.finish()?;
    Ok(written)
}

fn first_number(batch: &RecordBatch) -> Option<i64> {
    let numbers = batch.column(0).as_primitive_opt::<Int64Type>()?;
    numbers.iter().next()?
}

/// One call.
struct Call {
    worker: i64,
    fragment: i64,
    partition: i64,
    operator: i64,
    started: i64,
    ended: i64,
    rows: i64,
    title: String,
}

/// The file's text, piece by piece.
struct Events {
    /// When the first call began.
    origin: i64,
    threads: Threads,
    /// What is to be written before the next event.
    before: String,
    /// How many calls there were.
    written: u64,
}

impl Events {
    fn new(query_id: i64, origin: i64) -> Self {
        let writer = concat!("skewer ", env!("CARGO_PKG_VERSION"));
        let other = json!({"query_id": query_id, "writer": writer});
        Self {
            origin,
            threads: Threads::default(),
            before: format!(
                "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":[\n"
            ),
            written: 0,
        }
    }

    fn of(&mut self, batch: &RecordBatch) -> String {
        let mut text = String::new();
        for call in calls(batch) {
            let event = json!({
                "name": call.title,
                "cat": "operator",
                "ph": "X",
                "ts": (call.started - self.origin) as f64 / MICROSECOND,
                "dur": (call.ended - call.started).max(0) as f64 / MICROSECOND,
                "pid": call.worker,
                "tid": self.threads.of(&call),
                "args": {
                    "operator_id": call.operator,
                    "fragment_id": call.fragment,
                    "partition": call.partition,
                    "rows": call.rows,
                },
            });
            self.add(&mut text, &event);
            self.written += 1;
        }
        text
    }

    fn add(&mut self, text: &mut String, event: &Value) {
        text.push_str(&std::mem::replace(&mut self.before, ",\n".to_owned()));
        text.push_str(&event.to_string());
    }

    /// What comes after the last call.
    fn end(&mut self) -> String {
        let mut text = String::new();
        for event in self.threads.names() {
            self.add(&mut text, &event);
        }
        text + "\n]}\n"
    }
}

fn numbers<'a>(batch: &'a RecordBatch, column: &str) -> impl Iterator<Item = i64> + 'a {
    let column = batch.column_by_name(column);
    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    column
        .into_iter()
        .flat_map(|numbers| numbers.values().iter().copied())
}

fn calls(batch: &RecordBatch) -> impl Iterator<Item = Call> + '_ {
    let text = |column: &str, row: usize| {
        let texts = batch.column_by_name(column)?.as_string_opt::<i32>()?;
        texts.is_valid(row).then(|| texts.value(row))
    };
    let columns = [
        "worker_id",
        "fragment_id",
        "partition",
        "operator_id",
        "started_at",
        "ended_at",
        "rows",
    ];
    let columns = columns.map(|column| numbers(batch, column).collect::<Vec<i64>>());
    (0..batch.num_rows()).map(move |row| Call {
        worker: columns[0][row],
        fragment: columns[1][row],
        partition: columns[2][row],
        operator: columns[3][row],
        started: columns[4][row],
        ended: columns[5][row],
        rows: columns[6][row],
        title: operator_title(
            text("name", row).unwrap_or_default(),
            text("details", row).unwrap_or_default(),
            text("table_name", row),
        ),
    })
}

/// Where calls of a partition of a fragment are drawn.
#[derive(Default)]
struct Lanes {
    /// The partition's number on its worker.
    number: i64,
    /// Of each lane, when the calls end that the next one may be within.
    ends: Vec<Vec<i64>>,
}

/// Which thread a call is drawn in.
#[derive(Default)]
struct Threads {
    /// By worker, fragment and partition.
    known: BTreeMap<(i64, i64, i64), Lanes>,
    /// How many partitions each worker has.
    partitions: BTreeMap<i64, i64>,
}

impl Threads {
    /// The first lane of the call's partition in which it is within all calls that go on.
    fn of(&mut self, call: &Call) -> i64 {
        let place = (call.worker, call.fragment, call.partition);
        let partitions = self.partitions.entry(call.worker).or_default();
        let lanes = self.known.entry(place).or_insert_with(|| {
            *partitions += 1;
            Lanes {
                number: *partitions,
                ends: Vec::new(),
            }
        });
        let fits = |lane: &mut Vec<i64>| {
            while lane.last().is_some_and(|end| *end <= call.started) {
                lane.pop();
            }
            lane.last().is_none_or(|end| *end >= call.ended)
        };
        let found = lanes.ends.iter_mut().position(fits);
        let lane = found.unwrap_or_else(|| {
            lanes.ends.push(Vec::new());
            lanes.ends.len() - 1
        });
        lanes.ends[lane].push(call.ended);
        lanes.number * LANES + lane as i64
    }

    /// Events that give processes and threads their names.
    fn names(&self) -> Vec<Value> {
        let name = |kind: &str, pid: i64, tid: i64, name: String| json!({"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}});
        let mut events: Vec<Value> = self
            .partitions
            .keys()
            .map(|worker| name("process_name", *worker, 0, format!("worker {worker}")))
            .collect();
        for ((worker, fragment, partition), lanes) in &self.known {
            for lane in 0..lanes.ends.len() {
                let more = if lane == 0 {
                    String::new()
                } else {
                    format!(" ({lane})")
                };
                let text = format!("fragment {fragment}, partition {partition}{more}");
                let tid = lanes.number * LANES + lane as i64;
                events.push(name("thread_name", *worker, tid, text));
            }
        }
        events
    }
}
