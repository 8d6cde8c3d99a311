//! Profiles whose truth is known: a generator writes them, `IMPORT PROFILE` reads them, and the page's numbers must
//! be the generator's.

use std::collections::BTreeMap;
use std::path::Path;

use skewer::{Database, Session};
use skewer_page::views::find_view;

/// A fragment of `tasks` tasks on `workers` workers. Operator 1 calls operator 2, its input, `calls` times in each
/// task. A call of operator 2 takes `call_ns`, in task 0 `skew` times as long; operator 1 adds `own_ns`. Between
/// calls there are `gap_ns`. Every call returns 10 rows. Each worker sends `sent` rows to each other worker, and
/// twice as many to worker 0.
#[derive(Debug, Clone, Copy)]
struct Truth {
    tasks: i64,
    workers: i64,
    calls: i64,
    call_ns: i64,
    skew: i64,
    own_ns: i64,
    gap_ns: i64,
    sent: i64,
}

/// When the statement arrived, in nanoseconds since 1970.
const START: i64 = 1_790_000_000_000_000_000;
/// How long it was planned.
const PLANNING: i64 = 1_000_000;

impl Truth {
    fn call_of_task(&self, task: i64) -> i64 {
        self.call_ns * if task == 0 { self.skew } else { 1 }
    }

    /// From the beginning of one call to the next.
    fn step(&self, task: i64) -> i64 {
        self.call_of_task(task) + self.own_ns + self.gap_ns
    }

    /// What all calls of operator 2 take.
    fn input_ns(&self) -> i64 {
        (0..self.tasks)
            .map(|task| self.calls * self.call_of_task(task))
            .sum()
    }

    fn execution_ns(&self) -> i64 {
        (0..self.tasks)
            .map(|task| self.calls * self.step(task))
            .max()
            .unwrap()
    }

    /// The rows of each table of `sys`, as SQL.
    fn tables(&self) -> BTreeMap<&'static str, String> {
        let Self {
            tasks,
            workers,
            calls,
            own_ns,
            gap_ns,
            sent,
            call_ns,
            skew,
        } = *self;
        let at = |ns: &str| {
            format!(
                "arrow_cast(CAST({START} + {PLANNING} + ({ns}) AS BIGINT), 'Timestamp(Nanosecond, Some(\"+00:00\"))')"
            )
        };
        let call = format!("({call_ns} * CASE WHEN t = 0 THEN {skew} ELSE 1 END)");
        let step = format!("({call} + {own_ns} + {gap_ns})");
        let task = format!("(SELECT value AS t FROM generate_series(0, {}))", tasks - 1);
        let number = format!("(SELECT value AS c FROM generate_series(0, {}))", calls - 1);
        let execution = self.execution_ns();
        BTreeMap::from([
            (
                "queries",
                format!(
                    "SELECT CAST(1 AS BIGINT) AS query_id, 'SELECT truth' AS sql, 'SELECT truth' AS fingerprint, 'finished' AS status, \
                     CAST(NULL AS VARCHAR) AS error, 'calls' AS profile_level, 1.0 AS sample_rate, CAST(NULL AS VARCHAR) AS lineage, \
                     {} AS started_at, {} AS ended_at, CAST({PLANNING} AS BIGINT) AS planning_ns, CAST({execution} AS BIGINT) AS execution_ns, \
                     CAST({} AS BIGINT) AS rows_returned",
                    at(&format!("-{PLANNING}")),
                    at(&execution.to_string()),
                    tasks * calls * 10
                ),
            ),
            (
                "fragments",
                format!(
                    "SELECT CAST(1 AS BIGINT) AS query_id, CAST(0 AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS parent_fragment_id, \
                     CAST({tasks} AS BIGINT) AS tasks, 'x' AS plan"
                ),
            ),
            (
                "operators",
                "SELECT CAST(1 AS BIGINT) AS query_id, CAST(0 AS BIGINT) AS fragment_id, CAST(o AS BIGINT) AS operator_id, \
                 CASE WHEN o = 2 THEN CAST(1 AS BIGINT) END AS parent_operator_id, name, '' AS details, CAST(NULL AS BIGINT) AS estimated_rows, \
                 CAST(NULL AS VARCHAR) AS sql_span, false AS captures, CAST(NULL AS VARCHAR) AS table_name, kind, false AS is_internal, \
                 CAST(NULL AS VARCHAR) AS captured_records, CAST(NULL AS VARCHAR) AS routing \
                 FROM (VALUES (1, 'FilterExec', 'filter'), (2, 'DataSourceExec', 'scan')) AS v(o, name, kind)"
                    .to_owned(),
            ),
            (
                "operator_stats",
                format!(
                    "SELECT CAST(1 AS BIGINT) AS query_id, CAST(0 AS BIGINT) AS fragment_id, CAST(o AS BIGINT) AS operator_id, t % {workers} AS worker_id, \
                     t AS partition, CAST({calls} AS BIGINT) AS calls, CASE WHEN o = 1 THEN {calls} * 10 ELSE CAST(0 AS BIGINT) END AS rows_in, \
                     CAST({calls} * 10 AS BIGINT) AS rows_out, CAST({calls} * 80 AS BIGINT) AS bytes_out, \
                     CAST({calls} * CASE WHEN o = 1 THEN {own_ns} ELSE {call} END AS BIGINT) AS self_ns, \
                     CAST({calls} * CASE WHEN o = 1 THEN {call} + {own_ns} ELSE {call} END AS BIGINT) AS total_ns, CAST(0 AS BIGINT) AS input_wait_ns, \
                     CAST(0 AS BIGINT) AS output_wait_ns, CAST(0 AS BIGINT) AS peak_memory_bytes, CAST(0 AS BIGINT) AS spilled_bytes, {} AS first_call_at, \
                     {} AS last_call_at FROM {task} AS tasks CROSS JOIN (VALUES (1), (2)) AS v(o)",
                    at("0"),
                    at(&format!("{step} * {} + {call} + CASE WHEN o = 1 THEN {own_ns} ELSE 0 END", calls - 1))
                ),
            ),
            (
                "operator_calls",
                format!(
                    "SELECT CAST(1 AS BIGINT) AS query_id, CAST(0 AS BIGINT) AS fragment_id, CAST(o AS BIGINT) AS operator_id, t % {workers} AS worker_id, \
                     t AS partition, {} AS started_at, {} AS ended_at, CAST(10 AS BIGINT) AS rows \
                     FROM {task} AS tasks CROSS JOIN {number} AS numbers CROSS JOIN (VALUES (1), (2)) AS v(o)",
                    at(&format!("{step} * c")),
                    at(&format!("{step} * c + {call} + CASE WHEN o = 1 THEN {own_ns} ELSE 0 END"))
                ),
            ),
            (
                "tuples_sent",
                format!(
                    "SELECT CAST(1 AS BIGINT) AS query_id, CAST(1 AS BIGINT) AS exchange_id, s AS source_worker, d AS destination_worker, d AS partition, \
                     CAST({sent} * CASE WHEN d = 0 THEN 2 ELSE 1 END AS BIGINT) AS tuples, CAST({sent} * 8 AS BIGINT) AS bytes, {} AS sent_at \
                     FROM (SELECT value AS s FROM generate_series(0, {last})) AS a CROSS JOIN (SELECT value AS d FROM generate_series(0, {last})) AS b",
                    at("5"),
                    last = workers - 1
                ),
            ),
        ])
    }
}

/// Writes a profile as EXPORT PROFILE does, and imports it; gives its id.
async fn import(
    tables: BTreeMap<&'static str, String>,
    session: &Session,
    directory: &Path,
) -> i64 {
    let directory = directory.join("truth");
    std::fs::create_dir_all(&directory).unwrap();
    let mut counts = BTreeMap::new();
    for (table, sql) in tables {
        let path = directory.join(format!("{table}.parquet"));
        let copy = format!("COPY ({sql}) TO '{}'", path.display());
        let written = session.query_as(&copy).await;
        let written: Vec<(i64,)> = written.unwrap_or_else(|error| panic!("{table}: {error}"));
        counts.insert(table, written[0].0);
    }
    let manifest = serde_json::json!({
        "format_version": 1, "skewer": "0.1.0", "query_id": 1, "sql": "SELECT truth", "tables": counts,
    });
    std::fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
    let import = format!("IMPORT PROFILE FROM '{}'", directory.display());
    let imported: Vec<(i64, String)> = session.query_as(&import).await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    imported[0].0
}

/// A view's SQL with values.
fn view(name: &str, values: &[(&str, String)]) -> String {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    find_view(name).unwrap().sql(&values.collect()).unwrap()
}

/// Sum of what an operator does in all bins: a bin without a row has what is still open.
async fn activity(session: &Session, values: &[(&str, String)], operator: i64, bins: i64) -> i64 {
    let sql = format!(
        "SELECT bin, width_ns, active_ns, open_calls FROM ({}) AS v WHERE layer = {operator} ORDER BY bin",
        view("activity", values)
    );
    let rows: Vec<(i64, i64, i64, i64)> = session.query_as(&sql).await.unwrap();
    let mut total = 0;
    for (place, (bin, width, active, open)) in rows.iter().enumerate() {
        let next = rows.get(place + 1).map_or(bins.max(*bin + 1), |row| row.0);
        total += active + open * width * (next - bin - 1);
    }
    total
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_the_views_are_the_generators() {
    let directory = tempfile::tempdir().unwrap();
    for truth in [
        Truth {
            tasks: 6,
            workers: 3,
            calls: 40,
            call_ns: 900,
            skew: 5,
            own_ns: 100,
            gap_ns: 50,
            sent: 7,
        },
        Truth {
            tasks: 1,
            workers: 1,
            calls: 1,
            call_ns: 1,
            skew: 1,
            own_ns: 1,
            gap_ns: 1,
            sent: 1,
        },
        Truth {
            tasks: 8,
            workers: 2,
            calls: 333,
            call_ns: 17,
            skew: 3,
            own_ns: 0,
            gap_ns: 0,
            sent: 1_000_000_000,
        },
        Truth {
            tasks: 3,
            workers: 3,
            calls: 5,
            call_ns: 70_000_000,
            skew: 2,
            own_ns: 1,
            gap_ns: 900_000_000,
            sent: 3,
        },
    ] {
        let database = Database::in_memory().unwrap();
        let session = database.session();
        let id = import(truth.tables(), &session, directory.path()).await;
        let of_query = ("query_id", id.to_string());
        let own_total = truth.tasks * truth.calls * truth.own_ns;

        let sql = format!(
            "SELECT operator_id, self_ns, rows_out, tasks, time_skew FROM ({}) AS v ORDER BY operator_id",
            view("plan", std::slice::from_ref(&of_query))
        );
        let plan: Vec<(i64, i64, i64, i64, Option<f64>)> = session.query_as(&sql).await.unwrap();
        let rows = truth.tasks * truth.calls * 10;
        assert_eq!(
            (plan[0].0, plan[0].1, plan[0].2, plan[0].3),
            (1, own_total, rows, truth.tasks),
            "{truth:?}"
        );
        assert_eq!(
            (plan[1].0, plan[1].1, plan[1].2),
            (2, truth.input_ns(), rows),
            "{truth:?}"
        );
        let mean = truth.input_ns() as f64 / truth.tasks as f64;
        let skew = (truth.calls * truth.call_of_task(0)) as f64 / mean;
        assert!(
            (plan[1].4.unwrap() - skew).abs() < 1e-9,
            "{truth:?}: {plan:?}"
        );

        for bins in [1, 7, 600, 2_048] {
            let values = [of_query.clone(), ("px", bins.to_string())];
            let input = activity(&session, &values, 2, bins).await;
            assert_eq!(input, truth.input_ns(), "{truth:?} in {bins} bins");
            assert_eq!(
                activity(&session, &values, 1, bins).await,
                truth.input_ns() + own_total,
                "{truth:?}"
            );
            let traced = format!(
                "SELECT CAST(sum(busy_ns) AS BIGINT), CAST(sum(calls) AS BIGINT) FROM ({}) AS v WHERE operator_id = 2",
                view("traces", &values)
            );
            let traced: Vec<(i64, i64)> = session.query_as(&traced).await.unwrap();
            assert_eq!(
                traced,
                [(truth.input_ns(), truth.tasks * truth.calls)],
                "{truth:?} in {bins} bins"
            );
        }
        // A part of the time has the parts of calls that lie in it.
        let half = PLANNING + truth.execution_ns() / 2;
        let mut parts = 0;
        for (lo, hi) in [(0, half), (half, PLANNING + truth.execution_ns())] {
            let values = [
                of_query.clone(),
                ("px", "100".to_owned()),
                ("lo", lo.to_string()),
                ("hi", hi.to_string()),
            ];
            parts += activity(&session, &values, 2, 100).await;
        }
        assert_eq!(parts, truth.input_ns(), "{truth:?} in two halves");

        let sent = view(
            "communication",
            &[of_query, ("exchange_id", "1".to_owned())],
        );
        let sent = format!(
            "SELECT destination_worker, CAST(sum(rows) AS BIGINT) FROM ({sent}) AS v GROUP BY destination_worker ORDER BY 1"
        );
        let sent: Vec<(i64, i64)> = session.query_as(&sent).await.unwrap();
        let expected: Vec<_> = (0..truth.workers)
            .map(|worker| {
                (
                    worker,
                    truth.workers * truth.sent * if worker == 0 { 2 } else { 1 },
                )
            })
            .collect();
        assert_eq!(sent, expected, "{truth:?}");
    }
}

/// The longest task is partition 1. Operator 1 was a straggler in partition 0, which is not the longest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_on_the_longest_task_names_no_operator_of_another_task() {
    let truth = Truth {
        tasks: 4,
        workers: 2,
        calls: 1,
        call_ns: 1,
        skew: 1,
        own_ns: 1,
        gap_ns: 1,
        sent: 1,
    };
    let directory = tempfile::tempdir().unwrap();
    let session = Database::in_memory().unwrap().session();
    for (in_longest, expected) in [(180, None), (300, Some((2, 1)))] {
        let mut tables = truth.tables();
        let stats = tables.get_mut("operator_stats").unwrap();
        *stats = format!(
            "SELECT * REPLACE (CAST(1000000 * CASE WHEN operator_id = 1 AND partition = 0 THEN 5 \
             WHEN operator_id = 1 THEN 1 WHEN partition = 1 THEN {in_longest} ELSE 100 END AS BIGINT) AS self_ns) \
             FROM ({stats}) AS s"
        );
        let id = import(tables, &session, directory.path()).await;
        let profile = session.profile_of(id).await.unwrap();
        let uneven = profile.time_spent.uneven.unwrap();
        let named = uneven
            .straggler
            .map(|straggler| (straggler.operator_id, straggler.partition));
        assert_eq!(named, expected, "{in_longest} ms");
    }
}
