//! What is acknowledged survives: processes that are killed, disks that fail.

use std::path::Path;
use std::sync::Arc;

use skewer::{Database, Error};
use skewer_storage::StorageOptions;
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_tests::crash::{Workload, check, kill_repeatedly};
use skewer_tests::stream_crash;

/// `cargo run -p skewer-tests --bin crash_test -- --kills 200` does more of them.
const KILLS: u64 = 20;

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let child = Path::new(env!("CARGO_BIN_EXE_crash_test"));
    let acknowledged = kill_repeatedly(child, KILLS, 1000).await.unwrap();
    assert!(
        acknowledged > KILLS,
        "the children were killed before they did anything"
    );
}

/// `SKEWER_KILLS=200` does more of them.
#[tokio::test]
async fn a_killed_process_loses_and_doubles_no_row_of_a_stream() {
    let kills = match std::env::var("SKEWER_KILLS") {
        Ok(kills) => kills.parse().unwrap(),
        Err(_) => KILLS,
    };
    let child = Path::new(env!("CARGO_BIN_EXE_crash_test"));
    let rows = stream_crash::kill_repeatedly(child, kills, 1000)
        .await
        .unwrap();
    assert!(
        rows > kills.cast_signed(),
        "the children were killed before they did anything"
    );
}

/// Statements of the fault tests: few, since each is run once per operation of the disk.
const STATEMENTS: usize = 10;

fn options(disk: &Arc<FaultDisk>) -> StorageOptions {
    StorageOptions {
        disk: Arc::clone(disk) as _,
        ..StorageOptions::default()
    }
}

/// Runs the workload up to the first error; gives the number of acknowledged statements.
async fn run(db: &Database, seed: u64) -> (u64, Option<Error>) {
    let session = db.session();
    for (number, step) in Workload::new(seed).take(STATEMENTS).enumerate() {
        if let Err(error) = session.sql(&step.sql).await {
            return (number as u64, Some(error));
        }
    }
    (STATEMENTS as u64, None)
}

/// How many operations of the disk a workload takes.
async fn operations(seed: u64) -> u64 {
    let scratch = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let db = Database::builder()
        .path(scratch.path().join("db"))
        .storage_options(options(&disk))
        .worker_threads(1)
        .build()
        .unwrap();
    let before = disk.operations();
    assert!(run(&db, seed).await.1.is_none());
    disk.operations() - before
}

#[tokio::test]
async fn a_crash_at_any_operation_of_the_disk_loses_nothing_that_was_acknowledged() {
    let seed = 7;
    let operations = operations(seed).await;
    assert!(operations > STATEMENTS as u64);
    for after in 0..operations {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("db");
        let disk = FaultDisk::new();
        let db = Database::builder()
            .path(&path)
            .storage_options(options(&disk))
            .worker_threads(1)
            .build()
            .unwrap();
        disk.inject(after, Fault::Crash);
        let (acknowledged, _) = run(&db, seed).await;
        drop(db);
        disk.lose_unsynced(after).unwrap();
        let db = Database::open(&path)
            .unwrap_or_else(|e| panic!("after a crash at operation {after}: {e}"));
        if let Err(error) = check(&db, seed, acknowledged).await {
            panic!("crash at operation {after} ({:?}): {error}", disk.fired());
        }
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_statement_and_not_the_database() {
    let seed = 11;
    let operations = operations(seed).await;
    for after in (0..operations).step_by(3) {
        for fault in [Fault::DiskFull, Fault::Error] {
            let scratch = tempfile::tempdir().unwrap();
            let disk = FaultDisk::new();
            let db = Database::builder()
                .path(scratch.path().join("db"))
                .storage_options(options(&disk))
                .worker_threads(1)
                .build()
                .unwrap();
            disk.inject(after, fault);
            let (acknowledged, error) = run(&db, seed).await;
            if let (Some(error), Fault::DiskFull) = (&error, fault) {
                assert!(matches!(error, Error::DiskFull(_)), "{error:?}");
            }
            if let Err(error) = check(&db, seed, acknowledged).await {
                panic!(
                    "{fault:?} at operation {after} ({:?}): {error}",
                    disk.fired()
                );
            }
            // The session goes on with the statement that failed, or the one after it.
            let session = db.session();
            session.sql("CREATE TABLE goes_on (x INT)").await.unwrap();
            session.sql("INSERT INTO goes_on VALUES (1)").await.unwrap();
        }
    }
}
