//! A fault at every write, sync, rename and removal of a workload, and what is left afterwards.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use futures::executor::block_on;
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_storage::{DEFAULT_SCHEMA, Result, Storage};
use support::{Dump, columns, dump, files, insert, open, referenced, rewrite, table, write};

type Step = fn(&Storage) -> Result<()>;

/// Every kind of commit, each step one of them.
const STEPS: &[Step] = &[
    |storage| {
        let mut transaction = storage.begin();
        let table = transaction.create_table(DEFAULT_SCHEMA, "t", columns(&["a"]), false)?;
        let segments = write(storage, &table, &[1, 2, 3, 4])?;
        transaction.add_segments(table.id, segments)?;
        transaction.create_table(DEFAULT_SCHEMA, "u", columns(&["x", "y"]), false)?;
        transaction.commit().map(drop)
    },
    |storage| insert(storage, "t", &[5, 6, 7, 8, 9]),
    |storage| rewrite(storage, "t", |a| (a % 4 != 0).then_some(a)),
    |storage| rewrite(storage, "t", |a| Some(if a < 6 { a * 10 } else { a })),
    |storage| {
        storage.next_query_id();
        let mut transaction = storage.begin();
        transaction.add_column(DEFAULT_SCHEMA, "t", Field::new("b", DataType::Int64, true))?;
        transaction.rename_table(DEFAULT_SCHEMA, "t", "s")?;
        transaction.create_view(DEFAULT_SCHEMA, "v", "SELECT 1", false)?;
        transaction.commit().map(drop)
    },
    |storage| {
        let u = table(storage, "u");
        let mut transaction = storage.begin();
        for value in 0..8 {
            transaction.add_segments(u.id, write(storage, &u, &[value])?)?;
        }
        transaction.commit().map(drop)
    },
    |storage| block_on(storage.compact(table(storage, "u").id)).map(drop),
    |storage| {
        let mut transaction = storage.begin();
        let s = table(storage, "s");
        transaction.truncate(s.id)?;
        transaction.drop_table(DEFAULT_SCHEMA, "u")?;
        transaction.commit().map(drop)
    },
    |storage| insert(storage, "s", &[10, 11]),
];

/// The database after 0, 1, … steps, when nothing fails.
fn states() -> Vec<Dump> {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), FaultDisk::new()).unwrap();
    let mut states = vec![dump(&storage)];
    for step in STEPS {
        step(&storage).unwrap();
        states.push(dump(&storage));
    }
    states
}

/// Runs the workload; returns the number of steps that were acknowledged.
fn run(path: &Path, disk: &Arc<FaultDisk>) -> usize {
    let Ok(storage) = open(path, Arc::clone(disk) as _) else {
        return 0;
    };
    STEPS
        .iter()
        .take_while(|step| step(&storage).is_ok())
        .count()
}

fn no_garbage(path: &Path, storage: &Storage) {
    assert_eq!(files(path), referenced(storage));
}

fn crash_everywhere(seed: u64) {
    let states = states();
    let mut hit = BTreeSet::new();
    for n in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let disk = FaultDisk::new();
        disk.inject(n, Fault::Crash);
        let acknowledged = run(&path, &disk);
        let Some(what) = disk.fired() else {
            assert_eq!(acknowledged, STEPS.len());
            break;
        };
        hit.insert(what.split(' ').next().unwrap().to_owned());
        // The power may fail again while the next start cleans up.
        for (round, seed) in [seed, seed.wrapping_mul(3)].into_iter().enumerate() {
            disk.lose_unsynced(seed.wrapping_mul(n + 1)).unwrap();
            if round == 0 {
                disk.inject(n % 9, Fault::Crash);
                drop(open(&path, Arc::clone(&disk) as _));
            }
        }
        disk.lose_unsynced(seed).unwrap();
        let storage = open(&path, disk).unwrap_or_else(|error| {
            panic!("crash {n} (at {what}), then: {error}");
        });
        let found = dump(&storage);
        let allowed = &states[acknowledged..(acknowledged + 2).min(states.len())];
        assert!(
            allowed.contains(&found),
            "crash {n} (at {what}) after {acknowledged} steps left {found:?}, not one of {allowed:?}"
        );
        no_garbage(&path, &storage);
        // It is a working database.
        let mut transaction = storage.begin();
        transaction
            .create_table(DEFAULT_SCHEMA, "after", columns(&["a"]), false)
            .unwrap();
        transaction.commit().unwrap();
        insert(&storage, "after", &[1, 2, 3, 4]).unwrap();
    }
    for kind in ["write", "sync", "rename", "create", "remove", "resize"] {
        assert!(hit.contains(kind), "no {kind} in the workload: {hit:?}");
    }
}

#[test]
fn a_crash_anywhere_that_loses_everything_unsynced_keeps_what_was_acknowledged() {
    crash_everywhere(0);
}

#[test]
fn a_crash_anywhere_that_loses_some_of_what_is_unsynced_keeps_what_was_acknowledged() {
    crash_everywhere(1);
}

fn fail_everywhere(fault: Fault) {
    let states = states();
    for n in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let disk = FaultDisk::new();
        let mut storage = open(path, Arc::clone(&disk) as _).unwrap();
        disk.inject(n, fault);
        let mut failures = 0;
        for (done, step) in STEPS.iter().enumerate() {
            if let Err(error) = step(&storage) {
                failures += 1;
                // The statement has failed, the database has not.
                assert_eq!(dump(&storage).values(), states[done].values(), "{error}");
                step(&storage).unwrap_or_else(|again| {
                    panic!(
                        "{:?} failed step {done}: {error}; again: {again}",
                        disk.fired()
                    )
                });
            }
        }
        assert!(failures <= 1);
        drop(storage);
        // The fault may be yet to come: then opening fails, once.
        storage = open(path, Arc::clone(&disk) as _)
            .or_else(|_| open(path, Arc::clone(&disk) as _))
            .unwrap();
        assert_eq!(dump(&storage).values(), states[STEPS.len()].values());
        assert_eq!(dump(&storage).views, states[STEPS.len()].views);
        no_garbage(path, &storage);
        if disk.fired().is_none() {
            break;
        }
    }
}

#[test]
fn a_full_disk_fails_the_statement_and_not_the_database() {
    fail_everywhere(Fault::DiskFull);
}

#[test]
fn an_io_error_fails_the_statement_and_not_the_database() {
    fail_everywhere(Fault::Error);
}

#[test]
fn a_disk_that_was_away_for_a_while_leaves_the_database_as_acknowledged() {
    let states = states();
    for n in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let disk = FaultDisk::new();
        let storage = open(path, Arc::clone(&disk) as _).unwrap();
        disk.inject(n, Fault::Crash);
        let done = STEPS
            .iter()
            .take_while(|step| step(&storage).is_ok())
            .count();
        if disk.fired().is_none() {
            break;
        }
        // While it is away, nothing but errors; the last snapshot is still there.
        let mut transaction = storage.begin();
        transaction.create_schema("x").unwrap();
        assert!(done == STEPS.len() || transaction.commit().is_err());
        disk.come_back();
        let mut transaction = storage.begin();
        transaction.create_schema("y").unwrap();
        transaction.commit().unwrap();
        let live = dump(&storage);
        let allowed = &states[done..(done + 2).min(states.len())];
        assert!(allowed.contains(&live), "{:?}", disk.fired());
        drop(storage);
        let storage = open(path, disk).unwrap();
        assert_eq!(dump(&storage), live);
        assert!(storage.snapshot().has_schema("y"));
        assert!(!storage.snapshot().has_schema("x"));
        no_garbage(path, &storage);
    }
}

#[test]
fn a_full_disk_is_told_from_other_errors() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let storage = open(directory.path(), Arc::clone(&disk) as _).unwrap();
    STEPS[0](&storage).unwrap();
    let (mut full, mut n) = (0, 0);
    loop {
        disk.inject(n, Fault::DiskFull);
        let result = insert(&storage, "t", &[1]);
        if disk.fired().is_none() {
            break;
        }
        if let Err(error) = result {
            let is_full = matches!(error, skewer_storage::StorageError::DiskFull { .. });
            assert!(is_full, "{error}");
            full += 1;
        }
        n += 1;
    }
    assert!(full > 3);
}
