//! The hint, `sys.diagnoses`, `sys.anomalies` and the report name the same records: of profiles that are made up and
//! imported, so that no clock decides.

use std::collections::BTreeSet;
use std::path::Path;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, Session};

const MS: i64 = 1_000_000;

/// A record of `main.t`: what expressions over it took, and how many rows an unnest made of it.
#[derive(Debug, Clone, Copy)]
struct Record {
    ns: i64,
    rows: i64,
}

/// A query that evaluates an expression over the records of a table, unnests them and groups the rows.
#[derive(Debug, Clone)]
struct Profile {
    /// Row ids are 1, 2 and so on.
    records: Vec<Record>,
    /// Whether result rows wait for the records, each for one.
    waits: bool,
    /// What the unnest takes for a row that it makes.
    row_ns: i64,
    /// How many workers have the records in turn; 0 in a process of its own.
    workers: usize,
}

impl Profile {
    /// Records that took so much, one row each.
    fn of_times(ns: impl IntoIterator<Item = i64>) -> Self {
        Self {
            records: ns.into_iter().map(|ns| Record { ns, rows: 1 }).collect(),
            waits: true,
            row_ns: 0,
            workers: 0,
        }
    }

    /// Records of which so many rows were made, a millisecond each.
    fn of_rows(rows: impl IntoIterator<Item = i64>) -> Self {
        let records = rows.into_iter().map(|rows| Record { ns: 1_000, rows });
        Self {
            records: records.collect(),
            waits: false,
            row_ns: MS,
            ..Self::of_times([])
        }
    }

    /// The records of each task with their row ids.
    fn tasks(&self) -> Vec<Vec<(i64, Record)>> {
        let tasks = self.workers.max(1);
        let mut records = vec![Vec::new(); tasks];
        for (index, record) in self.records.iter().enumerate() {
            records[index % tasks].push((index as i64 + 1, *record));
        }
        records
    }

    fn worker(&self, task: usize) -> usize {
        task + self.workers.min(1)
    }

    /// What the longest task took, and all of them.
    fn times(&self) -> (i64, i64) {
        let took = |record: &Record| record.ns + record.rows * self.row_ns;
        let task = |records: &Vec<(i64, Record)>| records.iter().map(|it| took(&it.1)).sum();
        let tasks: Vec<i64> = self.tasks().iter().map(task).collect();
        (
            tasks.iter().copied().max().unwrap_or(0),
            tasks.iter().sum::<i64>(),
        )
    }

    /// The records that stand out with what they cost, by the rules of docs/explain-profile.md.
    fn expected(&self) -> Vec<(i64, i64)> {
        let (query_ns, busy_ns) = self.times();
        let count = self.records.len() as i64;
        let mut times: Vec<i64> = self.records.iter().map(|record| record.ns).collect();
        times.sort_unstable();
        let median = i64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2]);
        let notable = [query_ns / 20, MS];
        let times = [10 * median, 2 * (busy_ns / count)];
        let threshold = times.into_iter().chain(notable).max().unwrap_or(0);
        let named = (1..).zip(&self.records);
        let mut expected: Vec<(i64, i64)> = named
            .clone()
            .filter(|(_, record)| record.ns >= threshold)
            .map(|(row_id, record)| (row_id, record.ns))
            .collect();
        let threshold = [busy_ns / 20].into_iter().chain(notable).max().unwrap_or(0);
        let mut by_rows: Vec<(i64, i64)> = named
            .map(|(row_id, record)| (row_id, record.rows))
            .collect();
        by_rows.sort_by_key(|(row_id, rows)| (-rows, *row_id));
        let mut left: i64 = by_rows.iter().map(|(_, rows)| rows).sum();
        for (place, (row_id, rows)) in (1..).zip(by_rows).take(3) {
            left -= rows;
            if place == count || rows * (count - place) < 10 * left {
                break;
            }
            let is_new = expected.iter().all(|(named, _)| *named != row_id);
            if is_new && rows * self.row_ns >= threshold {
                expected.push((row_id, rows * self.row_ns));
            }
        }
        expected
    }

    /// Writes it as EXPORT PROFILE does.
    async fn export(&self, session: &Session, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        let (execution_ns, _) = self.times();
        let operators = [
            (0, "NULL", "AggregateExec", "NULL"),
            (1, "0", "UnnestExec", "NULL"),
            (2, "1", "TimedEvaluationExec", "NULL"),
            (3, "2", "DataSourceExec", "'main.t'"),
        ];
        let operators = operators.map(|(id, parent, name, table)| {
            format!("(0, {id}, {parent}, '{name}', '', {}, {table})", id == 0)
        });
        let (mut stats, mut latencies, mut edges, mut groups) = (vec![], vec![], vec![], vec![]);
        for (task, records) in self.tasks().iter().enumerate() {
            let worker = self.worker(task);
            let count = records.len() as i64;
            let rows: i64 = records.iter().map(|(_, record)| record.rows).sum();
            let ns: i64 = records.iter().map(|(_, record)| record.ns).sum();
            for (operator, rows_in, rows_out, self_ns) in [
                (0, rows, count, 0),
                (1, count, rows, rows * self.row_ns),
                (2, count, count, ns),
                (3, 0, count, 0),
            ] {
                stats.push(format!(
                    "(0, {operator}, {worker}, {task}, 1, {rows_in}, {rows_out}, 0, {self_ns}, {self_ns}, \
                     0, 0, 0, 0)"
                ));
            }
            for (row_id, record) in records {
                let ns = record.ns;
                latencies.push(format!(
                    "(0, 2, {worker}, {task}, 'main.t', {row_id}, {ns}, 'computation', 'measured', 0)"
                ));
                let waits = if self.waits { ns } else { 0 };
                for _ in 0..record.rows {
                    edges.push(format!(
                        "(0, 0, {worker}, {task}, {row_id}, 3, 'main.t', {row_id}, {waits})"
                    ));
                }
                groups.push(format!("({}, 0, {row_id}, 0)", row_id - 1));
            }
        }
        let query = format!(
            "('SELECT …', 'SELECT …', 'finished', 'records', 1.0, 'log', 0, 0, {execution_ns}, {})",
            groups.len()
        );
        let tables = [
            (
                "queries",
                "sql, fingerprint, status, profile_level, sample_rate, lineage, started_at, planning_ns, \
                 execution_ns, rows_returned",
                vec![query],
            ),
            (
                "operators",
                "fragment_id, operator_id, parent_operator_id, name, details, captures, table_name",
                operators.to_vec(),
            ),
            (
                "operator_stats",
                "fragment_id, operator_id, worker_id, partition, calls, rows_in, rows_out, bytes_out, \
                 self_ns, total_ns, input_wait_ns, output_wait_ns, peak_memory_bytes, spilled_bytes",
                stats,
            ),
            (
                "record_latency",
                "fragment_id, operator_id, worker_id, partition, table_name, row_id, latency_ns, kind, \
                 method, error_ns",
                latencies,
            ),
            (
                "lineage",
                "fragment_id, operator_id, worker_id, partition, output_id, input_operator_id, \
                 table_name, input_id, input_latency_ns",
                edges,
            ),
            (
                "output_records",
                "output_row, operator_id, record_id, latency_ns",
                groups,
            ),
        ];
        let mut counts = Vec::new();
        for (table, columns, rows) in tables {
            let file = directory.join(format!("{table}.parquet"));
            let values = rows.join(", ");
            let sql = format!(
                "COPY (SELECT * FROM (VALUES {values}) AS v({columns})) TO '{}'",
                file.display()
            );
            answer(session, &sql).await;
            counts.push(format!("\"{table}\": {}", rows.len()));
        }
        let manifest = format!(
            "{{\"format_version\": 1, \"skewer\": \"0\", \"query_id\": 1, \"sql\": \"SELECT …\", \
             \"tables\": {{{}}}}}",
            counts.join(", ")
        );
        std::fs::write(directory.join("manifest.json"), manifest).unwrap();
    }
}

async fn answer(session: &Session, sql: &str) -> Vec<RecordBatch> {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    let answer = stream.collect().await;
    answer.unwrap_or_else(|error| panic!("{sql}\n{error}"))
}

/// The first column as texts.
async fn column(session: &Session, sql: &str) -> Vec<String> {
    let batches = answer(session, sql).await;
    let texts = batches.iter().flat_map(|batch| {
        let texts = cast(batch.column(0), &DataType::Utf8).unwrap();
        let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
        texts
            .into_iter()
            .map(|text| text.unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    });
    texts.collect()
}

/// Imports the profile and compares who says what about it.
async fn check(session: &Session, directory: &Path, profile: &Profile) {
    profile.export(session, directory).await;
    let import = format!("IMPORT PROFILE FROM '{}'", directory.display());
    let imported = answer(session, &import).await;
    let query_id = super::first_row(&imported[0])
        .unwrap()
        .integer("query_id")
        .unwrap();

    let mut expected = profile.expected();
    expected.sort_by_key(|(row_id, cost)| (-cost, *row_id));
    let subjects: Vec<String> = expected
        .iter()
        .map(|(row_id, _)| format!("main.t row {row_id}"))
        .collect();
    let all: BTreeSet<String> = subjects.iter().cloned().collect();

    let sql = format!(
        "SELECT concat(table_name, ' row ', row_id) AS subject FROM sys.anomalies \
         WHERE query_id = {query_id} AND row_id IS NOT NULL ORDER BY cost_ns DESC, row_id"
    );
    assert_eq!(column(session, &sql).await, subjects, "{profile:?}");

    let report = column(session, &format!("SHOW PROFILE {query_id}")).await;
    let named = report.iter().filter_map(|line| {
        let (_, rest) = line.split_once("● Row ")?;
        let (row_id, _) = rest.split_once(" of t ")?;
        Some(format!("main.t row {row_id}"))
    });
    let text = report.join("\n");
    assert_eq!(named.collect::<BTreeSet<_>>(), all, "{text}\n{profile:?}");
    let stands_out = text.contains("input record stands out");
    assert_eq!(stands_out, all.is_empty(), "{text}\n{profile:?}");

    let diagnoses = format!(
        "SELECT subject FROM sys.diagnoses WHERE query_id = {query_id} AND rule = 'expensive input' \
         AND severity IN ('critical', 'warning')"
    );
    let found = column(session, &diagnoses).await;
    assert_eq!(found.len(), all.len(), "{found:?}\n{profile:?}");
    let found: BTreeSet<_> = found.into_iter().collect();
    assert_eq!(found, all, "{profile:?}");
    let unsure = diagnoses.replace("severity IN", "severity NOT IN");
    assert!(column(session, &unsure).await.is_empty(), "{profile:?}");

    let hint = answer(session, &super::sql(query_id)).await;
    let hint = hint.iter().find_map(super::line);
    let record = hint.as_ref().and_then(|line| {
        let (_, rest) = line.split_once("expensive input in ")?;
        Some(rest.split_once(": ")?.0.to_owned())
    });
    if profile.workers == 0 {
        // Nothing else is conspicuous about one task.
        assert_eq!(record.as_ref(), subjects.first(), "{hint:?}\n{profile:?}");
        assert_eq!(record.is_some(), hint.is_some(), "{hint:?}\n{profile:?}");
    } else {
        // That its task took longer than the others may be worse.
        assert!(hint.is_some() || subjects.is_empty(), "{profile:?}");
        assert!(
            record.is_none_or(|record| all.contains(&record)),
            "{hint:?}\n{profile:?}"
        );
    }
}

/// Profiles of one task each, and whether a record stands out.
fn given() -> Vec<(Profile, usize)> {
    let times = |hot: &[i64], count: usize, usual: i64| {
        let usual = (0..count).map(|place| usual + place as i64 % 3);
        Profile::of_times(hot.iter().copied().chain(usual))
    };
    vec![
        // One hot record, which a result row waits for, or nothing but its own evaluation.
        (times(&[500 * MS], 100, MS), 1),
        (
            Profile {
                waits: false,
                ..times(&[500 * MS], 100, MS)
            },
            1,
        ),
        // Several, and none.
        (times(&[300 * MS, 290 * MS, 280 * MS], 100, MS), 3),
        (times(&[], 100, 5 * MS), 0),
        // Each takes 2 % of the query, and one takes 12 %.
        (times(&[120 * MS], 44, 20 * MS), 0),
        // One takes 6 %, less than what makes a diagnosis of other kinds a warning.
        (times(&[64 * MS], 1_000, MS), 1),
        // The query takes less than a record has to.
        (times(&[MS / 2], 40, 1_000), 0),
        // An unnest made many rows of one record, of two, or as many of each.
        (Profile::of_rows([300].into_iter().chain([3; 39])), 1),
        (Profile::of_rows([300, 200].into_iter().chain([3; 39])), 2),
        (Profile::of_rows([20; 30]), 0),
        // Of one record many rows were made, and another took long.
        (
            {
                let mut both = Profile::of_rows([300].into_iter().chain([3; 39]));
                both.records[7].ns = 400 * MS;
                both
            },
            2,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn report_diagnoses_and_hint_name_the_same_records() {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = database.session();
    let scratch = tempfile::tempdir().unwrap();
    for (number, (profile, count)) in given().into_iter().enumerate() {
        assert_eq!(profile.expected().len(), count, "{profile:?}");
        let directory = scratch.path().join(number.to_string());
        check(&session, &directory, &profile).await;
    }
    let mut random = ChaCha8Rng::seed_from_u64(33);
    for number in 0..4 {
        let count = random.random_range(20..60);
        let least = random.random_range(1..20) * MS / 10;
        let mut profile =
            Profile::of_times((0..count).map(|_| random.random_range(least..=2 * least)));
        for _ in 0..random.random_range(0..3) {
            let record = random.random_range(0..profile.records.len());
            profile.records[record].ns *= random.random_range(2..60);
        }
        profile.waits = random.random();
        let directory = scratch.path().join(format!("random {number}"));
        check(&session, &directory, &profile).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn they_name_the_same_records_of_a_query_of_three_workers() {
    let builder = Database::builder().worker_threads(2).workers(3);
    let session = builder.build().unwrap().session();
    let scratch = tempfile::tempdir().unwrap();
    for place in [0, 4, 7] {
        let (profile, count) = given().swap_remove(place);
        let profile = Profile {
            workers: 3,
            ..profile
        };
        assert_eq!(profile.expected().len(), count, "{profile:?}");
        let directory = scratch.path().join(place.to_string());
        check(&session, &directory, &profile).await;
    }
}
