//! A cluster over several hosts, each a network namespace of its own, with a cable between them.
//!
//! Runs as root on Linux with iproute2; elsewhere it says that it is skipped.

mod network;
mod wire;

use std::time::{Duration, Instant};

use network::{Cluster, Network};

/// Longer than anything here takes; what takes longer hangs.
const BOUND: Duration = Duration::from_secs(120);

const SUM: &str = "SELECT count(*), sum(id), count(DISTINCT s), min(s) FROM t";
const SUM_IS: &str = "200000,20000100000,200000,row number 1";
const JOIN: &str = "SELECT count(*), max(b.s) FROM t a JOIN t b ON a.id = b.id + 1";
const JOIN_IS: &str = "199999,row number 99999";

/// Fills a table whose rows are on both workers, and asks what takes a shuffle.
fn fill_and_ask(cluster: &Cluster) {
    cluster.sql(
        "CREATE TABLE t AS SELECT value AS id, 'row number ' || value AS s \
         FROM generate_series(1, 200000)",
    );
    assert_eq!(cluster.sql(SUM), SUM_IS);
    assert_eq!(cluster.sql(JOIN), JOIN_IS);
    // Rows did cross the links.
    let crossed = "SELECT count(DISTINCT (source_worker, destination_worker)) FROM sys.tuples_sent \
                   WHERE source_worker > 0 AND destination_worker > 0 \
                   AND source_worker <> destination_worker AND tuples > 0";
    assert_eq!(cluster.sql(crossed), "2");
}

#[test]
fn a_link_with_small_packets_and_one_that_loses_and_delays_change_no_result() {
    let test = "a_link_with_small_packets_and_one_that_loses_and_delays_change_no_result";
    let Some(network) = Network::new(test) else {
        return;
    };
    network.small_packets("a", 1280);
    let cluster = Cluster::start(&network);
    fill_and_ask(&cluster);
    let begun = Instant::now();
    network.bad_weather(Duration::from_millis(5), 1.0);
    for _ in 0..3 {
        assert_eq!(cluster.sql(SUM), SUM_IS);
        assert_eq!(cluster.sql(JOIN), JOIN_IS);
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    network.has_lost_packets();
    cluster.sql("INSERT INTO t SELECT id + 200000, s FROM t");
    assert_eq!(
        cluster.sql("SELECT count(*), count(DISTINCT id) FROM t"),
        "400000,400000"
    );
}

#[test]
fn a_host_that_is_cut_off_fails_its_queries_in_bounded_time_and_may_come_back() {
    let test = "a_host_that_is_cut_off_fails_its_queries_in_bounded_time_and_may_come_back";
    let Some(network) = Network::new(test) else {
        return;
    };
    let cluster = Cluster::start(&network);
    fill_and_ask(&cluster);
    let endless = "SELECT count(*) FROM t a JOIN t b ON a.id % 3 = b.id % 3 AND a.s < b.s";
    let query = cluster.begin(endless);
    std::thread::sleep(Duration::from_secs(2));
    let cut = Instant::now();
    network.cut("b");
    let failed = query.fails();
    assert!(failed.contains("(host-b)"), "{failed}");
    assert!(cut.elapsed() < BOUND, "{:?}", cut.elapsed());
    // What needs its rows says so, what does not works.
    let failed = cluster.begin(SUM).fails();
    assert!(
        failed.contains("(host-b)") && failed.contains("main.t"),
        "{failed}"
    );
    assert_eq!(cluster.sql("SELECT 1 + 1"), "2");
    network.mend("b");
    cluster.wait_for_workers(2);
    assert_eq!(cluster.sql(SUM), SUM_IS);
    assert_eq!(cluster.sql(JOIN), JOIN_IS);
}
