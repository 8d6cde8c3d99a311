//! What happens when a process is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use skewer::cluster::MemberState;
use skewer::{Error, WorkerOptions};
use skewer_tests::cluster::{Cluster, impatient};
use skewer_tests::contents::query;

use crate::reads::fill;

fn lost() -> MemberState {
    MemberState::Lost(Arc::from(""))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_lost_within_a_second_and_queries_that_run_on_it_fail_at_once() {
    let mut took = Vec::new();
    // The machine may be busy: one of some attempts has to be in time.
    for _ in 0..3 {
        let (lost, failed) = kill_a_worker().await;
        if lost < Duration::from_secs(1) && failed < Duration::from_secs(5) {
            return;
        }
        took.push((lost, failed));
    }
    panic!("it is lost, and queries fail, after {took:?}");
}

/// How long a killed worker is taken for alive, and how long a query that runs on it goes on; what
/// queries say is checked.
async fn kill_a_worker() -> (Duration, Duration) {
    let mut cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    // Its first row is there, and the last far away: it cannot be run again.
    let long = "SELECT a.id FROM t a, t b WHERE a.id + b.id > 0";
    let mut stream = session.sql(long).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let killed = cluster.kill(2);
    cluster.wait_for(2, &lost());
    let noticed = killed.elapsed();
    let error = loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("a query ended as if nothing had happened"),
        }
    };
    let Error::WorkerLost { name, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(name, "worker 2 (host-2)");
    let failed = killed.elapsed();
    // The next one is not begun.
    let error = query(&session, "SELECT sum(v) FROM t").await.unwrap_err();
    let Error::WorkerLost { name, tables, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (name.as_str(), tables.as_slice()),
        ("worker 2 (host-2)", &["main.t".to_owned()][..])
    );
    let workers = "SELECT worker_id, state FROM sys.workers WHERE query_id IS NULL ORDER BY 1";
    let found = query(&session, workers).await.unwrap();
    assert_eq!(found, ["0|alive", "1|alive", "2|lost", "3|alive"]);
    (noticed, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_and_a_master_whose_only_threads_compute_one_record_are_not_taken_for_dead() {
    let patience = Duration::from_millis(2500);
    let cluster = Cluster::with_patience(patience, |builder| builder.worker_threads(1));
    let home = tempfile::tempdir().unwrap();
    let mut options = WorkerOptions::new(home.path());
    options.join = Some(cluster.token().parse().unwrap());
    options.listen = "127.0.0.1:0".to_owned();
    options.threads = Some(1);
    options.net = impatient(patience);
    // It has threads of its own.
    let worker = tokio::task::spawn_blocking(move || skewer::Worker::start(options));
    let worker = worker.await.unwrap().unwrap();
    let session = cluster.session();
    fill(&session, "t").await;
    // On the worker that has the row, and on the master, which has the sum.
    for column in [
        "max(levenshtein(ab, ba || id))",
        "levenshtein(max(ab), max(ba || id))",
    ] {
        let mut length = 1000;
        loop {
            let sql = format!(
                "SELECT {column} FROM (SELECT id, repeat('ab', {length}) AS ab,
                 repeat('ba', {length}) AS ba FROM t WHERE id = 7)"
            );
            let begun = Instant::now();
            let found = query(&session, &sql).await;
            let took = begun.elapsed();
            assert_eq!(found.unwrap(), ["2"], "{sql}, after {took:?}");
            if took > 2 * patience {
                break;
            }
            length += length / 2;
        }
    }
    tokio::task::spawn_blocking(move || drop(worker))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_returns_without_its_directory_is_a_new_one_and_its_rows_are_named() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    cluster.kill(1);
    cluster.wait_for(1, &lost());
    std::fs::remove_dir_all(cluster.worker_directory(1)).unwrap();
    assert_eq!(cluster.add_worker(), 3);
    let sum = "SELECT count(*), sum(id) FROM t";
    let error = query(&session, sum).await.unwrap_err();
    let Error::WorkerLost { name, tables, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(name, "worker 1 (host-1)");
    assert_eq!(tables, &["main.t".to_owned()]);
    // The way out: the table anew, on the workers that there are.
    session.execute_script("DROP TABLE t").await.unwrap();
    fill(&session, "t").await;
    assert_eq!(query(&session, sum).await.unwrap(), ["60000|1800030000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_returns_with_its_directory_serves_its_segments_again() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    let sum = "SELECT count(*), sum(id) FROM t";
    let before = query(&session, sum).await.unwrap();
    cluster.kill(1);
    cluster.wait_for(1, &lost());
    assert!(query(&session, sum).await.is_err());
    cluster.restart_worker(1);
    assert_eq!(query(&session, sum).await.unwrap(), before);
    session
        .execute_script("INSERT INTO t VALUES (70000, 1)")
        .await
        .unwrap();
    let count = "SELECT count(*) FROM t WHERE id = 70000";
    assert_eq!(query(&session, count).await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_does_not_need_what_is_lost_is_run_once_more() {
    let mut cluster = Cluster::start(1);
    let session = cluster.session();
    fill(&session, "t").await;
    // It has no rows of the table, but runs tasks of its queries.
    let second = cluster.add_worker();
    let slow = "SELECT count(*) FROM t a JOIN t b ON a.v = b.v WHERE a.id + b.id > 0";
    let expected = query(&session, slow).await.unwrap();
    for pause in [0, 30, 100, 300] {
        let running = session.clone();
        let result = tokio::spawn(async move { query(&running, slow).await });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        cluster.kill(second);
        assert_eq!(result.await.unwrap().unwrap(), expected, "after {pause} ms");
        cluster.restart_worker(second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_queries_end_before_the_worker_does() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    let slow = "SELECT count(*) FROM t a JOIN t b ON a.v = b.v WHERE a.id + b.id > 0";
    let stream = session.sql(slow).await.unwrap();
    let result = tokio::spawn(stream.collect());
    cluster.terminate(1);
    cluster.wait_for(1, &MemberState::Leaving);
    let error = query(&session, "SELECT sum(v) FROM t").await.unwrap_err();
    assert!(error.to_string().contains("about to end"), "{error}");
    let batches = result.await.unwrap().unwrap();
    assert_eq!(
        batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        1
    );
    assert_eq!(cluster.ended(1).code(), Some(0));
    cluster.wait_for(1, &lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_find_a_master_that_was_restarted() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    let sum = "SELECT count(*), sum(id) FROM t";
    let before = query(&session, sum).await.unwrap();
    drop(session);
    cluster.restart_master();
    for number in [1, 2] {
        cluster.wait_for(number, &MemberState::Alive);
    }
    assert_eq!(query(&cluster.session(), sum).await.unwrap(), before);
}
