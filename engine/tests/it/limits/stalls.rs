//! Queries that do not go on.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Volatility;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use skewer::{Database, Error, QueryStream, Session};
use tokio::time::timeout;

/// A query that stalls ends far sooner.
const BOUND: Duration = Duration::from_secs(60);

/// A table with some rows, then none, and no end.
#[derive(Debug)]
struct Endless(SchemaRef);

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = Arc::new(Int64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_new(Arc::clone(&self.0), vec![rows]).unwrap();
        let rows = futures::stream::iter([Ok::<_, DataFusionError>(batch)])
            .chain(futures::stream::pending());
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), rows))
    }
}

/// A session whose table `outside.endless` never ends, on so many workers.
fn session(workers: usize) -> Session {
    let database = Database::builder().worker_threads(2).workers(workers);
    let session = database.build().unwrap().session();
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let endless: Arc<dyn PartitionStream> = Arc::new(Endless(Arc::clone(&schema)));
    let table = StreamingTable::try_new(schema, vec![endless]).unwrap();
    let outside = MemorySchemaProvider::new();
    let registered = outside.register_table("endless".to_owned(), Arc::new(table));
    registered.unwrap();
    session.register_schema("outside", Arc::new(outside));
    session
}

async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Error> {
    let running = async { session.sql(sql).await?.collect().await };
    let Ok(ended) = timeout(BOUND, running).await else {
        panic!("{sql} does not end: {}", session.progress().waits());
    };
    ended
}

#[tokio::test]
async fn a_query_that_does_not_go_on_ends_and_tells_who_waits_for_whom() {
    for workers in [1, 3] {
        let session = session(workers);
        run(&session, "SET stall_timeout = '0.4 seconds'")
            .await
            .unwrap();
        run(
            &session,
            "CREATE TABLE t AS SELECT value AS n FROM range(100)",
        )
        .await
        .unwrap();
        for sql in [
            "SELECT n, count(*) FROM outside.endless GROUP BY n",
            "SELECT count(*) FROM t WHERE n IN (SELECT n FROM outside.endless)",
            "CREATE TABLE copy AS SELECT n FROM outside.endless",
            "INSERT INTO t SELECT n FROM outside.endless",
        ] {
            let error = run(&session, sql).await.unwrap_err();
            assert!(matches!(error, Error::Stalled(_)), "{sql}: {error:?}");
            let text = error.to_string();
            let begin =
                "the query has stalled: none of its operators has done anything for 0.4 seconds";
            assert!(text.starts_with(begin), "{text}");
            assert!(
                text.contains("StreamingTableExec")
                    && text.contains("waits, but for none of its inputs"),
                "{text}"
            );
            assert!(text.contains("SET stall_timeout = 0"), "{text}");
            // The session goes on.
            run(&session, "SELECT count(*) FROM t").await.unwrap();
        }
        let aggregate = run(
            &session,
            "SELECT n, count(*) FROM outside.endless GROUP BY n",
        )
        .await;
        let text = aggregate.unwrap_err().to_string();
        assert!(
            text.contains("AggregateExec") && text.contains(" waits for "),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_query_whose_functions_are_slow_or_whose_reader_is_does_not_stall() {
    let session = session(1);
    session.register_row_udf(
        "slow",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        |row| {
            std::thread::sleep(Duration::from_millis(10));
            Ok(row[0].clone())
        },
    );
    run(&session, "SET stall_timeout = '0.2 seconds'")
        .await
        .unwrap();
    // All in one call of an operator.
    run(&session, "SELECT sum(slow(value)) FROM range(100)")
        .await
        .unwrap();
    let mut rows: QueryStream = session
        .sql("SELECT value FROM range(200000)")
        .await
        .unwrap();
    for _ in 0..3 {
        rows.next().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    while let Some(batch) = timeout(BOUND, rows.next()).await.expect("it ends") {
        batch.unwrap();
    }
}

#[tokio::test]
async fn with_a_timeout_of_0_a_query_may_wait_for_ever() {
    let session = session(1);
    run(&session, "SET stall_timeout = 0").await.unwrap();
    let sql = "SELECT n, count(*) FROM outside.endless GROUP BY n";
    let running = session.sql(sql).await.unwrap();
    let progress = running.progress();
    let waits = timeout(Duration::from_secs(1), running.collect()).await;
    assert!(waits.is_err(), "it has ended");
    drop(waits);
    // The end of the query is told from its progress.
    timeout(BOUND, async {
        while progress.waits() != "no operator waits" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it ends when nobody reads it");
}
