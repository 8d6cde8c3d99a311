//! Which records of a query stand out, by the rows that were made of them and by their latencies: over queries that
//! are recorded by hand, of which every number is known.

use std::sync::Arc;

use crate::support::*;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_profiling::sampling::Choice;
use skewer_profiling::{
    Ids, Latencies, LatencyChunk, LatencyKind, Level, LineageMode, Method, Operator, OperatorStats,
    QueryRow, Recorder, RecorderLimits, Retention, SysTables,
};

const MS: i64 = 1_000_000;

const TABLE: Option<&str> = Some("main.t");

/// A query that unnests the records of a table, filters the rows, and counts those that are left.
#[derive(Debug, Clone)]
struct Unnesting<'a> {
    /// Rows that the unnest made, and rows that the filter left.
    rows: i64,
    arriving: i64,
    /// What the unnest took; other operators take nothing.
    busy_ms: i64,
    /// Rows that descend from each traced record.
    edges: &'a [i64],
    /// How many other records there are, and how many rows descend from all of these.
    others: (i64, i64),
    sample_rate: f64,
    /// What expressions took for the first record, for which the only result row waits, and for each other.
    latency_ms: (i64, i64),
    mode: LineageMode,
    status: &'a str,
}

/// The same as in most cases.
const UNNESTING: Unnesting<'_> = Unnesting {
    rows: 2_000,
    arriving: 1_000,
    busy_ms: 9_000,
    edges: &[],
    others: (0, 0),
    sample_rate: 1.0,
    latency_ms: (0, 0),
    mode: LineageMode::Log,
    status: "finished",
};

impl Unnesting<'_> {
    /// Row ids of records that are traced, in order.
    fn traced(&self) -> impl Iterator<Item = i64> {
        let choice = Choice::of_rate(self.sample_rate);
        (1..).filter(move |row_id| choice.traces(*row_id))
    }

    /// The traced records and how many rows descend from each.
    fn records(&self) -> Vec<(i64, i64)> {
        let (others, rows) = self.others;
        let other = (0..others).map(|other| rows / others + i64::from(other < rows % others));
        let edges = self.edges.iter().copied().chain(other);
        self.traced().zip(edges).collect()
    }

    fn record(&self) -> Arc<SysTables> {
        let recorder = Recorder::new(
            7,
            Level::Records,
            self.sample_rate,
            RecorderLimits::default(),
        );
        recorder.set_lineage_mode(self.mode);
        let records = self.records();
        let did = |operator_id, rows_in, rows_out, self_ns| OperatorStats {
            rows_in,
            rows_out,
            ..stats(operator_id, 0, self_ns)
        };
        let scanned = records.len() as i64;
        recorder.operator(operator(0, None, "AggregateExec", true));
        recorder.operator_stats(did(0, self.arriving, 1, 0));
        recorder.operator(operator(1, Some(0), "FilterExec", false));
        recorder.operator_stats(did(1, self.rows, self.arriving, 0));
        recorder.operator(operator(2, Some(1), "UnnestExec", false));
        recorder.operator_stats(did(2, scanned, self.rows, self.busy_ms * MS));
        recorder.operator(Operator {
            table_name: TABLE.map(str::to_owned),
            ..operator(3, Some(2), "DataSourceExec", false)
        });
        recorder.operator_stats(did(3, 0, scanned, 0));
        let edges = records.iter().enumerate().flat_map(|(index, record)| {
            let waits = if index == 0 { self.latency_ms.0 } else { 0 };
            (0..record.1).map(move |_| (1, record.0, waits * MS))
        });
        let edges: Vec<_> = edges.collect();
        if self.mode == LineageMode::Log && !edges.is_empty() {
            lineage(&recorder, (0, 0), (3, TABLE), &edges);
            outputs(&recorder, 0, (0, None), &[(1, 0)]);
        }
        if self.latency_ms != (0, 0) {
            let ids: Vec<i64> = records.iter().map(|record| record.0).collect();
            let (first, other) = self.latency_ms;
            let ns = (0..records.len()).map(|index| if index == 0 { first } else { other } * MS);
            let ps: Vec<i64> = ns.map(|ns| ns * 1_000).collect();
            recorder.record_latency(LatencyChunk {
                fragment_id: 0,
                operator_id: 2,
                partition: 0,
                table_name: TABLE.map(Into::into),
                row_ids: Ids::encode(&ids),
                latency: Latencies::encode(&ps),
                kind: LatencyKind::Computation,
                method: Method::Measured,
                error: Latencies::constant(0, ids.len()),
            });
        }
        let tables = SysTables::open(None, Retention::default());
        let query = QueryRow {
            status: self.status.to_owned(),
            planning_ns: Some(0),
            execution_ns: Some(self.busy_ms * MS),
            ..finished("SELECT count(*) FROM (SELECT unnest(a) AS x FROM t) AS q WHERE x > 0")
        };
        tables.finish(&recorder, query);
        tables
    }

    async fn anomalies(&self, columns: &str) -> Vec<Vec<String>> {
        let context = session(&self.record());
        let sql = format!(
            "SELECT {columns} FROM sys.anomalies WHERE query_id = 7 ORDER BY cost_ns DESC, row_id"
        );
        rows(&context, &sql).await
    }

    /// The places of the records that stand out for their rows, the dearest first.
    async fn outstanding(&self) -> Vec<usize> {
        let ids: Vec<i64> = self.traced().take(10).collect();
        let found = self.anomalies("row_id").await;
        let place = |row: &Vec<String>| ids.iter().position(|id| id.to_string() == row[0]);
        found.iter().map(|row| place(row).unwrap()).collect()
    }

    /// Why it is not known whose the rows are, if it is not.
    async fn unknown(&self) -> Option<String> {
        let mut found = self.anomalies("unknown").await;
        found.retain(|row| !row[0].is_empty());
        assert!(found.len() <= 1, "{found:?}");
        found.pop().map(|mut row| row.remove(0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_no_more_than_there_were_and_untraced_ones_took_their_time() {
    let check = async |edges, others, sample_rate, expected: &[[i64; 3]]| {
        let unnesting = Unnesting {
            edges,
            others,
            sample_rate,
            ..UNNESTING
        };
        let columns = "reason, rows_made, table_rows, apportioned_ns / 1000000, cost_ns = apportioned_ns, \
                       threshold_ns / 1000000, operator_id, table_name";
        let expected: Vec<Vec<String>> = expected
            .iter()
            .map(|[rows, table_rows, ms]| {
                let row = format!("fan-out {rows} {table_rows} {ms} true 450 3 main.t");
                row.split(' ').map(str::to_owned).collect()
            })
            .collect();
        let mut found = unnesting.anomalies(columns).await;
        // A row without a record has no rows of it.
        found.retain(|row| !row[1].is_empty());
        assert_eq!(found, expected, "{unnesting:?}");
    };
    check(&[900], (49, 80), 1.0, &[[900, 980, 8_100]]).await;
    // Three edges to each row, as of frames.
    check(&[2_760], (49, 240), 1.0, &[[920, 1_000, 8_280]]).await;
    // A tenth of the others is traced: 50 of 500.
    check(&[500], (49, 50), 0.1, &[[500, 550, 4_500]]).await;
    // The other rows are there, whoever made them.
    check(&[200], (2, 2), 0.1, &[[200, 202, 1_800]]).await;
    // Those that stand out are not many more because they were traced.
    let three = [[400, 999, 2_500], [300, 999, 1_875], [250, 999, 1_562]];
    check(&[400, 300, 250], (49, 49), 0.1, &three).await;
    // Of others that were not traced there seem to be a few too many.
    check(&[900], (11, 11), 0.1, &[[900, 911, 8_019]]).await;
    check(&[], (40, 40), 0.5, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_stands_out_among_the_others() {
    for (first, others, sample_rate, expected) in [
        (500, (10, 500), 1.0, true),
        (500, (10, 501), 1.0, false),
        // It alone was asked for, or traced.
        (1_000, (0, 0), 1.0, false),
        (1_000, (0, 0), 0.1, false),
        (500, (0, 0), 0.1, true),
        (499, (0, 0), 0.1, false),
        // 5 % of the time that operators took for all rows.
        (50, (100, 100), 1.0, true),
        (49, (100, 100), 1.0, false),
    ] {
        let unnesting = Unnesting {
            edges: &[first],
            others,
            sample_rate,
            ..UNNESTING
        };
        let mut found = unnesting.anomalies("row_id").await;
        found.retain(|row| !row[0].is_empty());
        assert_eq!(!found.is_empty(), expected, "{unnesting:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_stand_out_among_those_after_them() {
    /// The edges of records, the others of their table, and which of the records stand out.
    type Case = (&'static [i64], (i64, i64), &'static [usize]);
    let cases: [Case; 6] = [
        (&[500, 400, 200], (97, 97 * 20), &[0, 1, 2]),
        (&[500, 400, 200], (97, 97 * 21), &[0, 1]),
        // Half of the table each: neither.
        (&[500, 500], (0, 0), &[]),
        // Five of a hundred alike: three are named.
        (&[200; 5], (95, 95), &[0, 1, 2]),
        (&[], (95, 95), &[]),
        (&[700], (2, 20), &[0]),
    ];
    for (edges, others, expected) in cases {
        let unnesting = Unnesting {
            edges,
            others,
            ..UNNESTING
        };
        assert_eq!(unnesting.outstanding().await, expected, "{unnesting:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_missing_that_were_left_out_or_descend_from_records_that_were_not_traced() {
    let unknown = async |unnesting: Unnesting<'_>| unnesting.unknown().await;
    let of = |edges, others, sample_rate| Unnesting {
        edges,
        others,
        sample_rate,
        ..UNNESTING
    };
    let is = |reason: &str| Some(reason.to_owned());
    assert_eq!(unknown(of(&[], (0, 0), 1.0)).await, is("no lineage"));
    assert_eq!(unknown(of(&[10], (0, 0), 1.0)).await, None);
    assert_eq!(unknown(of(&[499], (0, 0), 0.1)).await, is("sampled"));
    assert_eq!(unknown(of(&[500], (0, 0), 0.1)).await, None);
    // 4 rows of one, and 490 or 500 of the others.
    assert_eq!(unknown(of(&[4], (19, 49), 0.1)).await, is("sampled"));
    assert_eq!(unknown(of(&[4], (19, 50), 0.1)).await, None);
    let few = |arriving, edges, sample_rate| Unnesting {
        arriving,
        ..of(edges, (0, 0), sample_rate)
    };
    assert_eq!(unknown(few(199, &[10], 1.0)).await, is("left out"));
    assert_eq!(unknown(few(200, &[10], 1.0)).await, None);
    // An aggregate made few rows; aggregates keep no lineage here.
    assert_eq!(unknown(few(199, &[], 1.0)).await, is("no lineage"));
    assert_eq!(unknown(few(0, &[], 1.0)).await, is("left out"));
    assert_eq!(unknown(few(199, &[], 0.1)).await, is("left out"));
    // A query that failed, or kept no log, tells nothing else.
    let failed = Unnesting {
        status: "failed",
        ..few(0, &[], 1.0)
    };
    assert_eq!(unknown(failed).await, None);
    let carried = Unnesting {
        mode: LineageMode::Piggyback,
        ..UNNESTING
    };
    assert_eq!(unknown(carried).await, is("no log"));
}

/// A record that is named for its latency is one record, whatever became of it.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_record_that_is_named_for_its_latency_the_rows_are_told_as_well() {
    let columns =
        "row_id, reason, cost_ns = impact_ns, cost_ns = self_ns, outputs, rows_made, table_rows";
    for (first_ms, expected) in [
        (100, ["1", "fan-out", "false", "false", "1", "900", "980"]),
        (
            500,
            ["1", "critical path", "true", "true", "1", "900", "980"],
        ),
    ] {
        let unnesting = Unnesting {
            edges: &[900],
            others: (49, 80),
            latency_ms: (first_ms, 2),
            ..UNNESTING
        };
        assert_eq!(unnesting.anomalies(columns).await, [expected]);
    }
}

/// The table of 41 records of which 40 took `usual_ms`, and one took `first_ms`.
async fn judged(first_ms: i64, usual_ms: i64, busy_ms: i64) -> Vec<Vec<String>> {
    let edges = [1];
    let unnesting = Unnesting {
        rows: 41,
        arriving: 41,
        busy_ms,
        edges: &edges,
        others: (40, 40),
        latency_ms: (first_ms, usual_ms),
        ..UNNESTING
    };
    let columns = "row_id, reason, cost_ns / 1000000, threshold_ns / 1000000, median_ns / 1000000, \
                   even_ns / 1000000, rank";
    unnesting.anomalies(columns).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_to_cost_ten_times_the_median_and_a_part_of_the_query() {
    // Where each record takes 2 % of the query, one that takes 12 % is nothing special.
    assert!(judged(120, 20, 1_000).await.is_empty());
    assert!(judged(199, 20, 1_000).await.is_empty());
    let found = ["1", "critical path", "200", "200", "20", "24", "1"];
    assert_eq!(judged(200, 20, 1_000).await, [found]);
    // 5 % of the query.
    assert!(judged(49, 0, 1_000).await.is_empty());
    let found = ["1", "critical path", "50", "50", "0", "24", "1"];
    assert_eq!(judged(50, 0, 1_000).await, [found]);
    // Twice an even share would be less than a millisecond.
    assert!(judged(0, 0, 10).await.is_empty());
    let found = ["1", "critical path", "1", "1", "0", "0", "1"];
    assert_eq!(judged(1, 0, 10).await, [found]);
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_that_do_not_stand_out_are_there_with_their_threshold() {
    let unnesting = Unnesting {
        rows: 10,
        arriving: 10,
        busy_ms: 100,
        edges: &[1],
        others: (9, 9),
        latency_ms: (9, 2),
        ..UNNESTING
    };
    let context = session(&unnesting.record());
    let sql = "SELECT row_id, reason, cost_ns / 1000000, threshold_ns / 1000000 \
               FROM sys.anomaly_candidates WHERE query_id = 7 ORDER BY cost_ns DESC, row_id LIMIT 2";
    let expected = [["1", "", "9", "20"], ["2", "", "2", "20"]];
    assert_eq!(rows(&context, sql).await, expected);
    assert!(unnesting.anomalies("row_id").await.is_empty());
}

/// What needs more memory than there is to count the rows of each record is left out; the rest is there.
#[tokio::test(flavor = "multi_thread")]
async fn where_memory_does_not_do_rows_are_not_counted() {
    let unnesting = Unnesting {
        rows: 400_000,
        arriving: 400_000,
        edges: &[200_000],
        others: (200_000, 200_000),
        ..UNNESTING
    };
    let tables = unnesting.record();
    let question = "SELECT row_id, rows_made, unknown FROM sys.anomalies WHERE query_id = 7";
    assert_eq!(
        rows(&session(&tables), question).await,
        [["1", "200000", ""]]
    );
    let without_disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(6 << 20, 1.0)
        .with_disk_manager_builder(without_disk)
        .build_arc()
        .unwrap();
    let of_all = session(&tables);
    let config = SessionConfig::new().with_target_partitions(2);
    let context = SessionContext::new_with_config_rt(config, runtime);
    for name in of_all.catalog_names() {
        context.register_catalog(&name, of_all.catalog(&name).unwrap());
    }
    let question = question.replace("sys.", "main.sys.");
    assert_eq!(rows(&context, &question).await, [["", "", "not counted"]]);
}

/// What is printed for a query is what the view gives.
#[tokio::test(flavor = "multi_thread")]
async fn the_printed_sql_gives_what_the_view_gives() {
    let unnesting = Unnesting {
        edges: &[900],
        others: (49, 80),
        latency_ms: (3, 2),
        ..UNNESTING
    };
    let tables = unnesting.record();
    let context = session(&tables);
    let printed = tables.expanded_sql("anomaly_candidates", 7).await.unwrap();
    let order = "ORDER BY cost_ns, row_id";
    let by_text = format!("SELECT * FROM ({printed}) AS q {order}");
    let by_view = format!("SELECT * FROM sys.anomaly_candidates WHERE query_id = 7 {order}");
    let found = rows(&context, &by_text).await;
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found, rows(&context, &by_view).await);
    // A query that was only counted has none.
    let printed = tables.expanded_sql("anomaly_candidates", 8).await.unwrap();
    assert!(rows(&context, &printed).await.is_empty());
}
