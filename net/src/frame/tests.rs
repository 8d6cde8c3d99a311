//! What holds for all bytes: any split decodes the same, any cut is an error, garbage is refused.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Label, MetricBuilder, MetricValue, MetricsSet,
};
use datafusion_distributed::{LatencyMetricExt, LoadInfo, TaskMetrics, WorkerToCoordinatorMsg};
use proptest::prelude::*;

use super::batch::{BatchDecoder, BatchEncoder, Compression};
use super::body::{Reader, Writer};
use super::codec::{Decoder, Frame, encode, end};
use super::error::FrameError;
use super::failure::RemoteFailure;
use super::hello::Hello;
use super::kind::FrameKind;
use super::request::Request;
use super::{coordinator, metrics};

/// A stream of small frames, ended.
fn stream(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for payload in payloads {
        bytes.extend(encode(FrameKind::Reply, payload).unwrap());
    }
    bytes.extend(end(payloads.len() as u64, 0));
    bytes
}

/// What a decoder makes of chunks: the frames, and how it ended.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for mut chunk in chunks {
        while !chunk.is_empty() {
            match decoder.feed(&mut chunk) {
                Ok(frame) => frames.extend(frame),
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.finish())
}

fn split<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)
}

proptest! {
    #[test]
    fn any_split_decodes_the_same(
        payloads in payloads(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes = stream(&payloads);
        let whole = decode([&bytes[..]]);
        prop_assert_eq!(&whole.1, &Ok(()));
        let came: Vec<&[u8]> = whole.0.iter().map(|frame| frame.payload.as_slice()).collect();
        let sent: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(&came[..came.len() - 1], &sent[..]);
        prop_assert_eq!(decode(split(&bytes, &cuts)), whole);
    }

    #[test]
    fn a_stream_cut_anywhere_is_cut_off_and_never_ended(
        payloads in payloads(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = stream(&payloads);
        let (frames, ended) = decode([&bytes[..cut.index(bytes.len())]]);
        prop_assert_eq!(ended, Err(FrameError::Truncated));
        prop_assert!(frames.iter().all(|frame| frame.kind != FrameKind::End));
    }

    #[test]
    fn a_frame_that_is_lost_or_comes_twice_is_noticed(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..6),
        at in any::<prop::sample::Index>(),
        twice in any::<bool>(),
    ) {
        let mut changed = payloads.clone();
        let at = at.index(changed.len());
        if twice {
            changed.insert(at, payloads[at].clone());
        } else {
            changed.remove(at);
        }
        let mut bytes = stream(&changed);
        let right = end(payloads.len() as u64, 0);
        let from = bytes.len() - right.len();
        bytes[from..].copy_from_slice(&right);
        let refused = matches!(decode([&bytes[..]]).1, Err(FrameError::Miscounted { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn garbage_is_refused_or_decoded_but_never_panics(
        garbage in prop::collection::vec(any::<u8>(), 0..2_000),
        kind in prop::sample::select(FrameKind::ALL.to_vec()),
    ) {
        let _ = decode([&garbage[..]]);
        let payload = Buffer::from(&garbage[..]);
        let frame = Frame { kind, payload: payload.clone() };
        let _ = Request::decode(&frame);
        let _ = coordinator::decode_to_coordinator(&frame);
        let _ = coordinator::decode_to_worker(&frame);
        let _ = RemoteFailure::decode(&garbage);
        let _ = Hello::decode(&garbage);
        let _ = metrics::decode(&mut Reader::new(kind, &garbage));
        let _ = BatchDecoder::default().decode(&payload);
    }

    #[test]
    fn a_batch_with_changed_bytes_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4]),
    ) {
        let batch = batch(20, 0);
        let mut bytes = batch_payload(&batch, compression);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = BatchDecoder::default().decode(&Buffer::from(&bytes[..]));
    }

    #[test]
    fn batches_come_as_they_were_sent(
        rows in prop::collection::vec(0usize..300, 1..6),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4]),
    ) {
        let batches: Vec<_> = rows.iter().enumerate().map(|(i, rows)| batch(*rows, i)).collect();
        let mut encoder = BatchEncoder::new(&batches[0].schema(), compression).unwrap();
        let mut decoder = BatchDecoder::default();
        let mut frames = Decoder::default();
        for batch in &batches {
            for frame in encoder.encode(batch).unwrap() {
                for buffer in &frame.buffers {
                    let mut bytes = buffer.as_slice();
                    while let Some(frame) = frames.feed(&mut bytes).unwrap() {
                        prop_assert_eq!(&decoder.decode(&frame.payload).unwrap(), batch);
                    }
                }
            }
        }
    }
}

fn batch(rows: usize, seed: usize) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..rows).map(|i| (i % 7 != seed % 7).then_some((i * seed) as i64)),
    ));
    let texts: ArrayRef = Arc::new(StringArray::from_iter(
        (0..rows).map(|i| Some(format!("{seed}.{i}"))),
    ));
    let names = (0..rows).map(|i| format!("name {}", (i + seed) % 5));
    let names: Vec<String> = names.collect();
    let dictionary: DictionaryArray<Int32Type> = names.iter().map(String::as_str).collect();
    let schema = Schema::new(vec![
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("name", dictionary.data_type().clone(), true),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![numbers, texts, Arc::new(dictionary)]).unwrap()
}

fn batch_payload(batch: &RecordBatch, compression: Compression) -> Vec<u8> {
    let mut encoder = BatchEncoder::new(&batch.schema(), compression).unwrap();
    let frames = encoder.encode(batch).unwrap();
    assert_eq!(frames.len(), 1);
    frames[0].buffers[1..]
        .iter()
        .flat_map(|buffer| buffer.iter().copied())
        .collect()
}

#[test]
fn a_length_is_not_believed_before_its_bytes_come() {
    let mut decoder = Decoder::default();
    let length = FrameKind::Batch.limit() as u32 + 1;
    let [a, b, c, d] = length.to_le_bytes();
    let refused = decoder.feed(&mut &[a, b, c, d, FrameKind::Batch as u8][..]);
    assert!(matches!(refused, Err(FrameError::TooLong { .. })));
    assert!(matches!(
        encode(FrameKind::Hello, &[0; 5_000]),
        Err(FrameError::TooLong { .. })
    ));
}

#[test]
fn nothing_comes_after_the_end() {
    let mut bytes = stream(&[b"one".to_vec()]);
    bytes.extend(encode(FrameKind::Reply, b"two").unwrap());
    assert_eq!(decode([&bytes[..]]).1, Err(FrameError::AfterEnd));
}

#[test]
fn a_compressed_buffer_that_claims_to_be_huge_is_refused() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 100_000]));
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![numbers]).unwrap();
    let mut bytes = batch_payload(&batch, Compression::Lz4);
    let real = 800_000i64.to_le_bytes();
    let at = bytes.windows(8).rposition(|window| window == real).unwrap();
    bytes[at..at + 8].copy_from_slice(&(1i64 << 40).to_le_bytes());
    let refused = BatchDecoder::default().decode(&Buffer::from(&bytes[..]));
    assert!(refused.unwrap_err().to_string().contains("too large"));
}

#[test]
fn a_large_batch_is_sent_in_parts_and_a_batch_without_columns_keeps_its_rows() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6_000_000));
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let large = RecordBatch::try_new(Arc::new(schema), vec![numbers]).unwrap();
    let empty = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(17)),
    )
    .unwrap();
    for (batch, parts) in [(large, 3), (empty, 1)] {
        let mut encoder = BatchEncoder::new(&batch.schema(), Compression::None).unwrap();
        let mut decoder = BatchDecoder::default();
        let frames = encoder.encode(&batch).unwrap();
        assert_eq!(frames.len(), parts);
        let rows: usize = frames
            .iter()
            .map(|frame| {
                let bytes: Vec<u8> = frame.buffers[1..]
                    .iter()
                    .flat_map(|b| b.iter().copied())
                    .collect();
                decoder
                    .decode(&Buffer::from(&bytes[..]))
                    .unwrap()
                    .num_rows()
            })
            .sum();
        assert_eq!(rows, batch.num_rows());
    }
}

#[test]
fn metrics_come_as_they_were_percentiles_included() {
    let set = ExecutionPlanMetricsSet::new();
    MetricBuilder::new(&set).output_rows(3).add(17);
    MetricBuilder::new(&set)
        .with_label(Label::new("task", "1"))
        .global_counter("batches")
        .add(4);
    MetricBuilder::new(&set)
        .elapsed_compute(0)
        .add_duration(Duration::from_micros(9));
    let p95 = MetricBuilder::new(&set).p95_latency("latency");
    for micros in 1..=100 {
        p95.add_duration(Duration::from_micros(micros));
    }
    let sent = set.clone_inner();
    let mut body = Writer::default();
    metrics::encode(&mut body, &sent);
    let bytes = body.finish();
    let mut body = Reader::new(FrameKind::TaskMetrics, &bytes);
    let came = metrics::decode(&mut body).unwrap();
    body.finish().unwrap();
    let show = |set: &MetricsSet| set.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(show(&came), show(&sent));
    // Sketches merge: the median of two tasks is not that of either.
    let MetricValue::Custom { value, .. } = came.iter().last().unwrap().value() else {
        panic!("the percentile is lost");
    };
    value.aggregate(Arc::new(p95.clone()));
    assert!(value.as_usize().abs_diff(95_000) < 3_000);
}

#[test]
fn a_coordinators_messages_come_as_they_were_sent() {
    let info = LoadInfo {
        partition: 3,
        rows_ready: 1_000,
        per_column_bytes_ready: vec![8_000, 16_000],
        per_column_ndv_percentage: vec![0.5, 1.0],
        per_column_null_percentage: vec![0.0, 0.25],
        rows_pulled_from_leaf: 9_000,
        reached_eos: true,
    };
    let (kind, payload) =
        coordinator::encode_to_coordinator(WorkerToCoordinatorMsg::LoadInfo(info));
    let payload = Buffer::from(payload);
    let came = coordinator::decode_to_coordinator(&Frame { kind, payload });
    let Ok(Some(WorkerToCoordinatorMsg::LoadInfo(info))) = came else {
        panic!("something else came");
    };
    assert_eq!(
        (info.partition, info.rows_pulled_from_leaf, info.reached_eos),
        (3, 9_000, true)
    );
    assert_eq!(info.per_column_null_percentage, [0.0, 0.25]);

    let mut set = MetricsSet::new();
    let count = Count::new();
    count.add(5);
    set.push(Arc::new(datafusion::physical_plan::Metric::new(
        MetricValue::OutputRows(count),
        None,
    )));
    let metrics = TaskMetrics {
        pre_order_plan_metrics: vec![set.clone(), MetricsSet::new(), set],
        task_metrics: MetricsSet::new(),
    };
    let (kind, payload) =
        coordinator::encode_to_coordinator(WorkerToCoordinatorMsg::TaskMetrics(metrics));
    let payload = Buffer::from(payload);
    let came = coordinator::decode_to_coordinator(&Frame { kind, payload });
    let Ok(Some(WorkerToCoordinatorMsg::TaskMetrics(metrics))) = came else {
        panic!("something else came");
    };
    let rows: Vec<_> = metrics
        .pre_order_plan_metrics
        .iter()
        .map(MetricsSet::output_rows)
        .collect();
    assert_eq!(rows, [Some(5), None, Some(5)]);
}

#[test]
fn the_wire_formats_page_lists_every_frame_with_its_limit() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/wire-format.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in FrameKind::ALL {
        let row = format!("| {:#04x} | {kind:?} | {} |", kind as u8, kind.limit());
        assert!(page.contains(&row), "docs/wire-format.md has no row {row}");
    }
    let version = format!("This is version {}.", super::PROTOCOL_VERSION);
    assert!(page.contains(&version));
}
