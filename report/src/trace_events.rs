//! Calls of operators in Chrome's trace format, which ui.perfetto.dev and chrome://tracing show:
//! workers are processes, and each partition of a fragment is a thread.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skewer_diagnosis::operator_calls::OperatorCall;

/// Nanoseconds of a microsecond, which the format counts in.
const MICROSECOND: f64 = 1000.0;

/// Threads that a partition of a fragment may take where calls overlap without one being within
/// the other: operators that read ahead call their inputs in tasks of their own.
const LANES: i64 = 1000;

/// The text of the trace file, written piece by piece: [`calls`](Self::calls) for each batch, then
/// [`end`](Self::end).
pub struct TraceEvents {
    /// When the first call began.
    origin: i64,
    threads: Threads,
    /// The text before the next event.
    before: String,
    written: u64,
}

impl TraceEvents {
    /// The trace of a query whose first call began at `origin`, in nanoseconds since the epoch.
    pub fn new(query_id: i64, origin: i64) -> Self {
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

    /// How many calls were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The text of some calls. Calls of a partition come in the order of their beginning, outer calls
    /// first.
    pub fn calls(&mut self, calls: impl Iterator<Item = OperatorCall>) -> String {
        let mut text = String::new();
        for call in calls {
            let event = json!({
                "name": call.title,
                "cat": "operator",
                "ph": "X",
                "ts": (call.started_at - self.origin) as f64 / MICROSECOND,
                "dur": (call.ended_at - call.started_at).max(0) as f64 / MICROSECOND,
                "pid": call.worker_id,
                "tid": self.threads.lane_of(&call),
                "args": {
                    "operator_id": call.operator_id,
                    "fragment_id": call.fragment_id,
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

    /// The text after the last call.
    pub fn end(&mut self) -> String {
        let mut text = String::new();
        for event in self.threads.names() {
            self.add(&mut text, &event);
        }
        text + "\n]}\n"
    }
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
    fn lane_of(&mut self, call: &OperatorCall) -> i64 {
        let place = (call.worker_id, call.fragment_id, call.partition);
        let partitions = self.partitions.entry(call.worker_id).or_default();
        let lanes = self.known.entry(place).or_insert_with(|| {
            *partitions += 1;
            Lanes {
                number: *partitions,
                ends: Vec::new(),
            }
        });
        let fits = |lane: &mut Vec<i64>| {
            while lane.last().is_some_and(|end| *end <= call.started_at) {
                lane.pop();
            }
            lane.last().is_none_or(|end| *end >= call.ended_at)
        };
        let found = lanes.ends.iter_mut().position(fits);
        let lane = found.unwrap_or_else(|| {
            lanes.ends.push(Vec::new());
            lanes.ends.len() - 1
        });
        lanes.ends[lane].push(call.ended_at);
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
