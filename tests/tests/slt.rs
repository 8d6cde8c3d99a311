//! Every golden script, in memory and on disk; on disk the database is opened again afterwards and
//! must hold the same.

use std::path::{Path, PathBuf};

use skewer::Database;
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::{contents, query};
use skewer_tests::slt::{Connection, scripts};
use sqllogictest::{Runner, default_normalizer, default_validator, strict_column_validator};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A runner whose connections are sessions of one database; `$DATA` are the input files and
/// `$OUT` is an empty directory.
fn runner(
    db: &Database,
    out: &Path,
    runs_before: usize,
) -> Runner<Connection, impl sqllogictest::MakeConnection<Conn = Connection> + use<>> {
    let db = db.clone();
    let folders = [
        (folder("data").display().to_string(), "$DATA".to_owned()),
        (out.display().to_string(), "$OUT".to_owned()),
    ];
    let hidden = folders.to_vec();
    let mut runner = Runner::new(move || {
        let session = db.session();
        let folders = hidden.clone();
        async move {
            Ok(Connection {
                session,
                folders,
                runs_before,
            })
        }
    });
    for (path, name) in folders {
        runner.set_var(name.trim_start_matches('$').to_owned(), path);
    }
    runner.with_column_validator(strict_column_validator);
    runner
}

/// Where a script runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    InMemory,
    /// In memory, and each query has the plan of the run before.
    KeptPlans,
    /// And the database is opened again afterwards.
    OnDisk,
    /// In memory, and queries are distributed over so many workers.
    Workers(usize),
    /// Queries are distributed over so many processes, which also keep the rows.
    Processes(u32),
}

impl Place {
    /// Whether queries are distributed.
    fn has_workers(self) -> bool {
        matches!(self, Self::Workers(_) | Self::Processes(_))
    }
}

/// Runs a script; gives the number of its queries that ran on several workers.
async fn run(script: &Path, place: Place) -> Result<usize, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let out = scratch.path().join("out");
    std::fs::create_dir(&out).map_err(|e| e.to_string())?;
    let path = scratch.path().join("db");
    let cluster = match place {
        Place::Processes(workers) => Some(Cluster::start(workers)),
        _ => None,
    };
    // Two threads everywhere: plans in golden files must not depend on the machine.
    let builder = Database::builder().worker_threads(2);
    let builder = match place {
        Place::InMemory | Place::KeptPlans | Place::Processes(_) => builder,
        Place::OnDisk => builder.path(&path),
        Place::Workers(workers) => builder.workers(workers),
    };
    let db = match &cluster {
        Some(cluster) => cluster.database().clone(),
        None => builder.build().map_err(|e| e.to_string())?,
    };
    // A plan is kept when its query comes for the second time.
    let runs_before = if place == Place::KeptPlans { 2 } else { 0 };
    let mut runner = runner(&db, &out, runs_before);
    // Scripts say with them which of their queries show the plan of one place.
    if place.has_workers() {
        runner.add_label("workers");
    }
    if matches!(place, Place::Processes(_)) {
        runner.add_label("processes");
    }
    let outcome = runner.run_file_async(script).await;
    runner.shutdown_async().await;
    drop(runner);
    outcome.map_err(|e| e.display(false).to_string())?;
    if place != Place::OnDisk {
        let distributed = "SELECT count(DISTINCT query_id) FROM sys.operator_stats
                           WHERE worker_id > 0";
        let count = query(&db.session(), distributed).await;
        let count = count.map_err(|e| e.to_string())?;
        return count[0].parse().map_err(|_| format!("{count:?}"));
    }
    let before = contents(&db.session()).await.map_err(|e| e.to_string())?;
    db.close().await.map_err(|e| e.to_string())?;
    let db = Database::open(&path).map_err(|e| format!("opening again: {e}"))?;
    let after = contents(&db.session()).await.map_err(|e| e.to_string())?;
    if before == after {
        Ok(0)
    } else {
        Err(format!(
            "{}: after opening again the database holds\n{after:#?}\nin place of\n{before:#?}",
            script.display()
        ))
    }
}

/// Runs all scripts; gives the number of queries that ran on several workers.
async fn run_all(place: Place) -> usize {
    let mut scripts = scripts(&folder("slt")).unwrap();
    if place == Place::KeptPlans {
        scripts.retain(|script| !counts_queries(script));
    }
    assert!(scripts.len() > 20, "there are {} scripts", scripts.len());
    let mut failures = Vec::new();
    let mut distributed = 0;
    for script in &scripts {
        match run(script, place).await {
            Ok(queries) => distributed += queries,
            Err(error) => failures.push(error),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} scripts fail:\n{}",
        failures.len(),
        scripts.len(),
        failures.join("\n\n")
    );
    distributed
}

/// Whether a script looks at what ran before.
fn counts_queries(script: &Path) -> bool {
    let text = std::fs::read_to_string(script).unwrap();
    ["sys.", "last_query_id", "PROFILE"]
        .iter()
        .any(|word| text.contains(word))
}

#[tokio::test]
async fn golden_scripts_hold_with_plans_of_earlier_runs() {
    if !skewer_testing::regenerates() {
        assert_eq!(run_all(Place::KeptPlans).await, 0);
    }
}

#[tokio::test]
async fn golden_scripts_hold_on_three_workers() {
    if !skewer_testing::regenerates() {
        let distributed = run_all(Place::Workers(3)).await;
        // Tables of the scripts are small, but their rows are on workers all the same.
        assert!(
            distributed > 50,
            "only {distributed} queries were distributed"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_scripts_hold_on_three_processes() {
    if !skewer_testing::regenerates() {
        let distributed = run_all(Place::Processes(3)).await;
        assert!(
            distributed > 50,
            "only {distributed} queries were distributed"
        );
    }
}

#[tokio::test]
async fn golden_scripts_hold_in_memory() {
    if !skewer_testing::regenerates() {
        assert_eq!(run_all(Place::InMemory).await, 0);
        return;
    }
    for script in scripts(&folder("slt")).unwrap() {
        let scratch = tempfile::tempdir().unwrap();
        let db = Database::builder().worker_threads(2).build().unwrap();
        runner(&db, scratch.path(), 0)
            .update_test_file(
                &script,
                " ",
                default_validator,
                default_normalizer,
                strict_column_validator,
            )
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn golden_scripts_hold_on_disk_and_after_opening_again() {
    if !skewer_testing::regenerates() {
        run_all(Place::OnDisk).await;
    }
}
