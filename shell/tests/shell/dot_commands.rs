//! Dot commands, from a script.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::{address_in, asked, run, skewer};

fn csv(script: &str) -> String {
    run(&["--format", "csv"], script).success()
}

#[test]
fn tables_and_schema_are_what_information_schema_says() {
    let make = "CREATE TABLE trips (id BIGINT NOT NULL, cost DOUBLE);\n\
                CREATE VIEW dear AS SELECT * FROM trips WHERE cost > 50;\n";
    let tables = csv(&format!("{make}.tables\n"));
    assert_eq!(
        tables,
        "table_schema,table_name,table_type\nmain,dear,VIEW\nmain,trips,BASE TABLE\n"
    );
    let schema = csv(&format!("{make}.schema trips\n"));
    let lines: Vec<&str> = schema.lines().collect();
    assert_eq!(
        lines[0],
        "table_schema,table_name,column_name,data_type,is_nullable"
    );
    assert!(
        lines[1].starts_with("main,trips,id,") && lines[1].ends_with(",NO"),
        "{schema}"
    );
    assert!(
        lines[2].starts_with("main,trips,cost,") && lines[2].ends_with(",YES"),
        "{schema}"
    );
    assert!(csv(".tables sys\n").contains("sys,queries,"));
}

#[test]
fn profile_tells_about_the_last_query_of_the_user() {
    let out = csv(
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 1000);\n\
                   SELECT sum(a) AS s FROM t;\n.tables\n.profile\n",
    );
    assert!(out.contains("SELECT sum(a) AS s FROM t"), "{out}");
    assert!(out.contains("Aggregate"), "{out}");
    let stderr = run(&[], ".profile 12345\n").failure();
    assert!(
        stderr.contains("sys.queries has no query 12345"),
        "{stderr}"
    );
    let stderr = run(&[], ".profile\n").failure();
    assert!(stderr.contains("no query has run"), "{stderr}");
}

#[test]
fn mode_changes_the_format() {
    let out = run(
        &[],
        ".mode json\nSELECT 1 AS a;\n.mode ndjson\nSELECT 2 AS a;\n",
    )
    .success();
    assert_eq!(out, "[{\"a\":1}]\n{\"a\":2}\n");
}

#[test]
fn read_runs_a_file_and_open_turns_to_another_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a script.sql");
    std::fs::write(
        &file,
        "CREATE TABLE t AS SELECT 5 AS a;\nSELECT a FROM t;\n",
    )
    .unwrap();
    let db = dir.path().join("db");
    let script = format!(
        ".open {}\n.read '{}'\n.open\n.tables\n.open {}\nSELECT a + 1 AS b FROM t;\n",
        db.display(),
        file.display(),
        db.display()
    );
    assert_eq!(
        csv(&script),
        "a\n5\ntable_schema,table_name,table_type\nb\n6\n"
    );
}

#[test]
fn quit_ends_the_script_there() {
    assert_eq!(csv("SELECT 1 AS a;\n.quit\nSELECT 2 AS a;\n"), "a\n1\n");
}

#[test]
fn help_shows_the_sql_behind_the_commands() {
    let help = run(&[], ".help\n").success();
    for command in [
        ".help", ".tables", ".schema", ".profile", ".mode", ".timer", ".read", ".open", ".quit",
        ".maxrows", ".hints",
    ] {
        assert!(help.contains(command), "{command} is missing in\n{help}");
    }
    assert!(help.contains("FROM information_schema.tables") && help.contains("(AS SQL)"));
}

#[test]
fn wrong_commands_are_errors() {
    for (script, says) in [
        (".nonsense\n", "there is no command .nonsense"),
        (".mode xml\n", "there is no mode xml"),
        (".maxrows -3\n", ".maxrows takes a number"),
        (".timer maybe\n", ".timer takes on or off"),
        (".hints maybe\n", ".hints takes on or off"),
        (".read\n", "usage: .read FILE"),
        (".read /nowhere.sql\n", "/nowhere.sql"),
        (".quit now\n", ".quit takes no argument"),
        (".profile last\n", "usage: .profile"),
    ] {
        let stderr = run(&[], script).failure();
        assert!(stderr.contains(says), "{script}: {stderr}");
    }
}

#[test]
fn web_serves_the_page_of_the_last_query_until_the_shell_ends() {
    let mut shell = skewer(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    input
        .write_all(b".mode csv\nCREATE TABLE t AS SELECT 1 AS a;\nSELECT a FROM t;\n.web\n")
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("http://")));
    let (host, path) = address_in(&line.unwrap().unwrap());
    assert_eq!(path, "/q/2");
    let page = asked(&host, &path);
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("/app.js"),
        "{page}"
    );
    assert!(asked(&host, "/api/view/query?query_id=2").starts_with("HTTP/1.1 401"));
    drop(input);
    assert!(shell.wait().unwrap().success());
    assert!(
        TcpStream::connect(&host).is_err(),
        "the page outlives its shell"
    );
    let stderr = run(&[], ".web x\n").failure();
    assert!(stderr.contains(".web"), "{stderr}");
}
