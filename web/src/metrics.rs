//! `GET /metrics`: the numbers of a server as OpenMetrics text, for Prometheus and programs like it.
//!
//! The values are rows of the statements in `web/metrics`, which run in a read-only session. A comment in a file
//! declares each family that the file has; the column of the same name has its values, and other columns are labels:
//!
//! ```text
//! -- counter skewer_queries: Statements that ended.
//! SELECT status, sum(queries) AS skewer_queries FROM sys.query_totals GROUP BY status
//! ```
//!
//! A histogram has the columns `le` (NULL is the last bucket), `NAME_bucket` and `NAME_sum`, in the order of its
//! buckets. A name that ends with `*` stands for a family for each value of the column `metric`. A comment
//! `keep 30 s: …` says for how long the rows of a statement are good that reads much.
//!
//! A statement that fails leaves its families without samples: their HELP says why, and
//! `skewer_view_success{view="…"}` is 0. OpenMetrics allows no other comments: Prometheus would refuse the whole text.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use parking_lot::Mutex;
use skewer::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use skewer::arrow::compute::cast;
use skewer::arrow::datatypes::{DataType, Float64Type, Int64Type};
use skewer::arrow::error::ArrowError;
use skewer::{Database, Error, ReadOnly, Session};
use skewer_page::views::{METRICS, View};
use tokio::time::Instant;

use crate::open_metrics::{Family, Kind, Labels, MEDIA_TYPE, Number, Sample, encode};
use crate::routes::Shared;
use crate::traces::TraceCounters;

/// How long all statements of an answer may take together: Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);
/// A statement with more rows is wrong, or has more series than anyone can store.
const MOST_ROWS: usize = 50_000;

/// Reads metrics, one request after the other.
#[derive(Debug)]
pub(crate) struct MetricsReader {
    session: Session,
    /// What came of views that are not read each time. Whoever reads holds it.
    kept: tokio::sync::Mutex<HashMap<&'static str, Kept>>,
    traces: Arc<TraceCounters>,
    /// The views that failed last time, so that the log names them once.
    failing: Mutex<HashSet<&'static str>>,
}

/// What came of a view.
#[derive(Debug)]
struct Kept {
    since: Instant,
    success: bool,
    families: Vec<Family>,
}

impl MetricsReader {
    pub(crate) fn new(database: &Database, traces: Arc<TraceCounters>) -> Self {
        let limits = ReadOnly {
            timeout: PATIENCE,
            memory: 64 << 20,
        };
        Self {
            session: database.read_only_session(limits),
            kept: Default::default(),
            traces,
            failing: Mutex::default(),
        }
    }

    /// The families of all views, and what became of each view.
    async fn families(&self) -> Vec<Family> {
        let mut kept = self.kept.lock().await;
        let deadline = Instant::now() + PATIENCE;
        let mut families = vec![version()];
        let mut outcomes = Family {
            name: "skewer_view_success".to_owned(),
            kind: Kind::Gauge,
            help: "Whether the statement behind these metrics ran: 1 or 0.".to_owned(),
            samples: Vec::new(),
        };
        let mut views: Vec<(&View, Option<Duration>)> =
            METRICS.iter().map(|view| (view, keeps(view))).collect();
        // The ones that take long are the last ones: if time runs out, the others are there.
        views.sort_by_key(|(_, keeps)| *keeps);
        for (view, keeps) in views {
            let known = kept.get(view.name);
            let fresh =
                known.filter(|known| keeps.is_some_and(|keeps| known.since.elapsed() < keeps));
            if let Some(fresh) = fresh {
                outcomes.samples.push(outcome(view, fresh.success));
                families.extend(fresh.families.iter().cloned());
                continue;
            }
            let read = tokio::time::timeout_at(deadline, read(&self.session, view)).await;
            let read = read.unwrap_or(Err(Error::TimedOut(PATIENCE)));
            self.log(view.name, read.as_ref().err());
            let success = read.is_ok();
            let of_view = read.unwrap_or_else(|error| without_samples(view, &error));
            outcomes.samples.push(outcome(view, success));
            if keeps.is_some() {
                let now = Kept {
                    since: Instant::now(),
                    success,
                    families: of_view.clone(),
                };
                kept.insert(view.name, now);
            }
            families.extend(of_view);
        }
        families.push(outcomes);
        families.extend(self.traces.families());
        families
    }

    /// Logs the first failure of a row of failures.
    fn log(&self, view: &'static str, error: Option<&Error>) {
        let mut failing = self.failing.lock();
        match error {
            None => {
                failing.remove(view);
            }
            Some(error) if failing.insert(view) => {
                tracing::warn!(view, %error, "/metrics lacks what this view has");
            }
            Some(_) => {}
        }
    }
}

/// Whether a view was read.
fn outcome(view: &View, success: bool) -> Sample {
    Sample {
        suffix: "",
        labels: vec![("view".to_owned(), view.name.to_owned())],
        value: Number::Integer(success.into()),
    }
}

/// For how long the rows of a view are good, if it says so.
fn keeps(view: &View) -> Option<Duration> {
    let mut said = view.comments().filter_map(|line| {
        let (seconds, _why) = line.strip_prefix("keep ")?.split_once(" s: ")?;
        seconds.parse().ok().map(Duration::from_secs)
    });
    said.next()
}

/// `GET /metrics`
pub(crate) async fn metrics(State(shared): State<Shared>) -> Response {
    // Dropping the request cancels the statement that runs.
    let families = shared.metrics.families().await;
    ([(CONTENT_TYPE, MEDIA_TYPE)], encode(&families)).into_response()
}

fn version() -> Family {
    let mut family = Family::single(
        "skewer_build",
        Kind::Info,
        "The version of Skewer.",
        Number::Integer(1),
    );
    let version = ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    family.samples[0].labels.push(version);
    family
}

/// A family as the comments of a view declare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Declared {
    kind: Kind,
    name: &'static str,
    help: &'static str,
}

impl Declared {
    /// What a name stands for that ends with `*`.
    fn prefix(&self) -> Option<&'static str> {
        self.name.strip_suffix('*')
    }

    /// The columns that are no labels.
    fn columns(&self) -> Vec<String> {
        match (self.prefix(), self.kind) {
            (Some(_), _) => vec!["metric".to_owned(), "value".to_owned()],
            (None, Kind::Histogram) => vec![
                "le".to_owned(),
                format!("{}_bucket", self.name),
                format!("{}_sum", self.name),
            ],
            (None, _) => vec![self.name.to_owned()],
        }
    }

    fn family(&self, samples: Vec<Sample>) -> Family {
        Family {
            name: self.name.to_owned(),
            kind: self.kind,
            help: self.help.to_owned(),
            samples,
        }
    }
}

/// The families that a view declares.
fn declared(view: &View) -> Vec<Declared> {
    let declarations = view.comments().filter_map(|line| {
        let (declaration, help) = line.split_once(": ")?;
        let (kind, name) = declaration.split_once(' ')?;
        Some(Declared {
            kind: Kind::by_name(kind)?,
            name,
            help,
        })
    });
    declarations.collect()
}

/// The families of a view whose statement has failed. Without a name there is no family.
fn without_samples(view: &View, error: &Error) -> Vec<Family> {
    let families = declared(view).into_iter();
    let named = families.filter(|family| family.prefix().is_none());
    named
        .map(|family| {
            let mut empty = family.family(Vec::new());
            empty.help = format!("{} Missing: {error}", family.help);
            empty
        })
        .collect()
}

async fn read(session: &Session, view: &View) -> Result<Vec<Family>, Error> {
    let sql = view
        .sql(&Default::default())
        .map_err(|error| Error::Internal(error.to_string()))?;
    let mut stream = session.sql(&sql).await?;
    let (mut batches, mut rows) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        if rows > MOST_ROWS {
            return Err(Error::Invalid(format!(
                "the view has more than {MOST_ROWS} rows"
            )));
        }
        batches.push(batch);
    }
    families(&declared(view), &batches).map_err(|error| Error::Internal(error.to_string()))
}

/// The families of a view's rows.
fn families(declared: &[Declared], batches: &[RecordBatch]) -> Result<Vec<Family>, ArrowError> {
    let no_labels: HashSet<String> = declared.iter().flat_map(Declared::columns).collect();
    let batches: Vec<Rows> = batches
        .iter()
        .map(|batch| Rows::new(batch, &no_labels))
        .collect::<Result<_, _>>()?;
    let mut families = Vec::new();
    for family in declared {
        match (family.prefix(), family.kind) {
            (Some(prefix), _) => families.extend(by_metric(family, prefix, &batches)),
            (None, Kind::Histogram) => families.push(family.family(histogram(family, &batches))),
            (None, _) => {
                let samples = batches.iter().flat_map(|rows| {
                    (0..rows.count).filter_map(|row| {
                        Some(Sample {
                            suffix: "",
                            labels: rows.labels(row),
                            value: rows.number(family.name, row)?,
                        })
                    })
                });
                families.push(family.family(samples.collect()));
            }
        }
    }
    Ok(families)
}

/// A family for each value of the column `metric`.
fn by_metric(family: &Declared, prefix: &str, batches: &[Rows]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for rows in batches {
        for row in 0..rows.count {
            let (Some(metric), Some(value)) = (rows.text("metric", row), rows.number("value", row))
            else {
                continue;
            };
            let sample = Sample {
                suffix: "",
                labels: rows.labels(row),
                value,
            };
            let name = format!("{prefix}{metric}");
            match families.iter_mut().find(|family| family.name == name) {
                Some(known) => known.samples.push(sample),
                None => families.push(Family {
                    name,
                    ..family.family(vec![sample])
                }),
            }
        }
    }
    families
}

/// Buckets as they come; behind the last one of each histogram its count and sum.
fn histogram(family: &Declared, batches: &[Rows]) -> Vec<Sample> {
    let [bucket, sum] = ["bucket", "sum"].map(|column| format!("{}_{column}", family.name));
    let mut samples = Vec::new();
    for rows in batches {
        for row in 0..rows.count {
            let Some(count) = rows.number(&bucket, row) else {
                continue;
            };
            let bound = rows.number("le", row);
            let labels = rows.labels(row);
            let mut sample = |suffix, labels, value| {
                samples.push(Sample {
                    suffix,
                    labels,
                    value,
                });
            };
            let up_to = bound.unwrap_or(Number::Float(f64::INFINITY)).to_string();
            let with_bound = [labels.clone(), vec![("le".to_owned(), up_to)]].concat();
            sample("_bucket", with_bound, count);
            if bound.is_none() {
                sample("_count", labels.clone(), count);
                if let Some(sum) = rows.number(&sum, row) {
                    sample("_sum", labels, sum);
                }
            }
        }
    }
    samples
}

/// Rows of a batch by column: numbers, and texts.
struct Rows {
    count: usize,
    columns: Vec<(String, ArrayRef)>,
    /// The places of labels in `columns`.
    labels: Vec<usize>,
}

impl Rows {
    fn new(batch: &RecordBatch, no_labels: &HashSet<String>) -> Result<Self, ArrowError> {
        let schema = batch.schema();
        let mut rows = Self {
            count: batch.num_rows(),
            columns: Vec::new(),
            labels: Vec::new(),
        };
        for (place, field) in schema.fields().iter().enumerate() {
            let is_label = !no_labels.contains(field.name());
            let to = match field.data_type() {
                _ if is_label || field.name() == "metric" => DataType::Utf8,
                kind if kind.is_integer() => DataType::Int64,
                _ => DataType::Float64,
            };
            if is_label {
                rows.labels.push(place);
            }
            let column = cast(batch.column(place), &to)?;
            rows.columns.push((field.name().clone(), column));
        }
        Ok(rows)
    }

    fn column(&self, name: &str) -> Option<&ArrayRef> {
        let found = self.columns.iter().find(|(known, _)| known == name);
        found.map(|(_, column)| column)
    }

    /// `None` for NULL, and where there is no such column.
    fn number(&self, name: &str, row: usize) -> Option<Number> {
        let column = self.column(name).filter(|column| column.is_valid(row))?;
        Some(match column.data_type() {
            DataType::Int64 => Number::Integer(column.as_primitive::<Int64Type>().value(row)),
            _ => Number::Float(column.as_primitive_opt::<Float64Type>()?.value(row)),
        })
    }

    /// `None` for NULL, and where there is no such column.
    fn text(&self, name: &str, row: usize) -> Option<&str> {
        let column = self.column(name).filter(|column| column.is_valid(row))?;
        Some(column.as_string_opt::<i32>()?.value(row))
    }

    /// A label that is NULL is left out.
    fn labels(&self, row: usize) -> Labels {
        let labels = self.labels.iter().filter_map(|place| {
            let (name, _) = &self.columns[*place];
            Some((name.clone(), self.text(name, row)?.to_owned()))
        });
        labels.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skewer::arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    fn family(kind: Kind, name: &'static str) -> Declared {
        Declared {
            kind,
            name,
            help: "Help.",
        }
    }

    #[test]
    fn every_view_declares_families_with_sentences() {
        for view in METRICS {
            let declared = declared(view);
            assert!(!declared.is_empty(), "{}", view.name);
            let sql = view.sql(&Default::default()).unwrap();
            for family in declared {
                assert!(family.name.starts_with("skewer_"), "{family:?}");
                assert!(family.help.ends_with('.'), "{family:?}");
                for column in family.columns() {
                    assert!(sql.contains(&column), "{}: {column}", view.name);
                }
            }
        }
    }

    #[test]
    fn rows_that_take_long_are_kept() {
        let kept = METRICS
            .iter()
            .filter_map(|view| Some((view.name, keeps(view)?)));
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept, [("alerts", Duration::from_secs(30))]);
    }

    #[test]
    fn labels_are_the_columns_that_no_family_has_and_null_is_left_out() {
        let rows = batch([
            ("worker", Arc::new(Int64Array::from(vec![0, 1, 2]))),
            (
                "state",
                Arc::new(StringArray::from(vec![Some("a\"b"), None, Some("c")])),
            ),
            (
                "skewer_a",
                Arc::new(Int64Array::from(vec![Some(5), Some(6), None])),
            ),
            (
                "skewer_b_seconds",
                Arc::new(Float64Array::from(vec![0.5, 1.0, 2.0])),
            ),
        ]);
        let declared = [
            family(Kind::Counter, "skewer_a"),
            family(Kind::Gauge, "skewer_b_seconds"),
        ];
        let text = encode(&families(&declared, &[rows]).unwrap());
        let expected = "\
# TYPE skewer_a counter
# HELP skewer_a Help.
skewer_a_total{worker=\"0\",state=\"a\\\"b\"} 5
skewer_a_total{worker=\"1\"} 6
# TYPE skewer_b_seconds gauge
# UNIT skewer_b_seconds seconds
# HELP skewer_b_seconds Help.
skewer_b_seconds{worker=\"0\",state=\"a\\\"b\"} 0.5
skewer_b_seconds{worker=\"1\"} 1.0
skewer_b_seconds{worker=\"2\",state=\"c\"} 2.0
# EOF
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_histogram_ends_with_its_count_and_sum() {
        let rows = batch([
            ("le", Arc::new(Float64Array::from(vec![Some(0.5), None]))),
            ("skewer_h_bucket", Arc::new(Int64Array::from(vec![1, 3]))),
            ("skewer_h_sum", Arc::new(Float64Array::from(vec![7.5, 7.5]))),
        ]);
        let declared = [family(Kind::Histogram, "skewer_h")];
        let text = encode(&families(&declared, &[rows]).unwrap());
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "skewer_h_bucket{le=\"0.5\"} 1",
            "skewer_h_bucket{le=\"+Inf\"} 3",
            "skewer_h_count 3",
            "skewer_h_sum 7.5",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn each_metric_of_a_node_is_a_family_of_its_own() {
        let rows = batch([
            (
                "metric",
                Arc::new(StringArray::from(vec![
                    "rss_bytes",
                    "cpu_share",
                    "rss_bytes",
                ])),
            ),
            ("worker", Arc::new(Int64Array::from(vec![0, 0, 1]))),
            ("value", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
        ]);
        let declared = [family(Kind::Gauge, "skewer_node_*")];
        let families = families(&declared, &[rows]).unwrap();
        let names: Vec<_> = families
            .iter()
            .map(|family| (family.name.as_str(), family.samples.len()))
            .collect();
        let expected = [("skewer_node_rss_bytes", 2), ("skewer_node_cpu_share", 1)];
        assert_eq!(names, expected);
    }
}
