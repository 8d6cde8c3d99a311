//! Our operators come back from their bytes as they were.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::functions::math::abs;
use datafusion::logical_expr::{
    AggregateUDF, AggregateUDFImpl, Operator, ScalarUDF, ScalarUDFImpl, WindowFrame,
    WindowFunctionDefinition,
};
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{
    DynamicFilterPhysicalExpr, binary, case, col, is_null, lit, not,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::windows::{
    PlainAggregateWindowExpr, WindowAggExec, create_window_expr,
};
use datafusion::physical_plan::{ExecutionPlan, Partitioning, displayable};
use datafusion::prelude::SessionContext;
use datafusion_distributed::{
    DistributedCodec, DistributedExt, DistributedTaskContext, MaybeEncoded,
};
use datafusion_proto::bytes::physical_plan_from_bytes_with_proto_converter;
use datafusion_proto::physical_plan::DeduplicatingProtoConverter;
use skewer_cluster::codec::{SkewerCodec, encode_plan};
use skewer_cluster::{WorkerQuery, WorkerTask};
use skewer_compat::functions::arithmetic::{Arithmetic, Operation};
use skewer_compat::functions::conversion::Conversion;
use skewer_compat::functions::row_numbers::RowNumbers;
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_exec::{
    AggregateOrigin, CapturedFrames, CapturedInput, CarriedInput, CarriedLatency, Exchange,
    FrameCapture, Hidden, Int32RowId, KeySample, LatencyColumn, LineageCapture, MeasuredRecords,
    NumberedExec, Observed, OutputRecordsExec, ProfiledExec, RecordColumn, RecordOrigin,
    ResultRecords, ResultTask, Sampled, SampledRowId, ScanOrigin, TimedEvaluationExec,
    TimedExpressions,
};
use skewer_profiling::{Level, Recorder, RecorderLimits};

fn recorder() -> Arc<Recorder> {
    Recorder::new(1, Level::Calls, 1.0, RecorderLimits::default())
}

/// The session of task 2 of 3 on a worker, as it is in a process of its own: it shares nothing with
/// whoever made the plan.
fn task(query: &WorkerQuery) -> Arc<TaskContext> {
    let context = SessionContext::new();
    let mut state = context.state();
    WorkerTask::new(query, 2).register(state.config_mut());
    let place = DistributedTaskContext {
        task_index: 2,
        task_count: 3,
    };
    state.config_mut().set_extension(Arc::new(place));
    state.task_ctx()
}

/// A query on worker 5.
fn on_worker() -> WorkerQuery {
    let limits = RecorderLimits::default();
    WorkerQuery::new(Recorder::on_worker(5, 1, Level::Records, 1.0, limits))
}

fn source() -> Arc<dyn ExecutionPlan> {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("a", DataType::Int64, true),
    ]);
    Arc::new(EmptyExec::new(Arc::new(schema)))
}

fn encoded(plan: Arc<dyn ExecutionPlan>) -> Vec<u8> {
    match encode_plan(MaybeEncoded::Decoded(plan)).unwrap() {
        MaybeEncoded::Encoded(bytes) => bytes,
        MaybeEncoded::Decoded(_) => panic!("it is not encoded"),
    }
}

/// As a worker decodes.
fn decoded(bytes: &[u8], task: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    let codec = DistributedCodec::new_combined_with_user(task.session_config());
    let converter = DeduplicatingProtoConverter::default();
    physical_plan_from_bytes_with_proto_converter(bytes, task, &codec, &converter)
}

fn there_and_back(plan: Arc<dyn ExecutionPlan>, query: &WorkerQuery) -> Arc<dyn ExecutionPlan> {
    decoded(&encoded(plan), &task(query)).unwrap()
}

/// The second input of a join.
const SAMPLED: Sampled = Sampled {
    operator_id: 6,
    input: Some(1),
};

fn numbered(inner: Arc<dyn ExecutionPlan>, recorder: &Arc<Recorder>) -> Observed {
    Observed {
        inner,
        fragment_id: 3,
        operator_id: 7,
        task: 0,
        exchange: Exchange::Local,
        keys: Some(Arc::new(KeySample::new(vec![1, 0], SAMPLED, recorder))),
        recorder: Arc::clone(recorder),
    }
}

#[test]
fn a_numbered_operator_comes_back_observed_at_its_place_in_the_task() {
    let recorder = recorder();
    let hashed = RepartitionExec::try_new(source(), Partitioning::RoundRobinBatch(4)).unwrap();
    let plan = NumberedExec::new(numbered(Arc::new(hashed), &recorder));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan);
    let decoded = there_and_back(plan, &on_worker());
    // To plan inspection it is the operator.
    assert!(decoded.is::<RepartitionExec>());
    let profiled = (decoded.as_ref() as &dyn std::any::Any).downcast_ref::<ProfiledExec>();
    let observed = profiled.expect("a profiled operator").observed();
    assert_eq!((observed.fragment_id, observed.operator_id), (3, 7));
    assert_eq!(observed.task, 2);
    assert_eq!(observed.exchange, Exchange::Local);
    assert_eq!(observed.recorder.worker_id(), 5);
    let keys = observed.keys.as_ref().expect("keys");
    assert_eq!((keys.sampled(), keys.columns()), (SAMPLED, &[1, 0][..]));
}

#[test]
fn a_plan_of_hundreds_of_operators_comes_back() {
    let recorder = recorder();
    let mut plan = source();
    for _ in 0..150 {
        let dealt = RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(4)).unwrap();
        let numbered = NumberedExec::new(numbered(Arc::new(dealt), &recorder));
        plan = Arc::new(ConservativePropertiesExec::new(Arc::new(numbered)));
    }
    let (bytes, query) = (encoded(plan), on_worker());
    for cut in [1, bytes.len() / 2, bytes.len() - 1] {
        assert!(decoded(&bytes[..cut], &task(&query)).is_err());
    }
    let mut rest = decoded(&bytes, &task(&query)).unwrap();
    let mut operators = 0;
    while let [input] = rest.children().as_slice() {
        let input = Arc::clone(input);
        operators += usize::from(rest.is::<RepartitionExec>());
        rest = input;
    }
    assert_eq!(operators, 150);
    assert!(rest.is::<EmptyExec>());
}

/// A join tells the scan far below it which rows it needs by a filter that both have.
#[test]
fn a_dynamic_filter_remains_one_however_far_apart_and_deep_it_is_read() {
    for within in [0, 30] {
        dynamic_filter_remains_one(within);
    }
}

/// With the filter within so many other expressions.
fn dynamic_filter_remains_one(within: usize) {
    let a = col("a", &source().schema()).unwrap();
    let mut predicate: Arc<dyn PhysicalExpr> =
        Arc::new(DynamicFilterPhysicalExpr::new(vec![a], lit(true)));
    for _ in 0..within {
        predicate = not(predicate).unwrap();
    }
    let filtered = |input| {
        let filter = FilterExec::try_new(Arc::clone(&predicate), input);
        Arc::new(filter.unwrap())
    };
    let mut plan: Arc<dyn ExecutionPlan> = filtered(source());
    for _ in 0..9 {
        let dealt = RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(4)).unwrap();
        plan = Arc::new(dealt);
    }
    let above = there_and_back(filtered(plan), &on_worker());
    let mut below = Arc::clone(above.children()[0]);
    while below.is::<RepartitionExec>() {
        below = Arc::clone(below.children()[0]);
    }
    let [above, below] = [&above, &below].map(|plan| {
        let filter = plan.downcast_ref::<FilterExec>().expect("a filter");
        let mut predicate = filter.predicate();
        for _ in 0..within {
            predicate = predicate.children()[0];
        }
        let dynamic = predicate.downcast_ref::<DynamicFilterPhysicalExpr>();
        dynamic.expect("a dynamic filter")
    });
    above.update(lit(false)).unwrap();
    assert_eq!(below.current().unwrap().to_string(), "false");
}

/// An expression within so many functions, conditions and operators, in turn.
fn nested(innermost: Arc<dyn PhysicalExpr>, times: usize) -> Arc<dyn PhysicalExpr> {
    let schema = source().schema();
    let mut expression = innermost;
    for time in 0..times {
        expression = match time % 3 {
            0 => {
                let (function, options) = (abs(), Arc::default());
                let call =
                    ScalarFunctionExpr::try_new(function, vec![expression], &schema, options);
                Arc::new(call.unwrap())
            }
            1 => {
                let when = is_null(col("a", &schema).unwrap()).unwrap();
                case(None, vec![(when, expression)], Some(lit(7_i64))).unwrap()
            }
            _ => binary(lit(7_i64), Operator::Minus, expression, &schema).unwrap(),
        };
    }
    expression
}

#[test]
fn expressions_hundreds_deep_come_back_numbered_or_not() {
    let a = col("a", &source().schema()).unwrap();
    for times in (1..50).chain([100, 300]) {
        let deep = nested(Arc::clone(&a), times);
        let text = deep.to_string();
        let columns = [(deep, "deep".to_owned())];
        let projection = ProjectionExec::try_new(columns, source()).unwrap();
        let bare: Arc<dyn ExecutionPlan> = Arc::new(projection);
        let mut wrapped = Arc::clone(&bare);
        for _ in 0..2 {
            let sound = Arc::new(ConservativePropertiesExec::new(wrapped));
            wrapped = Arc::new(NumberedExec::new(numbered(sound, &recorder())));
        }
        for plan in [bare, wrapped] {
            let mut back = there_and_back(plan, &on_worker());
            while !back.is::<ProjectionExec>() {
                back = Arc::clone(back.children()[0]);
            }
            let projection = back.downcast_ref::<ProjectionExec>().unwrap();
            assert_eq!(projection.expr()[0].expr.to_string(), text);
        }
    }
}

#[test]
fn what_mixes_groups_comes_back_and_claims_nothing() {
    let plan = ConservativePropertiesExec::new(source());
    let decoded = there_and_back(Arc::new(plan), &on_worker());
    let mixed = decoded.downcast_ref::<ConservativePropertiesExec>();
    assert_eq!(
        mixed.expect("the operator").input().schema(),
        source().schema()
    );
}

#[test]
fn what_logs_result_rows_comes_back_in_its_task() {
    let scan = RecordOrigin::Scan(Arc::new(ScanOrigin::with_operator("main.t", 9)));
    let records = vec![ResultRecords {
        source: scan,
        id_column: 0,
        latency_columns: vec![1],
    }];
    let schema = Arc::new(source().schema().project(&[0]).unwrap());
    let plan = OutputRecordsExec::new(source(), schema, Hidden::Logged(records), recorder());
    let decoded = there_and_back(Arc::new(plan), &on_worker());
    let outputs = decoded
        .downcast_ref::<OutputRecordsExec>()
        .expect("the operator");
    assert_eq!(outputs.schema().fields().len(), 1);
    assert_eq!(outputs.task(), ResultTask { index: 2, count: 3 });
    let Hidden::Logged(records) = outputs.hidden() else {
        panic!("{:?}", outputs.hidden());
    };
    let [records] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert_eq!(
        (records.id_column, &records.latency_columns[..]),
        (0, &[1][..])
    );
    assert_eq!(records.source.operator_of(5), 9);
    assert_eq!(records.source.table_name().as_deref(), Some("main.t"));
}

#[test]
fn a_timed_evaluation_comes_back_with_its_expressions_and_sources() {
    let added = LatencyColumn::New {
        name: "latency".to_owned(),
        earlier: Some(1),
    };
    for latency in [added, LatencyColumn::Packed(0)] {
        timed_evaluation_comes_back(&latency);
    }
}

fn timed_evaluation_comes_back(latency: &LatencyColumn<usize>) {
    let recorder = recorder();
    let input = source();
    let schema = input.schema();
    let a = col("a", &schema).unwrap();
    let double: Arc<dyn PhysicalExpr> = binary(a, Operator::Multiply, lit(2_i64), &schema).unwrap();
    let scan = RecordOrigin::Scan(Arc::new(ScanOrigin::with_operator("main.t", 9)));
    let timed = TimedExpressions {
        expressions: vec![(double, "double".to_owned())],
        latency: latency.clone(),
        records: vec![MeasuredRecords {
            source: scan,
            id_column: 0,
        }],
    };
    let plan = TimedEvaluationExec::try_new(input, Arc::new(timed), Arc::clone(&recorder));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan.unwrap());
    let decoded = there_and_back(Arc::clone(&plan), &on_worker());
    let lines = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
    assert_eq!(lines(&decoded), lines(&plan));
    assert_eq!(decoded.schema(), plan.schema());
    let timed = decoded
        .downcast_ref::<TimedEvaluationExec>()
        .unwrap()
        .timed();
    assert_eq!(timed.expressions[0].0.to_string(), "a@1 * 2");
    assert_eq!(timed.latency, *latency);
    let source = &timed.records[0].source;
    assert_eq!(source.table_name().as_deref(), Some("main.t"));
    assert_eq!(source.operator_of(17), 9);
}

/// `lineage_capture(id) GROUP BY a`, which operators 4 and 2 compute of scan 6.
fn captured(mode: AggregateMode, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let groups = Arc::new(AggregateOrigin::default());
    groups.add_operator(4, 5);
    groups.add_operator(2, 3);
    let scan = ScanOrigin::with_operator("main.t", 6);
    let inputs = vec![CapturedInput {
        source: RecordOrigin::Scan(Arc::new(scan)),
        id_argument: 0,
        latency_arguments: vec![],
    }];
    let capture = LineageCapture::new("capture_1".to_owned(), recorder(), inputs, groups);
    aggregated(AggregateUDF::from(capture), mode, input)
}

/// `function(id) GROUP BY a`.
fn aggregated(
    function: AggregateUDF,
    mode: AggregateMode,
    input: Arc<dyn ExecutionPlan>,
) -> Arc<dyn ExecutionPlan> {
    let schema = source().schema();
    let id = col("id", &schema).unwrap();
    let capture = AggregateExprBuilder::new(Arc::new(function), vec![id])
        .schema(Arc::clone(&schema))
        .alias("group_id")
        .build()
        .unwrap();
    let key = (col("a", &schema).unwrap(), "a".to_owned());
    let by_a = PhysicalGroupBy::new_single(vec![key]);
    let aggregates = vec![Arc::new(capture)];
    let plan = AggregateExec::try_new(mode, by_a, aggregates, vec![None], input, schema);
    Arc::new(plan.unwrap())
}

fn capture_of<F: AggregateUDFImpl>(plan: &Arc<dyn ExecutionPlan>) -> &F {
    let aggregate = plan.downcast_ref::<AggregateExec>().expect("an aggregate");
    let function = aggregate.aggr_expr()[0].fun().inner();
    function.downcast_ref().expect("a capture")
}

#[test]
fn what_carries_latencies_comes_back_with_its_inputs() {
    let inputs = vec![CarriedInput {
        records: 0,
        latencies: vec![],
    }];
    let name = "capture_2".to_owned();
    let carried = AggregateUDF::from(CarriedLatency::new(name, recorder(), inputs.clone()));
    let plan = aggregated(carried, AggregateMode::Partial, source());
    let decoded = there_and_back(plan, &on_worker());
    let carried: &CarriedLatency = capture_of(&decoded);
    assert_eq!(carried.name(), "capture_2");
    assert_eq!(carried.inputs(), inputs);
}

/// `function(id, a) OVER (PARTITION BY a)`.
fn over_partitions(function: FrameCapture) -> Arc<dyn ExecutionPlan> {
    let schema = source().schema();
    let [id, a] = ["id", "a"].map(|name| col(name, &schema).unwrap());
    let name = function.name().to_owned();
    let window = create_window_expr(
        &WindowFunctionDefinition::AggregateUDF(Arc::new(AggregateUDF::from(function))),
        name,
        &[id, Arc::clone(&a)],
        &[a],
        &[],
        Arc::new(WindowFrame::new(None)),
        schema,
        false,
        false,
        None,
    );
    let plan = WindowAggExec::try_new(vec![window.unwrap()], source(), false);
    Arc::new(plan.unwrap())
}

fn frames_of(plan: &Arc<dyn ExecutionPlan>) -> &FrameCapture {
    let window = plan.downcast_ref::<WindowAggExec>().expect("a window");
    let function = window.window_expr()[0].as_any();
    let function: &PlainAggregateWindowExpr = function.downcast_ref().expect("an aggregate");
    let function = function.get_aggregate_expr().fun().inner();
    function.downcast_ref().expect("a capture")
}

#[test]
fn what_captures_frames_comes_back_with_its_inputs_and_operators() {
    let frames = Arc::new(AggregateOrigin::default());
    frames.add_operator(4, 5);
    let inputs = vec![CapturedInput {
        source: RecordOrigin::Scan(Arc::new(ScanOrigin::with_operator("main.t", 6))),
        id_argument: 0,
        latency_arguments: vec![],
    }];
    let logged = CapturedFrames::Logged(inputs, frames);
    let name = || "frame_1".to_owned();
    let plan = over_partitions(FrameCapture::new(name(), recorder(), logged));
    let query = on_worker();
    let [one, other] = [(); 2].map(|()| there_and_back(Arc::clone(&plan), &query));
    let (one, other) = (frames_of(&one), frames_of(&other));
    assert_eq!(one.name(), "frame_1");
    let (CapturedFrames::Logged(inputs, ids), CapturedFrames::Logged(_, others)) =
        (one.frames(), other.frames())
    else {
        panic!("{:?} {:?}", one.frames(), other.frames());
    };
    assert_eq!(inputs[0].source.operator_of(0), 6);
    assert_eq!(ids.operators(), [(4, 5)]);
    // All tasks of a query on a worker take ids from the same place.
    assert!(Arc::ptr_eq(ids, others));

    let carried = vec![CarriedInput {
        records: 0,
        latencies: vec![],
    }];
    let function = CapturedFrames::Carried(carried.clone());
    let plan = over_partitions(FrameCapture::new(name(), recorder(), function));
    let decoded = there_and_back(plan, &query);
    let decoded = frames_of(&decoded);
    let CapturedFrames::Carried(inputs) = decoded.frames() else {
        panic!("{:?}", decoded.frames());
    };
    assert_eq!(*inputs, carried);
}

#[test]
fn a_capture_comes_back_with_its_inputs_and_one_aggregate_for_all_tasks_of_a_query() {
    let query = on_worker();
    let plan = captured(AggregateMode::Partial, source());
    let one = there_and_back(Arc::clone(&plan), &query);
    let capture: &LineageCapture = capture_of(&one);
    assert_eq!(capture.name(), "capture_1");
    assert_eq!(capture.groups().operators(), [(4, 5), (2, 3)]);
    let [input] = capture.inputs() else {
        panic!("{:?}", capture.inputs());
    };
    assert_eq!(input.source.operator_of(0), 6);
    assert_eq!(input.id_argument, 0);
    let other = there_and_back(Arc::clone(&plan), &query);
    let again: &LineageCapture = capture_of(&other);
    assert!(Arc::ptr_eq(capture.groups(), again.groups()));
    // Another worker has its own, which knows the same operators.
    let elsewhere = there_and_back(plan, &on_worker());
    let elsewhere: &LineageCapture = capture_of(&elsewhere);
    let groups = elsewhere.groups();
    assert!(!Arc::ptr_eq(capture.groups(), groups));
    assert_eq!(groups.operators(), capture.groups().operators());
}

/// What a projection's function is on a worker.
fn function_there(
    function: ScalarUDF,
    columns: &[&str],
    query: &WorkerQuery,
) -> Arc<dyn PhysicalExpr> {
    let input = source();
    let schema = input.schema();
    let args = columns.iter().map(|name| col(name, &schema).unwrap());
    let (function, options) = (Arc::new(function), Arc::default());
    let call = ScalarFunctionExpr::try_new(function, args.collect(), &schema, options).unwrap();
    let call: Arc<dyn PhysicalExpr> = Arc::new(call);
    let plan = ProjectionExec::try_new([(call, "called".to_owned())], input).unwrap();
    let decoded = there_and_back(Arc::new(plan), query);
    let projection = decoded.downcast_ref::<ProjectionExec>().unwrap();
    Arc::clone(&projection.expr()[0].expr)
}

fn inner(call: &Arc<dyn PhysicalExpr>) -> &Arc<dyn ScalarUDFImpl> {
    let function = call.downcast_ref::<ScalarFunctionExpr>();
    function.expect("a function").fun().inner()
}

#[test]
fn sampling_is_that_of_the_recorder_where_it_runs() {
    let (here, there) = (on_worker(), on_worker());
    let function = SampledRowId::new(Arc::clone(&here.recorder));
    let call = function_there(ScalarUDF::from(function), &["id"], &there);
    let sampled = inner(&call).downcast_ref::<SampledRowId>().expect("ours");
    let same = |query: &WorkerQuery| *sampled == SampledRowId::new(Arc::clone(&query.recorder));
    assert!(same(&there) && !same(&here));
}

#[test]
fn rows_are_numbered_as_those_of_the_worker_where_it_runs() {
    let call = function_there(ScalarUDF::from(RowNumbers::new(1)), &[], &on_worker());
    let numbers = inner(&call).downcast_ref::<RowNumbers>().expect("ours");
    assert_eq!(*numbers, RowNumbers::new(5));
}

#[test]
fn records_are_packed_where_it_runs() {
    let function = ScalarUDF::from(RecordColumn::default());
    let call = function_there(function, &["id"], &on_worker());
    assert!(inner(&call).is::<RecordColumn>());
}

#[test]
fn ids_are_made_narrow_where_it_runs() {
    let function = ScalarUDF::from(Int32RowId::default());
    let call = function_there(function, &["id"], &on_worker());
    assert!(inner(&call).is::<Int32RowId>());
}

#[test]
fn operators_and_casts_are_the_same_where_they_run() {
    for operation in [Operation::Add, Operation::Xor] {
        let function = ScalarUDF::from(Arithmetic::new(operation));
        let call = function_there(function, &["id", "id"], &on_worker());
        let arithmetic = inner(&call).downcast_ref::<Arithmetic>().expect("ours");
        assert_eq!(arithmetic.operation(), operation);
    }
    for (to, tries) in [
        (DataType::Decimal128(5, 1), false),
        (DataType::Int16, true),
        (DataType::UInt8, false),
    ] {
        let function = ScalarUDF::from(Conversion::new(to.clone(), tries));
        let call = function_there(function, &["id"], &on_worker());
        let conversion = inner(&call).downcast_ref::<Conversion>().expect("ours");
        assert_eq!((conversion.to(), conversion.tries()), (&to, tries));
    }
}

#[test]
fn garbage_and_sessions_of_no_task_are_errors() {
    let query = on_worker();
    let task = task(&query);
    let bytes = encoded(captured(AggregateMode::Partial, source()));
    for cut in 0..bytes.len() {
        // Whatever comes of it, it is no panic.
        let _ = decoded(&bytes[..cut], &task);
    }
    let codec = SkewerCodec::default();
    let mut state = SessionContext::new().state();
    state.config_mut().set_distributed_user_codec(codec);
    let refused = decoded(&bytes, &state.task_ctx()).unwrap_err().to_string();
    assert!(refused.contains("for no task"), "{refused}");
}
