//! Every golden script, in memory and on disk; on disk the database is opened again afterwards and
//! must hold the same.

use std::path::{Path, PathBuf};

use skewer::Database;
use skewer_tests::contents::contents;
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
        async move { Ok(Connection { session, folders }) }
    });
    for (path, name) in folders {
        runner.set_var(name.trim_start_matches('$').to_owned(), path);
    }
    runner.with_column_validator(strict_column_validator);
    runner
}

async fn run(script: &Path, on_disk: bool) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let out = scratch.path().join("out");
    std::fs::create_dir(&out).map_err(|e| e.to_string())?;
    let path = scratch.path().join("db");
    // Two threads everywhere: plans in golden files must not depend on the machine.
    let builder = Database::builder().worker_threads(2);
    let builder = if on_disk {
        builder.path(&path)
    } else {
        builder
    };
    let db = builder.build().map_err(|e| e.to_string())?;
    let mut runner = runner(&db, &out);
    let outcome = runner.run_file_async(script).await;
    runner.shutdown_async().await;
    drop(runner);
    outcome.map_err(|e| e.display(false).to_string())?;
    if !on_disk {
        return Ok(());
    }
    let before = contents(&db.session()).await.map_err(|e| e.to_string())?;
    db.close().map_err(|e| e.to_string())?;
    let db = Database::open(&path).map_err(|e| format!("opening again: {e}"))?;
    let after = contents(&db.session()).await.map_err(|e| e.to_string())?;
    if before == after {
        Ok(())
    } else {
        Err(format!(
            "{}: after opening again the database holds\n{after:#?}\nin place of\n{before:#?}",
            script.display()
        ))
    }
}

async fn run_all(on_disk: bool) {
    let scripts = scripts(&folder("slt")).unwrap();
    assert!(!scripts.is_empty(), "there are no scripts");
    let mut failures = Vec::new();
    for script in &scripts {
        if let Err(error) = run(script, on_disk).await {
            failures.push(error);
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} scripts fail:\n{}",
        failures.len(),
        scripts.len(),
        failures.join("\n\n")
    );
}

#[tokio::test]
async fn golden_scripts_hold_in_memory() {
    if std::env::var_os("UPDATE_SLT").is_none() {
        run_all(false).await;
        return;
    }
    for script in scripts(&folder("slt")).unwrap() {
        let scratch = tempfile::tempdir().unwrap();
        let db = Database::builder().worker_threads(2).build().unwrap();
        runner(&db, scratch.path())
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
    if std::env::var_os("UPDATE_SLT").is_none() {
        run_all(true).await;
    }
}
