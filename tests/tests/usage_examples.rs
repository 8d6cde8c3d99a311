//! The usage examples of the Perfopticon paper (Moritz et al. 2015, section 6), told by the views of the
//! profiler's page on a small cluster: what a person reads there is here a number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skewer::{Database, Session};
use skewer_page::views::find_view;
use skewer_tests::cluster::Cluster;

/// A view's SQL with values.
fn view(name: &str, values: &[(&str, i64)]) -> String {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_string()));
    find_view(name).unwrap().sql(&values.collect()).unwrap()
}

async fn run(session: &Session, sql: &str) -> i64 {
    let stream = session
        .sql(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    stream
        .collect()
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    session.last_query_id().unwrap_or_default()
}

/// A follower graph whose one celebrity has a third of all followers, and its users.
async fn follower_graph(session: &Session) {
    run(
        session,
        "CREATE TABLE follows AS SELECT CASE WHEN value % 3 = 0 THEN 7 ELSE value % 5000 END AS followee, \
         (value * 7919) % 5000 AS follower FROM generate_series(1, 90000)",
    )
    .await;
    run(session, "CREATE TABLE users AS SELECT value AS id, value % 13 AS country FROM generate_series(0, 4999)").await;
    // Joins that move both sides by their keys.
    run(
        session,
        "SET datafusion.optimizer.hash_join_single_partition_threshold = 0",
    )
    .await;
    run(
        session,
        "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
    )
    .await;
}

/// Stops a process most of the time: a machine that is slow for all that it runs.
struct Slowed {
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    fn process(id: u32) -> Self {
        let signal = move |signal: &str| {
            let sent = std::process::Command::new("kill")
                .args([signal, &id.to_string()])
                .status();
            assert!(sent.unwrap().success(), "process {id} cannot be stopped");
        };
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                signal("-STOP");
                std::thread::sleep(Duration::from_millis(40));
                signal("-CONT");
                std::thread::sleep(Duration::from_millis(8));
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Section 6.1: all fragments of one machine are late, whatever they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_machine_is_slow_in_every_query() {
    const SLOW: u32 = 2;
    let cluster = Cluster::start(3);
    let session = cluster.session();
    run(
        &session,
        "CREATE TABLE numbers AS SELECT value AS n FROM generate_series(1, 300000)",
    )
    .await;
    {
        let _slowed = Slowed::process(cluster.process(SLOW));
        for modulus in 3..10 {
            let sql = format!(
                "SELECT n % {modulus} AS g, sum(sqrt(n) * ln(n)), max(md5(n::text)) FROM numbers GROUP BY g"
            );
            run(&session, &sql).await;
        }
    }
    let sql = format!(
        "SELECT worker_id, row_time_ratio, row_time_z, rows_ratio FROM ({}) AS v ORDER BY row_time_z DESC",
        view("worker_scores", &[])
    );
    let scores: Vec<(i64, f64, f64, f64)> = session.query_as(&sql).await.unwrap();
    assert_eq!(scores.len(), 3, "{scores:?}");
    let (worker, ratio, z, rows) = scores[0];
    assert_eq!(worker, i64::from(SLOW), "{scores:?}");
    assert!(
        ratio > 1.3 && z > 3.5,
        "a row takes longer there: {scores:?}"
    );
    assert!(
        (0.7..1.4).contains(&rows),
        "it has as many rows as the others: {scores:?}"
    );
}

/// Section 6.2: rows are moved although they are where they are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redundant_shuffle_is_seen_as_rows_that_cross_workers() {
    let database = Database::builder().workers(3).build().unwrap();
    let session = database.session();
    follower_graph(&session).await;
    run(&session, "SET profile.level = 'calls'").await;
    let counted = "SELECT followee, count(*) AS n FROM follows GROUP BY followee";
    // The second shuffle is by another key, and undone by none: each row of the groups moves twice.
    let twice = run(
        &session,
        &format!("SELECT n, count(*) FROM (SELECT DISTINCT followee, n FROM ({counted}) AS c) AS d GROUP BY n"),
    )
    .await;
    let once = run(&session, counted).await;
    let crossed = async |id: i64| {
        let sql = format!(
            "SELECT count(*), CAST(sum(rows) AS BIGINT) FROM ({}) AS v WHERE rows > 0 AND routing = 'hash'",
            view("exchanges", &[("query_id", id)])
        );
        let rows: Vec<(i64, Option<i64>)> = session.query_as(&sql).await.unwrap();
        (rows[0].0, rows[0].1.unwrap_or(0))
    };
    let (twice, once) = (crossed(twice).await, crossed(once).await);
    assert!(twice.0 > once.0, "more exchanges: {twice:?} and {once:?}");
    assert!(
        twice.1 > once.1,
        "more rows are moved: {twice:?} and {once:?}"
    );
    assert!(once.1 >= 4_000, "{once:?}");
}

/// Section 6.3: rows that an operator returns differ from run to run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runs_of_a_statement_are_told_apart_by_their_rows() {
    let database = Database::builder().workers(3).build().unwrap();
    let session = database.session();
    follower_graph(&session).await;
    let sql = "SELECT country, count(*) FROM follows JOIN users ON followee = id GROUP BY country";
    let first = run(&session, sql).await;
    run(
        &session,
        "INSERT INTO follows SELECT followee, follower + 1 FROM follows",
    )
    .await;
    let second = run(&session, sql).await;
    let compared = format!(
        "SELECT v.query_id, CAST(sum(v.rows_out) AS BIGINT) FROM ({}) AS v \
         JOIN sys.operators AS o ON o.query_id = v.query_id AND o.operator_id = v.operator_id \
         WHERE o.kind = 'scan' AND o.table_name LIKE '%follows' GROUP BY v.query_id ORDER BY v.query_id",
        view("compare", &[("query_id", first), ("other_id", second)])
    );
    let rows: Vec<(i64, i64)> = session.query_as(&compared).await.unwrap();
    assert_eq!(rows, [(first, 90_000), (second, 180_000)]);
}

/// Section 6.4: a join by the followed user gives one worker most rows; a join by the follower is even.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skewed_join_and_its_even_alternative() {
    let database = Database::builder().workers(3).build().unwrap();
    let session = database.session();
    follower_graph(&session).await;
    run(&session, "SET profile.level = 'calls'").await;
    let join = |key: &str| {
        format!("SELECT country, count(*) FROM follows JOIN users ON {key} = id GROUP BY country")
    };
    let (skewed, even) = (
        run(&session, &join("followee")).await,
        run(&session, &join("follower")).await,
    );
    // Of the exchange that moves the most rows: the largest receiver over the mean of them all.
    let skew = async |id: i64| {
        let sql = format!(
            "SELECT exchange_id FROM ({}) AS v WHERE routing = 'hash' ORDER BY rows DESC LIMIT 1",
            view("exchanges", &[("query_id", id)])
        );
        let exchange: Vec<(i64,)> = session.query_as(&sql).await.unwrap();
        let received = format!(
            "SELECT CAST(max(rows) AS DOUBLE) / avg(rows), CAST(sum(rows) AS BIGINT) FROM ({}) AS v",
            view(
                "receivers",
                &[("query_id", id), ("exchange_id", exchange[0].0)]
            )
        );
        let received: Vec<(f64, i64)> = session.query_as(&received).await.unwrap();
        (received[0].0, received[0].1, exchange[0].0)
    };
    let (skewed_by, rows, exchange) = skew(skewed).await;
    assert_eq!(rows, 90_000);
    assert!(skewed_by > 1.8, "{skewed_by}");
    let (even_by, rows, _) = skew(even).await;
    assert_eq!(rows, 90_000);
    assert!(even_by < 1.3, "{even_by}");
    // The page names the key.
    let keys = format!(
        "SELECT key, share FROM ({}) AS v ORDER BY share DESC LIMIT 1",
        view(
            "exchange_keys",
            &[("query_id", skewed), ("exchange_id", exchange)]
        )
    );
    let keys: Vec<(String, f64)> = session.query_as(&keys).await.unwrap();
    assert_eq!(keys[0].0, "7", "{keys:?}");
    assert!((0.25..0.42).contains(&keys[0].1), "{keys:?}");
}
