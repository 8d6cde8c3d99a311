//! Queries over more rows than workers have memory for.

use skewer::{Database, Session};
use skewer_tests::cluster::Cluster;
use skewer_tests::watchdog::query_that_ends;

/// What the operators of a worker may hold.
const LIMIT_MIB: usize = 8;
const WORKERS: u32 = 3;

async fn run(session: &Session, sql: &str) -> Vec<String> {
    match query_that_ends(session, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{sql}: {error}"),
    }
}

/// A table with 25 MiB of rows on all workers, and one of which one key has 10.
async fn fill(session: &Session) {
    let script = "
        CREATE TABLE big AS
          SELECT value AS id, value % 50000 AS k, value * 3 AS a, value * 5 AS b, value * 7 AS c,
                 value * 11 AS d, value * 13 AS e, value * 17 AS f, value * 19 AS g, 'row ' || value AS s
          FROM generate_series(1, 300000);
        CREATE TABLE hot AS
          SELECT CASE WHEN value > 200 THEN 7 ELSE value END AS k, value * 3 AS a, value * 5 AS b,
                 value * 7 AS c, value * 11 AS d, value * 13 AS e, value * 17 AS f
          FROM generate_series(1, 200000);";
    session.execute_script(script).await.unwrap();
}

/// A query that is larger than the memory of all workers, and who spills.
struct Case {
    sql: &'static str,
    spills: &'static str,
}

const CASES: &[Case] = &[
    Case {
        sql: "SELECT id, a, b, c, d, e, f, g FROM big ORDER BY -id",
        spills: "SortExec",
    },
    Case {
        sql: "SELECT a, b, c, s, count(*), sum(id) FROM big GROUP BY a, b, c, s",
        spills: "AggregateExec",
    },
    Case {
        sql: "SELECT id, rank() OVER (PARTITION BY k ORDER BY id DESC), a, b, c, d, e, f FROM big",
        spills: "SortExec",
    },
    Case {
        sql: "SELECT x.id, x.s, y.a, y.b, y.c, y.d FROM big x JOIN big y ON x.a = y.a",
        spills: "SortExec",
    },
    Case {
        sql: "SELECT count(*), sum(x.a + y.a + y.b + y.c + y.d + y.e + y.f)
              FROM big x JOIN hot y ON x.id = y.k",
        // The sort, and the join where it has too little for the rows of one key.
        spills: "Sort",
    },
];

/// So that little memory is enough: sorts that set aside less than 10 MiB each, small batches, and
/// joins that spill.
const SETTINGS: &str = "
    SET datafusion.execution.sort_spill_reservation_bytes = 262144;
    SET datafusion.execution.batch_size = 1024;
    SET datafusion.optimizer.prefer_hash_join = false;";

/// Runs all queries on `session`, whose workers have little memory.
async fn all_spill_and_are_right(session: &Session, level: &str) {
    let oracle = Database::in_memory().unwrap().session();
    for session in [&oracle, session] {
        fill(session).await;
        session.execute_script(SETTINGS).await.unwrap();
    }
    run(session, &format!("SET profile.level = '{level}'")).await;
    for Case { sql, spills } in CASES {
        let (mut expected, mut given) = (run(&oracle, sql).await, run(session, sql).await);
        if !sql.contains(" ORDER BY -id") {
            expected.sort_unstable();
            given.sort_unstable();
        }
        assert!(given == expected, "{level}: other rows: {sql}");
        let spilled = spilled(session).await;
        eprintln!("{level}: {sql}: {spilled:?}");
        let mut by_operator = spilled.iter().filter(|line| line.starts_with(spills));
        assert!(by_operator.next().is_some(), "{level}: {sql}: {spilled:?}");
    }
}

/// Which operators of the last query have spilled on which workers, and how much.
async fn spilled(session: &Session) -> Vec<String> {
    let spilled = "SELECT o.name, s.worker_id, sum(s.spilled_bytes) FROM sys.operator_stats s
                   JOIN sys.operators o
                     ON s.query_id = o.query_id AND s.operator_id = o.operator_id
                   WHERE s.query_id = last_query_id() AND s.spilled_bytes > 0
                   GROUP BY o.name, s.worker_id ORDER BY o.name, s.worker_id";
    run(session, spilled).await
}

/// Workers in this process, which share its memory.
fn in_process() -> Session {
    Database::builder()
        .workers(WORKERS as usize)
        .worker_threads(2)
        .memory_limit((WORKERS as usize * LIMIT_MIB) << 20)
        .build()
        .unwrap()
        .session()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_larger_than_the_memory_of_workers_in_one_process_spill_and_are_right() {
    all_spill_and_are_right(&in_process(), "counters").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_do_so_while_records_are_traced() {
    all_spill_and_are_right(&in_process(), "records").await;
}

/// Workers of which each has a memory of its own; the master has as much as it wants.
fn of_little_memory() -> Cluster {
    Cluster::with_workers(
        WORKERS,
        |builder| builder,
        |_, command| {
            command.args(["--memory-limit", &format!("{LIMIT_MIB}MiB")]);
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_larger_than_the_memory_of_processes_spill_on_all_of_them_and_are_right() {
    let cluster = of_little_memory();
    let session = cluster.session();
    all_spill_and_are_right(&session, "counters").await;
    // Each has a third of the rows.
    run(&session, CASES[0].sql).await;
    let of_sort = spilled(&session).await;
    for (number, line) in (1..=WORKERS).zip(&of_sort) {
        assert!(
            line.starts_with(&format!("SortExec|{number}|")),
            "{of_sort:?}"
        );
    }
    assert_eq!(of_sort.len(), WORKERS as usize, "{of_sort:?}");
    // One worker has all rows of one key, which are more than its memory.
    run(&session, CASES[CASES.len() - 1].sql).await;
    let of_join = spilled(&session).await;
    let mut by_join = of_join
        .iter()
        .filter(|line| line.starts_with("SortMergeJoinExec|"));
    assert!(by_join.next().is_some(), "{of_join:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_join_that_is_too_large_for_a_worker_spills_there() {
    let cluster = of_little_memory();
    let session = cluster.session();
    fill(&session).await;
    let join = "SELECT count(*), max(x.s || y.s), sum(x.a + x.b + x.c + x.d + x.e + x.f + x.g),
                sum(y.a + y.b + y.c + y.d + y.e + y.f + y.g) FROM big x JOIN big y ON x.id = y.id";
    let by_hash = run(&session, join).await;
    let of_join = spilled(&session).await;
    assert!(
        of_join.iter().any(|line| line.starts_with("HashJoinExec|")),
        "{of_join:?}"
    );
    session.execute_script(SETTINGS).await.unwrap();
    assert_eq!(run(&session, join).await, by_hash);
}
