//! Schema `sys` of a cluster: queries over it run where its parts are.

use skewer::Session;
use skewer::cluster::MemberState;
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;

use crate::reads::fill;

/// Rows of each node, over all queries.
const BY_WORKER: &str = "SELECT worker_id, count(*), sum(rows_out) FROM sys.operator_stats \
                         GROUP BY worker_id ORDER BY worker_id";

async fn rows(session: &Session, sql: &str) -> Vec<String> {
    query(session, sql).await.unwrap()
}

/// The plan of a query.
async fn explained(session: &Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN {sql}")).await.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_over_sys_run_on_the_workers_that_recorded_it() {
    let mut cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    for level in ["counters", "calls", "records"] {
        let set = format!("SET profile.level = '{level}'");
        session.execute_script(&set).await.unwrap();
        let sum = "SELECT v % 10 AS d, count(*), sum(id) FROM t GROUP BY d";
        assert_eq!(rows(&session, sum).await.len(), 10);
    }
    // Filters and partial aggregates are below the exchange, on all of them.
    let plan = explained(&session, BY_WORKER).await;
    let below = plan.split("NetworkShuffleExec").last().unwrap();
    assert!(below.contains("mode=Partial"), "{plan}");
    for node in 0..=3 {
        let reads = format!("worker {node}: what it recorded");
        assert!(below.contains(&reads), "{plan}");
    }
    let filtered = "SELECT sum(rows) FROM sys.operator_calls WHERE worker_id = 2";
    let plan = explained(&session, filtered).await;
    let below = plan.split("NetworkCoalesceExec").last().unwrap();
    assert!(below.contains("FilterExec: worker_id"), "{plan}");
    // What they count is what the master gets when it asks for each query by itself.
    let everywhere = rows(&session, BY_WORKER).await;
    assert_eq!(everywhere.len(), 4, "{everywhere:?}");
    let ids = rows(&session, "SELECT query_id FROM sys.queries").await;
    let ids = ids.join(", ");
    let one_by_one = format!(
        "SELECT worker_id, count(*), sum(rows_out) FROM sys.operator_stats \
         WHERE query_id IN ({ids}) GROUP BY worker_id ORDER BY worker_id"
    );
    let plan = explained(&session, &one_by_one).await;
    assert!(!plan.contains("Network"), "little is fetched: {plan}");
    assert_eq!(rows(&session, &one_by_one).await, everywhere);
    // With what the master alone has, and with tables of the user.
    let joined = "SELECT q.profile_level, count(DISTINCT s.worker_id) FROM sys.queries q
                  JOIN sys.operator_stats s ON q.query_id = s.query_id
                  WHERE q.sql LIKE 'SELECT v %' GROUP BY 1 ORDER BY 1";
    let expected = ["calls|4", "counters|4", "records|4"];
    assert_eq!(rows(&session, joined).await, expected);
    assert!(explained(&session, joined).await.contains("Network"));
    let lineage = "SELECT count(*), count(DISTINCT t.id) FROM sys.lineage l
                   JOIN t ON l.table_name = 'main.t' AND l.input_id = t._row_id";
    assert_eq!(rows(&session, lineage).await, ["60000|60000"]);
    let kept = "CREATE TABLE kept AS SELECT * FROM sys.operator_calls";
    session.execute_script(kept).await.unwrap();
    let same = "SELECT (SELECT count(*) FROM kept) = (SELECT count(*) FROM sys.operator_calls
                WHERE query_id <= (SELECT max(query_id) FROM kept))";
    assert_eq!(rows(&session, same).await, ["true"]);
    // Views are SQL as any other.
    for view in ["operator_contribution", "task_imbalance", "diagnoses"] {
        let all = format!("SELECT count(*) FROM sys.{view} WHERE query_id IN ({ids})");
        let range = format!(
            "SELECT count(*) FROM sys.{view} WHERE query_id BETWEEN 1 AND \
                             (SELECT max(query_id) FROM sys.queries WHERE query_id IN ({ids}))"
        );
        assert_eq!(
            rows(&session, &range).await,
            rows(&session, &all).await,
            "{view}"
        );
    }
    // They keep it, in memory and on disk.
    let before = "SELECT worker_id, count(*), sum(rows_out) FROM sys.operator_stats
                  WHERE query_id <= 8 GROUP BY worker_id ORDER BY worker_id";
    let recorded = rows(&session, before).await;
    cluster.terminate(2);
    assert_eq!(cluster.ended(2).code(), Some(0));
    cluster.wait_for(2, &MemberState::Lost("".into()));
    let without = rows(&session, before).await;
    assert_eq!(without.len(), 3, "{without:?}");
    assert!(recorded.len() == 4 && !recorded[2].is_empty());
    assert_eq!(without[..], [&recorded[..2], &recorded[3..]].concat());
    cluster.restart_worker(2);
    assert_eq!(rows(&session, before).await, recorded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_sys_is_run_again_without_the_worker_that_is_killed() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    session
        .execute_script("SET profile.level = 'records'")
        .await
        .unwrap();
    rows(&session, "SELECT v, count(*) FROM t GROUP BY v").await;
    // Long enough to be killed in: how long that is depends on the machine.
    let slow = "SELECT count(DISTINCT a.worker_id), count(*) > 0 FROM sys.lineage a
                JOIN sys.lineage b ON a.input_id % 10 = b.input_id % 10
                WHERE a.input_id + b.input_id > 0 AND a.output_id % 5 = 1";
    let started = std::time::Instant::now();
    assert_eq!(rows(&session, slow).await, ["2|true"]);
    let takes = started.elapsed();
    let running = session.clone();
    let result = tokio::spawn(async move { query(&running, slow).await });
    tokio::time::sleep(takes / 3).await;
    cluster.kill(2);
    assert_eq!(result.await.unwrap().unwrap(), ["1|true"]);
}
