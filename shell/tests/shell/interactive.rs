//! The shell as a person has it: keys, the screen, Ctrl-C.

use std::fs;

use tempfile::{TempDir, tempdir};
use vt100::Color;

use crate::pseudo_terminal::{CTRL_C, CTRL_D, ENTER, PseudoTerminal, TAB, UP};
use crate::support::run;

/// Takes far longer than anybody waits.
const ENDLESS: &str = "SELECT count(*) FROM range(1000000) a, range(1000000) b \
                       WHERE a.value * b.value = -1;";

/// A shell without history, in memory.
fn shell() -> (PseudoTerminal, TempDir) {
    let state = tempdir().unwrap();
    (PseudoTerminal::start(&[], state.path()), state)
}

#[test]
fn enter_begins_a_new_line_until_there_is_a_semicolon() {
    let (mut terminal, _state) = shell();
    terminal.press("SELECT 40");
    terminal.press(ENTER);
    terminal.wait_for("   ...> ");
    terminal.press("+ 2 AS answer;");
    terminal.press(ENTER);
    terminal.wait_for_prompt();
    let text = terminal.text();
    assert!(text.contains("answer") && text.contains("42"), "{text}");
    assert!(text.contains("1 row · "), "{text}");
}

#[test]
fn history_is_there_with_the_up_key_and_in_the_next_shell() {
    let (mut terminal, state) = shell();
    terminal.run("SELECT 'first' AS a;");
    terminal.run("SELECT 'second' AS a;");
    terminal.press(UP);
    terminal.wait_for_line("SELECT 'second' AS a;");
    terminal.press(UP);
    terminal.wait_for_line("SELECT 'first' AS a;");
    terminal.press(ENTER);
    terminal.wait_for_prompt();
    assert_eq!(terminal.text().matches("│ first").count(), 2);
    terminal.press(CTRL_D);
    assert!(terminal.end().success());

    let mut next = PseudoTerminal::start(&[], state.path());
    next.press(UP);
    next.wait_for_line("SELECT 'first' AS a;");
}

#[test]
fn tab_completes_tables_columns_and_names_of_sys() {
    let (mut terminal, _state) = shell();
    terminal.run("CREATE TABLE measurements (celsius DOUBLE);");
    terminal.complete("SELECT * FROM meas", TAB, "SELECT * FROM measurements");
    terminal.press(ENTER);
    terminal.press("WHERE cels");
    terminal.press(TAB);
    terminal.wait_for("WHERE celsius");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt();
    terminal.complete("SELECT * FROM sys.queri", TAB, "SELECT * FROM sys.queries");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt();
    terminal.complete(".ti", TAB, ".timer");
}

#[test]
fn what_is_typed_is_coloured_by_what_it_is() {
    let (mut terminal, _state) = shell();
    terminal.press("SELECT 'text', 4711 AS other");
    terminal.wait_for_line("SELECT 'text', 4711 AS other");
    let colours = ["SELECT", "'text'", "4711"].map(|text| terminal.colour(text));
    assert_eq!(colours, [6, 2, 3].map(Color::Idx));
    assert_eq!(terminal.colour("other"), Color::Default);
}

#[test]
fn a_long_statement_has_a_progress_bar_and_ctrl_c_ends_it_but_not_the_session() {
    let (mut terminal, _state) = shell();
    terminal.run("CREATE TABLE kept AS SELECT 4711 AS a;");
    for level in ["off", "counters"] {
        terminal.run(&format!("SET profile.level = '{level}';"));
        terminal.press(ENDLESS);
        terminal.press(ENTER);
        terminal.wait_for("Ctrl-C cancels");
        terminal.press(CTRL_C);
        terminal.wait_for_prompt();
        let text = terminal.text();
        assert!(text.contains("error: cancelled"), "{text}");
        assert!(!text.contains("Ctrl-C cancels"), "{text}");
        let kept = terminal.run("SELECT a FROM kept;");
        assert!(kept.contains("4711"), "{kept}");
    }
}

#[test]
fn a_slow_statement_with_a_diagnosis_is_followed_by_a_hint_until_that_is_switched_off() {
    // All but a tenth of the rows go to one partition of an exchange.
    const CREATE: &str = "CREATE TABLE t AS SELECT CASE WHEN value % 10 > 0 THEN 0 ELSE value END \
                          AS k FROM generate_series(1, 3000000);";
    const SKEWED: &str =
        "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY k) AS r FROM t);";
    let state = tempdir().unwrap();
    let mut terminal = PseudoTerminal::start(&["--threads", "2"], state.path());
    terminal.run(CREATE);
    // A busy machine may delay the other task as long, or be the first cause itself.
    let mut hints = Vec::new();
    let is_named = (2..7).any(|query| {
        hints.push(terminal.run(SKEWED).replace('\n', ""));
        let zoom = format!("EXPLAIN PROFILE QUERY {query};");
        hints
            .last()
            .is_some_and(|hint| hint.contains("hint: ") && hint.contains(&zoom))
    });
    assert!(is_named, "{hints:?}");
    terminal.run(".hints off");
    let text = terminal.run(SKEWED);
    assert!(!text.contains("hint: "), "{text}");

    // Programs are told nothing.
    let piped = run(&["--threads", "2", "-c", CREATE, "-c", SKEWED], "");
    assert!(!piped.success().contains("hint"));
}

#[test]
fn profile_reports_on_a_statement_that_was_cancelled_or_failed() {
    let (mut terminal, _state) = shell();
    terminal.run("CREATE TABLE t AS SELECT value AS a FROM range(1000000);");
    terminal.press("EXPLAIN PROFILE SELECT count(*) FROM t x, t y WHERE x.a * y.a = -1;");
    terminal.press(ENTER);
    // A statement that no thread has begun leaves no record; this one has been planned.
    terminal.wait_for(" % · ");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt();
    // It is recorded as soon as its tasks have ended.
    let cancelled = "! The query was cancelled; the profile shows what ran before that";
    terminal.run_until(".profile", cancelled);
    terminal.run("EXPLAIN PROFILE SELECT 10 / (a - 5) FROM t;");
    let report = terminal.run(".profile");
    assert!(report.contains("! The query failed; "), "{report}");
    assert!(report.contains("before that: division by zero"), "{report}");
}

#[test]
fn the_progress_bar_knows_the_share_of_a_table_that_was_read() {
    let (mut terminal, _state) = shell();
    terminal.run("CREATE TABLE many AS SELECT value AS v FROM range(1000000);");
    terminal.press("SELECT count(*) FROM many a, many b WHERE a.v * b.v = -1;");
    terminal.press(ENTER);
    terminal.wait_for(" % · ");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt();
}

#[test]
fn ctrl_c_at_the_prompt_discards_what_was_typed() {
    let (mut terminal, _state) = shell();
    terminal.press("SELECT nonsense");
    terminal.wait_for_line("SELECT nonsense");
    terminal.press(CTRL_C);
    terminal.wait_for_prompt();
    let answer = terminal.run("SELECT 6 * 7 AS answer;");
    assert!(answer.contains("42"), "{answer}");
}

#[test]
fn dot_commands_tell_about_the_database_and_change_the_shell() {
    let (mut terminal, state) = shell();
    terminal.run("CREATE TABLE trips (id BIGINT, cost DOUBLE);");
    let tables = terminal.run(".tables");
    assert!(tables.contains("│ trips"), "{tables}");
    let schema = terminal.run(".schema trips");
    assert!(schema.contains("│ cost"), "{schema}");

    terminal.run("SELECT count(*) AS n FROM trips;");
    let report = terminal.run(".profile");
    assert!(report.contains("Where the time went"), "{report}");

    let timed = terminal.run("SELECT 1 AS one;");
    assert!(timed.contains("1 row · "), "{timed}");
    terminal.run(".timer off");
    let untimed = terminal.run("SELECT 2 AS two;");
    assert!(
        untimed.contains("1 row") && !untimed.contains("·"),
        "{untimed}"
    );

    terminal.run(".mode csv");
    let csv = terminal.run("SELECT 3 AS three, 4 AS four;");
    assert!(csv.contains("three,four") && csv.contains("3,4"), "{csv}");

    let script = state.path().join("script.sql");
    fs::write(&script, "SELECT 5 AS five, 6 AS six;\n").unwrap();
    let read = terminal.run(&format!(".read {}", script.display()));
    assert!(read.contains("five,six") && read.contains("5,6"), "{read}");

    terminal.press(".quit");
    terminal.press(ENTER);
    assert!(terminal.end().success());
}

#[test]
fn an_error_is_shown_and_the_shell_goes_on() {
    let (mut terminal, _state) = shell();
    terminal.run("CREATE TABLE trips (id BIGINT);");
    let error = terminal.run("SELECT * FROM tripz;");
    assert!(error.contains("did you mean trips?"), "{error}");
    let answer = terminal.run("SELECT 6 * 7 AS answer;");
    assert!(answer.contains("42"), "{answer}");
}

#[test]
fn a_database_that_is_left_keeps_what_was_done_in_it() {
    let state = tempdir().unwrap();
    let path = state.path().join("db");
    let path = path.to_str().unwrap();
    let mut terminal = PseudoTerminal::start(&[path], state.path());
    terminal.run("CREATE TABLE t AS SELECT 1 AS a;");
    terminal.press(".quit");
    terminal.press(ENTER);
    assert!(terminal.end().success());
    let out = run(&[path, "--format", "csv", "-c", "SELECT a FROM t"], "").success();
    assert_eq!(out, "a\n1\n");
}
