//! A plan's metrics, so that EXPLAIN ANALYZE and the profiler see those of every task.
//!
//! Percentiles travel as their sketches: of a percentile's value alone, those of several tasks
//! could not be merged. Custom metrics that neither DataFusion nor datafusion-distributed defines
//! stay where they are.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use datafusion::common::format::MetricType;
use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, Gauge, Label, Metric, MetricValue, MetricsSet, PruningMetrics,
    RatioMetrics, Time, Timestamp,
};
use datafusion_distributed::{
    AvgLatencyMetric, BytesCounterMetric, FirstLatencyMetric, MaxGaugeMetric, MaxLatencyMetric,
    MinLatencyMetric, P50LatencyMetric, P75LatencyMetric, P95LatencyMetric, P99LatencyMetric,
};
use sketches_ddsketch::DDSketch;

use super::body::{Reader, Writer};
use super::error::FrameError;

/// The byte on the wire.
mod tag {
    pub(super) const OUTPUT_ROWS: u8 = 1;
    pub(super) const ELAPSED_COMPUTE: u8 = 2;
    pub(super) const SPILL_COUNT: u8 = 3;
    pub(super) const SPILLED_BYTES: u8 = 4;
    pub(super) const OUTPUT_BYTES: u8 = 5;
    pub(super) const OUTPUT_BATCHES: u8 = 6;
    pub(super) const SPILLED_ROWS: u8 = 7;
    pub(super) const CURRENT_MEMORY: u8 = 8;
    pub(super) const COUNT: u8 = 9;
    pub(super) const GAUGE: u8 = 10;
    pub(super) const PEAK_MEMORY: u8 = 11;
    pub(super) const TIME: u8 = 12;
    pub(super) const START: u8 = 13;
    pub(super) const END: u8 = 14;
    pub(super) const PRUNING: u8 = 15;
    pub(super) const RATIO: u8 = 16;
    pub(super) const MIN_LATENCY: u8 = 32;
    pub(super) const MAX_LATENCY: u8 = 33;
    pub(super) const AVG_LATENCY: u8 = 34;
    pub(super) const FIRST_LATENCY: u8 = 35;
    pub(super) const BYTES: u8 = 36;
    pub(super) const MAX_GAUGE: u8 = 37;
    pub(super) const P50: u8 = 38;
    pub(super) const P75: u8 = 39;
    pub(super) const P95: u8 = 40;
    pub(super) const P99: u8 = 41;
}

/// The fewest bytes of a metric: tag, partition, labels, type.
const SMALLEST: usize = 7;

/// Writes the metrics of one operator.
pub fn encode(body: &mut Writer, set: &MetricsSet) {
    let metrics: Vec<_> = set
        .iter()
        .filter_map(|metric| Some((metric, value(metric)?)))
        .collect();
    body.count(metrics.len());
    for (metric, (tag, name, numbers)) in metrics {
        body.u8(tag);
        body.option(metric.partition(), |body, partition| {
            // A partition's number fits: there are not 2³² of them.
            body.u32(u32::try_from(partition).unwrap_or(u32::MAX));
        });
        body.count(metric.labels().len());
        for label in metric.labels() {
            body.text(label.name());
            body.text(label.value());
        }
        body.bool(metric.metric_type() == MetricType::Summary);
        if let Some(name) = name {
            body.text(name);
        }
        match numbers {
            Numbers::One(value) => body.size(value),
            Numbers::Two(first, second) => {
                body.size(first);
                body.size(second);
            }
            Numbers::Time(value) => body.option(value, |body, nanos| body.u64(nanos as u64)),
            Numbers::Sketch(bytes) => body.bytes(&bytes),
        }
    }
}

enum Numbers {
    One(usize),
    Two(usize, usize),
    /// Nanoseconds since 1970.
    Time(Option<i64>),
    Sketch(Vec<u8>),
}

/// What is sent of a metric; nothing of one that nobody knows.
fn value(metric: &Metric) -> Option<(u8, Option<&str>, Numbers)> {
    use Numbers::{One, Two};
    let time = |timestamp: &Timestamp| {
        Numbers::Time(
            timestamp
                .value()
                .and_then(|time| time.timestamp_nanos_opt()),
        )
    };
    Some(match metric.value() {
        MetricValue::OutputRows(count) => (tag::OUTPUT_ROWS, None, One(count.value())),
        MetricValue::ElapsedCompute(time) => (tag::ELAPSED_COMPUTE, None, One(time.value())),
        MetricValue::SpillCount(count) => (tag::SPILL_COUNT, None, One(count.value())),
        MetricValue::SpilledBytes(count) => (tag::SPILLED_BYTES, None, One(count.value())),
        MetricValue::OutputBytes(count) => (tag::OUTPUT_BYTES, None, One(count.value())),
        MetricValue::OutputBatches(count) => (tag::OUTPUT_BATCHES, None, One(count.value())),
        MetricValue::SpilledRows(count) => (tag::SPILLED_ROWS, None, One(count.value())),
        MetricValue::CurrentMemoryUsage(gauge) => (tag::CURRENT_MEMORY, None, One(gauge.value())),
        MetricValue::Count { name, count } => (tag::COUNT, Some(name), One(count.value())),
        MetricValue::Gauge { name, gauge } => (tag::GAUGE, Some(name), One(gauge.value())),
        MetricValue::PeakMemoryUsage { name, gauge } => {
            (tag::PEAK_MEMORY, Some(name), One(gauge.value()))
        }
        MetricValue::Time { name, time } => (tag::TIME, Some(name), One(time.value())),
        MetricValue::StartTimestamp(timestamp) => (tag::START, None, time(timestamp)),
        MetricValue::EndTimestamp(timestamp) => (tag::END, None, time(timestamp)),
        MetricValue::PruningMetrics {
            name,
            pruning_metrics: it,
        } => (tag::PRUNING, Some(name), Two(it.pruned(), it.matched())),
        MetricValue::Ratio {
            name,
            ratio_metrics: it,
        } => (tag::RATIO, Some(name), Two(it.part(), it.total())),
        MetricValue::Custom { name, value } => {
            let (tag, numbers) = custom(value.as_ref())?;
            (tag, Some(name), numbers)
        }
    })
}

fn custom(value: &dyn CustomMetricValue) -> Option<(u8, Numbers)> {
    use Numbers::{One, Sketch, Two};
    let any = value.as_any();
    macro_rules! one {
        ($type:ty, $tag:expr) => {
            if let Some(it) = any.downcast_ref::<$type>() {
                return Some(($tag, One(it.value())));
            }
        };
    }
    macro_rules! sketch {
        ($type:ty, $tag:expr) => {
            if let Some(it) = any.downcast_ref::<$type>() {
                return Some(($tag, Sketch(it.serialize_sketch().ok()?)));
            }
        };
    }
    one!(MinLatencyMetric, tag::MIN_LATENCY);
    one!(MaxLatencyMetric, tag::MAX_LATENCY);
    one!(FirstLatencyMetric, tag::FIRST_LATENCY);
    one!(BytesCounterMetric, tag::BYTES);
    one!(MaxGaugeMetric, tag::MAX_GAUGE);
    sketch!(P50LatencyMetric, tag::P50);
    sketch!(P75LatencyMetric, tag::P75);
    sketch!(P95LatencyMetric, tag::P95);
    sketch!(P99LatencyMetric, tag::P99);
    let average = any.downcast_ref::<AvgLatencyMetric>()?;
    Some((tag::AVG_LATENCY, Two(average.nanos_sum(), average.count())))
}

/// Reads the metrics of one operator.
///
/// # Errors
/// If they are malformed.
pub fn decode(body: &mut Reader<'_>) -> Result<MetricsSet, FrameError> {
    let mut set = MetricsSet::new();
    for metric in body.list(SMALLEST, metric)? {
        set.push(Arc::new(metric));
    }
    Ok(set)
}

fn metric(body: &mut Reader<'_>) -> Result<Metric, FrameError> {
    let tag = body.u8()?;
    let partition = body
        .option(Reader::u32)?
        .map(|partition| partition as usize);
    let labels = body.list(8, |body| Ok(Label::new(body.text()?, body.text()?)))?;
    let summary = body.bool()?;
    let value = metric_value(tag, body)?;
    let kind = match summary {
        true => MetricType::Summary,
        false => MetricType::Dev,
    };
    Ok(Metric::new_with_labels(value, partition, labels).with_type(kind))
}

fn metric_value(tag: u8, body: &mut Reader<'_>) -> Result<MetricValue, FrameError> {
    Ok(match tag {
        tag::OUTPUT_ROWS => MetricValue::OutputRows(count(body)?),
        tag::ELAPSED_COMPUTE => MetricValue::ElapsedCompute(time(body)?),
        tag::SPILL_COUNT => MetricValue::SpillCount(count(body)?),
        tag::SPILLED_BYTES => MetricValue::SpilledBytes(count(body)?),
        tag::OUTPUT_BYTES => MetricValue::OutputBytes(count(body)?),
        tag::OUTPUT_BATCHES => MetricValue::OutputBatches(count(body)?),
        tag::SPILLED_ROWS => MetricValue::SpilledRows(count(body)?),
        tag::CURRENT_MEMORY => MetricValue::CurrentMemoryUsage(gauge(body)?),
        tag::COUNT => MetricValue::Count {
            name: name(body)?,
            count: count(body)?,
        },
        tag::GAUGE => MetricValue::Gauge {
            name: name(body)?,
            gauge: gauge(body)?,
        },
        tag::PEAK_MEMORY => MetricValue::PeakMemoryUsage {
            name: name(body)?,
            gauge: gauge(body)?,
        },
        tag::TIME => MetricValue::Time {
            name: name(body)?,
            time: time(body)?,
        },
        tag::START => MetricValue::StartTimestamp(timestamp(body)?),
        tag::END => MetricValue::EndTimestamp(timestamp(body)?),
        tag::PRUNING => {
            let name = name(body)?;
            let pruning_metrics = PruningMetrics::new();
            pruning_metrics.add_pruned(body.size()?);
            pruning_metrics.add_matched(body.size()?);
            MetricValue::PruningMetrics {
                name,
                pruning_metrics,
            }
        }
        tag::RATIO => {
            let name = name(body)?;
            let ratio_metrics = RatioMetrics::new();
            ratio_metrics.set_part(body.size()?);
            ratio_metrics.set_total(body.size()?);
            MetricValue::Ratio {
                name,
                ratio_metrics,
            }
        }
        _ => MetricValue::Custom {
            name: name(body)?,
            value: custom_value(tag, body)?,
        },
    })
}

fn custom_value(tag: u8, body: &mut Reader<'_>) -> Result<Arc<dyn CustomMetricValue>, FrameError> {
    Ok(match tag {
        tag::MIN_LATENCY => Arc::new(MinLatencyMetric::from_nanos(body.size()?)),
        tag::MAX_LATENCY => Arc::new(MaxLatencyMetric::from_nanos(body.size()?)),
        tag::FIRST_LATENCY => Arc::new(FirstLatencyMetric::from_nanos(body.size()?)),
        tag::AVG_LATENCY => Arc::new(AvgLatencyMetric::from_raw(body.size()?, body.size()?)),
        tag::BYTES => Arc::new(BytesCounterMetric::from_value(body.size()?)),
        tag::MAX_GAUGE => Arc::new(MaxGaugeMetric::from_value(body.size()?)),
        tag::P50 => Arc::new(P50LatencyMetric::from_sketch(sketch(body)?)),
        tag::P75 => Arc::new(P75LatencyMetric::from_sketch(sketch(body)?)),
        tag::P95 => Arc::new(P95LatencyMetric::from_sketch(sketch(body)?)),
        tag::P99 => Arc::new(P99LatencyMetric::from_sketch(sketch(body)?)),
        other => return Err(body.wrong(format!("there is no metric {other}"))),
    })
}

fn name(body: &mut Reader<'_>) -> Result<Cow<'static, str>, FrameError> {
    Ok(Cow::Owned(body.text()?))
}

fn count(body: &mut Reader<'_>) -> Result<Count, FrameError> {
    let count = Count::new();
    count.add(body.size()?);
    Ok(count)
}

fn gauge(body: &mut Reader<'_>) -> Result<Gauge, FrameError> {
    let gauge = Gauge::new();
    gauge.set(body.size()?);
    Ok(gauge)
}

fn time(body: &mut Reader<'_>) -> Result<Time, FrameError> {
    let time = Time::new();
    let nanos = body.u64()?;
    // Adding nothing would make it one nanosecond.
    if nanos > 0 {
        time.add_duration(Duration::from_nanos(nanos));
    }
    Ok(time)
}

fn timestamp(body: &mut Reader<'_>) -> Result<Timestamp, FrameError> {
    let timestamp = Timestamp::new();
    if let Some(nanos) = body.option(Reader::u64)? {
        timestamp.set(DateTime::from_timestamp_nanos(nanos as i64));
    }
    Ok(timestamp)
}

fn sketch(body: &mut Reader<'_>) -> Result<DDSketch, FrameError> {
    use bincode::Options;
    let bytes = body.bytes()?;
    // As `serialize_sketch` writes it; the limit keeps a wrong length from being allocated.
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(bytes.len() as u64)
        .deserialize(bytes)
        .map_err(|error| body.wrong(error))
}
