//! Schema `sys` of a master, whose workers are processes of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::processes::Processes;
use crate::support::*;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_profiling::{OperatorCall, Recorder, Retention, SysScan, SysTables, TuplesSent};

fn in_memory() -> Arc<SysTables> {
    SysTables::open(None, Retention::default())
}

/// A master whose workers have these logs.
fn master_of(processes: &Arc<Processes>) -> Arc<SysTables> {
    let master = in_memory();
    master.set_remote(Arc::clone(processes) as _);
    master
}

/// Query `query_id`, in which worker n has aggregated n edges in partition n − 1.
async fn run(master: &SysTables, processes: &Processes, query_id: i64) {
    let recorder = recorder(query_id);
    recorder.operator(operator(0, None, "RootExec", false));
    recorder.operator(operator(1, Some(0), "AggregateExec", true));
    recorder.operator_stats(stats(0, 0, 7));
    let workers: Vec<i64> = (1..).take(processes.workers.len()).collect();
    for worker in &workers {
        let of_worker = processes.recorder(*worker, query_id);
        let partition = worker - 1;
        of_worker.operator_stats(stats(1, partition, 100 * worker));
        let edges: Vec<(i64, i64, i64)> = (1..=*worker).map(|row| (*worker, row, 10)).collect();
        lineage(&of_worker, (1, partition), (2, Some("main.t")), &edges);
        of_worker.operator_calls(vec![OperatorCall {
            fragment_id: 0,
            operator_id: 1,
            partition,
            started_at: 2_000_000_000,
            ended_at: 2_000_000_100,
            rows: 1,
        }]);
        of_worker.tuples_sent(vec![TuplesSent {
            exchange_id: 1,
            source_worker: *worker,
            destination_worker: 0,
            partition,
            tuples: *worker,
            bytes: 8,
            sent_at: Some(2_000_000_000),
            source_partition: None,
        }]);
    }
    outputs(&recorder, 0, (1, None), &[(1, 0), (2, 0)]);
    master.finish_on_workers(&recorder, &workers).await;
    master.finish(&recorder, finished("SELECT …"));
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_have_the_rows_of_all_workers_whichever_queries_they_ask_for() {
    let processes = Processes::new(vec![in_memory(), in_memory()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    run(&master, &processes, 2).await;
    // In memory here, in files there, and partly so.
    for flushed in 0..3 {
        if flushed > 0 {
            processes.workers[flushed - 1].flush().unwrap();
        }
        let context = session(&master);
        for (filter, queries) in [
            ("WHERE query_id = 2", 1),
            ("WHERE query_id IN (1, 2)", 2),
            ("WHERE query_id >= 2", 1),
            ("", 2),
        ] {
            let count = |table: &str, expected: i64| {
                let sql = format!("SELECT count(*) FROM sys.{table} {filter}");
                let context = &context;
                async move {
                    let expected = (expected * queries).to_string();
                    assert_eq!(value(context, &sql).await, expected, "{sql}");
                }
            };
            count("queries", 1).await;
            count("operators", 2).await;
            count("operator_stats", 3).await;
            count("lineage", 3).await;
            count("operator_calls", 2).await;
            count("tuples_sent", 2).await;
            count("output_records", 2).await;
            count("profiler_overhead", 3).await;
        }
        let sql = "SELECT worker_id, partition, self_ns FROM sys.operator_stats
                   WHERE query_id = 1 ORDER BY worker_id";
        let expected = [["0", "0", "7"], ["1", "0", "100"], ["2", "1", "200"]];
        assert_eq!(rows(&context, sql).await, expected);
        let sql = "SELECT worker_id, input_id FROM sys.lineage
                   WHERE query_id = 1 AND operator_id = 1 AND partition = 1 ORDER BY 2";
        assert_eq!(rows(&context, sql).await, [["2", "1"], ["2", "2"]]);
        let sql = "SELECT count(*) FROM sys.lineage WHERE query_id = 1 AND operator_id = 9";
        assert_eq!(value(&context, sql).await, "0");
        let sql = "SELECT source_worker, tuples FROM sys.tuples_sent WHERE query_id = 1 ORDER BY 1";
        assert_eq!(rows(&context, sql).await, [["1", "1"], ["2", "2"]]);
        let sql = "SELECT count(*) FROM (SELECT * FROM sys.operator_stats LIMIT 2)";
        assert_eq!(value(&context, sql).await, "2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_is_not_asked_for_again() {
    let processes = Processes::new(vec![in_memory(), in_memory()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    let context = session(&master);
    let sql = "SELECT count(*) FROM sys.lineage WHERE query_id = 1";
    assert_eq!(value(&context, sql).await, "3");
    let asked = processes.pages.load(Ordering::Relaxed);
    assert_eq!(value(&context, sql).await, "3");
    assert_eq!(processes.pages.load(Ordering::Relaxed), asked);
    // Nothing was there when it was asked for too early.
    let early = "SELECT count(*) FROM sys.lineage WHERE query_id = 2";
    assert_eq!(value(&context, early).await, "0");
    run(&master, &processes, 2).await;
    assert_eq!(value(&context, early).await, "3");
}

/// More calls than a page has.
const CALLS: i64 = 300_000;

fn calls(recorder: &Recorder, operator_id: i64) {
    for chunk in 0..CALLS / 10_000 {
        let calls = (0..10_000).map(|call| OperatorCall {
            fragment_id: 0,
            operator_id,
            partition: 0,
            started_at: chunk * 10_000 + call,
            ended_at: 0,
            rows: 1,
        });
        recorder.operator_calls(calls.collect());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_page_comes_in_pages() {
    let processes = Processes::new(vec![in_memory()]);
    let master = master_of(&processes);
    let recorder = recorder(1);
    let of_worker = processes.recorder(1, 1);
    calls(&of_worker, 1);
    master.finish_on_workers(&recorder, &[1]).await;
    master.finish(&recorder, finished("SELECT …"));
    let context = session(&master);
    for flushed in [false, true] {
        if flushed {
            processes.workers[0].flush().unwrap();
        }
        let before = processes.pages.load(Ordering::Relaxed);
        for filter in ["", "WHERE query_id = 1"] {
            let sql = format!(
                "SELECT count(*), sum(rows), count(DISTINCT started_at) FROM sys.operator_calls {filter}"
            );
            let expected = [CALLS.to_string(), CALLS.to_string(), CALLS.to_string()];
            assert_eq!(rows(&context, &sql).await, [expected], "{sql}");
        }
        assert!(processes.pages.load(Ordering::Relaxed) > before + 2);
    }
}

/// The leaf of the plan of a query: a scan.
async fn scan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let plan = context.sql(sql).await.unwrap();
    let mut plan = plan.create_physical_plan().await.unwrap();
    while let Some(child) = plan.children().first() {
        plan = Arc::clone(child);
    }
    assert!(plan.is::<SysScan>(), "{}", plan.name());
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_much_is_divided_among_the_nodes_that_have_it() {
    let processes = Processes::new(vec![in_memory(), in_memory(), in_memory()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    let recorder = recorder(2);
    calls(&processes.recorder(1, 2), 1);
    calls(&processes.recorder(2, 2), 1);
    processes.recorder(2, 2).operator_calls(vec![OperatorCall {
        fragment_id: 0,
        operator_id: 7,
        partition: 0,
        started_at: 0,
        ended_at: 0,
        rows: 1,
    }]);
    master.finish_on_workers(&recorder, &[1, 2, 3]).await;
    master.finish(&recorder, finished("SELECT …"));
    // What is planned for workers knows where it may run.
    let mut config = SessionConfig::new();
    config.set_extension(Arc::clone(&master));
    let context = session_of(&master, config);
    for (flushed, filter) in [
        (false, "WHERE query_id = 2"),
        (false, ""),
        (true, "WHERE query_id BETWEEN 2 AND 9"),
        (true, "WHERE query_id > 1"),
    ] {
        if flushed {
            processes.workers[1].flush().unwrap();
        }
        let before = processes.pages.load(Ordering::Relaxed);
        let sql = format!("SELECT started_at, operator_id FROM sys.operator_calls {filter}");
        let scan = scan(&context, &sql).await;
        let scan = scan.downcast_ref::<SysScan>().unwrap();
        assert!(scan.is_of_cluster() && scan.asks_workers(), "{filter}");
        // At most a page of each, once, to know that there is more.
        let asked = processes.pages.load(Ordering::Relaxed) - before;
        assert!(asked <= 3, "{filter}: {asked}");
        assert!(scan.placed(&[1, 2, 3], 2).is_none(), "without the master");
        // Worker 3 takes no part: the master asks it for what it has.
        let mut rows = Vec::new();
        for (node, part) in [1, 2, 0].iter().zip(scan.placed(&[1, 2, 0], 2).unwrap()) {
            let (description, condition) = part.describe();
            let bytes = postcard::to_stdvec(&description).unwrap();
            let description = postcard::from_bytes(&bytes).unwrap();
            let sys = match node {
                0 => &master,
                node => &processes.workers[*node as usize - 1],
            };
            let of_node = sys.scan_of(description, condition.cloned()).unwrap();
            let partitions = of_node.properties().partitioning.partition_count();
            assert_eq!(partitions, 2, "as many for each node");
            assert_eq!(of_node.schema(), scan.schema());
            let mut found = 0;
            for partition in 0..2 {
                let stream = of_node.execute(partition, context.task_ctx()).unwrap();
                let batches = datafusion::physical_plan::common::collect(stream).await;
                found += batches
                    .unwrap()
                    .iter()
                    .map(|batch| batch.num_rows())
                    .sum::<usize>();
            }
            rows.push(found as i64);
        }
        let of_first = i64::from(filter.is_empty());
        // A range of queries is for the filter above: the scan may give the other query's, too.
        let at_least = [CALLS, CALLS + 1, 0].map(|n| n + of_first);
        let at_most = [CALLS, CALLS + 1, 0].map(|n| n + i64::from(!filter.contains('=')));
        for ((rows, least), most) in rows.iter().zip(at_least).zip(at_most) {
            assert!((least..=most).contains(rows), "{filter}: {rows}");
        }
        // Where nothing distributes it, it gives the same.
        let count = format!("SELECT count(*) FROM sys.operator_calls {filter}");
        let expected = (2 * CALLS + 1 + 3 * of_first).to_string();
        assert_eq!(value(&context, &count).await, expected, "{filter}");
    }
    let small = scan(&context, "SELECT * FROM sys.lineage WHERE query_id = 1").await;
    let small = small.downcast_ref::<SysScan>().unwrap();
    assert!(!small.asks_workers(), "it has been fetched");
    let own = scan(&context, "SELECT * FROM sys.queries").await;
    assert!(!own.downcast_ref::<SysScan>().unwrap().asks_workers());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_chunks_travels_with_a_scan() {
    let processes = Processes::new(vec![in_memory(), in_memory()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    let mut config = SessionConfig::new();
    config.set_extension(Arc::clone(&master));
    let context = session_of(&master, config);
    let sql = "SELECT input_id FROM sys.lineage WHERE worker_id = 2 AND operator_id = 1";
    let scan = scan(&context, sql).await;
    let scan = scan.downcast_ref::<SysScan>().unwrap();
    let mut found = Vec::new();
    for (node, part) in [1, 2, 0]
        .into_iter()
        .zip(scan.placed(&[1, 2, 0], 1).unwrap())
    {
        let (description, condition) = part.describe();
        assert!(condition.is_some());
        let names = description.condition_schema().unwrap();
        assert!(names.index_of("worker_id").is_ok(), "{names}");
        let sys = match node {
            0 => &master,
            node => &processes.workers[node - 1],
        };
        let scan = sys.scan_of(description, condition.cloned()).unwrap();
        let batches = collect(Arc::new(scan), context.task_ctx()).await.unwrap();
        found.push(batches.iter().map(|batch| batch.num_rows()).sum::<usize>());
    }
    assert_eq!(found, [0, 2, 0], "chunks of others are not even read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_is_missing_and_named() {
    let processes = Processes::new(vec![in_memory(), in_memory(), in_memory()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    processes.lost.lock().insert(2);
    run(&master, &processes, 2).await;
    let context = session(&master);
    for filter in ["WHERE query_id = 1", "WHERE query_id = 2"] {
        let sql = format!("SELECT DISTINCT worker_id FROM sys.operator_stats {filter} ORDER BY 1");
        assert_eq!(rows(&context, &sql).await, [["0"], ["1"], ["3"]], "{sql}");
    }
    let warnings = master.warnings();
    let says = "what worker 2 recorded is left out until it is back: it is lost";
    assert_eq!(warnings, [says], "once");
    let sql = "SELECT worker_id, state FROM sys.workers WHERE query_id = 2 ORDER BY 1";
    let expected = [
        ["0", "alive"],
        ["1", "alive"],
        ["2", "lost"],
        ["3", "alive"],
    ];
    assert_eq!(rows(&context, sql).await, expected);
    let now = "SELECT worker_id, state, address FROM sys.workers WHERE query_id IS NULL ORDER BY 1";
    let expected = [
        ["1", "alive", "10.0.0.1:7000"],
        ["2", "lost", "10.0.0.2:7000"],
        ["3", "alive", "10.0.0.3:7000"],
    ];
    assert_eq!(rows(&context, now).await, expected);
    // It is back, with what it had.
    processes.lost.lock().clear();
    let sql = "SELECT count(DISTINCT worker_id) FROM sys.operator_stats WHERE query_id = 1";
    assert_eq!(value(&context, sql).await, "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_the_masters_whatever_the_clock_of_a_worker_says() {
    let mut processes = Processes::new(vec![in_memory(), in_memory()]);
    let hour_ns = 3_600_000_000_000;
    Arc::get_mut(&mut processes).unwrap().ahead_ns = vec![1_000, -hour_ns];
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    let context = session(&master);
    let sql = "SELECT CAST(started_at AS BIGINT), CAST(ended_at AS BIGINT)
               FROM sys.operator_calls ORDER BY worker_id";
    let corrected = |at: i64, ahead: i64| (at - ahead).to_string();
    let expected = [1_000, -hour_ns].map(|ahead| {
        [
            corrected(2_000_000_000, ahead),
            corrected(2_000_000_100, ahead),
        ]
    });
    assert_eq!(rows(&context, sql).await, expected);
    let sql = "SELECT CAST(sent_at AS BIGINT) FROM sys.tuples_sent ORDER BY source_worker";
    let expected = [1_000, -hour_ns].map(|ahead| [corrected(2_000_000_000, ahead)]);
    assert_eq!(rows(&context, sql).await, expected);
    let sql = "SELECT clock_offset_ns, clock_error_ns FROM sys.workers
               WHERE query_id = 1 AND worker_id > 0 ORDER BY worker_id";
    let ahead = (-hour_ns).to_string();
    assert_eq!(rows(&context, sql).await, [["1000", "17"], [&ahead, "17"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_keeps_its_part_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || SysTables::open(Some(directory.path()), Retention::default());
    let processes = Processes::new(vec![open()]);
    let master = master_of(&processes);
    run(&master, &processes, 1).await;
    drop(processes);
    drop(master);
    let processes = Processes::new(vec![open()]);
    let master = master_of(&processes);
    let context = session(&master);
    let sql = "SELECT count(*) FROM sys.lineage WHERE query_id = 1";
    assert_eq!(value(&context, sql).await, "1");
}

#[test]
fn questions_that_are_none_are_errors() {
    let sys = in_memory();
    for question in [&[][..], &[9], &[0, 3, b'a', b'b', b'c'], &[1, 77]] {
        assert!(sys.answer(question).is_err(), "{question:?}");
    }
}
