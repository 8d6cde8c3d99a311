//! `skewer --connect`: the shell at a server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{Stream, crypto::ring::default_provider};

use crate::server::Server;
use crate::support::{Ran, run, skewer};

/// Runs the shell with a password in its environment.
fn with_password(password: &str, args: &[&str]) -> Ran {
    let mut command = skewer(args);
    command.env("PGPASSWORD", password).stdin(Stdio::null());
    Ran::from(command.output().unwrap())
}

/// What the shell shows, whatever the rows are written as.
const SCRIPT: &str = "\
CREATE TABLE t (id INT NOT NULL, name TEXT, price DECIMAL(8, 2), at TIMESTAMP, day DATE, ok BOOLEAN, f DOUBLE, l BIGINT[]);
INSERT INTO t VALUES (1, 'a,\"b', 1.50, '2020-01-01 12:00:00', '2020-01-02', true, 0.1, [1, NULL]), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT * FROM t ORDER BY id;
SELECT sum(price) AS price, count(*) AS n, avg(f) AS f FROM t;
.tables
.schema t
SHOW TABLES;
DESCRIBE t;
SET profile.level = 'calls';
SHOW profile.level;
PREPARE one AS SELECT name FROM t WHERE id = $1;
EXECUTE one(1);
UPDATE t SET name = 'c';
DELETE FROM t WHERE id = 2;
SELECT * FROM t WHERE false;
";

#[test]
fn a_script_prints_what_it_prints_without_a_server() {
    for format in ["table", "csv", "json", "ndjson", "markdown"] {
        let server = Server::start();
        let here = run(&["--format", format], SCRIPT).success();
        let args = ["--connect", &server.place(), "--format", format];
        let there = run(&args, SCRIPT).success();
        assert_eq!(there, here, "{format}");
    }
}

#[test]
fn changes_are_counted_and_errors_shown_where_they_are() {
    let server = Server::start();
    let place = server.place();
    let said = run(
        &["shell", "--connect", &place],
        "CREATE TABLE t AS SELECT 1 AS a;\n.timer on\nINSERT INTO t VALUES (2), (3);\nSET profile.level = 'calls';\n",
    );
    assert!(said.stderr.contains("2 rows inserted · "), "{said:?}");
    assert!(!said.stderr.contains("written"), "{said:?}");
    for (sql, expected) in [
        ("SELECT *\n  FORM t", "found: FORM\n    FORM t\n    ^\n"),
        (
            "SELECT b FROM t",
            "there is no column b\n  SELECT b FROM t\n         ^\n",
        ),
        ("SELECT 1 / (a - 1) FROM t", "division by zero\n"),
        ("SELECT $1", "PREPARE"),
        (".profile 99", "sys.queries has no query 99"),
        (".nonsense", "there is no command .nonsense"),
    ] {
        let said = run(&["--connect", &place, "-c", sql], "").failure();
        assert!(
            said.starts_with("error: ") && said.contains(expected),
            "{said}"
        );
    }
}

#[test]
fn profile_reports_on_the_last_query() {
    let server = Server::start();
    let script = "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 100);\n\
                  SELECT a % 7, count(*) FROM t GROUP BY 1;\n.profile\n.tables\n.profile\n";
    let said = run(&["--connect", &server.place(), "-f", "-"], script).success();
    assert_eq!(said.matches("Where the time went").count(), 2, "{said}");
    assert_eq!(
        said.matches("  SELECT a % 7, count(*)").count(),
        2,
        "{said}"
    );
}

#[test]
fn a_server_beyond_this_machine_proves_who_it_is() {
    let server = Server::with(&[("ada", "lovelace")], &[]);
    let port = server.address.port();
    // No address of this machine's own: a client takes it for another one's.
    let place = format!("ada@0.0.0.0:{port}");
    let sql = "SELECT current_user AS me";
    let at = ["--connect", place.as_str(), "--format", "csv", "-c", sql];
    assert_eq!(with_password("lovelace", &at).success(), "me\nada\n");
    let url = format!("postgresql://ada:lovelace@127.0.0.1:{port}/skewer");
    let with_url = ["--connect", url.as_str(), "--format", "csv", "-c", sql];
    assert_eq!(run(&with_url, "").success(), "me\nada\n");

    let wrong = with_password("byron", &at).failure();
    let expected =
        format!("error: cannot connect to 0.0.0.0:{port}: the password of user ada is wrong");
    assert!(wrong.starts_with(&expected), "{wrong}");
    let none = run(&at, "").failure();
    assert!(
        none.contains("asks for a password: give it in PGPASSWORD"),
        "{none}"
    );

    // A server that takes everybody proves nothing.
    let open = Server::start();
    let place = format!("ada@0.0.0.0:{}", open.address.port());
    let unproved = with_password("x", &["--connect", &place, "-c", sql]).failure();
    assert!(unproved.contains("has not proved who it is"), "{unproved}");
    let certificate = open.data.path().join("server.crt");
    let named = ["--certificate", certificate.to_str().unwrap()];
    let at = ["--connect", place.as_str(), "--format", "csv", "-c", sql];
    let said = run(&[&named[..], &at[..]].concat(), "").success();
    assert_eq!(said, "me\nada\n");
}

#[test]
fn only_the_server_whose_certificate_was_named_is_spoken_to() {
    let (server, other) = (Server::start(), Server::start());
    let place = server.place();
    let with = |certificate: &Path| {
        let certificate = certificate.to_str().unwrap();
        run(
            &[
                "--connect",
                &place,
                "--certificate",
                certificate,
                "-c",
                "SELECT 1",
            ],
            "",
        )
    };
    with(&server.data.path().join("server.crt")).success();
    let refused = with(&other.data.path().join("server.crt")).failure();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    let garbage = with(&server.data.path().join("server.key")).failure();
    assert!(
        garbage.contains("server.key: there is no certificate"),
        "{garbage}"
    );
    let missing = with(Path::new("/nowhere/server.crt")).failure();
    assert!(missing.contains("/nowhere/server.crt: "), "{missing}");
}

#[test]
fn a_server_that_is_not_there_or_is_none_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let said = run(&["--connect", &place, "-c", "SELECT 1"], "").failure();
    let expected = format!("error: cannot connect to {place}: Connection refused");
    assert!(said.starts_with(&expected), "{said}");
    let usage = run(&["--connect", "host:port", "-c", "SELECT 1"], "");
    assert_eq!(usage.status, Some(2));
    assert!(usage.stderr.contains("port is not a port"), "{usage:?}");
}

#[test]
fn no_password_goes_to_a_server_that_has_no_tls() {
    // As whoever stands between would, it says that there is no TLS, and asks for the password.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let overheard = std::thread::spawn(move || {
        let mut heard = Vec::new();
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 8];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"N").unwrap();
            let mut startup = [0; 1024];
            if stream.read(&mut startup).unwrap_or(0) > 0 {
                // AuthenticationCleartextPassword.
                stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]).unwrap();
                let _ = stream.read_to_end(&mut heard);
            }
        }
        heard
    });
    let beyond = format!("ada@0.0.0.0:{port}");
    let said = with_password("lovelace", &["--connect", &beyond, "-c", "SELECT 1"]).failure();
    assert!(said.contains("server does not support TLS"), "{said}");
    // At this machine's own addresses TLS may be missing, but not for passwords.
    let here = format!("ada@127.0.0.1:{port}");
    let said = with_password("lovelace", &["--connect", &here, "-c", "SELECT 1"]).failure();
    assert!(said.contains("server does not support TLS"), "{said}");
    let heard = overheard.join().unwrap();
    assert!(!String::from_utf8_lossy(&heard).contains("lovelace"));
}

#[test]
fn whoever_stands_between_gets_no_session() {
    let server = Server::with(&[("ada", "lovelace")], &[]);
    let another = Server::start();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = between.local_addr().unwrap().port();
    let (real, trusted) = (server.address, server.data.path().join("server.crt"));
    let own = another.data.path().to_owned();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = between.accept() {
            pass_on(stream, real, &trusted, &own);
        }
    });
    let place = format!("ada@0.0.0.0:{port}");
    let said = with_password("lovelace", &["--connect", &place, "-c", "SELECT 1"]).failure();
    assert!(said.contains("cannot connect to"), "{said}");
    // It has passed on what was said, up to the password's proof, and the server saw it.
    server.wait_for("a client was turned away");
}

/// Speaks TLS with both sides, with a certificate of its own to the client, and passes on what
/// they say.
fn pass_on(mut client: TcpStream, real: SocketAddr, trusted: &Path, own: &Path) {
    let mut server = TcpStream::connect(real).unwrap();
    let mut request = [0; 8];
    client.read_exact(&mut request).unwrap();
    client.write_all(b"S").unwrap();
    server.write_all(&request).unwrap();
    server.read_exact(&mut [0]).unwrap();
    let provider = Arc::new(default_provider());
    let certificates = |path: &Path| {
        let pem = CertificateDer::pem_file_iter(path).unwrap();
        pem.map(Result::unwrap).collect::<Vec<_>>()
    };
    let key = PrivateKeyDer::from_pem_file(own.join("server.key")).unwrap();
    let to_client = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates(&own.join("server.crt")), key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(trusted));
    let to_server = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client_tls = ServerConnection::new(to_client.into()).unwrap();
    let name = "localhost".try_into().unwrap();
    let mut server_tls = ClientConnection::new(to_server.into(), name).unwrap();
    let turn = Some(Duration::from_millis(20));
    client.set_read_timeout(turn).unwrap();
    server.set_read_timeout(turn).unwrap();
    let mut client = Stream::new(&mut client_tls, &mut client);
    let mut server = Stream::new(&mut server_tls, &mut server);
    while carried(&mut client, &mut server) && carried(&mut server, &mut client) {}
}

/// Carries over what has come; `false` at the end.
fn carried(from: &mut impl Read, to: &mut impl Write) -> bool {
    let mut bytes = [0; 4096];
    match from.read(&mut bytes) {
        Ok(0) => false,
        Ok(count) => to.write_all(&bytes[..count]).is_ok(),
        Err(error) => matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
    }
}

#[cfg(unix)]
mod interactive {
    use tempfile::tempdir;
    use vt100::Color;

    use super::{Server, fs};
    use crate::pseudo_terminal::{CTRL_C, CTRL_D, ENTER, PseudoTerminal, TAB};

    #[test]
    fn it_completes_profiles_in_colour_and_leaves() {
        let server = Server::start();
        let state = tempdir().unwrap();
        let mut terminal = PseudoTerminal::start(&["--connect", &server.place()], state.path());
        assert!(terminal.text().contains(&server.place()));
        let created = terminal.run("CREATE TABLE measurements AS SELECT 21.5 AS celsius;");
        assert!(created.contains("1 row written · "), "{created}");
        terminal.complete("SELECT * FROM meas", TAB, "SELECT * FROM measurements");
        terminal.press(";");
        terminal.press(ENTER);
        terminal.wait_for_prompt();
        assert!(terminal.text().contains("1 row · "), "{}", terminal.text());
        terminal.run("EXPLAIN PROFILE SELECT celsius, count(*) FROM measurements GROUP BY 1;");
        assert_eq!(
            terminal.colour("SELECT * FROM backward_trace"),
            Color::Idx(6)
        );
        let file = state.path().join("script.sql");
        fs::write(&file, "SELECT 40 + 2 AS answer;").unwrap();
        let read = terminal.run(&format!(".read {}", file.display()));
        assert!(read.contains("42"), "{read}");
        terminal.press(CTRL_D);
        assert!(terminal.end().success());
    }

    #[test]
    fn ctrl_c_cancels_the_statement_at_the_server_and_not_the_next() {
        let server = Server::start();
        let state = tempdir().unwrap();
        let mut terminal = PseudoTerminal::start(&["--connect", &server.place()], state.path());
        for _ in 0..2 {
            terminal.press("SELECT count(*) FROM generate_series(1, 1000000000000);");
            terminal.press(ENTER);
            terminal.wait_for("Ctrl-C cancels");
            terminal.press(CTRL_C);
            terminal.wait_for_prompt();
            let after = terminal.run("SELECT 4000 + 711 AS after;");
            assert!(after.contains("4711"), "{after}");
        }
        assert!(terminal.text().contains("error: cancelled"));
        // It is recorded as soon as its tasks have ended.
        let sql =
            "SELECT 'cancelled: ' || count(*) AS n FROM sys.queries WHERE status = 'cancelled';";
        terminal.run_until(sql, "cancelled: 2");
    }

    #[test]
    fn the_password_is_asked_for_and_not_shown() {
        let server = Server::with(&[("ada", "lovelace")], &[]);
        let state = tempdir().unwrap();
        let place = format!("ada@{}", server.place());
        let mut terminal = PseudoTerminal::open(&["--connect", &place], state.path());
        terminal.wait_for("Password of ada: ");
        terminal.wait_until_hidden();
        terminal.press("lovelace");
        terminal.press(ENTER);
        terminal.wait_for_prompt();
        let said = terminal.run("SELECT 'I am ' || current_user AS me;");
        assert!(said.contains("I am ada"), "{said}");
        assert!(!terminal.text().contains("lovelace"), "{}", terminal.text());
    }
}
