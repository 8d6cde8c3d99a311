//! Every format, read back by something that knows it.

use crate::support::run;
use serde_json::{Value, json};

/// Values that need quoting, NULL, an empty string, numbers beyond what a double holds, nesting.
const QUERY: &str = "SELECT * FROM (VALUES \
     (1, 'plain', 9007199254740993, 1.5, make_array(1, 2)), \
     (2, 'a,\"b\"|c', -1, NULL, NULL), \
     (3, '', 0, 2.0, make_array(3)), \
     (4, NULL, NULL, NULL, NULL), \
     (5, E'two\\nlines', 7, 0.25, make_array(4))) \
     AS v(id, text, big, x, list) ORDER BY id";

fn formatted(format: &str) -> String {
    run(&["--format", format, "-c", QUERY], "").success()
}

fn expected() -> Value {
    json!([
        {"id": 1, "text": "plain", "big": 9_007_199_254_740_993_i64, "x": 1.5, "list": [1, 2]},
        {"id": 2, "text": "a,\"b\"|c", "big": -1, "x": null, "list": null},
        {"id": 3, "text": "", "big": 0, "x": 2.0, "list": [3]},
        {"id": 4, "text": null, "big": null, "x": null, "list": null},
        {"id": 5, "text": "two\nlines", "big": 7, "x": 0.25, "list": [4]},
    ])
}

#[test]
fn json_is_an_array_of_objects() {
    let value: Value = serde_json::from_str(&formatted("json")).unwrap();
    assert_eq!(value, expected());
    let empty = run(&["--format", "json", "-c", "SELECT 1 AS a WHERE false"], "").success();
    assert_eq!(empty, "[]\n");
}

#[test]
fn ndjson_is_an_object_per_line() {
    let text = formatted("ndjson");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(Value::Array(rows), expected());
}

#[test]
fn equal_names_stay_apart_in_json() {
    let out = run(
        &[
            "--format",
            "ndjson",
            "-c",
            "SELECT x.a, y.a FROM (SELECT 1 AS a) x, (SELECT 2 AS a) y",
        ],
        "",
    );
    assert_eq!(out.success(), "{\"a\":1,\"a_1\":2}\n");
}

#[test]
fn csv_reads_back_as_the_same_rows() {
    let text = formatted("csv");
    assert_eq!(
        text,
        "id,text,big,x,list\n\
         1,plain,9007199254740993,1.5,\"[1, 2]\"\n\
         2,\"a,\"\"b\"\"|c\",-1,,\n\
         3,\"\",0,2.0,[3]\n\
         4,,,,\n\
         5,\"two\nlines\",7,0.25,[4]\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.csv");
    std::fs::write(&file, "a,b\n1,x\n2,\"y,z\"\n").unwrap();
    let query = format!("SELECT * FROM '{}' ORDER BY a", file.display());
    let out = run(&["--format", "csv", "-c", &query], "").success();
    assert_eq!(out, std::fs::read_to_string(&file).unwrap());
}

#[test]
fn an_empty_result_keeps_its_header() {
    let out = run(
        &["--format", "csv", "-c", "SELECT 1 AS a, 2 AS b WHERE false"],
        "",
    )
    .success();
    assert_eq!(out, "a,b\n");
    let out = run(
        &["--format", "markdown", "-c", "SELECT 1 AS a WHERE false"],
        "",
    )
    .success();
    assert_eq!(out, "| a |\n| ---: |\n");
}

#[test]
fn markdown_escapes_what_would_break_the_table() {
    let text = formatted("markdown");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 5);
    assert_eq!(lines[0], "| id | text | big | x | list |");
    assert_eq!(lines[3], "| 2 | a,\"b\"\\|c | -1 | NULL | NULL |");
    assert_eq!(lines[6], "| 5 | two<br>lines | 7 | 0.25 | [4] |");
}

#[test]
fn a_table_in_a_pipe_is_ascii_and_complete() {
    let query = "SELECT value AS n, repeat('x', 300) AS wide FROM generate_series(1, 500)";
    let text = run(&["-c", query], "").success();
    assert!(text.is_ascii() && !text.contains('\u{1b}'));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 1 + 500);
    assert!(rows[1..].iter().all(|row| row.contains(&"x".repeat(300))));
    let widths: Vec<usize> = text.lines().map(str::len).collect();
    assert!(widths.iter().all(|width| *width == widths[0]));
}

#[test]
fn a_plan_is_printed_as_it_is() {
    let text = run(&["-c", "EXPLAIN SELECT 1 AS a"], "").success();
    assert!(
        text.contains("logical_plan\n") && text.contains("ProjectionExec"),
        "{text}"
    );
    assert!(!text.contains('|') && !text.contains("\\n"), "{text}");
}

#[test]
fn null_is_told_from_the_empty_text_in_every_place() {
    let query = "SELECT NULL AS n, '' AS e, [1, NULL] AS l, named_struct('a', NULL) AS s";
    let csv = run(&["--format", "csv", "-c", query], "").success();
    assert_eq!(csv, "n,e,l,s\n,\"\",\"[1, NULL]\",{a: NULL}\n");
    let table = run(&["-c", query], "").success();
    assert!(
        table.contains("| NULL |   | [1, NULL] | {a: NULL} |"),
        "{table}"
    );
}
