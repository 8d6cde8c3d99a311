//! Random sequences of statements, faults and restarts, against maps in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{columns, dump, files, insert, open, referenced, rewrite, table};
use datafusion::arrow::datatypes::{DataType, Field};
use futures::executor::block_on;
use proptest::prelude::*;
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_storage::{DEFAULT_SCHEMA, Result, Storage};

/// Values by table; the first column only.
type Model = BTreeMap<String, Vec<i64>>;

#[derive(Debug, Clone)]
enum Statement {
    Create(String),
    Replace(String),
    Drop(String),
    Rename(String, String),
    AddColumn(String),
    Insert(String, Vec<i64>),
    Delete(String, i64),
    Update(String, i64),
    Truncate(String),
    Compact(String),
}

#[derive(Debug, Clone)]
enum Event {
    Do(Statement),
    /// The statement runs while one of its operations fails.
    Fail(Statement, u64, bool),
    /// The power fails during the statement.
    Crash(Statement, u64, u64),
    Reopen,
}

fn statements() -> impl Strategy<Value = Statement> {
    let name = || "[ab]".prop_map(String::from);
    let values = prop::collection::vec(0_i64..10, 1..9);
    prop_oneof![
        2 => name().prop_map(Statement::Create),
        1 => name().prop_map(Statement::Replace),
        1 => name().prop_map(Statement::Drop),
        1 => (name(), name()).prop_map(|(from, to)| Statement::Rename(from, to)),
        1 => name().prop_map(Statement::AddColumn),
        8 => (name(), values).prop_map(|(name, values)| Statement::Insert(name, values)),
        3 => (name(), 0_i64..10).prop_map(|(name, value)| Statement::Delete(name, value)),
        3 => (name(), 0_i64..10).prop_map(|(name, value)| Statement::Update(name, value)),
        1 => name().prop_map(Statement::Truncate),
        2 => name().prop_map(Statement::Compact),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => statements().prop_map(Event::Do),
        2 => (statements(), 0_u64..12, any::<bool>()).prop_map(|(s, n, full)| Event::Fail(s, n, full)),
        1 => (statements(), 0_u64..12, any::<u64>()).prop_map(|(s, n, seed)| Event::Crash(s, n, seed)),
        1 => Just(Event::Reopen),
    ]
}

/// The model's opinion: the state afterwards, or `None` if the statement is in error.
fn expected(model: &Model, statement: &Statement) -> Option<Model> {
    let mut next = model.clone();
    match statement {
        Statement::Create(name) if model.contains_key(name) => return None,
        Statement::Create(name) | Statement::Replace(name) => {
            next.insert(name.clone(), Vec::new());
        }
        Statement::Drop(name) => {
            next.remove(name)?;
        }
        Statement::Rename(from, to) => {
            if model.contains_key(to) {
                return None;
            }
            let rows = next.remove(from)?;
            next.insert(to.clone(), rows);
        }
        Statement::AddColumn(name) | Statement::Compact(name) => {
            next.get(name)?;
        }
        Statement::Insert(name, values) => next.get_mut(name)?.extend(values),
        Statement::Delete(name, value) => next.get_mut(name)?.retain(|v| v != value),
        Statement::Update(name, value) => {
            let rows = next.get_mut(name)?.iter_mut();
            rows.filter(|v| *v == value).for_each(|v| *v += 1);
        }
        Statement::Truncate(name) => next.get_mut(name)?.clear(),
    }
    next.values_mut().for_each(|rows| rows.sort());
    Some(next)
}

fn execute(storage: &Storage, statement: &Statement) -> Result<()> {
    let mut transaction = storage.begin();
    match statement {
        Statement::Create(name) => {
            transaction.create_table(DEFAULT_SCHEMA, name, columns(&["a"]), false)?;
        }
        Statement::Replace(name) => {
            transaction.create_table(DEFAULT_SCHEMA, name, columns(&["a"]), true)?;
        }
        Statement::Drop(name) => transaction.drop_table(DEFAULT_SCHEMA, name)?,
        Statement::Rename(from, to) => transaction.rename_table(DEFAULT_SCHEMA, from, to)?,
        Statement::AddColumn(name) => {
            let table = table(storage, name);
            let name = format!("c{}", table.schema.fields().len());
            let column = Field::new(name, DataType::Int64, true);
            transaction.add_column(DEFAULT_SCHEMA, &table.name, column)?;
        }
        Statement::Insert(name, values) => return insert(storage, name, values),
        Statement::Delete(name, value) => {
            return rewrite(storage, name, |v| (v != *value).then_some(v));
        }
        Statement::Update(name, value) => {
            return rewrite(storage, name, |v| Some(if v == *value { v + 1 } else { v }));
        }
        Statement::Truncate(name) => transaction.truncate(table(storage, name).id)?,
        Statement::Compact(name) => {
            return block_on(storage.compact(table(storage, name).id)).map(drop);
        }
    }
    transaction.commit().map(drop)
}

fn found(storage: &Storage) -> Model {
    let first = |rows: Vec<Vec<Option<i64>>>| rows.iter().map(|row| row[0].unwrap()).collect();
    dump(storage)
        .values()
        .into_iter()
        .map(|(name, rows)| (name, first(rows)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_history_leaves_what_was_acknowledged(history in prop::collection::vec(events(), 1..40)) {
        let directory = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new();
        let reopen = || open(directory.path(), Arc::clone(&disk) as _).unwrap();
        let mut storage = reopen();
        let mut model = Model::new();
        for event in history {
            match event {
                Event::Do(statement) => {
                    let Some(next) = expected(&model, &statement) else { continue };
                    execute(&storage, &statement).unwrap();
                    model = next;
                }
                Event::Fail(statement, n, full) => {
                    let Some(next) = expected(&model, &statement) else { continue };
                    disk.inject(n, if full { Fault::DiskFull } else { Fault::Error });
                    if execute(&storage, &statement).is_ok() {
                        model = next;
                    } else {
                        prop_assert!(disk.fired().is_some());
                    }
                    disk.come_back();
                }
                Event::Crash(statement, n, seed) => {
                    let Some(next) = expected(&model, &statement) else { continue };
                    disk.inject(n, Fault::Crash);
                    let acknowledged = execute(&storage, &statement).is_ok();
                    drop(storage);
                    disk.lose_unsynced(seed).unwrap();
                    storage = reopen();
                    let found = found(&storage);
                    if acknowledged || found == next {
                        model = next;
                    }
                    prop_assert_eq!(&files(directory.path()), &referenced(&storage));
                }
                Event::Reopen => {
                    drop(storage);
                    storage = reopen();
                    prop_assert_eq!(&files(directory.path()), &referenced(&storage));
                }
            }
            prop_assert_eq!(&found(&storage), &model);
        }
        drop(storage);
        prop_assert_eq!(&found(&reopen()), &model);
    }
}
