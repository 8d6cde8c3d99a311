//! Segments that other nodes own: read, committed, given up and collected.

use std::path::Path;
use std::sync::Arc;

use datafusion::object_store::ObjectStoreExt;
use futures::executor::block_on;
use skewer_storage::disk::RealDisk;
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_storage::{
    DEFAULT_SCHEMA, MASTER, Partitioning, Shard, Storage, StorageError, TableMeta, WorkerStore,
    WorkerStoreDirectory,
};

use crate::support;
use crate::support::nodes::{self, Cluster, identity, options};
use crate::support::{columns, table, table_rows, write};

fn create(storage: &Storage) -> Arc<TableMeta> {
    let mut transaction = storage.begin();
    transaction
        .create_table(DEFAULT_SCHEMA, "t", columns(&["a"]), false)
        .unwrap();
    transaction.commit().unwrap();
    table(storage, "t")
}

fn values(storage: &Storage) -> Vec<i64> {
    let rows = table_rows(storage, &table(storage, "t")).unwrap();
    let mut values: Vec<i64> = rows.values().map(|row| row[0].unwrap()).collect();
    values.sort_unstable();
    values
}

#[test]
fn what_workers_wrote_is_committed_at_once_read_through_the_master_and_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 3);
    let t = create(&cluster.storage);
    cluster.insert(&t, &(0..20).collect::<Vec<_>>()).unwrap();
    assert_eq!(values(&cluster.storage), (0..20).collect::<Vec<_>>());
    let owners = table(&cluster.storage, "t").owners();
    assert_eq!(owners.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(cluster.files(), cluster.referenced());
    for segment in &table(&cluster.storage, "t").segments {
        block_on(cluster.storage.verify(segment, true)).unwrap();
    }
    drop(cluster);

    let cluster = Cluster::open(directory.path(), 3);
    assert_eq!(values(&cluster.storage), (0..20).collect::<Vec<_>>());
    assert_eq!(cluster.files(), cluster.referenced());
}

#[test]
fn the_master_s_own_segments_and_those_of_workers_are_one_table() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 1);
    let t = create(&cluster.storage);
    support::insert(&cluster.storage, "t", &[1, 2, 3, 4]).unwrap();
    cluster.insert(&t, &[5, 6]).unwrap();
    assert_eq!(values(&cluster.storage), [1, 2, 3, 4, 5, 6]);
    let owners = table(&cluster.storage, "t").owners();
    assert_eq!(owners.into_iter().collect::<Vec<_>>(), [MASTER, 1]);
}

#[test]
fn a_worker_removes_a_segment_when_no_snapshot_has_it_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let t = create(&cluster.storage);
    cluster.insert(&t, &[1, 2]).unwrap();
    let reader = cluster.storage.snapshot();
    let before = cluster.files();
    let mut transaction = cluster.storage.begin();
    transaction.truncate(t.id).unwrap();
    transaction.commit().unwrap();
    assert_eq!(cluster.files(), before, "a snapshot still has them");
    let listed: Vec<_> = before.iter().map(|name| (name.table, name.id)).collect();
    for node in [1, 2] {
        assert_eq!(cluster.storage.garbage_of(node, &listed, true), {
            let of_others = before.iter().filter(|name| name.owner != node);
            of_others.map(|n| (n.table, n.id)).collect::<Vec<_>>()
        });
    }
    let old = reader.table_by_id(t.id).unwrap();
    assert_eq!(table_rows(&cluster.storage, &old).unwrap().len(), 2);
    drop((reader, old));
    assert_eq!(cluster.files(), []);
    let mut dropped = cluster.nodes.dropped.lock().clone();
    dropped.sort();
    assert_eq!(dropped, before);
}

#[test]
fn what_a_failed_statement_wrote_is_given_up_and_what_it_has_yet_to_write_too() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let t = create(&cluster.storage);
    let failed = cluster.begin(&t).unwrap();
    let arrived = cluster.write_on(1, &failed, &[1, 2], None).unwrap();
    let listed = cluster.nodes.home(1).unwrap().list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(cluster.storage.garbage_of(1, &listed, false), []);
    // One whose description never arrived.
    cluster.describe_on(2, &failed, &[3], None).unwrap();
    let listed = cluster.nodes.home(2).unwrap().list().unwrap();
    assert_eq!(cluster.storage.garbage_of(2, &listed, false), []);

    let number = failed.first_segment_id();
    drop((arrived, failed));
    assert_eq!(cluster.files(), []);

    // A task that has not heard of it yet.
    let home = cluster.nodes.home(2).unwrap();
    let spec = skewer_storage::WriteSpec {
        table: t.id,
        columns: Arc::clone(&t.schema),
        row_ids: Arc::new(nodes::ByCall {
            storage: cluster.storage.clone(),
            table: t.id,
        }),
        segment_ids: Some(number + 3..number + 9),
        shard: None,
    };
    let mut writer = home.writer(&spec);
    let late = block_on(async {
        writer.write(&support::batch(&t, &[4])).await.unwrap();
        writer.finish().await.unwrap()
    });
    assert_eq!(cluster.files().len(), 1);
    for segment in late {
        assert!(home.release(segment, 1).is_err());
    }
    assert_eq!(cluster.files(), []);
}

#[test]
fn what_a_worker_wrote_before_it_was_restarted_is_not_published() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let t = create(&cluster.storage);
    for restarted in [false, true] {
        let write = cluster.begin(&t).unwrap();
        let mut segments = cluster.write_on(1, &write, &[1], None).unwrap();
        segments.extend(cluster.write_on(2, &write, &[2], None).unwrap());
        cluster.stop(2);
        if restarted {
            let disk = Arc::new(RealDisk);
            cluster.start(directory.path(), 2, 7, disk).unwrap();
        }
        write.mark_adopted();
        let mut transaction = cluster.storage.begin();
        transaction.add_segments(t.id, segments).unwrap();
        let error = transaction.commit().unwrap_err();
        let StorageError::WorkerLost { worker, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(worker, "worker 2");
        assert!(values(&cluster.storage).is_empty());
        if !restarted {
            let disk = Arc::new(RealDisk);
            cluster.start(directory.path(), 2, 6, disk).unwrap();
        }
        assert_eq!(cluster.files(), []);
    }
}

#[test]
fn without_its_owner_a_segment_cannot_be_read_and_the_error_names_the_worker() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let t = create(&cluster.storage);
    cluster.insert(&t, &[1, 2]).unwrap();
    cluster.stop(2);
    let t = table(&cluster.storage, "t");
    let of_2 = t.segments.iter().find(|s| s.owner == 2).unwrap();
    let error = support::rows_of(&cluster.storage, &t, of_2).unwrap_err();
    assert!(error.to_string().contains("worker 2"), "{error}");
    drop((cluster, t));

    // As one process, without any worker.
    let path = directory.path().join("master");
    let storage = support::open(&path, Arc::new(RealDisk)).unwrap();
    let t = table(&storage, "t");
    let error = support::rows_of(&storage, &t, &t.segments[0]).unwrap_err();
    assert!(error.to_string().contains("worker 1"), "{error}");
}

#[test]
fn a_worker_refuses_the_segments_of_others_naming_both() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let t = create(&cluster.storage);
    cluster.insert(&t, &[1, 2]).unwrap();
    let home = cluster.nodes.home(1).unwrap();
    let t = table(&cluster.storage, "t");
    let of_2 = t.segments.iter().find(|s| s.owner == 2).unwrap();
    let error = block_on(home.object_store().get(&of_2.location)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("on node 2, this is node 1"), "{text}");
}

#[test]
fn a_worker_s_directory_is_locked_and_is_nobody_else_s() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("w");
    let open = |node| WorkerStore::open(&path, &identity(node), options(Arc::new(RealDisk)));
    let home = open(1).unwrap();
    assert!(matches!(open(1), Err(StorageError::Locked { .. })));
    drop(home);
    let error = open(2).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("belongs to node 1 of cluster test, not to node 2 of cluster test"),
        "{error}"
    );
    let error = support::open(&path, Arc::new(RealDisk)).unwrap_err();
    assert!(
        error.to_string().contains("directory of a worker"),
        "{error}"
    );
    // Whoever joins gets a number that nobody has had.
    let lock = |path: &Path| WorkerStoreDirectory::lock(path, options(Arc::new(RealDisk))).unwrap();
    let error = lock(&path).must_be_free().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("belongs to node 1 of cluster test: "),
        "{error}"
    );
    lock(&directory.path().join("new")).must_be_free().unwrap();
    open(1).unwrap();
    std::fs::create_dir(path.join("segments/1")).unwrap();
    std::fs::remove_file(path.join("home.json")).unwrap();
    let error = lock(&path).must_be_free().unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");

    let database = directory.path().join("db");
    drop(support::open(&database, Arc::new(RealDisk)).unwrap());
    let error = WorkerStore::open(&database, &identity(1), options(Arc::new(RealDisk)));
    let error = error.unwrap_err();
    assert!(error.to_string().contains("is a database"), "{error}");
}

#[test]
fn numbers_of_segments_are_never_given_out_twice_not_even_if_only_a_worker_knows_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 1);
    let t = create(&cluster.storage);
    let write = cluster.begin(&t).unwrap();
    let before = write.first_segment_id();
    cluster.describe_on(1, &write, &[1, 2], None).unwrap();
    cluster.stop(1);
    drop((write, cluster, t));
    let cluster = Cluster::open(directory.path(), 0);
    let t = table(&cluster.storage, "t");
    let write = cluster.storage.begin_write(&t, &[1], 8).unwrap();
    assert!(write.first_segment_id() >= before + 8 * skewer_storage::SEGMENTS_PER_WRITER);
}

#[test]
fn row_ids_of_workers_do_not_clash_and_are_not_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 3);
    let t = create(&cluster.storage);
    for _ in 0..3 {
        cluster.insert(&t, &(0..9).collect::<Vec<_>>()).unwrap();
    }
    // Two segments with one id are found when they are read.
    let rows = table_rows(&cluster.storage, &table(&cluster.storage, "t")).unwrap();
    assert_eq!(rows.len(), 27);
    let last = *rows.keys().next_back().unwrap();
    drop(cluster);
    let cluster = Cluster::open(directory.path(), 3);
    let t = table(&cluster.storage, "t");
    assert!(cluster.storage.reserve_row_ids(t.id, 1).unwrap() > last);
    let unknown = skewer_storage::TableId(999);
    assert!(cluster.storage.reserve_row_ids(unknown, 1).is_err());
}

#[test]
fn partitioning_and_shards_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path(), 2);
    let mut transaction = cluster.storage.begin();
    let by_a = Partitioning::Hash(vec!["a".to_owned()]);
    let t = transaction
        .create_partitioned_table(
            DEFAULT_SCHEMA,
            "t",
            columns(&["a", "b"]),
            by_a.clone(),
            false,
        )
        .unwrap();
    let write = cluster.begin(&t).unwrap();
    let mut segments = Vec::new();
    for node in [1, 2] {
        let shard = Some(Shard {
            index: node - 1,
            of: 2,
        });
        segments.extend(
            cluster
                .write_on(node, &write, &[i64::from(node)], shard)
                .unwrap(),
        );
    }
    write.mark_adopted();
    transaction.add_segments(t.id, segments).unwrap();
    transaction
        .rename_table(DEFAULT_SCHEMA, "t", "renamed")
        .unwrap();
    transaction.commit().unwrap();
    let check = |storage: &Storage| {
        let t = table(storage, "renamed");
        assert_eq!(t.partitioning, by_a);
        for segment in &t.segments {
            let shard = Shard {
                index: segment.owner - 1,
                of: 2,
            };
            assert_eq!(segment.shard, Some(shard));
        }
    };
    check(&cluster.storage);
    drop((cluster, t));
    let cluster = Cluster::open(directory.path(), 2);
    check(&cluster.storage);

    let mut transaction = cluster.storage.begin();
    for (keys, wrong) in [
        (vec![], "no column"),
        (vec!["c".to_owned()], "column c does not exist"),
        (vec!["a".to_owned(); 2], "column a already exists"),
    ] {
        let error = transaction
            .create_partitioned_table(
                DEFAULT_SCHEMA,
                "u",
                columns(&["a"]),
                Partitioning::Hash(keys),
                false,
            )
            .unwrap_err();
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

#[test]
fn databases_of_before_there_were_workers_open_and_those_without_any_stay_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master");
    let storage = support::open(&path, Arc::new(RealDisk)).unwrap();
    create(&storage);
    support::insert(&storage, "t", &[1, 2, 3]).unwrap();
    drop(storage);
    let format = || {
        use redb::{ReadableDatabase, TableDefinition};
        let catalog = redb::Database::open(path.join("catalog.redb")).unwrap();
        let read = catalog.begin_read().unwrap();
        let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
        let meta = read.open_table(meta).unwrap();
        meta.get("format").unwrap().unwrap().value()
    };
    assert_eq!(format(), 1);
    {
        use redb::TableDefinition;
        let catalog = redb::Database::open(path.join("catalog.redb")).unwrap();
        let change = catalog.begin_write().unwrap();
        let places: TableDefinition<'_, (u64, u64), (u32, u32, u32)> =
            TableDefinition::new("places");
        let partitioning: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("partitioning");
        assert!(change.delete_table(places).unwrap());
        assert!(change.delete_table(partitioning).unwrap());
        change.commit().unwrap();
    }
    let cluster = Cluster::open(directory.path(), 1);
    assert_eq!(values(&cluster.storage), [1, 2, 3]);
    cluster
        .insert(&table(&cluster.storage, "t"), &[4, 5])
        .unwrap();
    drop(cluster);
    assert_eq!(format(), 2);
    let cluster = Cluster::open(directory.path(), 1);
    assert_eq!(values(&cluster.storage), [1, 2, 3, 4, 5]);
}

/// Lets one side effect after the other of a statement fail, on the master's disk or a worker's.
fn statement_with_a_fault_at_every_operation(faulty: usize, fault: Fault) {
    let mut operations = 0;
    for n in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let disks: Vec<_> = (0..3).map(|_| FaultDisk::new()).collect();
        let as_disks = || disks.iter().map(|disk| Arc::clone(disk) as _).collect();
        let cluster = Cluster::on(path, as_disks()).unwrap();
        let t = create(&cluster.storage);
        cluster.insert(&t, &[1, 2, 3]).unwrap();
        disks[faulty].inject(n, fault);
        let done = cluster.insert(&t, &[4, 5, 6, 7]).is_ok();
        let fired = disks[faulty].fired().is_some();
        if !fired {
            assert!(done);
        }
        drop((cluster, t));
        if fault == Fault::Crash {
            // Everybody at once: a power failure.
            for disk in &disks {
                disk.lose_unsynced(n).unwrap();
            }
        }
        let cluster = Cluster::open(path, 2);
        let found = values(&cluster.storage);
        let context = format!(
            "operation {n} of disk {faulty}: {:?}",
            disks[faulty].fired()
        );
        match found.as_slice() {
            [1, 2, 3] => assert!(!done, "an acknowledged statement is lost, {context}"),
            [1, 2, 3, 4, 5, 6, 7] => {}
            other => panic!("half a statement, {context}: {other:?}"),
        }
        assert_eq!(cluster.files(), cluster.referenced(), "{context}");
        // It goes on.
        let t = table(&cluster.storage, "t");
        cluster.insert(&t, &[8]).unwrap();
        assert_eq!(values(&cluster.storage).len(), found.len() + 1);
        if !fired {
            break;
        }
        operations += 1;
    }
    assert!(operations > 3, "{operations} operations failed");
}

#[test]
fn a_statement_happens_everywhere_or_nowhere_wherever_a_worker_crashes() {
    statement_with_a_fault_at_every_operation(1, Fault::Crash);
    statement_with_a_fault_at_every_operation(2, Fault::Crash);
}

#[test]
fn a_statement_happens_everywhere_or_nowhere_wherever_the_master_crashes() {
    statement_with_a_fault_at_every_operation(0, Fault::Crash);
}

#[test]
fn a_full_disk_fails_the_statement_whole_and_leaves_nothing() {
    for faulty in 0..3 {
        statement_with_a_fault_at_every_operation(faulty, Fault::DiskFull);
        statement_with_a_fault_at_every_operation(faulty, Fault::Error);
    }
}

#[test]
fn segments_written_for_a_statement_of_this_process_wait_for_it_and_go_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let storage = support::open(directory.path(), Arc::new(RealDisk)).unwrap();
    let t = create(&storage);
    let hold = |values: &[i64], number| -> Vec<_> {
        let written = write(&storage, &t, values).unwrap();
        let held = written.into_iter().map(|s| storage.hold(s, number));
        held.collect()
    };
    let failed = storage.begin_write(&t, &[MASTER], 1).unwrap();
    let number = failed.first_segment_id();
    let described = hold(&[1, 2], number);
    assert_eq!(support::files(directory.path()).len(), 1);
    drop(failed);
    assert_eq!(support::files(directory.path()).len(), 0);
    assert!(storage.adopt(&described[0]).is_err());
    hold(&[3], number);
    assert_eq!(support::files(directory.path()).len(), 0, "held by nobody");

    let statement = storage.begin_write(&t, &[MASTER], 1).unwrap();
    let described = hold(&[4, 5, 6, 7], statement.first_segment_id());
    let adopted = described.iter().map(|d| storage.adopt(d).unwrap());
    let adopted: Vec<_> = adopted.collect();
    statement.mark_adopted();
    let mut transaction = storage.begin();
    transaction.add_segments(t.id, adopted).unwrap();
    transaction.commit().unwrap();
    assert_eq!(values(&storage), [4, 5, 6, 7]);
    assert_eq!(
        support::files(directory.path()),
        support::referenced(&storage)
    );
}
