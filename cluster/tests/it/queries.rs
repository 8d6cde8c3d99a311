//! What becomes of what a worker process records.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_cluster::{QueryProfile, WorkerQueries, WorkerQuery};
use skewer_profiling::{
    Level, OperatorStats, QueryRow, Recorder, RecorderLimits, RemoteSys, RemoteSysError, Retention,
    SysTables, WorkerRow,
};

/// Worker 3, of a master that has no other.
#[derive(Debug)]
struct Only(Arc<WorkerQueries>);

#[async_trait]
impl RemoteSys for Only {
    fn workers(&self) -> Vec<WorkerRow> {
        vec![WorkerRow {
            worker_id: 3,
            state: "alive".to_owned(),
            address: "here".to_owned(),
            clock_offset_ns: 0,
            clock_error_ns: 0,
        }]
    }

    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RemoteSysError> {
        assert_eq!(worker_id, 3);
        self.0.call(method, body).await
    }
}

struct Cluster {
    master: Arc<SysTables>,
    worker: Arc<SysTables>,
    queries: Arc<WorkerQueries>,
}

fn cluster() -> Cluster {
    let open = || SysTables::open(None, Retention::default());
    let (master, worker) = (open(), open());
    let queries = WorkerQueries::new(3, Arc::clone(&worker));
    master.set_remote(Arc::new(Only(Arc::clone(&queries))));
    Cluster {
        master,
        worker,
        queries,
    }
}

fn recorder(query_id: i64, level: Level) -> Arc<Recorder> {
    Recorder::new(query_id, level, 0.5, RecorderLimits::default())
}

fn profile(query_id: i64, level: Level) -> QueryProfile {
    QueryProfile::of_recorder(&recorder(query_id, level))
}

impl Cluster {
    /// Ends a query as the engine does.
    async fn finish(&self, query_id: i64) {
        let recorder = recorder(query_id, Level::Counters);
        self.master.finish_on_workers(&recorder, &[3]).await;
        let row = QueryRow {
            sql: "SELECT …".to_owned(),
            fingerprint: "SELECT …".to_owned(),
            status: "finished".to_owned(),
            error: None,
            started_at: 0,
            ended_at: None,
            planning_ns: None,
            execution_ns: None,
            rows_returned: None,
            tables_read: None,
            quarantines: None,
            imported_from: None,
            first_row_at: None,
            queued_ns: None,
            user_name: None,
            trace_id: None,
            parent_span_id: None,
        };
        self.master.finish(&recorder, row);
    }

    /// How many totals of operators the master sees of a query.
    async fn stats_of(&self, query_id: i64) -> i64 {
        let config = SessionConfig::new().with_default_catalog_and_schema("main", "public");
        let context = SessionContext::new_with_config(config);
        let catalog = MemoryCatalogProvider::new();
        let sys = self.master.schema_provider();
        catalog.register_schema("sys", sys).unwrap();
        context.register_catalog("main", Arc::new(catalog));
        let sql = format!(
            "SELECT count(*) FROM sys.operator_stats WHERE query_id = {query_id} AND worker_id = 3"
        );
        let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0)
    }
}

fn work(query: &WorkerQuery, partition: i64) {
    query.recorder.operator_stats(OperatorStats {
        fragment_id: 0,
        operator_id: 1,
        partition,
        calls: 1,
        rows_in: 0,
        rows_out: 0,
        bytes_out: 0,
        self_ns: 0,
        total_ns: 0,
        input_wait_ns: 0,
        output_wait_ns: 0,
        peak_memory_bytes: 0,
        spilled_bytes: 0,
        first_call_at: None,
        last_call_at: None,
    });
}

#[tokio::test]
async fn all_tasks_of_a_query_record_together_what_the_master_reads_when_it_has_ended() {
    let cluster = cluster();
    let queries = &cluster.queries;
    let one = queries.of_task(&profile(7, Level::Counters));
    let two = queries.of_task(&profile(7, Level::Counters));
    let other = queries.of_task(&profile(8, Level::Counters));
    assert!(Arc::ptr_eq(&one.recorder, &two.recorder));
    assert!(!Arc::ptr_eq(&one.recorder, &other.recorder));
    assert_eq!(one.recorder.worker_id(), 3);
    assert_eq!(one.recorder.sample_rate(), 0.5);
    assert_eq!(queries.running(), 2);
    work(&one, 0);
    work(&two, 1);
    work(&other, 0);
    assert_eq!(cluster.stats_of(7).await, 0);
    cluster.finish(7).await;
    assert_eq!(cluster.stats_of(7).await, 2);
    assert_eq!(queries.running(), 1);
    // The master is gone.
    queries.end_all().await;
    assert_eq!(queries.running(), 0);
    assert_eq!(cluster.stats_of(8).await, 1);
}

#[tokio::test]
async fn the_end_waits_for_streams_but_not_for_ever() {
    let cluster = cluster();
    let query = cluster.queries.of_task(&profile(1, Level::Calls));
    let stream = query.recorder.open_stream();
    let late = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        work(&query, 0);
        drop(stream);
    });
    cluster.finish(1).await;
    assert_eq!(cluster.stats_of(1).await, 1);
    late.await.unwrap();

    let query = cluster.queries.of_task(&profile(2, Level::Calls));
    let _stuck = query.recorder.open_stream();
    work(&query, 0);
    cluster.finish(2).await;
    assert_eq!(cluster.stats_of(2).await, 1);
}

#[tokio::test]
async fn tasks_that_come_late_and_queries_that_are_not_profiled_are_not_kept() {
    let cluster = cluster();
    cluster.finish(1).await;
    work(&cluster.queries.of_task(&profile(1, Level::Records)), 0);
    work(&cluster.queries.of_task(&profile(2, Level::Off)), 0);
    assert_eq!(cluster.queries.running(), 0);
    cluster.finish(1).await;
    assert_eq!(cluster.stats_of(1).await, 0);
}

#[tokio::test]
async fn a_worker_keeps_events_for_as_long_as_the_master_does() {
    let cluster = cluster();
    let shorter = Retention {
        bytes: 1 << 20,
        age: Duration::from_secs(3),
    };
    cluster.master.set_retention(shorter);
    assert_eq!(cluster.worker.retention(), Retention::default());
    cluster.finish(1).await;
    assert_eq!(cluster.worker.retention(), shorter);
}

#[tokio::test]
async fn unknown_methods_and_garbled_requests_are_errors() {
    let queries = cluster().queries;
    let answer = queries.call("sys/nothing", vec![]).await;
    assert!(matches!(answer, Err(RemoteSysError::Method(_))));
    for method in ["sys/finish", "sys/part"] {
        let answer = queries.call(method, vec![0xff]).await;
        assert!(
            matches!(answer, Err(RemoteSysError::Garbled(_))),
            "{answer:?}"
        );
    }
}
