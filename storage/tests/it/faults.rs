//! A fault at every write, sync, rename and removal of a workload, and what is left afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::{DataType, Field};
use futures::executor::block_on;
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_storage::{DEFAULT_SCHEMA, QuarantineMeta, Result, Storage};
use tempfile::TempDir;

use crate::support::{Dump, columns, dump, files, insert, open, referenced, rewrite, table, write};

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
        let quarantine = QuarantineMeta::new("q", "a > 5", Some("w"));
        transaction.create_quarantine(table(storage, "t").id, quarantine)?;
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
        transaction.drop_quarantine(s.id, "q")?;
        transaction.drop_table(DEFAULT_SCHEMA, "u")?;
        transaction.commit().map(drop)
    },
    |storage| insert(storage, "s", &[10, 11]),
];

/// The database after 0, 1, … steps when nothing fails: as values, and as files.
struct History {
    states: Vec<Dump>,
    files: Vec<TempDir>,
}

impl History {
    fn new() -> Self {
        let mut history = Self {
            states: Vec::new(),
            files: Vec::new(),
        };
        let directory = tempfile::tempdir().unwrap();
        for done in 0..=STEPS.len() {
            let storage = open(directory.path(), FaultDisk::new()).unwrap();
            if done > 0 {
                STEPS[done - 1](&storage).unwrap();
            }
            history.states.push(dump(&storage));
            drop(storage);
            let copy = tempfile::tempdir().unwrap();
            copy_files(directory.path(), copy.path());
            history.files.push(copy);
        }
        history
    }

    /// Calls `check` for each operation of each step, which is to fail. The step runs in a database
    /// that has run the step before it, so that there is something unsynced from then.
    fn each_boundary(&self, fault: Fault, check: impl Fn(&Boundary, Storage) -> Continue) {
        for step in 0..STEPS.len() {
            let before = step.saturating_sub(1);
            for n in 0.. {
                let directory = tempfile::tempdir().unwrap();
                copy_files(self.files[before].path(), directory.path());
                let disk = FaultDisk::new();
                let storage = open(directory.path(), Arc::clone(&disk) as _).unwrap();
                for earlier in &STEPS[before..step] {
                    earlier(&storage).unwrap();
                }
                disk.inject(n, fault);
                let boundary = Boundary {
                    step,
                    n,
                    directory,
                    disk,
                };
                if let Continue::NextStep = check(&boundary, storage) {
                    assert!(n > 5, "step {step} has but {n} operations");
                    break;
                }
            }
        }
    }

    /// The state is that before or that after a step.
    fn assert_whole(&self, storage: &Storage, step: usize, acknowledged: bool, context: &str) {
        let found = dump(storage);
        let allowed = &self.states[step + usize::from(acknowledged)..step + 2];
        assert!(
            allowed.contains(&found),
            "step {step}, {context}: found {found:?}, not one of {allowed:?}"
        );
    }
}

enum Continue {
    NextOperation,
    NextStep,
}

struct Boundary {
    step: usize,
    n: u64,
    directory: TempDir,
    disk: Arc<FaultDisk>,
}

impl Boundary {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn open(&self) -> Result<Storage> {
        open(self.path(), Arc::clone(&self.disk) as _)
    }

    fn next(&self) -> Continue {
        match self.disk.fired() {
            Some(_) => Continue::NextOperation,
            None => Continue::NextStep,
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn no_garbage(path: &Path, storage: &Storage) {
    assert_eq!(files(path), referenced(storage));
}

/// It is a working database.
fn works(storage: &Storage) {
    let mut transaction = storage.begin();
    transaction
        .create_table(DEFAULT_SCHEMA, "after", columns(&["a"]), false)
        .unwrap();
    transaction.commit().unwrap();
    insert(storage, "after", &[1, 2, 3, 4]).unwrap();
    assert_eq!(dump(storage).values()["after"].len(), 4);
}

fn crash_everywhere(seed: u64) {
    let history = History::new();
    let hit = Mutex::new(BTreeSet::new());
    history.each_boundary(Fault::Crash, |boundary, storage| {
        let acknowledged = STEPS[boundary.step](&storage).is_ok();
        drop(storage);
        let disk = &boundary.disk;
        let Some(what) = disk.fired() else {
            return Continue::NextStep;
        };
        let operation = what.split(' ').next().unwrap().to_owned();
        hit.lock().unwrap().insert(operation);
        // The power may fail again while the next start cleans up.
        disk.lose_unsynced(seed.wrapping_mul(boundary.n + 1))
            .unwrap();
        disk.inject(boundary.n % 9, Fault::Crash);
        drop(boundary.open());
        disk.lose_unsynced(seed.wrapping_mul(boundary.n + 7))
            .unwrap();
        let storage = boundary
            .open()
            .unwrap_or_else(|error| panic!("crash at {what}, then: {error}"));
        history.assert_whole(&storage, boundary.step, acknowledged, &what);
        no_garbage(boundary.path(), &storage);
        works(&storage);
        Continue::NextOperation
    });
    let hit = hit.into_inner().unwrap();
    for kind in ["write", "sync", "create", "remove", "resize"] {
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

#[test]
fn a_fault_anywhere_in_creating_a_database_leaves_none_or_an_empty_one() {
    for fault in [Fault::Crash, Fault::DiskFull, Fault::Error] {
        let mut renamed = false;
        for n in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("new/db");
            let disk = FaultDisk::new();
            disk.inject(n, fault);
            let created = open(&path, Arc::clone(&disk) as _);
            drop(created);
            let Some(what) = disk.fired() else {
                break;
            };
            renamed |= what.starts_with("rename");
            if fault == Fault::Crash {
                disk.lose_unsynced(n % 3).unwrap();
            }
            let storage = open(&path, disk).unwrap_or_else(|error| {
                panic!("{fault:?} at {what}, then: {error}");
            });
            assert_eq!(dump(&storage), Dump::default());
            works(&storage);
        }
        assert!(renamed);
    }
}

fn fail_everywhere(fault: Fault) {
    let history = History::new();
    history.each_boundary(fault, |boundary, storage| {
        let Boundary { step, disk, .. } = boundary;
        if let Err(error) = STEPS[*step](&storage) {
            // The statement has failed, the database has not.
            assert_eq!(dump(&storage), history.states[*step], "{error}");
            STEPS[*step](&storage)
                .unwrap_or_else(|again| panic!("{:?}: {error}; again: {again}", disk.fired()));
        }
        let expected = history.states[*step + 1].values();
        drop(storage);
        // The fault may be yet to come: then opening fails, once.
        let storage = boundary.open().or_else(|_| boundary.open()).unwrap();
        let found = dump(&storage);
        assert_eq!(found.values(), expected, "{:?}", disk.fired());
        assert_eq!(found.views, history.states[*step + 1].views);
        no_garbage(boundary.path(), &storage);
        boundary.next()
    });
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
    let history = History::new();
    let create_schema = |storage: &Storage, name: &str| {
        let mut transaction = storage.begin();
        transaction.create_schema(name).unwrap();
        transaction.commit()
    };
    history.each_boundary(Fault::Crash, |boundary, storage| {
        let acknowledged = STEPS[boundary.step](&storage).is_ok();
        let Some(what) = boundary.disk.fired() else {
            return Continue::NextStep;
        };
        // While it is away, nothing but errors; the last snapshot is still there.
        create_schema(&storage, "x").unwrap_err();
        boundary.disk.come_back();
        create_schema(&storage, "y").unwrap();
        history.assert_whole(&storage, boundary.step, acknowledged, &what);
        let live = dump(&storage);
        drop(storage);
        let storage = boundary.open().unwrap();
        assert_eq!(dump(&storage), live);
        assert!(storage.snapshot().has_schema("y"));
        assert!(!storage.snapshot().has_schema("x"));
        no_garbage(boundary.path(), &storage);
        Continue::NextOperation
    });
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
