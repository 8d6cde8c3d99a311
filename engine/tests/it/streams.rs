//! Streams and continuous queries: results once each, whatever happens in between.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use skewer::{Database, Session};

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Micro-batches run when the test asks for them.
const ON_DEMAND: &str = "EVERY 1000000000 ROWS";

async fn run(session: &Session, sql: &str) {
    session
        .execute_script(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn error(session: &Session, sql: &str) -> String {
    match session.execute_script(sql).await {
        Ok(_) => panic!("{sql} is no error"),
        Err(error) => error.to_string(),
    }
}

async fn number(session: &Session, sql: &str) -> i64 {
    let rows: Vec<(i64,)> = session
        .query_as(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows[0].0
}

async fn texts(session: &Session, sql: &str) -> Vec<String> {
    let rows: Vec<(String,)> = session
        .query_as(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.into_iter().map(|(text,)| text).collect()
}

/// Waits until a query has this result.
async fn wait_for(session: &Session, sql: &str, expected: i64) {
    let begun = Instant::now();
    loop {
        let found = number(session, sql).await;
        if found == expected {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{sql} is {found} and not {expected}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn rows_are_processed_once_by_the_driver() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        "CREATE STREAM s (a BIGINT, b VARCHAR) FROM INSERT;
         CREATE TABLE t (a BIGINT, b VARCHAR);
         CREATE CONTINUOUS QUERY q INTO t EVERY INTERVAL '1 millisecond' AS
           SELECT a * 10, upper(b) FROM s WHERE a > 1",
    )
    .await;
    for n in 0..20 {
        run(&session, &format!("INSERT INTO s VALUES ({n}, 'x')")).await;
    }
    wait_for(&session, "SELECT count(*) FROM t", 18).await;
    assert_eq!(number(&session, "SELECT sum(a) FROM t").await, 1890);
    wait_for(&session, "SELECT count(*) FROM s", 0).await;
    let batches = "SELECT sum(rows_in) FROM sys.micro_batches WHERE error IS NULL";
    wait_for(&session, batches, 20).await;
    let unknown = "SELECT count(*) FROM sys.micro_batches AS b LEFT ANTI JOIN sys.queries AS q ON q.query_id = b.query_id";
    assert_eq!(number(&session, unknown).await, 0);
}

/// Events of windows of one minute: a watermark that is ten seconds behind.
const CLICKS: &str = "CREATE STREAM clicks (ts TIMESTAMP, page VARCHAR, ms BIGINT,
     WATERMARK FOR ts AS ts - INTERVAL '10 seconds') FROM INSERT;";

#[tokio::test]
async fn windows_are_emitted_once_also_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "{CLICKS}
         CREATE TABLE all_clicks (ts TIMESTAMP, page VARCHAR, ms BIGINT);
         CREATE TABLE minutes (begins TIMESTAMP, ends TIMESTAMP, page VARCHAR, clicks BIGINT, middle DOUBLE);
         CREATE TABLE sliding (begins TIMESTAMP, clicks BIGINT, ms BIGINT);
         CREATE CONTINUOUS QUERY q1 INTO minutes {ON_DEMAND} AS
           SELECT tumble(ts, INTERVAL '1 minute'), tumble_end(ts, INTERVAL '1 minute'), page, count(*), median(ms)
           FROM clicks GROUP BY tumble(ts, INTERVAL '1 minute'), tumble_end(ts, INTERVAL '1 minute'), page;
         CREATE CONTINUOUS QUERY q2 INTO sliding {ON_DEMAND} AS
           SELECT hop(ts, INTERVAL '1 minute', INTERVAL '25 seconds') AS w, count(*), sum(ms)
           FROM clicks AS c GROUP BY w;"
    );
    let db = Database::open(directory.path()).unwrap();
    run(&db.session(), &script).await;
    drop(db);
    // Rows come up to nine seconds late, so none is too late.
    for round in 0..12 {
        let db = Database::open(directory.path()).unwrap();
        let session = db.session();
        let rows: Vec<String> = (0..40)
            .map(|n| {
                let second = round * 40 + n;
                let at = 1_700_000_000 + second - (second * 7) % 10;
                format!("(to_timestamp({at}), 'p{}', {second})", second % 3)
            })
            .collect();
        for target in ["clicks", "all_clicks"] {
            run(
                &session,
                &format!("INSERT INTO {target} VALUES {}", rows.join(", ")),
            )
            .await;
        }
        run(&session, "REFRESH CONTINUOUS QUERY q1").await;
        if round % 3 == 2 {
            run(
                &session,
                "REFRESH CONTINUOUS QUERY q2; REFRESH CONTINUOUS QUERY q2",
            )
            .await;
        }
        match round % 2 {
            0 => db.close().await.unwrap(),
            _ => drop(db),
        }
    }
    let session = Database::open(directory.path()).unwrap().session();
    let watermark = "(SELECT max(ts) - INTERVAL '10 seconds' FROM all_clicks)";
    let minutes = format!(
        "SELECT date_bin(INTERVAL '1 minute', ts) AS b, date_bin(INTERVAL '1 minute', ts) + INTERVAL '1 minute',
            page, count(*), median(ms) FROM all_clicks
         GROUP BY b, page HAVING b + INTERVAL '1 minute' <= {watermark}"
    );
    let sliding = format!(
        "SELECT b, count(*), sum(ms) FROM (
           SELECT *, unnest([date_bin(INTERVAL '25 seconds', ts),
             date_bin(INTERVAL '25 seconds', ts) - INTERVAL '25 seconds',
             date_bin(INTERVAL '25 seconds', ts) - INTERVAL '50 seconds']) AS b FROM all_clicks)
         WHERE ts < b + INTERVAL '1 minute' GROUP BY b HAVING b + INTERVAL '1 minute' <= {watermark}"
    );
    for (table, expected) in [("minutes", minutes), ("sliding", sliding)] {
        let found = number(&session, &format!("SELECT count(*) FROM {table}")).await;
        assert!(found > 10, "{table}: {found}");
        let both =
            format!("SELECT count(*) FROM (SELECT * FROM {table} INTERSECT ALL ({expected}))");
        let wanted = format!("SELECT count(*) FROM ({expected})");
        assert_eq!(number(&session, &wanted).await, found, "{table}");
        assert_eq!(number(&session, &both).await, found, "{table}");
    }
    let late = "SELECT CAST(sum(late_rows) AS BIGINT) FROM sys.micro_batches";
    assert_eq!(number(&session, late).await, 0);
    // Only rows of open windows are kept: at most two minutes and the delay.
    let kept = number(&session, "SELECT count(*) FROM clicks").await;
    assert!(kept <= 240, "{kept}");
}

#[tokio::test]
async fn late_rows_are_dropped_and_counted() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        &format!(
            "{CLICKS}
             CREATE TABLE t (w TIMESTAMP, n BIGINT);
             CREATE CONTINUOUS QUERY q INTO t {ON_DEMAND} AS
               SELECT tumble(ts, INTERVAL '1 minute'), count(*) FROM clicks GROUP BY 1;
             INSERT INTO clicks VALUES ('2024-01-01 00:00:10', 'a', 1), ('2024-01-01 00:01:00', 'a', 1);
             REFRESH CONTINUOUS QUERY q;
             INSERT INTO clicks VALUES ('2024-01-01 00:00:20', 'not too late', 1), ('2024-01-01 00:01:10', 'a', 1);
             REFRESH CONTINUOUS QUERY q;
             INSERT INTO clicks VALUES ('2024-01-01 00:00:30', 'too late', 1), ('2024-01-01 00:02:10', 'a', 1);
             REFRESH CONTINUOUS QUERY q;"
        ),
    )
    .await;
    let rows: Vec<(String, i64)> = session
        .query_as("SELECT CAST(w AS VARCHAR) AS begins, n FROM t ORDER BY begins")
        .await
        .unwrap();
    let expected = [("2024-01-01 00:00:00", 2), ("2024-01-01 00:01:00", 2)];
    assert_eq!(rows, expected.map(|(time, n)| (time.to_owned(), n)));
    let batches: Vec<(i64, i64, i64, i64)> = session
        .query_as(
            "SELECT batch, rows_in, late_rows, rows_out FROM sys.micro_batches ORDER BY batch",
        )
        .await
        .unwrap();
    assert_eq!(batches, [(1, 2, 0, 0), (2, 2, 0, 1), (3, 2, 1, 1)]);
}

#[tokio::test]
async fn a_micro_batch_that_fails_loses_nothing() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        "CREATE STREAM s (a BIGINT) FROM INSERT;
         CREATE TABLE t (a BIGINT);
         CREATE CONTINUOUS QUERY q INTO t EVERY INTERVAL '1 millisecond' AS SELECT 100 / a FROM s;
         INSERT INTO s VALUES (1), (2);",
    )
    .await;
    wait_for(&session, "SELECT count(*) FROM t", 2).await;
    run(&session, "DROP TABLE t; INSERT INTO s VALUES (4)").await;
    let failed = "SELECT count(DISTINCT batch) FROM sys.micro_batches WHERE error IS NOT NULL";
    wait_for(&session, failed, 1).await;
    let errors = texts(
        &session,
        "SELECT DISTINCT error FROM sys.micro_batches WHERE error IS NOT NULL",
    )
    .await;
    assert_eq!(errors, ["there is no table t"]);
    let shown = texts(&session, "SELECT error FROM sys.continuous_queries").await;
    assert_eq!(shown, errors);
    assert_eq!(
        error(&session, "REFRESH CONTINUOUS QUERY q").await,
        "there is no table t"
    );
    run(
        &session,
        "CREATE TABLE t (a BIGINT); REFRESH CONTINUOUS QUERY q",
    )
    .await;
    wait_for(&session, "SELECT CAST(sum(a) AS BIGINT) FROM t", 25).await;
    // A row that the query cannot compute stays, and what comes after it waits.
    run(
        &session,
        "INSERT INTO s VALUES (0); INSERT INTO s VALUES (5)",
    )
    .await;
    let refreshed = error(&session, "REFRESH CONTINUOUS QUERY q").await;
    assert_eq!(refreshed, "division by zero");
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 1);
    assert_eq!(number(&session, "SELECT count(*) FROM s").await, 2);
}

#[tokio::test]
async fn a_stream_keeps_rows_until_its_last_reader_has_read_them() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        &format!(
            "CREATE STREAM s (a BIGINT) FROM INSERT;
             CREATE TABLE t (a BIGINT);
             INSERT INTO s VALUES (1), (2);
             CREATE CONTINUOUS QUERY fast INTO t {ON_DEMAND} AS SELECT a FROM s;
             CREATE CONTINUOUS QUERY slow INTO t {ON_DEMAND} AS SELECT -a FROM s;
             REFRESH CONTINUOUS QUERY fast;
             INSERT INTO s VALUES (3);
             REFRESH CONTINUOUS QUERY fast;"
        ),
    )
    .await;
    assert_eq!(number(&session, "SELECT count(*) FROM s").await, 3);
    let refused = error(&session, "DROP STREAM s").await;
    assert!(refused.contains("is read by continuous query"), "{refused}");
    run(&session, "REFRESH CONTINUOUS QUERY slow").await;
    assert_eq!(number(&session, "SELECT count(*) FROM s").await, 0);
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 6);
    assert_eq!(
        number(&session, "SELECT CAST(sum(a) AS BIGINT) FROM t").await,
        0
    );
    run(&session, "DROP CONTINUOUS QUERY fast, slow; DROP STREAM s").await;
    assert_eq!(
        number(&session, "SELECT count(*) FROM sys.streams").await,
        0
    );
}

#[tokio::test]
async fn files_of_a_directory_are_taken_once() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, files) = (scratch.path().join("db"), scratch.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let write = |name: &str, text: &str| std::fs::write(files.join(name), text).unwrap();
    write("before.csv", "a,b\n1,one\n2,two\n");
    write("other.txt", "nothing of ours");
    let db = Database::open(&path).unwrap();
    let session = db.session();
    run(
        &session,
        &format!(
            "CREATE STREAM s (a BIGINT, b VARCHAR) FROM DIRECTORY '{}' (FORMAT csv);
             CREATE TABLE t (a BIGINT, b VARCHAR);
             CREATE CONTINUOUS QUERY q INTO t EVERY INTERVAL '1 millisecond' AS SELECT a, b FROM s;
             REFRESH STREAM s;",
            files.display()
        ),
    )
    .await;
    wait_for(&session, "SELECT count(*) FROM t", 2).await;
    write("wrong.csv", "a,b\nthree,three\n");
    std::fs::write(scratch.path().join("moved"), "a,b\n4,four\n").unwrap();
    std::fs::rename(scratch.path().join("moved"), files.join("moved.csv")).unwrap();
    let refused = error(&session, "REFRESH STREAM s").await;
    assert!(refused.contains("wrong.csv, line 2"), "{refused}");
    wait_for(&session, "SELECT count(*) FROM t", 3).await;
    db.close().await.unwrap();
    drop(session);

    let session = Database::open(&path).unwrap().session();
    write("wrong.csv", "a,b\n3,three\n");
    run(&session, "REFRESH STREAM s").await;
    wait_for(&session, "SELECT CAST(sum(a) AS BIGINT) FROM t", 10).await;
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 4);
    assert_eq!(
        number(&session, "SELECT files_taken FROM sys.streams").await,
        3
    );
    write("before.csv", "a,b\n1,one\n2,two\n5,five\n");
    let refused = error(&session, "REFRESH STREAM s").await;
    assert!(
        refused.contains("a stream takes each file once"),
        "{refused}"
    );
}

#[tokio::test]
async fn lines_of_a_socket_are_rows() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        "CREATE STREAM s (a BIGINT NOT NULL, b VARCHAR) FROM SOCKET '127.0.0.1:0' (FORMAT json);
         CREATE TABLE t (a BIGINT, b VARCHAR);
         CREATE CONTINUOUS QUERY q INTO t EVERY INTERVAL '1 millisecond' AS SELECT a, b FROM s",
    )
    .await;
    let address = texts(&session, "SELECT address FROM sys.streams").await;
    let clients = (0..3).map(|client| {
        let address = address[0].clone();
        std::thread::spawn(move || {
            let mut connection = TcpStream::connect(address).unwrap();
            for n in 0..100 {
                writeln!(connection, "{{\"a\": {}, \"b\": \"x\"}}", client * 100 + n).unwrap();
            }
            writeln!(connection, "no row\n{{\"b\": \"no a\"}}").unwrap();
            // It has no end of line.
            write!(connection, "{{\"a\": 1000}}").unwrap();
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().unwrap();
    }
    wait_for(&session, "SELECT count(*) FROM t", 300).await;
    assert_eq!(
        number(&session, "SELECT CAST(sum(a) AS BIGINT) FROM t").await,
        299 * 150
    );
    wait_for(&session, "SELECT lines_rejected FROM sys.streams", 9).await;
    assert_eq!(
        number(&session, "SELECT rows_ingested FROM sys.streams").await,
        300
    );
}

#[tokio::test]
async fn micro_batches_are_profiled_at_the_level_of_their_query() {
    let session = Database::in_memory().unwrap().session();
    for level in ["off", "counters", "calls", "records"] {
        run(
            &session,
            &format!(
                "CREATE STREAM s_{level} (a BIGINT) FROM INSERT;
                 CREATE TABLE t_{level} (a BIGINT, n BIGINT);
                 CREATE CONTINUOUS QUERY q_{level} INTO t_{level} {ON_DEMAND} PROFILE {level} DEADLINE INTERVAL '1 hour'
                   AS SELECT a * a, 1 FROM s_{level};"
            ),
        )
        .await;
        for n in 0..4 {
            run(
                &session,
                &format!(
                    "INSERT INTO s_{level} SELECT value + {n} FROM generate_series(1, 1000);
                     REFRESH CONTINUOUS QUERY q_{level};"
                ),
            )
            .await;
        }
        let of_batches = format!(
            "FROM sys.micro_batches AS b JOIN sys.queries AS q ON q.query_id = b.query_id
             WHERE b.continuous_query = 'main.q_{level}' AND NOT b.deadline_missed AND b.latency_ns > 0"
        );
        let recorded = number(&session, &format!("SELECT count(*) {of_batches}")).await;
        assert_eq!(recorded, 4, "{level}");
        let levels = texts(
            &session,
            &format!("SELECT DISTINCT q.profile_level {of_batches}"),
        )
        .await;
        assert!(levels.iter().any(|found| found == level), "{levels:?}");
        let operators = "SELECT count(DISTINCT b.query_id) FROM sys.micro_batches AS b
             JOIN sys.operators AS o ON o.query_id = b.query_id AND o.table_name = 'main.s_";
        let profiled = number(&session, &format!("{operators}{level}'")).await;
        assert_eq!(profiled, if level == "off" { 0 } else { 4 }, "{level}");
    }
    let traced =
        "SELECT count(*) FROM sys.record_latency AS r JOIN sys.micro_batches AS b USING (query_id)
         WHERE r.table_name = 'main.s_records'";
    let edges =
        "SELECT count(*) FROM sys.output_records AS r JOIN sys.micro_batches AS b USING (query_id)";
    let found = number(&session, traced).await + number(&session, edges).await;
    assert!(found > 0);
}

/// A micro-batch whose exchange sends most rows to one partition makes the next one repartition.
#[tokio::test(flavor = "multi_thread")]
async fn micro_batches_have_remedies_by_the_log_of_earlier_ones() {
    let db = Database::builder()
        .workers(2)
        .worker_threads(2)
        .build()
        .unwrap();
    let session = db.session();
    // Both inputs of the join are too large to be collected.
    run(
        &session,
        "CREATE TABLE r AS SELECT value AS k, value % 10 AS w FROM generate_series(0, 149999);
         CREATE STREAM s (k BIGINT, v BIGINT) FROM INSERT;",
    )
    .await;
    for remedies in ["off", "auto"] {
        let script = format!(
            "CREATE TABLE t_{remedies} (k BIGINT, v BIGINT, w BIGINT, h VARCHAR);
             CREATE CONTINUOUS QUERY q_{remedies} INTO t_{remedies} {ON_DEMAND} REMEDIES {remedies} AS
               SELECT s.k, s.v, r.w, md5(md5(md5(CAST(s.v + r.w AS VARCHAR)))) FROM s JOIN r ON r.k = s.k;"
        );
        run(&session, &script).await;
        for batch in 0..4 {
            let script = format!(
                "INSERT INTO s SELECT CASE value % 10 WHEN 0 THEN value ELSE 7 END, value + {batch}
                   FROM generate_series(0, 119999);
                 REFRESH CONTINUOUS QUERY q_{remedies};"
            );
            run(&session, &script).await;
        }
    }
    let applied = "SELECT count(DISTINCT batch) FROM sys.micro_batches JOIN sys.remedies USING (query_id)
         WHERE remedy = 'split' AND subject = 'key 7' AND is_applied AND continuous_query = 'main.q_";
    assert_eq!(number(&session, &format!("{applied}off'")).await, 0);
    let second = format!("{applied}auto' AND batch = 2");
    assert_eq!(number(&session, &second).await, 1);
    let first = format!("{applied}auto' AND batch = 1");
    assert_eq!(number(&session, &first).await, 0);
    let differ = "SELECT count(*) FROM (SELECT * FROM t_off EXCEPT ALL SELECT * FROM t_auto)";
    assert_eq!(number(&session, differ).await, 0);
    let rows = "SELECT count(*) FROM t_auto";
    assert_eq!(number(&session, rows).await, 480_000);
}

#[tokio::test]
async fn streams_work_on_workers() {
    let db = Database::builder()
        .workers(3)
        .worker_threads(2)
        .build()
        .unwrap();
    let session = db.session();
    run(
        &session,
        &format!(
            "{CLICKS}
             CREATE TABLE t (w TIMESTAMP, page VARCHAR, n BIGINT);
             CREATE CONTINUOUS QUERY q INTO t {ON_DEMAND} AS
               SELECT tumble(ts, INTERVAL '1 minute'), page, count(*) FROM clicks GROUP BY 1, 2;"
        ),
    )
    .await;
    for minute in 0..5 {
        run(
            &session,
            &format!(
                "INSERT INTO clicks SELECT to_timestamp(1704067200 + 60 * {minute} + value / 100),
                   'p' || value % 7, value FROM generate_series(0, 5999);
                 REFRESH CONTINUOUS QUERY q;"
            ),
        )
        .await;
    }
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 28);
    assert_eq!(
        number(&session, "SELECT CAST(sum(n) AS BIGINT) FROM t").await,
        24_000
    );
}

#[tokio::test]
async fn a_database_closes_in_the_middle_of_micro_batches() {
    let directory = tempfile::tempdir().unwrap();
    let mut inserted = 0;
    for round in 0..6 {
        let db = Database::open(directory.path()).unwrap();
        let session = db.session();
        run(
            &session,
            "CREATE STREAM IF NOT EXISTS s (a BIGINT) FROM INSERT;
             CREATE TABLE IF NOT EXISTS t (a BIGINT);
             CREATE CONTINUOUS QUERY IF NOT EXISTS q INTO t EVERY INTERVAL '1 millisecond' AS SELECT a FROM s",
        )
        .await;
        for _ in 0..round * 3 {
            run(
                &session,
                "INSERT INTO s SELECT value FROM generate_series(1, 20000)",
            )
            .await;
            inserted += 20_000;
        }
    }
    let session = Database::open(directory.path()).unwrap().session();
    wait_for(&session, "SELECT count(*) FROM s", 0).await;
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, inserted);
}

/// Micro-batches of the test below; `SKEWER_MICRO_BATCHES=10000` is a day's worth.
const BATCHES: usize = 300;

/// Segment files of a database.
fn segments(path: &Path) -> usize {
    let tables = std::fs::read_dir(path.join("segments")).unwrap();
    let files = tables.map(|table| std::fs::read_dir(table.unwrap().path()).unwrap().count());
    files.sum()
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn many_micro_batches_take_no_more_than_few() {
    let batches = match std::env::var("SKEWER_MICRO_BATCHES") {
        Ok(batches) => batches.parse().unwrap(),
        Err(_) => BATCHES,
    };
    let directory = tempfile::tempdir().unwrap();
    let db = Database::builder()
        .path(directory.path())
        .worker_threads(2)
        .retention(skewer::Retention {
            bytes: 16 << 20,
            ..skewer::Retention::default()
        })
        .build()
        .unwrap();
    let session = db.session();
    run(
        &session,
        &format!(
            "{CLICKS}
             CREATE TABLE t (w TIMESTAMP, n BIGINT, ms BIGINT);
             CREATE CONTINUOUS QUERY q INTO t {ON_DEMAND} AS
               SELECT tumble(ts, INTERVAL '1 minute'), count(*), sum(ms) FROM clicks GROUP BY 1;"
        ),
    )
    .await;
    let (mut times, mut memory, mut files, mut catalog) = (vec![], vec![], vec![], vec![]);
    for batch in 0..batches {
        // A window closes every four micro-batches.
        run(
            &session,
            &format!(
                "INSERT INTO clicks SELECT to_timestamp({} + value % 15), 'p', value FROM generate_series(1, 30)",
                1_700_000_000 + batch * 15
            ),
        )
        .await;
        let begun = Instant::now();
        run(&session, "REFRESH CONTINUOUS QUERY q").await;
        times.push(begun.elapsed());
        memory.push(resident());
        files.push(segments(directory.path()));
        let file = std::fs::metadata(directory.path().join("catalog.redb")).unwrap();
        catalog.push(file.len());
    }
    assert_eq!(
        number(&session, "SELECT max(batch) FROM sys.micro_batches").await,
        batches as i64
    );
    let complete = number(&session, "SELECT CAST(sum(n) AS BIGINT) FROM t").await;
    let kept = number(&session, "SELECT count(*) FROM clicks").await;
    assert!(
        complete + kept >= batches as i64 * 30,
        "{complete} + {kept}"
    );
    assert!(kept <= 1000, "{kept}");

    let third = batches / 3;
    let median = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort();
        times[times.len() / 2]
    };
    let (first, last) = (median(&times[..third]), median(&times[2 * third..]));
    let most = |values: &[usize]| values.iter().copied().max().unwrap();
    eprintln!(
        "{batches} micro-batches: median {first:?}, then {last:?}; files at most {}, then {}; resident MB {:?}; \
         catalog {} KB, then {} KB",
        most(&files[..third]),
        most(&files[2 * third..]),
        memory
            .chunks(batches.div_ceil(6))
            .map(|part| part[0] >> 20)
            .collect::<Vec<_>>(),
        catalog[third] >> 10,
        catalog[batches - 1] >> 10,
    );
    assert!(
        last < 3 * first + Duration::from_millis(20),
        "{first:?}, then {last:?}"
    );
    assert!(most(&files) < 150, "{}", most(&files));
    assert!(catalog[batches - 1] < 4 << 20, "{}", catalog[batches - 1]);
    let grown = memory[batches - 1].saturating_sub(memory[third]);
    assert!(grown < 200 << 20, "{} MB", grown >> 20);
}
