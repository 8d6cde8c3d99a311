//! Distributed queries give what a single process gives.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt, SessionStateBuilderExt, WorkerResolver, display_plan_ascii,
};
use futures::StreamExt;
use skewer_net::frame::Compression;
use skewer_net::identity::NodeId;
use skewer_net::{LostWorker, NetOptions};
use url::Url;

use crate::proxy::{Proxy, Weather};
use crate::support::Cluster;

/// Files of two tables: 40,000 plays of 500 songs.
fn write_tables(directory: &Path) {
    let texts = |values: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    for file in 0..4i64 {
        let plays = file * 10_000..(file + 1) * 10_000;
        let schema = Arc::new(Schema::new(vec![
            Field::new("play", DataType::Int64, false),
            Field::new("song", DataType::Int64, true),
            Field::new("seconds", DataType::Float64, true),
            Field::new("listener", DataType::Utf8, true),
        ]));
        let listener =
            |play: i64| (play % 13 != 0).then(|| format!("listener number {}", play % 777));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(plays.clone())),
            Arc::new(Int64Array::from_iter(
                plays
                    .clone()
                    .map(|play| (play % 11 != 0).then_some(play * 7_919 % 600)),
            )),
            Arc::new(Float64Array::from_iter_values(
                plays.clone().map(|play| play as f64 / 4.0),
            )),
            texts(plays.map(listener).collect()),
        ];
        write(
            &directory.join(format!("plays/{file}.parquet")),
            schema,
            columns,
        );
    }
    for file in 0..2i64 {
        let songs = file * 250..(file + 1) * 250;
        let schema = Arc::new(Schema::new(vec![
            Field::new("song", DataType::Int64, false),
            Field::new("title", DataType::Utf8, false),
        ]));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(songs.clone())),
            texts(
                songs
                    .map(|song| Some(format!("The song with the number {song}")))
                    .collect(),
            ),
        ];
        write(
            &directory.join(format!("songs/{file}.parquet")),
            schema,
            columns,
        );
    }
}

fn write(path: &Path, schema: Arc<Schema>, columns: Vec<ArrayRef>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), schema, None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

async fn register(context: &SessionContext, directory: &Path) {
    for table in ["plays", "songs"] {
        let path = directory.join(table).display().to_string();
        let options = ParquetReadOptions::default();
        context
            .register_parquet(table, path, options)
            .await
            .unwrap();
    }
}

struct Urls(Vec<Url>);

impl WorkerResolver for Urls {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

async fn distributed(cluster: &Cluster, directory: &Path) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(
            SessionConfig::new()
                .with_target_partitions(3)
                .with_batch_size(1_000),
        )
        .with_distributed_planner()
        .with_distributed_worker_resolver(Urls(cluster.urls()))
        .with_distributed_channel_resolver(cluster.master.resolver())
        // The tables are small: every byte is worth a partition.
        .with_distributed_file_scan_config_bytes_per_partition(1)
        .unwrap()
        .build();
    let context = SessionContext::from(state);
    register(&context, directory).await;
    context
}

fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter();
            let values = values.map(|column| array_value_to_string(column, row).unwrap());
            rows.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    rows
}

const QUERIES: [&str; 7] = [
    "SELECT song, count(*), sum(seconds), min(listener) FROM plays GROUP BY song",
    "SELECT title, count(*) AS plays FROM plays JOIN songs USING (song) \
     GROUP BY title ORDER BY plays DESC, title LIMIT 20",
    "SELECT count(DISTINCT listener), avg(seconds) FROM plays WHERE song IS NOT NULL",
    "SELECT p.listener, s.title FROM plays p LEFT JOIN songs s ON p.song = s.song \
     WHERE p.play % 100 = 3",
    "SELECT a.song FROM plays a JOIN plays b ON a.play = b.play + 1 AND a.song = b.song",
    "SELECT song, listener FROM plays WHERE seconds < 0",
    "SELECT title FROM songs WHERE song NOT IN (SELECT song FROM plays WHERE song IS NOT NULL)",
];

/// Runs all queries on a cluster; the results must be right and the plans distributed.
async fn compare(cluster: &Cluster) {
    let directory = tempfile::tempdir().unwrap();
    write_tables(directory.path());
    let alone = SessionContext::new();
    register(&alone, directory.path()).await;
    let together = distributed(cluster, directory.path()).await;
    let mut stages = 0;
    for query in QUERIES {
        let expected = alone.sql(query).await.unwrap().collect().await.unwrap();
        let plan = together
            .sql(query)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
        let shown = display_plan_ascii(plan.as_ref(), false);
        stages += shown.matches("───── Stage ").count();
        let got = collect(plan, together.task_ctx()).await.unwrap();
        assert_eq!(rows(&got), rows(&expected), "{query}\n{shown}");
    }
    assert!(
        stages >= QUERIES.len(),
        "the queries were hardly distributed: {stages} stages"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_on_two_workers_give_what_a_single_process_gives() {
    compare(&Cluster::new(2, &NetOptions::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_give_the_same_compressed_and_with_small_windows() {
    let options = NetOptions {
        compression: Compression::Lz4,
        stream_window: 20_000,
        send_window: 60_000,
        ..NetOptions::default()
    };
    compare(&Cluster::new(3, &options)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_give_the_same_over_a_network_that_loses_delays_and_reorders() {
    let mut proxies = Vec::new();
    let cluster = Cluster::through(2, &NetOptions::default(), |node: NodeId, address| {
        let weather = Weather {
            lost: 20,
            late: 6,
            seed: u64::from(node.0) << 32,
            ..Weather::default()
        };
        proxies.push(Proxy::new(address, weather));
        proxies.last().unwrap().address
    });
    compare(&cluster).await;
    let dropped: u64 = proxies.iter().map(Proxy::dropped).sum();
    assert!(dropped > 10, "only {dropped} packets were lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_worker_does_not_answer_fails_with_its_name() {
    let options = NetOptions {
        connect_timeout: std::time::Duration::from_millis(300),
        ..NetOptions::default()
    };
    let directory = tempfile::tempdir().unwrap();
    write_tables(directory.path());
    let mut proxies = Vec::new();
    let cluster = Cluster::through(2, &options, |node: NodeId, address| {
        let proxy = Proxy::new(address, Weather::default());
        if node == NodeId(2) {
            proxy.cut();
        }
        proxies.push(proxy);
        proxies.last().unwrap().address
    });
    let together = distributed(&cluster, directory.path()).await;
    let failed = together
        .sql(QUERIES[0])
        .await
        .unwrap()
        .collect()
        .await
        .unwrap_err();
    let lost = LostWorker::in_error(&failed).unwrap_or_else(|| panic!("{failed}"));
    assert_eq!(lost.name, "worker 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_work_where_the_path_lets_only_1280_bytes_through() {
    let mut proxies = Vec::new();
    let cluster = Cluster::through(2, &NetOptions::default(), |_, address| {
        // 1280 without the headers of IPv6 and UDP.
        let weather = Weather {
            largest: 1_232,
            ..Weather::default()
        };
        proxies.push(Proxy::new(address, weather));
        proxies.last().unwrap().address
    });
    compare(&cluster).await;
    let dropped: u64 = proxies.iter().map(Proxy::dropped).sum();
    assert!(dropped > 0, "no larger packet was ever tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queries_at_once_do_not_wait_for_each_other_for_ever() {
    let options = NetOptions {
        stream_window: 20_000,
        send_window: 60_000,
        ..NetOptions::default()
    };
    let cluster = Cluster::new(2, &options);
    let directory = tempfile::tempdir().unwrap();
    write_tables(directory.path());
    let alone = SessionContext::new();
    register(&alone, directory.path()).await;
    let together = distributed(&cluster, directory.path()).await;
    let queries = (0..3).flat_map(|_| QUERIES).map(|query| {
        let (alone, together) = (alone.clone(), together.clone());
        async move {
            let expected = alone.sql(query).await.unwrap().collect().await.unwrap();
            let got = together.sql(query).await.unwrap().collect().await.unwrap();
            assert_eq!(rows(&got), rows(&expected), "{query}");
        }
    });
    futures::future::join_all(queries).await;
}

/// Of all three ways in which data reaches the result: gathered, shuffled, broadcast.
const STREAMING: [&str; 3] = [
    "SELECT play, listener FROM plays",
    "SELECT a.play, b.listener, b.seconds FROM plays a JOIN plays b ON a.play = b.play",
    "SELECT p.play, p.listener, s.title FROM plays p JOIN songs s ON p.song = s.song",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_during_a_query_fails_it_by_name_and_never_shortens_its_result() {
    let directory = tempfile::tempdir().unwrap();
    write_tables(directory.path());
    for query in STREAMING {
        // So small that most of the result is still on the workers after the first batch.
        let options = NetOptions {
            stream_window: 10_000,
            idle_timeout: std::time::Duration::from_secs(2),
            keep_alive: std::time::Duration::from_millis(300),
            ..NetOptions::default()
        };
        let mut proxies = Vec::new();
        let cluster = Cluster::through(2, &options, |node: NodeId, address| {
            proxies.push((node, Proxy::new(address, Weather::default())));
            proxies.last().unwrap().1.address
        });
        let together = distributed(&cluster, directory.path()).await;
        let mut stream = together
            .sql(query)
            .await
            .unwrap()
            .execute_stream()
            .await
            .unwrap();
        stream.next().await.unwrap().unwrap();
        // What it has sent arrives, and nothing after it, to whomever.
        proxies[1].1.cut();
        let error = loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("a shortened result: {query}"),
            }
        };
        let lost = LostWorker::in_error(&error).unwrap_or_else(|| panic!("{query}: {error}"));
        assert_eq!(lost.name, "worker 2", "{query}");
    }
}
