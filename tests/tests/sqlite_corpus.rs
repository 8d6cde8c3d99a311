//! Scripts of SQLite's sqllogictest: those in `tests/sqlite`, or all below a directory that holds the
//! corpus.
//!
//! ```text
//! SKEWER_SLT_CORPUS=../corpus/test SKEWER_SLT_EVERY=50 cargo test -p skewer-tests --test sqlite_corpus -- --nocapture
//! ```
//!
//! runs every 50th query of each script (all without `SKEWER_SLT_EVERY`) and prints what differs for a known
//! reason; anything else that differs fails. `SKEWER_SLT_FILES=random/` keeps scripts whose path has that text.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use skewer_tests::sqlite::{self, Outcome};

/// What is shown of what differs.
const SHOWN: usize = 40;

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        let entries = entries.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "test") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn run_all(scripts: &[PathBuf], every: usize) -> Outcome {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Outcome::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(scripts.len()) {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = runtime.block_on(sqlite::run(script, every));
                    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
                    all.lock().unwrap().add(outcome);
                }
            });
        }
    });
    all.into_inner().unwrap()
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn results_are_those_of_other_databases() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("sqlite");
    let outcome = run_all(&scripts(&own), 1);
    assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n"));
    assert!(outcome.equal > 60, "{outcome:?}");
}

#[test]
fn results_are_those_of_the_corpus() {
    let Some(corpus) = std::env::var_os("SKEWER_SLT_CORPUS") else {
        return;
    };
    let mut found = scripts(Path::new(&corpus));
    if let Ok(part) = std::env::var("SKEWER_SLT_FILES") {
        found.retain(|path| path.display().to_string().contains(&part));
    }
    assert!(!found.is_empty(), "no scripts in {}", corpus.display());
    let outcome = run_all(&found, number("SKEWER_SLT_EVERY").unwrap_or(1));
    let mut report = format!("{} scripts, {} as expected\n", found.len(), outcome.equal);
    for (reason, count) in &outcome.known {
        report.push_str(&format!("{count:8} differ: {reason}\n"));
    }
    eprintln!("{report}");
    let shown: Vec<&str> = outcome
        .wrong
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect();
    let (wrong, shown) = (outcome.wrong.len(), shown.join("\n"));
    assert!(wrong == 0, "{wrong} differ for no known reason:\n{shown}");
}
