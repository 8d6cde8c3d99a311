//! What kinds operators have, in one process and on several workers, and what the report makes of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use skewer::{Database, DatabaseBuilder, Session};
use skewer_profiling::OperatorKind;

use super::{column, lines, number};

async fn run(session: &Session, sql: &str) {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = stream.collect().await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A database with a table of several segments, so that every worker owns some, and a small one.
async fn filled(database: DatabaseBuilder) -> (Database, Session) {
    let database = database.worker_threads(2).build().unwrap();
    let session = database.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a, value % 7 AS g, 'row ' || value AS s
         FROM generate_series(1, 1000)",
    )
    .await;
    for n in 1..=4 {
        let sql = format!(
            "INSERT INTO t SELECT value, value % 7, 'row ' || value
             FROM generate_series({n}001, {n}500)"
        );
        run(&session, &sql).await;
    }
    run(&session, "CREATE TABLE names (g BIGINT, name VARCHAR)").await;
    run(
        &session,
        "INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (9, 'nine')",
    )
    .await;
    (database, session)
}

/// The operators of the last query: kind, name, and the other columns that classify them.
const OPERATORS: &str = "
    SELECT DISTINCT kind || ': ' || name || CASE WHEN is_internal THEN ', internal' ELSE '' END
      || coalesce(', ' || routing, '') || coalesce(', ' || captured_records, '')
    FROM sys.operators WHERE query_id = last_query_id() ORDER BY 1";

/// Operators of the last query that are exchanges although their input is in the same fragment, or are none
/// although it is in another one.
const NO_EXCHANGES: &str = "
    SELECT count(*) FROM sys.operators AS above
    JOIN sys.operators AS below
      ON above.query_id = below.query_id AND above.operator_id = below.parent_operator_id
    WHERE above.query_id = last_query_id()
      AND (above.kind = 'exchange') <> (above.fragment_id <> below.fragment_id)";

/// Statements, and some of the operators that they have in one process and on three workers.
const STATEMENTS: &[(&str, &[&str], &[&str])] = &[
    (
        "SELECT g, count(*) FROM t WHERE a > 10 GROUP BY g ORDER BY g",
        &[
            "aggregate: AggregateExec, groups",
            "exchange: RepartitionExec, hash",
            "exchange: SortPreservingMergeExec, gather",
            "filter: FilterExec",
            "projection: ProjectionExec",
            "scan: DataSourceExec",
            "sort: SortExec",
        ],
        &[
            "aggregate: AggregateExec, groups",
            "exchange: NetworkShuffleExec, hash",
            "exchange: NetworkCoalesceExec, gather",
            "exchange: SortPreservingMergeExec, gather",
            "scan: DataSourceExec",
        ],
    ),
    (
        "SELECT count(*) FROM t JOIN names n ON t.g = n.g",
        &[
            "join: HashJoinExec",
            "exchange: CoalescePartitionsExec, gather",
        ],
        &[
            "join: HashJoinExec",
            "exchange: NetworkBroadcastExec, broadcast",
        ],
    ),
    (
        "SELECT count(*) FROM t a, names n WHERE a.g < n.g",
        &["join: NestedLoopJoinExec"],
        &["join: NestedLoopJoinExec"],
    ),
    (
        "SELECT sum(r) FROM (SELECT sum(a) OVER (ORDER BY a ROWS 3 PRECEDING) AS r FROM t)",
        &[
            "frames: frames of rows, internal, frames",
            "frames: parts of frames, internal, frames",
            "window: BoundedWindowAggExec",
        ],
        &[
            "frames: frames of rows, internal, frames",
            "window: BoundedWindowAggExec",
        ],
    ),
    (
        "SELECT count(*) FROM (SELECT a FROM t ORDER BY a LIMIT 5 OFFSET 2)",
        &[
            "exchange: RepartitionExec, round robin",
            "limit: GlobalLimitExec",
            "sort: SortExec(TopK)",
        ],
        &["limit: GlobalLimitExec", "sort: SortExec(TopK)"],
    ),
    (
        "SELECT sum(v) FROM (SELECT a AS v FROM t UNION ALL SELECT g FROM names)",
        &["union: UnionExec"],
        &["union: UnionExec"],
    ),
    (
        "SELECT count(*) FROM (SELECT unnest([a, g]) FROM t)",
        &["unnest: UnnestExec"],
        &["unnest: UnnestExec"],
    ),
    (
        "SELECT sum(column1) FROM (VALUES (1), (2))",
        &["values: DataSourceExec"],
        &["values: DataSourceExec"],
    ),
    (
        "SELECT 1",
        &["values: PlaceholderRowExec"],
        &["values: PlaceholderRowExec"],
    ),
    (
        "WITH RECURSIVE r AS
           (SELECT a FROM t WHERE a = 1 UNION ALL SELECT a + 1 FROM r WHERE a < 5)
         SELECT sum(a) FROM r",
        &[
            "projection: ProjectionExec",
            "projection: ProjectionExec, recursive rows",
            "recursive: RecursiveQueryExec",
            "working table: WorkTableExec",
        ],
        &[
            "recursive: RecursiveQueryExec",
            "working table: WorkTableExec",
        ],
    ),
    (
        "SELECT max(md5(s)) FROM t",
        &["evaluation: TimedEvaluationExec"],
        &["evaluation: TimedEvaluationExec"],
    ),
    (
        "SELECT g, a % 2, count(*) FROM t GROUP BY CUBE (g, a % 2)",
        &["pass-through: SoundPropertiesExec, internal"],
        &["pass-through: SoundPropertiesExec, internal"],
    ),
    (
        "SELECT g, (SELECT sum(x) FROM unnest(list) AS x)
         FROM (SELECT g, array_agg(a) AS list FROM t GROUP BY g) AS l",
        &[
            "exchange: RepartitionExec, value number",
            "exchange: SharedRowsExec, gather",
            "shared rows: SharedRowsExec",
            "subquery values: SharedRowsExec",
        ],
        &[
            "exchange: RepartitionExec, value number",
            "shared rows: SharedRowsExec",
        ],
    ),
    (
        "INSERT INTO names SELECT g, s FROM t",
        &["scan: DataSourceExec"],
        &["write: WriteSegmentsExec"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn operators_have_the_kind_of_what_they_do() {
    let mut seen = BTreeSet::new();
    for workers in [1, 3] {
        let (_database, session) = filled(Database::builder().workers(workers)).await;
        run(&session, "SET profile.level = 'records'").await;
        for (sql, in_one_process, on_workers) in STATEMENTS {
            run(&session, sql).await;
            let operators = column(&session, OPERATORS).await;
            let expected = if workers == 1 {
                in_one_process
            } else {
                on_workers
            };
            for operator in *expected {
                let is_there = operators.iter().any(|found| found == operator);
                assert!(is_there, "{workers}, {sql}: {operator}\n{operators:#?}");
            }
            assert_eq!(number(&session, NO_EXCHANGES).await, 0, "{workers}, {sql}");
            let kinds = operators.iter().filter_map(|line| line.split_once(": "));
            seen.extend(kinds.filter_map(|(kind, _)| OperatorKind::from_name(kind)));
        }
    }
    // Another test spills groups.
    let unseen = [OperatorKind::SpilledGroups, OperatorKind::Other];
    let expected = OperatorKind::ALL.iter().copied();
    let expected: BTreeSet<_> = expected.filter(|kind| !unseen.contains(kind)).collect();
    assert_eq!(seen, expected);
}

/// The plan in a report, as lines: kind and description of each operator, without numbers.
async fn plan(session: &Session, sql: &str) -> Vec<String> {
    let profile = format!("EXPLAIN PROFILE (LEVEL counters, FORMAT json) {sql}");
    let report: Value = serde_json::from_str(&lines(session, &profile).await.join("\n")).unwrap();
    let operators = report["plan"].as_array().unwrap();
    let mut depths: Vec<(i64, usize)> = Vec::new();
    let mut plan = Vec::new();
    for operator in operators {
        let depth = operator["parent_operator_id"].as_i64().map_or(0, |parent| {
            let above = depths.iter().find(|(id, _)| *id == parent);
            1 + above.expect("its parent is shown").1
        });
        depths.push((operator["operator_id"].as_i64().unwrap(), depth));
        let [kind, description] =
            ["kind", "description"].map(|field| operator[field].as_str().unwrap());
        plan.push(format!("{}{description} [{kind}]", "  ".repeat(depth)));
    }
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_distributed_query_shows_exchanges_between_workers_in_words() {
    let (_database, session) = filled(Database::builder().workers(3)).await;
    let sql = "SELECT g, count(*) FROM t WHERE a > 10 GROUP BY g ORDER BY g";
    let expected = [
        "Merge sorted: g [exchange]",
        "  Gather from workers: 3 tasks [exchange]",
        "    Projection: g, count(*) [projection]",
        "      Sort: g [sort]",
        "        Aggregate, final: count(*) by g [aggregate]",
        "          Exchange between workers: hash of g [exchange]",
        "            Aggregate, partial: count(*) by g [aggregate]",
        "              Filter: a > 10 [filter]",
        "                Scan t: a, g where a > 10 [scan]",
    ];
    assert_eq!(plan(&session, sql).await, expected);
    let sql = "SELECT count(*) FROM t a, names n WHERE a.g < n.g";
    let expected = [
        "Projection: count(*) [projection]",
        "  Aggregate, final: count(*) [aggregate]",
        "    Merge partitions [exchange]",
        "      Gather from workers: 3 tasks [exchange]",
        "        Aggregate, partial: count(*) [aggregate]",
        "          Nested-loop join: on g > g [join]",
        "            Merge partitions [exchange]",
        "              Broadcast to workers: 3 tasks [exchange]",
        "                Scan names: g [scan]",
        "            Scan t: g [scan]",
    ];
    assert_eq!(plan(&session, sql).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_that_only_the_planner_needs_are_not_shown() {
    let (_database, session) = filled(Database::builder().workers(1)).await;
    let sql = "SELECT g, a % 2, count(*) FROM t GROUP BY CUBE (g, a % 2)";
    let shown = plan(&session, sql).await;
    let internal = "SELECT count(*) FROM sys.operators
                    WHERE query_id = last_query_id() AND is_internal AND kind = 'pass-through'";
    assert!(number(&session, internal).await > 0, "{shown:#?}");
    let all = "SELECT count(*) FROM sys.operators
               WHERE query_id = last_query_id() AND NOT is_internal";
    assert_eq!(shown.len() as i64, number(&session, all).await);
    assert!(!shown.concat().contains("pass-through"), "{shown:#?}");
}

/// The files of `sys.operators` in a database's directory.
fn files_of_operators(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files.extend(files_of_operators(&path));
        } else if path.parent().unwrap().ends_with("operators") {
            files.push(path);
        }
    }
    files
}

/// Writes a file of `sys.operators` as versions did that knew no kinds of operators.
fn forget_kinds(path: &Path) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let schema = batches[0].schema();
    let known = ["kind", "is_internal", "captured_records", "routing"];
    let kept: Vec<usize> = (0..schema.fields().len())
        .filter(|column| !known.contains(&schema.field(*column).name().as_str()))
        .collect();
    assert_eq!(kept.len() + known.len(), schema.fields().len());
    let schema = Arc::new(schema.project(&kept).unwrap());
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, None).unwrap();
    for batch in batches {
        writer.write(&batch.project(&kept).unwrap()).unwrap();
    }
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_older_versions_recorded_have_the_same_report() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("db");
    let statements = [
        "SELECT g, a % 2, count(*) FROM t GROUP BY CUBE (g, a % 2)",
        "SELECT max(r) FROM (SELECT sum(a) OVER (ORDER BY a ROWS 3 PRECEDING) AS r FROM t)",
        "WITH RECURSIVE r AS
           (SELECT a FROM t WHERE a = 1 UNION ALL SELECT a + 1 FROM r WHERE a < 5)
         SELECT sum(a) FROM r",
        "SELECT g, (SELECT sum(x) FROM unnest(list) AS x)
         FROM (SELECT g, array_agg(a) AS list FROM t GROUP BY g) AS l",
    ];
    let (database, session) = filled(Database::builder().path(&path)).await;
    let mut reports = Vec::new();
    for sql in statements {
        lines(&session, &format!("EXPLAIN PROFILE {sql}")).await;
        let id = number(&session, "SELECT last_query_id()").await;
        let report = lines(&session, &format!("SHOW PROFILE {id}")).await;
        reports.push((id, report));
    }
    let operators = "SELECT concat_ws(', ', query_id, operator_id, kind, is_internal, captured_records, routing)
                     FROM sys.operators ORDER BY query_id, operator_id";
    let recorded = column(&session, operators).await;
    drop(session);
    database.close().await.unwrap();
    let files = files_of_operators(&path);
    assert!(!files.is_empty());
    for file in files {
        forget_kinds(&file);
    }
    let database = Database::open(&path).unwrap();
    let session = database.session();
    assert_eq!(column(&session, operators).await, recorded);
    for (id, report) in reports {
        assert_eq!(lines(&session, &format!("SHOW PROFILE {id}")).await, report);
    }
}
