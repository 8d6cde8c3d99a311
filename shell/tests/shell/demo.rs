//! The case studies at a tiny size. Each fails by itself if the profile does not lead to what it
//! planted; here it is checked that it says so, and that the story is whole.

use crate::support::run;

fn demo(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().to_str().unwrap();
    let mut all = vec!["demo"];
    all.extend_from_slice(args);
    all.extend_from_slice(&["--seed", "7", "--keep", keep]);
    let told = run(&all, "").success();
    assert!(!told.contains('\u{1b}'), "colours in a pipe:\n{told}");
    for line in told.lines() {
        assert!(
            line.chars().count() <= 100,
            "wider than 100 columns: {line}"
        );
    }
    for word in ["before", "after", "EXPLAIN PROFILE", "last_query_id()"] {
        assert!(told.contains(word), "{word} is missing in\n{told}");
    }
    assert!(dir.path().join(format!("{}.db", args[0])).is_dir());
    told
}

#[test]
fn movies_finds_and_deletes_the_long_line() {
    let told = demo(&["movies", "--rows", "40"]);
    assert!(
        told.contains("DELETE FROM movies WHERE _row_id = "),
        "{told}"
    );
}

#[test]
fn taxi_finds_and_simplifies_the_detailed_borough() {
    let told = demo(&["taxi", "--rows", "300"]);
    assert!(told.contains("Staten Island takes "), "{told}");
}

#[test]
fn weather_blames_the_shuffle_of_the_hot_key() {
    let told = demo(&["weather", "--rows", "50000"]);
    assert!(
        told.contains("Behind that key stands one station, 99501"),
        "{told}"
    );
}

#[test]
fn a_demo_does_not_write_over_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("movies.db")).unwrap();
    let keep = dir.path().to_str().unwrap();
    let stderr = run(&["demo", "movies", "--rows", "10", "--keep", keep], "").failure();
    assert!(stderr.contains("movies.db exists already"), "{stderr}");
}
