//! What a database may use, from the command line and in SQL.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{run, skewer};

/// Holds everything in memory, and cannot spill it.
const HUNGRY: &str = "SELECT array_length(array_agg(repeat('x', 100) || value)) AS n \
                      FROM range(200000)";

#[test]
fn a_query_beyond_the_memory_limit_names_it_and_the_way_out() {
    let args = ["--memory-limit", "16MiB", "--format", "csv", "-c"];
    let shown = run(&[&args[..], &["SHOW memory_limit"]].concat(), "").success();
    assert_eq!(shown, "name,value\nmemory_limit,16 MiB\n");
    let refused = run(&[&args[..], &[HUNGRY]].concat(), "").failure();
    assert!(
        refused.starts_with("error: the memory limit of 16 MiB is reached: ")
            && refused.contains("SET memory_limit = '32 MiB'"),
        "{refused}"
    );
    let raised = format!("SET memory_limit = '1GB'; {HUNGRY}");
    assert_eq!(
        run(&[&args[..], &[&raised]].concat(), "").success(),
        "n\n200000\n"
    );
}

#[test]
fn a_size_without_sense_is_a_usage_error_that_shows_the_accepted_form() {
    let ran = run(&["--memory-limit", "4 parsecs", "-c", "SELECT 1"], "");
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("'4 parsecs'") && ran.stderr.contains("'512MiB'"),
        "{ran:?}"
    );
}

#[test]
fn what_does_not_fit_goes_to_the_temporary_directory() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let sorted = "SELECT repeat('x', 50) || value AS s FROM range(400000) ORDER BY s DESC";
    let spilled = "SELECT sum(spilled_bytes) > 0 AS spilled FROM sys.operator_stats \
                   WHERE query_id = last_query_id()";
    let script = format!("CREATE TABLE sorted AS {sorted};\n{spilled};\n");
    let args = [
        "--memory-limit",
        "40MB",
        "--threads",
        "2",
        "--temp-directory",
        spill.to_str().unwrap(),
        "--format",
        "csv",
    ];
    assert_eq!(run(&args, &script).success(), "spilled\ntrue\n");
    // It was created, and is left clean.
    assert_eq!(spill.read_dir().unwrap().count(), 0);
}

/// Files in a directory and in those below it.
fn files(directory: &Path) -> usize {
    let Ok(entries) = directory.read_dir() else {
        return 0;
    };
    let counts = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => 1,
    });
    counts.sum()
}

#[test]
fn what_a_killed_process_has_spilled_is_removed_by_the_next_one_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let args = |sql| {
        let spill = spill.to_str().unwrap();
        let limits = ["--memory-limit", "40MB", "--threads", "2"];
        [&limits[..], &["--temp-directory", spill, "-c", sql]].concat()
    };
    // It spills for as long as there is room.
    let endless = "SELECT repeat('x', 50) || value AS s FROM range(1000000000) ORDER BY s DESC";
    let spilling = || {
        let mut command = skewer(&args(endless));
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let own = spill.join(format!("skewer-spill-{}-0", child.id()));
        let deadline = Instant::now() + Duration::from_secs(120);
        while files(&own) == 0 {
            assert!(Instant::now() < deadline, "it does not spill");
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        (child, own)
    };
    let (mut one, of_one) = spilling();
    one.kill().unwrap();
    one.wait().unwrap();
    assert!(files(&of_one) > 0, "a killed process removes nothing");
    let (mut other, of_other) = spilling();
    assert!(!of_one.exists(), "the next one removes it");
    run(&args("SELECT 1"), "").success();
    assert!(files(&of_other) > 0, "a living process keeps its files");
    other.kill().unwrap();
    other.wait().unwrap();
    run(&args("SELECT 1"), "").success();
    assert_eq!(spill.read_dir().unwrap().count(), 0);
}

#[test]
fn a_temporary_directory_that_cannot_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("spill");
    let inside = inside.to_str().unwrap();
    let refused = run(&["--temp-directory", inside, "-c", "SELECT 1"], "").failure();
    assert!(refused.contains(inside), "{refused}");
}

#[test]
fn threads_divide_queries() {
    let args = ["--threads", "3", "--format", "csv", "-c", "SHOW threads"];
    let shown = run(&args, "").success();
    assert_eq!(
        shown,
        "name,value\ndatafusion.execution.target_partitions,3\n"
    );
}
