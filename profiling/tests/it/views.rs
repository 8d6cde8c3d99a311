//! Views conclude the right things from counters, and read only the queries they are asked for.

use std::sync::Arc;

use crate::support::*;
use skewer_profiling::{
    OperatorStats, Retention, StreamRecord, SysTables, TaskStats, TuplesSent, VIEWS,
};

const MS: i64 = 1_000_000;

/// Query 7: a scan in four partitions, of which the last has most rows, under an exchange and a
/// join that spills. Queries 6 and 8 are there to be left alone.
fn tables() -> Arc<SysTables> {
    let tables = SysTables::open(None, Retention::default());
    for query_id in [6, 7, 8] {
        let recorder = recorder(query_id);
        recorder.operator(operator(0, None, "HashJoinExec", false));
        recorder.operator(operator(1, Some(0), "RepartitionExec", false));
        recorder.operator(operator(2, Some(1), "DataSourceExec", false));
        for partition in 0..4 {
            let last = partition == 3;
            let wall_ns = if last { 950 * MS } else { 350 * MS };
            recorder.stream(StreamRecord {
                stats: OperatorStats {
                    rows_out: if last { 700 } else { 100 },
                    spilled_bytes: if last { 4096 } else { 0 },
                    ..stats(0, partition, if last { 700 * MS } else { 100 * MS })
                },
                timeline: None,
                task: Some(TaskStats {
                    fragment_id: 0,
                    partition,
                    started_at: 0,
                    ended_at: wall_ns,
                    wall_ns,
                    cpu_ns: Some(wall_ns),
                    voluntary_switches: None,
                    involuntary_switches: None,
                    runqueue_ns: Some(0),
                    throttled_ns: Some(0),
                }),
            });
            recorder.operator_stats(OperatorStats {
                rows_out: 250,
                input_wait_ns: 5,
                ..stats(2, partition, 250 * MS)
            });
            recorder.tuples_sent(vec![TuplesSent {
                exchange_id: 1,
                source_worker: 0,
                destination_worker: 0,
                partition,
                tuples: if last { 700 } else { 100 },
                bytes: 8,
                sent_at: None,
                source_partition: None,
            }]);
        }
        tables.finish(&recorder, finished("SELECT"));
    }
    tables
}

#[tokio::test(flavor = "multi_thread")]
async fn contribution_names_shares_and_skew() {
    let tables = tables();
    let context = session(&tables);
    let contribution = rows(
        &context,
        "SELECT operator_id, self_ns, share, rows_out, partitions, input_wait_ns, spilled_bytes,
                row_skew, time_skew
         FROM sys.operator_contribution WHERE query_id = 7 ORDER BY operator_id",
    )
    .await;
    let expected = [
        [
            "0",
            "1000000000",
            "0.5",
            "1000",
            "4",
            "0",
            "4096",
            "2.8",
            "2.8",
        ],
        ["1", "", "", "", "", "", "", "", ""],
        [
            "2",
            "1000000000",
            "0.5",
            "1000",
            "4",
            "20",
            "0",
            "1.0",
            "1.0",
        ],
    ];
    assert_eq!(contribution, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn uneven_partitions_show_as_skew_straggler_and_imbalance() {
    let tables = tables();
    let context = session(&tables);
    let sql = "SELECT tuples, bytes, partitions, max_tuples, skew FROM sys.communication
               WHERE query_id = 7";
    assert_eq!(
        rows(&context, sql).await,
        [["1000", "32", "4", "700", "2.8"]]
    );
    let sql = "SELECT operator_id, largest_partition, share, skew FROM sys.data_skew
               WHERE query_id = 7 ORDER BY skew DESC LIMIT 1";
    assert_eq!(rows(&context, sql).await, [["0", "3", "0.7", "2.8"]]);
    let sql = "SELECT operator_id, partition, excess_ns, cause FROM sys.stragglers
               WHERE query_id = 7";
    assert_eq!(
        rows(&context, sql).await,
        [["0", "3", "600000000", "more rows"]]
    );
    let sql = "SELECT max_ns, mean_ns, imbalance, wasted_ns FROM sys.task_imbalance
               WHERE query_id = 7";
    let expected = ["950000000", "500000000", "1.9", "450000000"];
    assert_eq!(rows(&context, sql).await, [expected]);
    let sql = "SELECT busy_ns, input_wait_ns FROM sys.utilization WHERE query_id = 7";
    assert_eq!(rows(&context, sql).await, [["2000000000", "20"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnoses_come_with_sql_that_shows_why() {
    let tables = tables();
    let context = session(&tables);
    let sql = "SELECT rule, severity, subject, wasted_ns, evidence_sql FROM sys.diagnoses
               WHERE query_id = 7 ORDER BY rule";
    let found = rows(&context, sql).await;
    let brief: Vec<[&str; 4]> = found
        .iter()
        .map(|row| [0, 1, 2, 3].map(|column| row[column].as_str()))
        .collect();
    let expected = [
        ["slow planning", "warning", "the query", "500000000"],
        ["spilling", "warning", "operator 0 HashJoinExec", ""],
        [
            "uneven rows",
            "info",
            "fragment 0, partition 3 on worker 0",
            "600000000",
        ],
    ];
    assert_eq!(brief, expected);
    for row in &found {
        assert!(!rows(&context, &row[4]).await.is_empty(), "{}", row[4]);
    }
    // What they are about, in columns.
    let sql =
        "SELECT operator_id, fragment_id, worker_id, partition, exchange_id, table_name, row_id
               FROM sys.diagnoses WHERE query_id = 7 ORDER BY rule";
    let expected = [
        ["", "", "", "", "", "", ""],
        ["0", "0", "", "", "", "", ""],
        ["2", "0", "0", "3", "", "", ""],
    ];
    assert_eq!(rows(&context, sql).await, expected);
}

/// Views over all queries or nodes, not of one query.
const OF_ALL: [&str; 3] = ["abnormal_nodes", "alerts", "colocation_savings"];

/// Views that compare a query with earlier ones, or with the cluster as it is now: each with the tables of which
/// they read more than the query's rows.
const COMPARING: [(&str, &[&str]); 7] = [
    ("changed_runs", &["queries", "operators"]),
    ("query_findings", &["workers"]),
    ("waiting_statements", &["workers"]),
    ("profiler_faults", &["workers"]),
    ("not_distributed", &["workers"]),
    ("detections", &["queries", "operators", "workers"]),
    ("diagnoses", &["queries", "operators", "workers"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_on_the_query_reaches_every_table_behind_a_view() {
    let tables = tables();
    let context = session(&tables);
    for view in VIEWS.iter().filter(|view| !OF_ALL.contains(&view.name)) {
        let compares = COMPARING.iter().find(|(name, _)| *name == view.name);
        let compared = compares.map_or(&[] as &[&str], |(_, tables)| tables);
        // A view whose plan is kept is a leaf of other plans: its own SQL shows what it reads.
        let sql = format!(
            "EXPLAIN SELECT * FROM (\n{}\n) AS shown WHERE query_id = 7",
            view.sql
        );
        let plan = rows(&context, &sql).await.concat().join("\n");
        // A view that is computed in steps lists the last step of each query that it is about.
        let mut stepwise = plan
            .lines()
            .filter_map(|line| line.split_once("PlannedAfterSteps: "));
        let first = stepwise.next();
        let is_of_one_query = first.is_none_or(|(_, steps)| !steps.contains(','));
        assert!(is_of_one_query && stepwise.next().is_none(), "{plan}");
        // The query has no latencies of result rows, so that nothing is read.
        let reads_nothing = view.name == "shuffle_latencies";
        assert!(
            first.is_some()
                || reads_nothing
                || plan.contains("SysScan")
                || plan.contains("KeptView"),
            "{plan}"
        );
        // No filter gets into a recursion; plans have few rows.
        let mut recursion = usize::MAX;
        for line in plan.lines() {
            let indent = line.len() - line.trim_start().len();
            if indent <= recursion {
                recursion = usize::MAX;
            }
            if line.contains("RecursiveQueryExec") {
                recursion = indent;
            }
            let is_of_plans = recursion < indent && line.contains("table=sys.operators");
            let is_compared = compared
                .iter()
                .any(|table| line.contains(&format!("SysScan: table=sys.{table}")));
            let is_filtered = line.contains("query_id={7}");
            assert!(
                !line.contains("KeptView") || line.ends_with(" of query 7"),
                "{}: {line}\n{plan}",
                view.name
            );
            assert!(
                !line.contains("SysScan") || is_filtered || is_of_plans || is_compared,
                "{}: {line}\n{plan}",
                view.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_says_what_it_shows_and_prints_its_sql() {
    let tables = tables();
    let provider = tables.schema_provider();
    for view in VIEWS {
        assert!(view.doc().len() > 40, "{}", view.name);
        let table = provider.table(view.name).await.unwrap().unwrap();
        assert_eq!(table.get_table_definition(), Some(view.sql));
    }
}
