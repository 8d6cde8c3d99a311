//! The case studies at a tiny size. Each fails by itself if the profile does not lead to what it
//! planted; here it is checked that it says so, and that the story is whole.

use crate::support::run;

/// What a study tells, whose story has these words.
fn demo(args: &[&str], words: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().to_str().unwrap();
    let mut all = vec!["demo"];
    all.extend_from_slice(args);
    all.extend_from_slice(&["--seed", "7", "--keep", keep]);
    let told = run(&all, "").success();
    assert!(!told.contains('\u{1b}'), "colours in a pipe:\n{told}");
    // Tables are as wide as what they show.
    for line in told
        .lines()
        .filter(|line| !line.starts_with("   |") && !line.starts_with("   +"))
    {
        assert!(
            line.chars().count() <= 100,
            "wider than 100 columns: {line}"
        );
    }
    for word in words {
        assert!(told.contains(word), "{word} is missing in\n{told}");
    }
    assert!(dir.path().join(format!("{}.db", args[0])).is_dir());
    told
}

/// The words of a study that asks EXPLAIN PROFILE why.
const EXPLAINED: [&str; 4] = ["before", "after", "EXPLAIN PROFILE", "last_query_id()"];

/// Makes sure that what was told has these texts in this order.
fn in_order(told: &str, texts: &[&str]) {
    let mut rest = told;
    for text in texts {
        let Some(place) = rest.find(text) else {
            panic!("{text} is missing, or comes too early, in\n{told}");
        };
        rest = &rest[place + text.len()..];
    }
}

#[test]
fn movies_finds_and_deletes_the_long_line() {
    let told = demo(&["movies", "--rows", "40"], &EXPLAINED);
    assert!(
        told.contains("DELETE FROM movies WHERE _row_id = "),
        "{told}"
    );
}

#[test]
fn taxi_finds_and_simplifies_the_detailed_borough() {
    let told = demo(&["taxi", "--rows", "300"], &EXPLAINED);
    assert!(told.contains("Staten Island takes "), "{told}");
}

#[test]
fn weather_blames_the_shuffle_of_the_hot_key() {
    let told = demo(&["weather", "--rows", "50000"], &EXPLAINED);
    assert!(
        told.contains("Behind that key stands one station, 99501"),
        "{told}"
    );
}

#[test]
fn outliers_quarantines_the_long_documents_and_gives_them_back() {
    let told = demo(&["outliers", "--rows", "60"], &EXPLAINED);
    let steps = [
        "CREATE TABLE documents",
        "EXPLAIN PROFILE",
        "CREATE QUARANTINE ON documents WHERE (",
        "SET quarantine = 'on';",
        "No document is lost",
        "57",
        "SET quarantine = 'off';",
        "60",
        "DROP QUARANTINE ON documents;",
        "before",
    ];
    in_order(&told, &steps);
    assert!(told.contains(" without 3 documents: "), "{told}");
}

#[test]
fn keys_spreads_heavy_keys_in_later_runs() {
    let told = demo(&["keys", "--rows", "100000"], &["before", "after"]);
    let steps = [
        "CREATE TABLE postings",
        "tag-1 ",
        "FROM sys.remedies WHERE query_id = last_query_id();",
        "map",
        "have the key tag-1;",
        "SET remedies = 'auto';",
        "SELECT query_id, is_applied, verdict",
        "true",
        "trial",
        "before",
    ];
    in_order(&told, &steps);
}

#[test]
fn stream_repartitions_between_micro_batches() {
    let told = demo(&["stream", "--rows", "135000"], &["before", "after"]);
    let steps = [
        "CREATE STREAM documents",
        "REMEDIES off AS",
        "INSERT INTO documents",
        "REFRESH CONTINUOUS QUERY scoring;",
        "FROM sys.micro_batches",
        "split",
        "have the key 0;",
        "REMEDIES auto AS",
        "| split  |",
        "With static partitions ",
        "before",
    ];
    in_order(&told, &steps);
    // Each document has one score.
    assert!(told.contains("| 2025000 |   2025000 |"), "{told}");
}

#[test]
fn a_demo_does_not_write_over_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("movies.db")).unwrap();
    let keep = dir.path().to_str().unwrap();
    let stderr = run(&["demo", "movies", "--rows", "10", "--keep", keep], "").failure();
    assert!(stderr.contains("movies.db exists already"), "{stderr}");
}
