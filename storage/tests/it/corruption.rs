//! Damaged files are errors that name them, and damage nothing else.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support;
use crate::support::{columns, dump, insert, open, table, table_rows};
use futures::executor::block_on;
use skewer_storage::disk::RealDisk;
use skewer_storage::{DEFAULT_SCHEMA, Storage, StorageError};

fn database(path: &Path) -> Storage {
    let storage = open(path, Arc::new(RealDisk)).unwrap();
    for name in ["t", "u"] {
        let mut transaction = storage.begin();
        transaction
            .create_table(DEFAULT_SCHEMA, name, columns(&["a"]), false)
            .unwrap();
        transaction.commit().unwrap();
        insert(&storage, name, &[1, 2, 3, 4, 5]).unwrap();
    }
    storage
}

#[test]
fn damage_of_a_segment_is_found_and_named_and_other_tables_stay_readable() {
    let directory = tempfile::tempdir().unwrap();
    let storage = database(directory.path());
    let segment = Arc::clone(&table(&storage, "t").segments[0]);
    let intact = fs::read(segment.path()).unwrap();
    let mut damages = vec![None, Some(intact[..intact.len() - 9].to_vec())];
    for at in (0..intact.len()).step_by(7) {
        let mut flipped = intact.clone();
        flipped[at] ^= 0x10;
        damages.push(Some(flipped));
    }
    for damage in damages {
        match &damage {
            Some(content) => fs::write(segment.path(), content).unwrap(),
            None => fs::remove_file(segment.path()).unwrap(),
        }
        let error = block_on(storage.verify_table(&table(&storage, "t"))).unwrap_err();
        let StorageError::Corrupt { path, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, segment.path());
        assert_eq!(
            table_rows(&storage, &table(&storage, "u")).unwrap().len(),
            5
        );
    }
    fs::write(segment.path(), &intact[..20]).unwrap();
    let error = table_rows(&storage, &table(&storage, "t")).unwrap_err();
    assert!(error.to_string().contains(segment.path().to_str().unwrap()));
    drop(segment);
    drop(storage);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    assert_eq!(
        table_rows(&storage, &table(&storage, "u")).unwrap().len(),
        5
    );
    assert!(table_rows(&storage, &table(&storage, "t")).is_err());
    // The way out.
    let mut transaction = storage.begin();
    transaction.drop_table(DEFAULT_SCHEMA, "t").unwrap();
    transaction.commit().unwrap();
}

#[test]
fn damage_of_the_catalog_is_harmless_or_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let storage = database(directory.path());
    let before = dump(&storage);
    drop(storage);
    let catalog = directory.path().join("catalog.redb");
    let intact = fs::read(&catalog).unwrap();
    let mut damages: Vec<Vec<u8>> = vec![Vec::new(), vec![0; intact.len()], b"hello".to_vec()];
    for length in (1..8).map(|eighth| intact.len() * eighth / 8) {
        damages.push(intact[..length].to_vec());
    }
    // Only places that hold something: the file is mostly free pages.
    let used: Vec<usize> = (0..intact.len())
        .filter(|at| !matches!(intact[*at], 0 | 255))
        .collect();
    for at in used.iter().step_by(used.len() / 300) {
        let mut flipped = intact.clone();
        flipped[*at] ^= 0x24;
        damages.push(flipped);
    }
    let (mut found, mut harmless) = (0, 0);
    for damage in damages {
        fs::write(&catalog, &damage).unwrap();
        match open(directory.path(), Arc::new(RealDisk)) {
            Ok(storage) => {
                assert_eq!(dump(&storage), before);
                harmless += 1;
            }
            Err(StorageError::Corrupt { path, .. }) => {
                assert_eq!(path, catalog);
                found += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(found > 50, "{found} found, {harmless} harmless");
}

#[test]
fn a_missing_catalog_is_not_replaced_by_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    drop(database(directory.path()));
    fs::remove_file(directory.path().join("catalog.redb")).unwrap();
    let error = open(directory.path(), Arc::new(RealDisk)).unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("catalog.redb"));
    assert_eq!(support::files(directory.path()).len(), 4);
}

#[test]
fn a_database_of_another_format_is_refused_with_both_versions() {
    let directory = tempfile::tempdir().unwrap();
    drop(database(directory.path()));
    let catalog = redb::Database::open(directory.path().join("catalog.redb")).unwrap();
    let transaction = catalog.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert("format", 77)
        .unwrap();
    transaction.commit().unwrap();
    drop(catalog);
    let error = open(directory.path(), Arc::new(RealDisk)).unwrap_err();
    assert!(matches!(error, StorageError::Format { found: 77, .. }));
    let text = error.to_string();
    assert!(
        text.contains("format 77") && text.contains("formats 1 to 3"),
        "{text}"
    );
}
