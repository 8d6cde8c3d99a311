//! The command line as scripts use it: what runs, in which order, where output goes, how it ends.

use std::fs;

use crate::support::{run, skewer};

const TABLE: &str = "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'one'), (2, NULL)) AS v(a, b);";

#[test]
fn a_command_prints_its_result_and_nothing_else() {
    let out = run(&["-c", "SELECT 6 * 7 AS answer"], "").success();
    assert_eq!(
        out,
        "+--------+\n| answer |\n+--------+\n|     42 |\n+--------+\n"
    );
}

#[test]
fn commands_and_files_run_in_the_order_given() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("two.sql");
    fs::write(&file, "-- a script\nSELECT 2 AS n;\nSELECT 3 AS n").unwrap();
    let file = file.to_str().unwrap();
    let args = [
        "--format",
        "csv",
        "-c",
        "SELECT 1 AS n",
        "-f",
        file,
        "-c",
        "SELECT 4 AS n",
    ];
    assert_eq!(run(&args, "").success(), "n\n1\nn\n2\nn\n3\nn\n4\n");
}

#[test]
fn standard_input_is_a_script_when_it_is_piped() {
    let script = "CREATE TABLE t (a INT);\nINSERT INTO t VALUES (1), (2);\n\
                  .mode csv\nSELECT sum(a) AS sum\nFROM t;\n";
    assert_eq!(run(&[], script).success(), "sum\n3\n");
    assert_eq!(
        run(&["--format", "csv", "-f", "-"], "SELECT 1 AS a").success(),
        "a\n1\n"
    );
    assert_eq!(run(&[], "").success(), "");
}

#[test]
fn a_database_keeps_what_a_process_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    assert_eq!(run(&[db, "-c", TABLE], "").success(), "");
    let out = run(
        &[db, "--format", "csv", "-c", "SELECT count(*) AS n FROM t"],
        "",
    )
    .success();
    assert_eq!(out, "n\n2\n");
}

#[test]
fn an_error_ends_the_script_with_status_1_on_standard_error() {
    let ran = run(
        &[
            "--format",
            "csv",
            "-c",
            "SELECT 1 AS a; SELECT nonsense; SELECT 2 AS a",
        ],
        "",
    );
    assert_eq!(ran.status, Some(1));
    assert_eq!(ran.stdout, "a\n1\n");
    assert!(
        ran.stderr.starts_with("error: ") && ran.stderr.contains("nonsense"),
        "{ran:?}"
    );
}

#[test]
fn an_error_in_a_file_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.sql");
    fs::write(&file, "CREATE TABLE t (a INT);\n\nSELECT b\nFROM t;\n").unwrap();
    let stderr = run(&["-f", file.to_str().unwrap()], "").failure();
    assert!(stderr.contains("bad.sql, line 3: "), "{stderr}");
}

#[test]
fn a_syntax_error_shows_a_caret() {
    let stderr = run(&["-c", "SELECT 1 +"], "").failure();
    assert!(
        stderr.lines().any(|line| line.trim_end().ends_with('^')),
        "{stderr}"
    );
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let stderr = run(&["-f", "/nowhere/at/all.sql"], "").failure();
    assert!(stderr.contains("/nowhere/at/all.sql"), "{stderr}");
}

#[test]
fn wrong_usage_ends_with_status_2() {
    for args in [
        &["--format", "xml"][..],
        &["--nonsense"],
        &["demo", "taxis"],
        &["demo", "--rows", "few"],
    ] {
        let ran = run(args, "");
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.stderr.contains("--help"), "{ran:?}");
    }
}

#[test]
fn help_and_version_are_there() {
    let help = run(&["--help"], "").success();
    for word in ["--format", "--command", "--file", "demo", "PATH"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    assert!(run(&["--version"], "").success().starts_with("skewer "));
}

#[test]
fn a_reader_that_goes_away_ends_the_query_silently() {
    let query = "SELECT * FROM generate_series(1, 100000000)";
    let mut child = skewer(&["--format", "csv", "-c", query])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[cfg(unix)]
#[test]
fn an_interrupt_cancels_the_query_with_status_130() {
    let query = "SELECT sum(a.value * b.value) FROM generate_series(1, 1000000) AS a \
                 CROSS JOIN generate_series(1, 1000000) AS b";
    let child = skewer(&["-c", query])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cancelled")
    );
}

#[test]
fn changes_print_nothing_on_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("out.csv");
    let script = format!(
        "{TABLE} INSERT INTO t VALUES (3, 'three'); UPDATE t SET a = 4 WHERE a = 3;\n\
         DELETE FROM t WHERE a = 4; COPY t TO '{}'; DROP TABLE t;",
        csv.display()
    );
    assert_eq!(run(&["-c", &script], "").success(), "");
    assert!(csv.exists());
}

#[test]
fn times_go_to_standard_error() {
    let ran = run(&["--format", "csv"], ".timer on\nSELECT 1 AS a;\n");
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "a\n1\n"));
    assert!(
        ran.stderr.starts_with("1 row · ") && ran.stderr.ends_with("s\n"),
        "{ran:?}"
    );
}

#[test]
fn a_command_may_begin_with_a_comment() {
    let out = run(&["--format", "csv", "-c", "-- how many\nSELECT 1 AS n"], "").success();
    assert_eq!(out, "n\n1\n");
}

#[test]
fn an_interrupted_change_is_recorded_as_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").display().to_string();
    let change = "CREATE TABLE big AS SELECT a.value FROM generate_series(1, 1000000) AS a \
                  CROSS JOIN generate_series(1, 1000000)";
    let mut child = skewer(&[&db, "-c", change])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let asked = "SELECT status FROM sys.queries; SELECT count(*) AS tables \
                 FROM information_schema.tables WHERE table_schema = 'main'";
    let out = run(&[&db, "--format", "csv", "-c", asked], "").success();
    assert_eq!(out, "status\ncancelled\ntables\n0\n");
}
