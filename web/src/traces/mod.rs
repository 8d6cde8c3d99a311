//! Traces: each query that ends becomes spans for a collector of OpenTelemetry, over OTLP/HTTP with JSON.
//!
//! ```text
//! span of the client ─▶ query ─┬▶ queue
//!                              ├▶ planning
//!                              └▶ execution ─▶ fragment 0 ─┬▶ task, for each worker and partition
//!                                                          └▶ fragment 1 ─▶ …
//! ```
//!
//! The spans are rows of the statements in `web/traces`, which are read when the query has ended. So a query takes no
//! longer: it puts its id into a bounded queue, and what does not fit is counted and left out.
//!
//! The crate `opentelemetry-otlp` 0.33 is for spans that a program begins and ends as it runs; ours are rows with times
//! of their own, of several machines. Its feature `http-json` also brings `tonic`, `opentelemetry_sdk` and second
//! versions of `rand` and `base64`. The JSON is one file (`otlp`), the request is hyper's.
//!
//! * `span`: rows as spans; `otlp`: spans as JSON; `collector`: where they are sent

mod collector;
mod otlp;
mod span;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skewer::{Database, EndedQueries, EndedQuery, ProfileLevel, ReadOnly, Session};
use tokio::sync::watch;

use crate::error::WebError;
use crate::open_metrics::{Family, Kind, Number};
use collector::{Collector, Refusal};
use span::Span;

/// So many queries may wait to be exported.
const WAITING: usize = 2_048;
/// So many queries are read at once: of more, a master of a cluster would not fetch the rows but distribute the
/// statement.
const QUERIES: usize = 16;
/// So many spans are sent at once.
const SPANS: usize = 512;
/// How often spans are sent that a collector could not take.
const ATTEMPTS: u32 = 3;
/// How long the first wait between attempts is; each one is twice as long.
const BACK_OFF: Duration = Duration::from_secs(1);
/// How long what is left may take when the server ends.
const DRAIN: Duration = Duration::from_secs(2);
/// What reading the spans may take.
const LIMITS: ReadOnly = ReadOnly {
    timeout: Duration::from_secs(10),
    memory: 64 << 20,
};

/// Where spans go.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// The collector's address, as `http://localhost:4318`; spans are sent to `/v1/traces` there.
    pub endpoint: String,
    /// Certificates of authorities as PEM, for an endpoint that begins with `https`; the system's if there are none.
    pub certificate: Option<PathBuf>,
    /// Headers of each request, by name; for example what authorizes it.
    pub headers: Vec<(String, String)>,
    /// The name of the service that the spans are of.
    pub service: String,
}

impl TraceOptions {
    /// Sends spans of service `skewer` to `endpoint`.
    pub fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            certificate: None,
            headers: Vec::new(),
            service: "skewer".to_owned(),
        }
    }
}

/// What became of spans.
#[derive(Debug, Default)]
pub struct TraceCounters {
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Queries that have no spans.
    missed: AtomicU64,
}

impl TraceCounters {
    /// How many spans the collector has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// How many spans no collector has taken.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many queries were not made spans of.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    pub(crate) fn families(&self) -> [Family; 3] {
        let counter = |name, help, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            Family::single(name, Kind::Counter, help, Number::Integer(value))
        };
        [
            counter(
                "skewer_spans_exported",
                "Spans that the collector of traces has taken.",
                self.exported(),
            ),
            counter(
                "skewer_spans_dropped",
                "Spans that no collector of traces has taken.",
                self.dropped(),
            ),
            counter(
                "skewer_traces_missed",
                "Queries that have no spans, since the exporter was behind or could not read them.",
                self.missed(),
            ),
        ]
    }
}

/// Exports the queries of a database.
#[derive(Debug)]
pub struct TraceExporter {
    queries: EndedQueries,
    session: Session,
    collector: Collector,
    service: String,
    counters: Arc<TraceCounters>,
    /// Queries whose rows could not be read.
    unread: u64,
    /// Whether the collector took what it was sent last.
    is_up: bool,
}

impl TraceExporter {
    /// Follows the queries of `database` that end from now on.
    ///
    /// # Errors
    /// [`WebError::Collector`] if spans cannot be sent to such an address.
    pub fn new(database: &Database, options: TraceOptions) -> Result<Self, WebError> {
        Ok(Self {
            collector: Collector::new(&options)?,
            queries: database.ended_queries(WAITING),
            session: database.read_only_session(LIMITS),
            service: options.service,
            counters: Arc::default(),
            unread: 0,
            is_up: true,
        })
    }

    /// What became of the spans.
    pub fn counters(&self) -> Arc<TraceCounters> {
        Arc::clone(&self.counters)
    }

    /// Exports until `shutdown` completes, and then for two seconds what is left.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let (end, ended) = watch::channel(false);
        let deadline = async {
            shutdown.await;
            end.send_replace(true);
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            () = self.export_all(ended) => {}
            () = deadline => {}
        }
    }

    /// Exports queries as they end; after `ended` has become true, the ones that wait.
    async fn export_all(&mut self, mut ended: watch::Receiver<bool>) {
        loop {
            let queries = tokio::select! {
                biased;
                queries = self.queries.next(QUERIES) => queries,
                () = is_over(&mut ended) => self.queries.waiting(QUERIES),
            };
            if queries.is_empty() {
                return;
            }
            self.export(&queries).await;
        }
    }

    async fn export(&mut self, queries: &[EndedQuery]) {
        let wanted: Vec<EndedQuery> = queries
            .iter()
            .filter(|query| {
                let is_sampled = query.trace_parent.is_none_or(|parent| parent.is_sampled());
                query.level > ProfileLevel::Off && is_sampled
            })
            .copied()
            .collect();
        if !wanted.is_empty() {
            match span::read(&self.session, &wanted).await {
                Ok(spans) => {
                    for spans in spans.chunks(SPANS) {
                        self.send(spans).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, queries = wanted.len(), "queries have no spans");
                    self.unread += wanted.len() as u64;
                }
            }
        }
        let missed = self.queries.missed() + self.unread;
        self.counters.missed.store(missed, Ordering::Relaxed);
    }

    async fn send(&mut self, spans: &[Span]) {
        let request = otlp::request(&self.service, spans);
        // While the collector does not answer, the queue must not wait for it with each request.
        let attempts = if self.is_up { ATTEMPTS } else { 1 };
        let mut sent = self.collector.send(&request).await;
        for attempt in 1..attempts {
            if !matches!(sent, Err(Refusal::Later(_))) {
                break;
            }
            tokio::time::sleep(BACK_OFF * (1 << (attempt - 1))).await;
            sent = self.collector.send(&request).await;
        }
        let (all, was_up) = (spans.len() as u64, self.is_up);
        self.is_up = sent.is_ok();
        let rejected = match sent {
            Ok(rejected) => {
                if !was_up {
                    tracing::info!("the collector of traces takes spans again");
                }
                rejected.min(all)
            }
            Err(Refusal::Later(reason) | Refusal::Never(reason)) => {
                if was_up {
                    let endpoint = self.collector.endpoint();
                    tracing::warn!(%reason, endpoint, "spans are dropped: the collector does not take them");
                }
                all
            }
        };
        let counters = &self.counters;
        counters.dropped.fetch_add(rejected, Ordering::Relaxed);
        counters
            .exported
            .fetch_add(all - rejected, Ordering::Relaxed);
    }
}

/// Completes when the export ends: also without a sender.
async fn is_over(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}
