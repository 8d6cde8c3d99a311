//! Our operators come back from their bytes as they were.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{binary, col, lit};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, displayable};
use datafusion::prelude::SessionContext;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use skewer_cluster::TaskPlace;
use skewer_cluster::codec::SkewerCodec;
use skewer_exec::{
    Exchange, KeySample, MeasuredRecords, NumberedExec, Observed, ProfiledExec, RecordSource,
    ScanSource, TimedEvaluationExec, TimedExpressions,
};
use skewer_profiling::{Level, Recorder, RecorderLimits};

fn recorder() -> Arc<Recorder> {
    Recorder::new(1, Level::Calls, 1.0, RecorderLimits::default())
}

/// The session of task 2 on worker 5.
fn task(recorder: &Arc<Recorder>) -> Arc<TaskContext> {
    let context = SessionContext::new();
    let mut state = context.state();
    let place = TaskPlace::new(recorder.of_worker(5), 2);
    state.config_mut().set_extension(Arc::new(place));
    state.task_ctx()
}

fn source() -> Arc<dyn ExecutionPlan> {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("a", DataType::Int64, true),
    ]);
    Arc::new(EmptyExec::new(Arc::new(schema)))
}

fn there_and_back(
    plan: Arc<dyn ExecutionPlan>,
    codec: &SkewerCodec,
    task: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let bytes = physical_plan_to_bytes_with_extension_codec(plan, codec)?;
    physical_plan_from_bytes_with_extension_codec(&bytes, task, codec)
}

fn numbered(inner: Arc<dyn ExecutionPlan>, recorder: &Arc<Recorder>) -> Observed {
    Observed {
        inner,
        fragment_id: 3,
        operator_id: 7,
        task: 0,
        exchange: Exchange::Local,
        keys: Some(Arc::new(KeySample::new(vec![1, 0], 6, recorder))),
        recorder: Arc::clone(recorder),
    }
}

#[test]
fn a_numbered_operator_comes_back_observed_at_its_place_in_the_task() {
    let recorder = recorder();
    let hashed = RepartitionExec::try_new(source(), Partitioning::RoundRobinBatch(4)).unwrap();
    let plan = NumberedExec::new(numbered(Arc::new(hashed), &recorder));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan);
    let decoded = there_and_back(plan, &SkewerCodec::default(), &task(&recorder)).unwrap();
    // To plan inspection it is the operator.
    assert!(decoded.is::<RepartitionExec>());
    let profiled = (decoded.as_ref() as &dyn std::any::Any).downcast_ref::<ProfiledExec>();
    let observed = profiled.expect("a profiled operator").observed();
    assert_eq!((observed.fragment_id, observed.operator_id), (3, 7));
    assert_eq!(observed.task, 2);
    assert_eq!(observed.exchange, Exchange::Local);
    assert_eq!(observed.recorder.worker_id(), 5);
    let keys = observed.keys.as_ref().expect("keys");
    assert_eq!((keys.exchange_id(), keys.columns()), (6, &[1, 0][..]));
}

#[test]
fn a_timed_evaluation_comes_back_with_its_expressions_and_sources() {
    let recorder = recorder();
    let input = source();
    let schema = input.schema();
    let a = col("a", &schema).unwrap();
    let double: Arc<dyn PhysicalExpr> = binary(a, Operator::Multiply, lit(2_i64), &schema).unwrap();
    let scan = RecordSource::Scan(Arc::new(ScanSource::new("main.t")));
    let timed = TimedExpressions {
        expressions: vec![(double, "double".to_owned())],
        latency_name: "latency".to_owned(),
        earlier_latency: Some(1),
        records: vec![MeasuredRecords {
            source: scan.clone(),
            id_column: 0,
        }],
    };
    let plan = TimedEvaluationExec::try_new(input, Arc::new(timed), Arc::clone(&recorder));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan.unwrap());
    let codec = SkewerCodec::default();
    let decoded = there_and_back(Arc::clone(&plan), &codec, &task(&recorder)).unwrap();
    let lines = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
    assert_eq!(lines(&decoded), lines(&plan));
    assert_eq!(decoded.schema(), plan.schema());
    let timed = decoded
        .downcast_ref::<TimedEvaluationExec>()
        .unwrap()
        .timed();
    assert_eq!(timed.expressions[0].0.to_string(), "a@1 * 2");
    assert_eq!(timed.earlier_latency, Some(1));
    assert!(timed.records[0].source.is(&scan));
}

#[test]
fn garbage_and_plans_of_another_query_are_errors() {
    let recorder = recorder();
    let task = task(&recorder);
    let scan = RecordSource::Scan(Arc::new(ScanSource::new("main.t")));
    let timed = TimedExpressions {
        expressions: vec![],
        latency_name: "latency".to_owned(),
        earlier_latency: None,
        records: vec![MeasuredRecords {
            source: scan,
            id_column: 0,
        }],
    };
    let plan = TimedEvaluationExec::try_new(source(), Arc::new(timed), Arc::clone(&recorder));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan.unwrap());
    let bytes = physical_plan_to_bytes_with_extension_codec(plan, &SkewerCodec::default()).unwrap();
    let other = SkewerCodec::default();
    let decoded = physical_plan_from_bytes_with_extension_codec(&bytes, &task, &other);
    assert!(decoded.unwrap_err().to_string().contains("no source 0"));
    for cut in 0..bytes.len() {
        // Whatever comes of it, it is no panic.
        let _ = physical_plan_from_bytes_with_extension_codec(&bytes[..cut], &task, &other);
    }
}
