//! `skewer serve` as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::support::{run, skewer};

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when this is dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    pub data: TempDir,
    log: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Server {
    /// Serves an empty database on a port by the operating system.
    pub fn start() -> Server {
        Server::with(&[], &[])
    }

    /// With users, as name and password, and more arguments.
    pub fn with(users: &[(&str, &str)], arguments: &[&str]) -> Server {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().to_str().unwrap();
        for (name, password) in users {
            let add = ["user", "add", name, "--data", directory];
            run(&add, &format!("{password}\n")).success();
        }
        let mut command = skewer(&["serve", "--data", directory, "--log", "json"]);
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::<Mutex<Vec<serde_json::Value>>>::default();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().push(serde_json::from_str(&line).expect(&line));
            }
        });
        let mut server = Server {
            child,
            address: ([127, 0, 0, 1], 0).into(),
            data,
            log,
        };
        let listening = server.wait_for("listening");
        server.address = listening["address"].as_str().unwrap().parse().unwrap();
        server
    }

    /// As `--connect` takes it.
    pub fn place(&self) -> String {
        self.address.to_string()
    }

    /// Waits for an event of the log.
    #[track_caller]
    pub fn wait_for(&self, message: &str) -> serde_json::Value {
        let begun = Instant::now();
        loop {
            let log = self.log.lock();
            if let Some(event) = log.iter().find(|event| event["message"] == message) {
                return event.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "no event {message}: {log:?}");
            drop(log);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &self.child.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// Waits for the process to end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server says that does not start; it must end by itself.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let mut all = vec!["serve"];
    all.extend(arguments);
    run(&all, "").failure()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

mod ending {
    use futures::StreamExt;
    use tokio_postgres::error::SqlState;
    use tokio_postgres::{Client, Config, NoTls};

    use super::{Server, refused};
    use crate::support::{address_in, asked};

    async fn connect(server: &Server) -> Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(server.address.port())
            .user("ada");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn as_many_clients_are_connected_as_the_server_was_told() {
        let server = Server::with(&[], &["--max-connections", "1"]);
        let first = connect(&server).await.unwrap();
        let refused = connect(&server).await.err().unwrap();
        assert_eq!(
            refused.code(),
            Some(&SqlState::TOO_MANY_CONNECTIONS),
            "{refused}"
        );
        first.simple_query("SELECT 1").await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_address_that_guesses_passwords_has_to_wait() {
        let server = Server::with(&[("ada", "correct horse")], &[]);
        let login = async |password: &str| {
            let mut config = Config::new();
            config
                .host("127.0.0.1")
                .port(server.address.port())
                .user("ada")
                .password(password);
            let refused = config.connect(NoTls).await.err();
            refused.map(|error| error.as_db_error().unwrap().message().to_owned())
        };
        assert_eq!(login("correct horse").await, None);
        for _ in 0..6 {
            let refused = login("wrong").await.unwrap();
            assert!(refused.contains("is wrong"), "{refused}");
        }
        let refused = login("correct horse").await.unwrap();
        assert_eq!(refused, "too many failed logins from this address");
    }

    #[test]
    fn the_page_is_served_beside_the_sql_port_and_ends_with_it() {
        let mut server = Server::with(&[], &["--http-listen", "127.0.0.1:0"]);
        let served = server.wait_for("the profiler's page is served");
        let (host, path) = address_in(served["address"].as_str().unwrap());
        let page = asked(&host, &path);
        assert!(
            page.starts_with("HTTP/1.1 200") && page.contains("/app.js"),
            "{page}"
        );
        server.terminate();
        assert_eq!(server.end().code(), Some(0));
        assert!(
            std::net::TcpStream::connect(&host).is_err(),
            "the page outlives its server"
        );
        // With users, the log has no token: they have passwords.
        let server = Server::with(
            &[("ada", "correct horse")],
            &["--http-listen", "127.0.0.1:0"],
        );
        let served = server.wait_for("the profiler's page is served");
        assert!(
            !served["address"].as_str().unwrap().contains("token"),
            "{served}"
        );
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        let stderr = refused(&[
            "--data",
            data,
            "--listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:99999",
        ]);
        assert!(stderr.contains("127.0.0.1:99999"), "{stderr}");
    }

    #[tokio::test]
    async fn sigterm_lets_statements_finish_and_turns_new_clients_away() {
        let mut server = Server::with(&[], &["--drain", "60"]);
        let (busy, idle) = (
            connect(&server).await.unwrap(),
            connect(&server).await.unwrap(),
        );
        // More than fits between here and there: it runs for as long as rows are not taken.
        let sql = "SELECT value, repeat('x', 100) FROM generate_series(1, 300000)";
        let rows = busy.query_raw(sql, Vec::<i32>::new()).await.unwrap();
        let mut rows = std::pin::pin!(rows);
        rows.next().await.unwrap().unwrap();
        server.terminate();
        server.wait_for("the server ends: running statements may finish");
        let late = connect(&server).await.err().unwrap();
        assert_eq!(late.code(), Some(&SqlState::CANNOT_CONNECT_NOW), "{late}");
        let told = idle.simple_query("SELECT 1").await.unwrap_err();
        let is_told = told.is_closed() || told.code() == Some(&SqlState::ADMIN_SHUTDOWN);
        assert!(is_told, "{told}");
        let mut count = 1;
        while let Some(row) = rows.next().await {
            row.unwrap();
            count += 1;
        }
        assert_eq!(count, 300_000);
        assert_eq!(server.end().code(), Some(0));
        server.wait_for("stopped");
    }

    #[tokio::test]
    async fn after_the_drain_time_statements_are_cancelled() {
        let mut server = Server::with(&[], &["--drain", "1"]);
        let client = connect(&server).await.unwrap();
        // The first row comes at once, the second never.
        let sql = "SELECT 1 UNION ALL SELECT count(*) FROM generate_series(1, 1000000000000)";
        let rows = client.query_raw(sql, Vec::<i32>::new()).await.unwrap();
        let mut rows = std::pin::pin!(rows);
        rows.next().await.unwrap().unwrap();
        server.terminate();
        let error = rows.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
        assert_eq!(server.end().code(), Some(0));
    }

    #[tokio::test]
    async fn what_was_committed_is_there_when_it_starts_again() {
        let mut server = Server::start();
        let client = connect(&server).await.unwrap();
        let sql = "CREATE TABLE t AS SELECT 42 AS a";
        client.batch_execute(sql).await.unwrap();
        server.terminate();
        assert_eq!(server.end().code(), Some(0));
        let data = super::path(server.data.path());
        let sql = "SELECT a FROM t; SELECT count(*) > 0 FROM sys.queries;";
        let said = super::run(&[data, "--format", "csv", "-c", sql], "").success();
        assert!(said.contains("42") && said.contains("true"), "{said}");
    }
}

#[test]
fn garbage_ends_the_connection_that_it_came_on_and_no_other() {
    use std::io::{Read, Write};
    let server = Server::start();
    let mut startup = vec![0, 0, 0, 18, 0, 3, 0, 0];
    startup.extend(b"user\0ada\0\0");
    let request = |after: Option<&[u8]>, bytes: &[u8]| {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut first = [0; 1];
        if let Some(startup) = after {
            stream.write_all(startup).unwrap();
            stream.read_exact(&mut first).unwrap();
        }
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It ends, with an error or without.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    for garbage in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0],
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3],
    ] {
        request(None, garbage);
    }
    for garbage in [
        &b"\xff\0\0\0\x04"[..],
        b"Q\x7f\xff\xff\xff",
        b"Q\0\0\0\x06\xff\xfe",
        // Cut off within: a name without its end, a count without what is counted.
        b"P\0\0\0\x05x",
        b"B\0\0\0\x0c\0\0\xff\xff\xff\xff\xff\xff",
    ] {
        request(Some(&startup), garbage);
    }
    let args = ["--connect", &server.place(), "--format", "csv", "-c"];
    let said = run(&[&args[..], &["SELECT 42 AS answer"]].concat(), "").success();
    assert_eq!(said, "answer\n42\n");
}

#[test]
fn a_port_or_database_that_is_in_use_is_named() {
    let server = Server::start();
    let place = server.place();
    let other = tempfile::tempdir().unwrap();
    let said = refused(&["--data", path(other.path()), "--listen", &place]);
    let expected = format!("error: cannot listen at {place}: the port is in use");
    assert!(said.contains(&expected), "{said}");
    let data = path(server.data.path());
    let said = refused(&["--data", data, "--listen", "127.0.0.1:0"]);
    assert!(said.contains(data) && said.contains("process"), "{said}");
    // In a log that programs read, so is the error.
    let json = ["--data", data, "--listen", "127.0.0.1:0", "--log", "json"];
    let said = refused(&json);
    let event: serde_json::Value = serde_json::from_str(said.trim()).expect(&said);
    assert_eq!(event["level"], "ERROR");
    assert!(event["error"].as_str().unwrap().contains(data), "{said}");
}

#[test]
fn an_address_that_means_nothing_is_named() {
    let data = tempfile::tempdir().unwrap();
    // 192.0.2.1 is for documentation: no machine has it.
    for address in ["nonsense", "127.0.0.1", "127.0.0.1:70000", "192.0.2.1:5432"] {
        let said = refused(&["--data", path(data.path()), "--listen", address]);
        let expected = format!("error: cannot listen at {address}: ");
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn beyond_this_machine_nobody_is_served_without_users() {
    let data = tempfile::tempdir().unwrap();
    let said = refused(&["--data", path(data.path()), "--listen", "0.0.0.0:0"]);
    assert!(said.contains("skewer user add"), "{said}");
}

#[test]
fn a_data_directory_that_is_none_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let said = refused(&["--data", path(file.path()), "--listen", "127.0.0.1:0"]);
    assert!(said.contains(path(file.path())), "{said}");
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    // A pair that fits, and one of another server.
    let (one, other) = (Server::start(), Server::start());
    let certificate = one.data.path().join("server.crt");
    let key = one.data.path().join("server.key");
    let foreign = other.data.path().join("server.key");
    std::fs::write(inside("garbage"), "no PEM at all").unwrap();
    for (certificate, key, named) in [
        (&inside("missing"), &key, "missing"),
        (&certificate, &inside("missing"), "missing"),
        (&inside("garbage"), &key, "garbage"),
        (&certificate, &inside("garbage"), "garbage"),
        (&certificate, &foreign, "server.crt"),
    ] {
        let said = refused(&[
            "--data",
            path(&inside("db")),
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            path(certificate),
            "--tls-key",
            path(key),
        ]);
        assert!(said.contains(named), "{named}: {said}");
    }
}
