//! Quarantines belong to their tables, and their views to them.

use std::sync::Arc;

use skewer_storage::disk::RealDisk;
use skewer_storage::{DEFAULT_SCHEMA, Object, QuarantineMeta, Storage, StorageError, Transaction};

use crate::support::{columns, open, table};

/// Creates tables `t` and `u`, and a quarantine of `t` with a view.
fn database(storage: &Storage) {
    let mut transaction = storage.begin();
    for name in ["t", "u"] {
        let columns = columns(&["a"]);
        transaction
            .create_table(DEFAULT_SCHEMA, name, columns, false)
            .unwrap();
    }
    transaction.commit().unwrap();
    create(storage, "t", "q", Some("v")).unwrap();
}

fn create(storage: &Storage, of: &str, name: &str, view: Option<&str>) -> Result<(), StorageError> {
    let mut transaction = storage.begin();
    let quarantine = QuarantineMeta::new(name, "a > 5", view);
    transaction.create_quarantine(table(storage, of).id, quarantine)?;
    transaction.commit().map(|_| ())
}

fn change(
    storage: &Storage,
    body: impl FnOnce(&mut Transaction) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let mut transaction = storage.begin();
    body(&mut transaction)?;
    transaction.commit().map(|_| ())
}

/// The quarantines of the default schema with their tables, and the text of its views.
fn contents(storage: &Storage) -> (Vec<(String, QuarantineMeta)>, Vec<String>) {
    let snapshot = storage.snapshot();
    let tables = snapshot.tables(DEFAULT_SCHEMA);
    let quarantines = tables.iter().flat_map(|table| {
        let own = table.quarantines.values();
        own.map(|quarantine| (table.name.clone(), quarantine.as_ref().clone()))
    });
    let views = snapshot.views(DEFAULT_SCHEMA);
    let views = views.iter().map(|view| view.sql.clone());
    (quarantines.collect(), views.collect())
}

#[test]
fn a_quarantine_and_its_view_survive_a_restart_and_a_rename() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    database(&storage);
    change(&storage, |t| {
        t.rename_table(DEFAULT_SCHEMA, "t", "it's \"t\"")
    })
    .unwrap();
    let before = contents(&storage);
    assert_eq!(before.0.len(), 1);
    assert_eq!(before.0[0].0, "it's \"t\"");
    let sql = r#"CREATE QUARANTINE "q" ON "main"."it's ""t""" WHERE (a > 5) INTO "v""#;
    assert_eq!(before.1, [sql]);
    drop(storage);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    assert_eq!(contents(&storage), before);
    let (found, _) = storage
        .snapshot()
        .quarantine_of_view(DEFAULT_SCHEMA, "v")
        .unwrap();
    assert_eq!(found.name, "it's \"t\"");
    // What is dropped is gone after a restart, too.
    change(&storage, |t| t.drop_quarantine(found.id, "q")).unwrap();
    assert_eq!(contents(&storage), (vec![], vec![]));
    drop((storage, found));
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    assert_eq!(contents(&storage), (vec![], vec![]));
}

#[test]
fn a_quarantine_goes_with_its_table() {
    let storage = Storage::in_memory().unwrap();
    database(&storage);
    change(&storage, |t| {
        let columns = columns(&["b"]);
        t.create_table(DEFAULT_SCHEMA, "t", columns, true)
            .map(|_| ())
    })
    .unwrap();
    assert_eq!(contents(&storage), (vec![], vec![]));
    create(&storage, "u", "q", Some("v")).unwrap();
    change(&storage, |t| t.drop_table(DEFAULT_SCHEMA, "u")).unwrap();
    assert_eq!(contents(&storage), (vec![], vec![]));
}

#[test]
fn names_of_quarantines_and_views_are_unique_in_a_schema() {
    let storage = Storage::in_memory().unwrap();
    database(&storage);
    let exists = |error: StorageError, expected| match error {
        StorageError::AlreadyExists { object, .. } => assert_eq!(object, expected),
        other => panic!("{other}"),
    };
    exists(
        create(&storage, "u", "q", None).unwrap_err(),
        Object::Quarantine,
    );
    exists(
        create(&storage, "u", "r", Some("v")).unwrap_err(),
        Object::View,
    );
    exists(
        create(&storage, "u", "r", Some("t")).unwrap_err(),
        Object::Table,
    );
    let replaced = change(&storage, |t| {
        t.create_view(DEFAULT_SCHEMA, "v", "SELECT 1", true)
    });
    let dropped = change(&storage, |t| t.drop_view(DEFAULT_SCHEMA, "v"));
    for refused in [replaced, dropped] {
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("belongs to quarantine q of table main.t"),
            "{text}"
        );
    }
    let id = table(&storage, "u").id;
    let missing = change(&storage, |t| t.drop_quarantine(id, "q")).unwrap_err();
    assert!(
        matches!(
            missing,
            StorageError::NotFound {
                object: Object::Quarantine,
                ..
            }
        ),
        "{missing}"
    );
    assert_eq!(contents(&storage).0.len(), 1);
}

/// Two transactions begin before either commits.
#[test]
fn of_two_quarantines_of_one_name_the_second_is_refused() {
    let storage = Storage::in_memory().unwrap();
    database(&storage);
    let id = table(&storage, "u").id;
    let begin = || {
        let mut transaction = storage.begin();
        let quarantine = QuarantineMeta::new("r", "a = 1", Some("w"));
        transaction.create_quarantine(id, quarantine).unwrap();
        transaction
    };
    let (first, second) = (begin(), begin());
    first.commit().unwrap();
    second.commit().unwrap_err();
    assert_eq!(contents(&storage).0.len(), 2);
}

/// An older build would misread the database: its format says so, as long as there may be a trace of them.
#[test]
fn a_quarantine_raises_the_format_and_segments_of_workers_do_not_lower_it() {
    let format = |path: &std::path::Path| {
        let catalog = redb::Database::open(path.join("catalog.redb")).unwrap();
        let transaction = redb::ReadableDatabase::begin_read(&catalog).unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        let meta = transaction.open_table(meta).unwrap();
        meta.get("format").unwrap().unwrap().value()
    };
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    change(&storage, |t| {
        let columns = columns(&["a"]);
        t.create_table(DEFAULT_SCHEMA, "t", columns, false)
            .map(|_| ())
    })
    .unwrap();
    drop(storage);
    assert_eq!(format(directory.path()), 1);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    create(&storage, "t", "q", None).unwrap();
    change(&storage, |t| {
        let keys = skewer_storage::Partitioning::Hash(vec!["a".to_owned()]);
        let columns = columns(&["a"]);
        let created = t.create_partitioned_table(DEFAULT_SCHEMA, "h", columns, keys, false);
        created.map(|_| ())
    })
    .unwrap();
    drop(storage);
    assert_eq!(format(directory.path()), 3);
}
