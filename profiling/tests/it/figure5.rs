//! The worked case of PerfDebug (SoCC '19), figure 5: five records through two aggregations,
//! recorded like any query and asked through the views that users have.
//!
//! The printed figure drops, for the remediated latency, every input whose most impactful
//! source is the record that is removed. The views keep such an input with its own remediated
//! latency, so o1 to o4 would take 528, 528, 669 and 538 ms without h2, not 304 to 324.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::processes::Processes;
use crate::support::*;
use skewer_profiling::{Carried, Gathering, Impacts, LineageMode, Retention, Sources, SysTables};
use tokio::runtime::Handle;

const QUERY: i64 = 7;
const SCAN: i64 = 3;
const STAGE_1: i64 = 2;
const STAGE_2: i64 = 1;

/// Who runs the partitions.
#[derive(Debug, Clone, Copy, PartialEq)]
enum On {
    OneWorker,
    /// Each partition has a worker of its own.
    Workers,
    /// Each worker is a process of its own.
    Processes,
}

/// Records `h1` to `h5` have the row ids 1 to 5, `i1` to `i10` and `o1` to `o5` likewise.
fn record(tables: &SysTables, on: On, processes: &Processes) {
    let recorder = recorder(QUERY);
    let of = |partition: i64| match on {
        On::OneWorker => Arc::clone(&recorder),
        On::Workers => recorder.of_worker(partition + 1),
        On::Processes => processes.recorder(partition + 1, QUERY),
    };
    recorder.operator(operator(0, None, "RootExec", false));
    recorder.operator(operator(STAGE_2, Some(0), "AggregateExec", true));
    recorder.operator(operator(STAGE_1, Some(STAGE_2), "AggregateExec", true));
    recorder.operator(operator(SCAN, Some(STAGE_1), "DataSourceExec", false));
    for (operator_id, shuffle_ms) in [(STAGE_1, STAGE_1_MS), (STAGE_2, STAGE_2_MS)] {
        for (partition, shuffle_ms) in (0..).zip(shuffle_ms) {
            of(partition).operator_stats(stats(operator_id, partition, ms(shuffle_ms)));
        }
    }
    for (partition, edges) in stage_1().iter().enumerate() {
        let partition = partition as i64;
        lineage(
            &of(partition),
            (STAGE_1, partition),
            (SCAN, Some("input")),
            edges,
        );
    }
    for (partition, edges) in stage_2().iter().enumerate() {
        let partition = partition as i64;
        lineage(&of(partition), (STAGE_2, partition), (STAGE_1, None), edges);
    }
    let results: Vec<(i64, i64)> = (1..=5).map(|record| (record, 0)).collect();
    outputs(&recorder, 0, (STAGE_2, None), &results);
    if on == On::Processes {
        let workers = tables.finish_on_workers(&recorder, &[1, 2]);
        tokio::task::block_in_place(|| Handle::current().block_on(workers));
    }
    tables.finish(&recorder, finished("SELECT … GROUP BY word"));
}

/// What each partition spent on bringing records together.
const STAGE_1_MS: [i64; 2] = [60, 70];
const STAGE_2_MS: [i64; 2] = [60, 120];

/// Of each partition the edges (output, input, nanoseconds).
fn stage_1() -> [Vec<(i64, i64, i64)>; 2] {
    [
        in_ns(&[
            (1, 1, 486),
            (1, 2, 28848),
            (2, 1, 486),
            (2, 2, 28848),
            (3, 1, 486),
            (3, 2, 28848),
            (3, 3, 611),
            (4, 1, 486),
            (4, 2, 28848),
            (5, 1, 239),
        ]),
        in_ns(&[
            (6, 5, 264),
            (7, 5, 264),
            (8, 4, 160),
            (8, 5, 264),
            (9, 4, 160),
            (9, 5, 264),
            (10, 4, 160),
        ]),
    ]
}

fn stage_2() -> [Vec<(i64, i64, i64)>; 2] {
    [
        in_ns(&[(1, 1, 0), (1, 6, 0), (2, 2, 0), (2, 7, 0)]),
        in_ns(&[
            (3, 3, 0),
            (3, 8, 0),
            (4, 4, 0),
            (4, 9, 0),
            (5, 5, 0),
            (5, 10, 0),
        ]),
    ]
}

fn ms(milliseconds: i64) -> i64 {
    milliseconds * 1_000_000
}

fn in_ns(edges: &[(i64, i64, i64)]) -> Vec<(i64, i64, i64)> {
    edges
        .iter()
        .map(|(output, input, latency)| (*output, *input, ms(*latency)))
        .collect()
}

/// The log in memory, the same log written to files, and the same opened again; of one worker,
/// of several, and of several processes.
fn stores(directory: &Path) -> Vec<Arc<SysTables>> {
    let mut stores = Vec::new();
    for on in [On::OneWorker, On::Workers, On::Processes] {
        let open = |place: Option<PathBuf>| {
            let open = |who: &str| {
                let place = place.as_ref().map(|place| place.join(who));
                SysTables::open(place.as_deref(), Retention::default())
            };
            let processes = Processes::new(vec![open("worker 1"), open("worker 2")]);
            let tables = open("master");
            if on == On::Processes {
                tables.set_remote(Arc::clone(&processes) as _);
            }
            (tables, processes)
        };
        let (memory, processes) = open(None);
        record(&memory, on, &processes);
        let (written, processes) = open(None);
        record(&written, on, &processes);
        written.flush().unwrap();
        processes.workers.iter().for_each(|w| w.flush().unwrap());
        let directory = directory.join(format!("{on:?}"));
        let (before, processes) = open(Some(directory.clone()));
        record(&before, on, &processes);
        drop((before, processes));
        let (again, _) = open(Some(directory));
        stores.extend([memory, written, again]);
    }
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn intermediate_records_have_the_latencies_of_the_figure() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        // record, total, most impactful source, remediated
        (1, 28860, 2, 498),
        (2, 28860, 2, 498),
        (3, 28866, 2, 629),
        (4, 28860, 2, 498),
        (5, 245, 1, 0),
        (6, 274, 5, 0),
        (7, 274, 5, 0),
        (8, 284, 5, 180),
        (9, 284, 5, 180),
        (10, 170, 4, 0),
    ]
    .map(|(record, total, source, remediated)| {
        [record, ms(total), source, ms(remediated)].map(|value| value.to_string())
    });
    for tables in stores(directory.path()) {
        let context = session(&tables);
        let rows = rows(
            &context,
            "SELECT record_id, total_ns, source_row_id, remediated_ns
             FROM sys.intermediate_latency WHERE query_id = 7 AND operator_id = 2
             ORDER BY record_id",
        )
        .await;
        assert_eq!(rows, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_have_the_latencies_of_the_figure() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        // row, total, most impactful source, remediated, shuffle
        (0, 28890, 2, 528, 12 + 30),
        (1, 28890, 2, 528, 12 + 30),
        (2, 28906, 2, 669, 18 + 40),
        (3, 28900, 2, 538, 12 + 40),
        (4, 285, 1, 210, 6 + 40),
    ]
    .map(|(row, total, source, remediated, shuffle)| {
        let [total, remediated, shuffle] = [total, remediated, shuffle].map(ms);
        let numbers = [row, total, source, remediated, total - shuffle, shuffle];
        let mut row = vec!["input".to_owned()];
        row.extend(numbers.map(|value| value.to_string()));
        row
    });
    for tables in stores(directory.path()) {
        let context = session(&tables);
        let rows = rows(
            &context,
            "SELECT source_table, output_row, total_ns, source_row_id, remediated_ns,
                    computation_ns, shuffle_ns
             FROM sys.output_latency WHERE query_id = 7 ORDER BY output_row",
        )
        .await;
        assert_eq!(rows, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_expensive_input_is_h2_and_the_next_is_h1() {
    let directory = tempfile::tempdir().unwrap();
    let h1_self = ms(4 * 486 + 239).to_string();
    let h2_self = ms(4 * 28848).to_string();
    let numbers = [28237, 28906, 669].map(|value| ms(value).to_string());
    let [impact, total, remediated] = numbers.each_ref();
    let h2 = ["1", "input", "2", impact, total, remediated, "4", &h2_self];
    let numbers = [75, 285, 210].map(|value| ms(value).to_string());
    let [impact, total, remediated] = numbers.each_ref();
    let h1 = ["2", "input", "1", impact, total, remediated, "1", &h1_self];
    for tables in stores(directory.path()) {
        let context = session(&tables);
        let columns = "rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,
                       outputs, self_ns";
        for filter in ["WHERE query_id = 7", "WHERE query_id IN (3, 7)", ""] {
            let sql = format!("SELECT {columns} FROM sys.expensive_inputs {filter} ORDER BY rank");
            assert_eq!(rows(&context, &sql).await, [h2, h1], "{filter}");
        }
        let expanded = tables
            .expanded_sql("expensive_inputs", QUERY)
            .await
            .unwrap();
        let sql = format!("SELECT {columns} FROM ({expanded}) ORDER BY rank");
        assert_eq!(rows(&context, &sql).await, [h2, h1], "{expanded}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_worker_has_its_rows_and_the_query_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    for tables in stores(directory.path()).into_iter().skip(3) {
        let context = session(&tables);
        let lineage = "SELECT DISTINCT worker_id FROM sys.lineage WHERE query_id = 7 ORDER BY 1";
        assert_eq!(rows(&context, lineage).await, [["1"], ["2"]]);
        let queries = "SELECT count(*) FROM sys.queries";
        assert_eq!(rows(&context, queries).await, [["1"]]);
        let workers = "SELECT worker_id FROM sys.workers WHERE query_id = 7 ORDER BY 1";
        assert_eq!(rows(&context, workers).await, [["0"], ["1"], ["2"]]);
        let overhead = "SELECT count(DISTINCT worker_id) FROM sys.profiler_overhead";
        assert_eq!(rows(&context, overhead).await, [["3"]]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_follow_the_lineage_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    for tables in stores(directory.path()) {
        let context = session(&tables);
        let back =
            "SELECT table_name, row_id, latency_ns FROM backward_trace(7, 2) ORDER BY row_id";
        let latencies = [486, 28848, 611, 160, 264].map(|value| ms(value).to_string());
        let expected: Vec<[&str; 3]> = ["1", "2", "3", "4", "5"]
            .into_iter()
            .zip(&latencies)
            .map(|(row, latency)| ["input", row, latency.as_str()])
            .collect();
        assert_eq!(rows(&context, back).await, expected);
        let back = "SELECT row_id FROM backward_trace(7, 4) ORDER BY row_id";
        assert_eq!(rows(&context, back).await, [["1"], ["4"]]);
        let forward = "SELECT * FROM forward_trace(7, 'input', 3)";
        assert_eq!(rows(&context, forward).await, [["2"]]);
        let forward = "SELECT * FROM forward_trace(7, 'input', 4) ORDER BY 1";
        assert_eq!(rows(&context, forward).await, [["2"], ["3"], ["4"]]);
        let forward = "SELECT * FROM forward_trace(7, 'other', 4)";
        let error = try_rows(&context, forward).await.unwrap_err().to_string();
        assert!(
            error.contains("query 7 has not read a table 'other', but input"),
            "{error}"
        );
    }
}

/// The records of a stage, put together in the rows of its inputs instead of in the log.
fn carried(
    edges: [Vec<(i64, i64, i64)>; 2],
    spent_ms: [i64; 2],
    input: impl Fn(i64) -> Carried,
) -> BTreeMap<i64, Carried> {
    let mut records = BTreeMap::new();
    for (edges, spent) in edges.into_iter().zip(spent_ms) {
        let outputs: BTreeSet<i64> = edges.iter().map(|(output, ..)| *output).collect();
        let outputs: Vec<i64> = outputs.into_iter().collect();
        let mut gathering = Gathering::default();
        gathering.resize(outputs.len());
        for (output, record, ns) in edges {
            let group = outputs.binary_search(&output).unwrap();
            gathering
                .arrival()
                .add(group, input(record).after(ns * 1000));
        }
        let emitted = gathering.emit(outputs.len(), ms(spent), &mut 0.0);
        records.extend(outputs.into_iter().zip(emitted.map(|(carried, _)| carried)));
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn latencies_carried_in_rows_give_the_same_expensive_inputs() {
    let pre_shuffle = carried(stage_1(), STAGE_1_MS, Carried::base);
    let outputs = carried(stage_2(), STAGE_2_MS, |record| pre_shuffle[&record]);
    let mut impacts = Impacts::default();
    outputs.into_values().for_each(|output| impacts.add(output));
    let tables = SysTables::open(None, Retention::default());
    let recorder = recorder(QUERY);
    recorder.set_lineage_mode(LineageMode::Piggyback);
    recorder.impactful_sources(impacts.rows(&Sources::new(["input"])), impacts.forgotten());
    tables.finish(&recorder, finished("SELECT … GROUP BY word"));
    let numbers = [28237, 28906, 669, 75, 285, 210].map(|value| ms(value).to_string());
    let [impact, total, remediated, impact_1, total_1, remediated_1] = numbers.each_ref();
    let h2 = ["1", "input", "2", impact, total, remediated, "4", ""];
    let h1 = ["2", "input", "1", impact_1, total_1, remediated_1, "1", ""];
    for written in [false, true] {
        if written {
            tables.flush().unwrap();
        }
        let context = session(&tables);
        for filter in ["WHERE query_id = 7", ""] {
            let sql = format!(
                "SELECT rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,
                        outputs, self_ns
                 FROM sys.expensive_inputs {filter} ORDER BY rank"
            );
            assert_eq!(rows(&context, &sql).await, [h2, h1], "{filter}");
        }
        let trace = context
            .sql("SELECT * FROM backward_trace(7, 0)")
            .await
            .unwrap();
        let error = trace.collect().await.unwrap_err().to_string();
        let expected = "backward_trace needs the lineage of query 7, which ran with profile.lineage = \
                        'piggyback' and kept none: SET profile.lineage = 'log' and run it again";
        assert!(error.contains(expected), "{error}");
    }
}
