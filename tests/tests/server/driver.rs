//! The server as a Rust driver sees it: tokio-postgres, which always runs.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt, TryStreamExt};
use skewer_server::Users;
use skewer_tests::served::Served;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

/// Long enough for any machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(served: &Served) -> Client {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(served.address.port())
        .user("ada");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn code(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.unwrap_err();
    error
        .code()
        .unwrap_or_else(|| panic!("{sql}: {error}"))
        .code()
        .to_owned()
}

#[tokio::test]
async fn values_go_there_and_back_with_their_types() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute(
            "CREATE TABLE t (b BOOLEAN, s SMALLINT, i INT, l BIGINT, r REAL, d DOUBLE, v TEXT, \
             y BYTEA, n DECIMAL(10, 2), a BIGINT[])",
        )
        .await
        .unwrap();
    let insert = client
        .prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 12.34, $9)")
        .await
        .unwrap();
    let expected = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::TEXT,
        Type::BYTEA,
        Type::INT8_ARRAY,
    ];
    assert_eq!(insert.params(), expected);
    let array = vec![Some(1_i64), None, Some(i64::MIN)];
    let changed = client
        .execute(
            &insert,
            &[
                &true,
                &-2_i16,
                &3_i32,
                &i64::MAX,
                &1.5_f32,
                &-0.25_f64,
                &"it's $1; ä",
                &&b"\0\xff"[..],
                &array,
            ],
        )
        .await
        .unwrap();
    assert_eq!(changed, 1);
    let nulls: i64 = client
        .execute(
            &insert,
            &[
                &None::<bool>,
                &None::<i16>,
                &None::<i32>,
                &None::<i64>,
                &None::<f32>,
                &None::<f64>,
                &None::<&str>,
                &None::<&[u8]>,
                &None::<Vec<i64>>,
            ],
        )
        .await
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!(nulls, 1);
    let row = client
        .query_one("SELECT * FROM t WHERE i = $1", &[&3_i32])
        .await
        .unwrap();
    assert!(row.get::<_, bool>("b"));
    assert_eq!(row.get::<_, i16>("s"), -2);
    assert_eq!(row.get::<_, i64>("l"), i64::MAX);
    assert_eq!(row.get::<_, f32>("r"), 1.5);
    assert_eq!(row.get::<_, f64>("d"), -0.25);
    assert_eq!(row.get::<_, &str>("v"), "it's $1; ä");
    assert_eq!(row.get::<_, &[u8]>("y"), b"\0\xff");
    assert_eq!(row.get::<_, Vec<Option<i64>>>("a"), array);
    assert_eq!(row.columns()[8].type_(), &Type::NUMERIC);
    // What is kept of it can be run again.
    let profiled = client
        .query_one(
            "SELECT last_query_id(), sql FROM sys.queries WHERE query_id = last_query_id()",
            &[],
        )
        .await
        .unwrap();
    let sql = profiled.get::<_, &str>(1);
    assert!(
        sql.starts_with("SELECT * FROM t WHERE i = ") && !sql.contains('$'),
        "{sql}"
    );
    let again = format!("EXPLAIN PROFILE QUERY {}", profiled.get::<_, i64>(0));
    client.batch_execute(&again).await.unwrap();
    let row = client
        .query_one("SELECT * FROM t WHERE i IS NULL", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, Option<Vec<i64>>>("a"), None);
    assert_eq!(row.get::<_, Option<f64>>("d"), None);
}

#[tokio::test]
async fn errors_have_their_codes_and_places_and_the_session_goes_on() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute("CREATE TABLE t (id INT NOT NULL, v TEXT); INSERT INTO t VALUES (1, 'x')")
        .await
        .unwrap();
    for (sql, expected) in [
        ("SELECT * FORM t", "42601"),
        ("SELECT * FROM tt", "42P01"),
        ("SELECT vv FROM t", "42703"),
        ("INSERT INTO t (v) VALUES ('y')", "23502"),
        ("INSERT INTO t VALUES (DATE '2020-01-01', 'x')", "42804"),
        ("SELECT CAST(v AS INT) FROM t", "22P02"),
        ("SELECT 1 / 0", "22012"),
        ("SELECT 9223372036854775807 + length(v) FROM t", "22003"),
        ("CREATE TABLE t (a INT)", "42P07"),
        ("SELECT * FROM nowhere.t", "3F000"),
        ("EXECUTE nothing", "26000"),
        ("SAVEPOINT a", "0A000"),
        ("SET server_version = '1'", "55P02"),
    ] {
        assert_eq!(code(&client, sql).await, expected, "{sql}");
    }
    let error = client
        .simple_query("SELECT 1; SELECT ä FORM t")
        .await
        .unwrap_err();
    let position = format!("{:?}", error.as_db_error().unwrap().position());
    // FORM may be a name for ä: it is what comes then that makes no sense.
    assert_eq!(position, "Some(Original(25))");
    // In the extended protocol what follows is skipped up to the Sync, and no further.
    assert!(client.query("SELECT nothing FROM t", &[]).await.is_err());
    let row = client.query_one("SELECT id FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
}

#[tokio::test]
async fn portals_give_so_many_rows_as_are_asked_for() {
    let served = Served::start();
    let mut client = connect(&served).await;
    let transaction = client.transaction().await.unwrap();
    let sql = "SELECT value FROM generate_series(1, 100000)";
    let portal = transaction.bind(sql, &[]).await.unwrap();
    let mut next = 1;
    for most in [1, 10, 20_000] {
        for row in transaction.query_portal(&portal, most).await.unwrap() {
            assert_eq!(row.get::<_, i64>(0), next);
            next += 1;
        }
    }
    assert_eq!(next, 20_012);
    let rest = transaction.query_portal(&portal, 0).await.unwrap();
    assert_eq!(rest.len(), 100_000 - 20_011);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn rows_come_before_the_last_is_computed() {
    let served = Served::start();
    let client = connect(&served).await;
    // More rows than anybody could collect.
    let sql = "SELECT value FROM generate_series(1, 1000000000000)";
    let rows = client.query_raw(sql, Vec::<i32>::new()).await.unwrap();
    let mut rows = std::pin::pin!(rows);
    for expected in 1..=10 {
        let row = rows.next().await.unwrap().unwrap();
        assert_eq!(row.get::<_, i64>(0), expected);
    }
    client.cancel_token().cancel_query(NoTls).await.unwrap();
    let error = loop {
        if let Err(error) = rows.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
}

#[tokio::test]
async fn pipelined_statements_answer_in_their_order() {
    let served = Served::start();
    let client = connect(&served).await;
    let (one, two, failing, three) = tokio::join!(
        client.query_one("SELECT 1", &[]),
        client.query_one("SELECT 2", &[]),
        client.query_one("SELECT nothing", &[]),
        client.query_one("SELECT $1::bigint + 1", &[&2_i64]),
    );
    assert_eq!(one.unwrap().get::<_, i64>(0), 1);
    assert_eq!(two.unwrap().get::<_, i64>(0), 2);
    assert!(failing.is_err());
    assert_eq!(three.unwrap().get::<_, i64>(0), 3);
}

#[tokio::test]
async fn a_cancelled_statement_ends_and_the_session_goes_on() {
    let served = Served::start();
    let client = connect(&served).await;
    let cancel = client.cancel_token();
    let endless = client.simple_query("SELECT count(*) FROM generate_series(1, 1000000000000)");
    let asking = async {
        // Cancelling before the statement runs would do nothing.
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cancel.cancel_query(NoTls).await.unwrap();
        }
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(PATIENCE, endless) => outcome.unwrap(),
        () = asking => unreachable!(),
    };
    assert_eq!(outcome.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    // A late request may still hit the next statement.
    let begun = Instant::now();
    while client.simple_query("SELECT 1").await.is_err() {
        assert!(begun.elapsed() < PATIENCE);
    }
    client
        .batch_execute("SET statement_timeout = 50")
        .await
        .unwrap();
    let sql = "SELECT count(*) FROM generate_series(1, 1000000000000)";
    assert_eq!(code(&client, sql).await, "57014");
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_statement() {
    let served = Served::start();
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(served.address.port())
        .user("ada");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    // Its first row comes at once, its second never.
    let sql = "SELECT 1 UNION ALL SELECT count(*) FROM generate_series(1, 1000000000000)";
    let rows = client.query_raw(sql, Vec::<i32>::new()).await.unwrap();
    let mut rows = std::pin::pin!(rows);
    rows.next().await.unwrap().unwrap();
    connection.abort();
    // The statement is recorded when it ends, and nothing else could end it.
    let session = served.database.session();
    let begun = Instant::now();
    loop {
        let sql = "SELECT 1 FROM sys.queries WHERE status = 'cancelled'";
        let found = session.sql(sql).await.unwrap().collect().await.unwrap();
        if found.iter().any(|batch| batch.num_rows() > 0) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the statement goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client, and what the server says to it beside rows.
async fn client_with_notices(served: &Served) -> (Client, UnboundedReceiver<String>) {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(served.address.port())
        .user("ada");
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (sender, notices) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures::stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notice(notice) = message {
                let _ = sender.send(notice.message().to_owned());
            }
        }
    });
    (client, notices)
}

#[tokio::test]
async fn a_quarantine_that_leaves_rows_out_gives_a_notice() {
    let served = Served::start();
    let (client, mut notices) = client_with_notices(&served).await;
    let setup = "CREATE TABLE docs AS SELECT value AS id FROM range(0, 10); \
                 CREATE QUARANTINE slow ON docs WHERE (id > 6); SELECT id FROM docs";
    client.batch_execute(setup).await.unwrap();
    assert!(notices.try_recv().is_err());
    client.batch_execute("SET quarantine = 'on'").await.unwrap();
    let expected = "quarantine slow of table docs leaves rows out of this query";
    let count = "SELECT count(*) FROM docs";
    // In the simple protocol, and in the extended one. The notice comes before the end of the statement.
    client.batch_execute(count).await.unwrap();
    assert_eq!(notices.try_recv().unwrap(), expected);
    let row = client.query_one(count, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 7);
    assert_eq!(notices.try_recv().unwrap(), expected);
    client
        .batch_execute("DROP QUARANTINE slow; SELECT id FROM docs")
        .await
        .unwrap();
    assert!(notices.try_recv().is_err());
}

#[tokio::test]
async fn blocks_commit_each_statement_and_rollback_says_so() {
    let served = Served::start();
    let (client, mut notices) = client_with_notices(&served).await;
    client
        .batch_execute("CREATE TABLE t (a INT); BEGIN; INSERT INTO t VALUES (1); COMMIT")
        .await
        .unwrap();
    assert!(notices.recv().await.unwrap().contains("commits on its own"));
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    let error = client.batch_execute("ROLLBACK").await.unwrap_err();
    let message = error.as_db_error().unwrap().message();
    assert!(message.contains("INSERT INTO t VALUES (2)"), "{message}");
    // A block without changes can be rolled back, and after an error nothing runs.
    client
        .batch_execute("BEGIN; SELECT 1; ROLLBACK")
        .await
        .unwrap();
    assert!(client.batch_execute("BEGIN; SELECT nothing").await.is_err());
    assert_eq!(code(&client, "INSERT INTO t VALUES (3)").await, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    let row = client.query_one("SELECT sum(a) FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 3);
}

#[tokio::test]
async fn copy_takes_rows_as_a_whole_and_gives_them_back() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute("CREATE TABLE t (id BIGINT NOT NULL, v TEXT)")
        .await
        .unwrap();
    let copy = "COPY t (id, v) FROM STDIN (FORMAT csv)";
    let sink = client
        .copy_in::<_, std::io::Cursor<Vec<u8>>>(copy)
        .await
        .unwrap();
    let mut sink = std::pin::pin!(sink);
    let mut expected = String::new();
    for chunk in 0..30 {
        let rows: String = (0..1000)
            .map(|row| format!("{},\"a,{row}\"\n", chunk * 1000 + row))
            .collect();
        sink.send(std::io::Cursor::new(rows.clone().into_bytes()))
            .await
            .unwrap();
        expected.push_str(&rows);
    }
    assert_eq!(sink.finish().await.unwrap(), 30_000);
    let out = client
        .copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT csv)")
        .await
        .unwrap();
    let bytes: Vec<_> = out.try_collect().await.unwrap();
    assert!(bytes.concat() == expected.as_bytes());

    // Rows that are wrong: the line is named and nothing is kept, not even what came before.
    let mut rows: Vec<String> = (0..20_000).map(|row| format!("{row},x\n")).collect();
    rows[12_344] = "one,x\n".to_owned();
    let sink = client
        .copy_in::<_, std::io::Cursor<Vec<u8>>>(copy)
        .await
        .unwrap();
    let mut sink = std::pin::pin!(sink);
    let sent = sink
        .send(std::io::Cursor::new(rows.concat().into_bytes()))
        .await;
    let error = match sent {
        Ok(()) => sink.finish().await.unwrap_err(),
        Err(error) => error,
    };
    let error = error.as_db_error().unwrap();
    assert!(
        error.message().starts_with("line 12345, column id: 'one'"),
        "{}",
        error.message()
    );
    let row = client
        .query_one("SELECT count(*) FROM t", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 30_000);
}

#[tokio::test]
async fn a_copy_that_its_client_abandons_leaves_nothing() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute("CREATE TABLE t (id BIGINT)")
        .await
        .unwrap();
    {
        let sink = client
            .copy_in::<_, std::io::Cursor<Vec<u8>>>("COPY t FROM STDIN")
            .await
            .unwrap();
        let mut sink = std::pin::pin!(sink);
        let rows: String = (0..50_000).map(|row| format!("{row}\n")).collect();
        sink.send(std::io::Cursor::new(rows.into_bytes()))
            .await
            .unwrap();
        // Dropping the sink sends CopyFail.
    }
    let row = client
        .query_one("SELECT count(*) FROM t", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn the_profiler_is_there_through_the_wire() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute("CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 1000)")
        .await
        .unwrap();
    let report = client
        .query(
            "EXPLAIN PROFILE SELECT v % 7, count(*) FROM t GROUP BY 1",
            &[],
        )
        .await
        .unwrap();
    let lines: Vec<&str> = report.iter().map(|row| row.get(0)).collect();
    assert!(
        lines.len() > 5 && lines.iter().any(|line| line.contains("Scan t")),
        "{lines:?}"
    );
    let sql = "SELECT sql, rows_returned FROM sys.queries WHERE query_id = last_query_id()";
    let row = client.query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(1), 7);
}

#[tokio::test]
async fn clients_name_their_spans() {
    const OF_SESSION: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OF_COMMENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let served = Served::start();
    let client = connect(&served).await;
    let recorded = async || {
        let sql =
            "SELECT trace_id, parent_span_id FROM sys.queries WHERE query_id = last_query_id()";
        let row = client.query_one(sql, &[]).await.unwrap();
        let ids: (Option<String>, Option<String>) = (row.get(0), row.get(1));
        ids
    };
    let ids = |parent: &str| {
        let parts: Vec<_> = parent.split('-').map(str::to_owned).collect();
        (Some(parts[1].clone()), Some(parts[2].clone()))
    };
    client.simple_query("SELECT 1").await.unwrap();
    assert_eq!(recorded().await, (None, None));
    let set = format!("SET trace.parent = '{OF_SESSION}'");
    client.simple_query(&set).await.unwrap();
    let row = client.query_one("SHOW trace.parent", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>("value"), OF_SESSION);
    client.simple_query("SELECT 1").await.unwrap();
    assert_eq!(recorded().await, ids(OF_SESSION));
    // In both protocols, at both ends, and for this statement alone.
    let behind = format!("SELECT 2 /*db_driver='x',traceparent='{OF_COMMENT}'*/;");
    let before = format!("/*traceparent='{OF_COMMENT}'*/ SELECT 3");
    for sql in [&behind, &before] {
        client.simple_query(sql).await.unwrap();
        assert_eq!(recorded().await, ids(OF_COMMENT), "{sql}");
        client.query_one(sql.as_str(), &[]).await.unwrap();
        assert_eq!(recorded().await, ids(OF_COMMENT), "{sql}");
    }
    let with_value = format!("SELECT $1::bigint /*traceparent='{OF_COMMENT}'*/");
    client.query_one(&with_value, &[&4_i64]).await.unwrap();
    assert_eq!(recorded().await, ids(OF_COMMENT));
    client.simple_query("SELECT 5").await.unwrap();
    assert_eq!(recorded().await, ids(OF_SESSION));
    // What is wrong in a comment is no error: the statement is right.
    let wrong = "SELECT 6 /*traceparent='00-1-2-3'*/";
    client.simple_query(wrong).await.unwrap();
    assert_eq!(recorded().await, ids(OF_SESSION));
    for wrong in [
        "00-1-2-3",
        &OF_SESSION.to_uppercase(),
        &format!("{OF_SESSION}-x"),
    ] {
        let set = format!("SET trace.parent = '{wrong}'");
        assert_eq!(code(&client, &set).await, "22023", "{wrong}");
    }
    client.simple_query("RESET trace.parent").await.unwrap();
    client.simple_query("SELECT 7").await.unwrap();
    assert_eq!(recorded().await, (None, None));
    let row = client.query_one("SHOW trace.parent", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>("value"), "none");
}

#[tokio::test]
async fn users_must_say_who_they_are() {
    let served = Served::with(|directory| Users::add(directory, "ada", "lovelace").unwrap());
    let connect = |user: &'static str, password: &'static str| {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(served.address.port())
            .user(user)
            .password(password);
        async move {
            config
                .connect(NoTls)
                .await
                .map(|(client, connection)| (client, tokio::spawn(connection)))
        }
    };
    let (client, _connection) = connect("ada", "lovelace").await.unwrap();
    let row = client.query_one("SELECT current_user", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "ada");
    let recorded = "SELECT user_name FROM sys.queries WHERE query_id = last_query_id()";
    let row = client.query_one(recorded, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "ada");
    for (user, password) in [("ada", "byron"), ("eve", "lovelace")] {
        let error = connect(user, password).await.err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{user}");
    }
    Users::remove(served.directory(), "ada").unwrap();
    Users::add(served.directory(), "bob", "x").unwrap();
    assert!(connect("ada", "lovelace").await.is_err());
}

#[tokio::test]
async fn a_server_that_ends_lets_statements_finish_and_takes_no_new_clients() {
    let mut served = Served::start();
    let idle = connect(&served).await;
    let busy = connect(&served).await;
    let (begun, running) = tokio::sync::oneshot::channel();
    let statement = tokio::spawn(async move {
        let rows = busy
            .query_raw(
                "SELECT value FROM generate_series(1, 500000)",
                Vec::<i32>::new(),
            )
            .await
            .unwrap();
        let mut rows = std::pin::pin!(rows);
        let mut begun = Some(begun);
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row.unwrap();
            count += 1;
            if let Some(begun) = begun.take() {
                begun.send(()).unwrap();
            }
        }
        count
    });
    running.await.unwrap();
    served.stop();
    assert_eq!(statement.await.unwrap(), 500_000);
    let error = idle.simple_query("SELECT 1").await.unwrap_err();
    assert!(
        error.is_closed() || error.code() == Some(&SqlState::ADMIN_SHUTDOWN),
        "{error}"
    );
    tokio::task::spawn_blocking(move || served.wait())
        .await
        .unwrap();
}

#[tokio::test]
async fn parameters_are_known_by_where_they_stand() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute(
            "CREATE TABLE crate (id BIGINT, name TEXT);
             INSERT INTO crate VALUES (1, 'fig'), (2, 'a_b'), (3, NULL)",
        )
        .await
        .unwrap();
    for (sql, expected) in [
        (
            "SELECT id FROM crate WHERE name = ANY($1) LIMIT $2 OFFSET $3",
            vec![Type::TEXT_ARRAY, Type::INT8, Type::INT8],
        ),
        (
            "SELECT id FROM crate WHERE id <> ALL(($1))",
            vec![Type::INT8_ARRAY],
        ),
        ("SELECT * FROM generate_series(1, $1)", vec![Type::INT8]),
        (
            "SELECT conname FROM pg_constraint WHERE conrelid = $1 AND contype = $2",
            vec![Type::INT8, Type::TEXT],
        ),
    ] {
        assert_eq!(
            client.prepare(sql).await.unwrap().params(),
            expected,
            "{sql}"
        );
    }
    let ids = async |sql: &str, value: &(dyn tokio_postgres::types::ToSql + Sync)| {
        let rows = client.query(sql, &[value]).await;
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>()
    };
    let any = "SELECT id FROM crate WHERE name = ANY($1)";
    assert_eq!(ids(any, &vec![Some("fig"), Some("x"), None]).await, [1]);
    assert_eq!(ids(any, &Vec::<String>::new()).await, [0_i64; 0]);
    let all = "SELECT id FROM crate WHERE id <> ALL($1) ORDER BY id";
    assert_eq!(ids(all, &vec![1_i64, 9]).await, [2, 3]);
    let like = "SELECT id FROM crate WHERE name LIKE $1 ESCAPE '/'";
    assert_eq!(ids(like, &"a/_%").await, [2]);
    let limit = "SELECT id FROM crate ORDER BY id LIMIT $1";
    assert_eq!(ids(limit, &2_i64).await, [1, 2]);
    let series = "SELECT max(value) FROM generate_series(1, $1)";
    assert_eq!(ids(series, &7_i64).await, [7]);
    let constraints = "SELECT oid FROM pg_constraint WHERE conrelid = $1";
    assert_eq!(ids(constraints, &7_i64).await, [0_i64; 0]);
}

#[tokio::test]
async fn columns_of_one_name_are_told_by_it() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute(
            "CREATE TABLE crate (id BIGINT, name TEXT); INSERT INTO crate VALUES (1, 'fig')",
        )
        .await
        .unwrap();
    let sql = "SELECT id, crate.*, +id FROM crate WHERE id = $1";
    let row = client.query_one(sql, &[&1_i64]).await.unwrap();
    let names: Vec<&str> = row.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["id", "id", "name", "id"]);
    assert_eq!((row.get(0), row.get(1), row.get(3)), (1_i64, 1_i64, 1_i64));
}

#[tokio::test]
async fn instants_are_shown_in_the_zone_of_the_session() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute(
            "SET timezone = 'America/New_York';
             CREATE TABLE visit (at TIMESTAMPTZ);
             INSERT INTO visit VALUES ('2024-07-01 12:00:00'), ('2024-11-03 01:30:00')",
        )
        .await
        .unwrap();
    let shown = async || {
        let rows = client
            .simple_query("SELECT at FROM visit ORDER BY at")
            .await;
        let rows = rows
            .unwrap()
            .into_iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
        rows.collect::<Vec<String>>()
    };
    let expected = ["2024-07-01 12:00:00-04", "2024-11-03 01:30:00-05"];
    assert_eq!(shown().await, expected);
    client
        .batch_execute("SET timezone = 'Asia/Kolkata'")
        .await
        .unwrap();
    let expected = ["2024-07-01 21:30:00+05:30", "2024-11-03 12:00:00+05:30"];
    assert_eq!(shown().await, expected);
}

#[tokio::test]
async fn there_are_no_indexes() {
    let served = Served::start();
    let client = connect(&served).await;
    client
        .batch_execute("CREATE TABLE crate (id BIGINT); CREATE INDEX i ON crate (id); DROP INDEX i")
        .await
        .unwrap();
    let unique = "CREATE UNIQUE INDEX i ON crate (id)";
    assert_eq!(code(&client, unique).await, "0A000");
}
