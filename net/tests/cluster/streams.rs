//! One task, asked directly: back-pressure, cancellation, loss, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, ExecuteTaskRequest,
    GetWorkerInfoRequest, MaybeEncoded, ProducerHead, SessionStateBuilderExt, SetPlanRequest,
    TaskKey, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use skewer_net::identity::NodeId;
use skewer_net::transport::worker_url;
use skewer_net::{LostWorker, NetOptions, Node};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::proxy::{Proxy, Weather};
use crate::source::{Ending, ROWS, Source, SourceCodec, Watch};
use crate::support::Cluster;

/// A task on worker 1, as its coordinator and its consumer see it.
struct Task {
    partitions: Vec<BoxStream<'static, Result<RecordBatch>>>,
    reports: BoxStream<'static, Result<WorkerToCoordinatorMsg>>,
    /// Dropped when the query is over.
    query: oneshot::Sender<()>,
    watch: Arc<Watch>,
}

fn context() -> Arc<TaskContext> {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_planner()
        .with_distributed_user_codec(SourceCodec)
        .build();
    SessionContext::from(state).task_ctx()
}

async fn start(node: &Node, partitions: usize, ending: Ending) -> Result<Task> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let source = Source::new(partitions, ending);
    let watch = Arc::clone(&source.watch);
    let context = context();
    let url = worker_url(NodeId(1));
    let task_key = TaskKey {
        query_id: Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))),
        stage_id: 1,
        task_number: 0,
    };
    let plan: Arc<dyn ExecutionPlan> = Arc::new(source);
    let plan = SetPlanRequest {
        task_key,
        task_count: 1,
        plan: MaybeEncoded::Decoded(plan),
        work_unit_feed_declarations: Vec::new(),
        target_worker_url: url.clone(),
        query_start_time_ns: 1,
    };
    let (query, over) = oneshot::channel::<()>();
    let messages = futures::stream::once(async move {
        let _ = over.await;
        CoordinatorToWorkerMsg::WorkUnitEos
    });
    let resolver = node.resolver();
    let metrics = ExecutionPlanMetricsSet::new();
    let mut channel = resolver.get_worker_client_for_url(&url).await?;
    let reports = channel
        .coordinator_channel(
            HeaderMap::new(),
            plan,
            messages.boxed(),
            metrics.clone(),
            &context,
        )
        .await?;
    let request = ExecuteTaskRequest {
        task_key,
        target_partition_start: 0,
        target_partition_end: partitions,
        producer_head: ProducerHead::None,
    };
    let mut channel = resolver.get_worker_client_for_url(&url).await?;
    let partitions = channel
        .execute_task(HeaderMap::new(), request, metrics, &context)
        .await?;
    Ok(Task {
        partitions,
        reports,
        query,
        watch,
    })
}

/// Waits until something holds; the test hangs, and is stopped, if it never does.
async fn until(what: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !what() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    started.elapsed()
}

/// Waits until producers whose batches nobody reads have produced nothing for a while; how many
/// batches there are then.
async fn held_up(watch: &Watch) -> u64 {
    let produced = || watch.produced.load(Ordering::SeqCst);
    let mut before = u64::MAX;
    while before != produced() {
        before = produced();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    before
}

fn numbers(batch: &RecordBatch) -> &[i64] {
    batch.column(0).as_primitive::<Int64Type>().values()
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_come_whole_and_in_order_and_the_task_reports() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let task = start(&cluster.master, 3, Ending::After(50)).await.unwrap();
    for (partition, stream) in task.partitions.into_iter().enumerate() {
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        let got: Vec<i64> = batches.iter().flat_map(numbers).copied().collect();
        let first = (partition as i64) << 40;
        let expected: Vec<i64> = (first..first + 50 * ROWS as i64).collect();
        assert!(
            got == expected,
            "partition {partition} has {} numbers",
            got.len()
        );
    }
    drop(task.query);
    let reports: Vec<_> = task.reports.try_collect().await.unwrap();
    let metrics =
        |report: &WorkerToCoordinatorMsg| matches!(report, WorkerToCoordinatorMsg::TaskMetrics(_));
    assert_eq!(reports.iter().filter(|report| metrics(report)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_streams_stops_the_producers_within_200_ms() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let mut shortest = Duration::MAX;
    // The machine may be busy: the best of some attempts counts.
    for _ in 0..5 {
        let mut task = start(&cluster.master, 8, Ending::Never).await.unwrap();
        for partition in &mut task.partitions[..4] {
            partition.next().await.unwrap().unwrap();
        }
        let watch = Arc::clone(&task.watch);
        until(|| watch.running.load(Ordering::SeqCst) == 8).await;
        drop(task.partitions);
        let took = until(|| watch.running.load(Ordering::SeqCst) == 0).await;
        shortest = shortest.min(took);
        drop(task.query);
    }
    assert!(shortest < Duration::from_millis(200), "{shortest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_hears_that_it_is_over_while_it_keeps_the_only_thread_busy() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cluster = Cluster::with_tasks_on(runtime.handle());
    let task = start(&cluster.master, 1, Ending::Busy).await.unwrap();
    let mut partition = task.partitions.into_iter().next().unwrap();
    let reading = tokio::spawn(async move { partition.next().await });
    let count = |count: &AtomicI64| count.load(Ordering::SeqCst);
    until(|| count(&task.watch.polled) == 1).await;
    assert_eq!(count(&task.watch.running), 1);
    drop(task.query);
    until(|| count(&task.watch.running) == 0).await;
    assert!(reading.await.unwrap().is_none());
    runtime.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_nobody_polls_are_discarded_by_the_worker() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let task = start(&cluster.master, 3, Ending::Never).await.unwrap();
    drop(task.partitions);
    until(|| task.watch.polled.load(Ordering::SeqCst) == 3).await;
    until(|| task.watch.running.load(Ordering::SeqCst) == 0).await;
    // And one that is dropped before the others are polled does not hold them up.
    let mut task = start(&cluster.master, 3, Ending::After(400)).await.unwrap();
    drop(task.partitions.remove(1));
    for stream in task.partitions {
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        assert_eq!(batches.len(), 400);
    }
    until(|| task.watch.running.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_between_processes_of_one_machine_grow_to_what_is_allowed() {
    for (allowed, reached) in [(1_472, 1_201), (4_000, 1_473)] {
        let options = NetOptions {
            largest_local_payload: allowed,
            // So little is under way that the proxy's buffers lose none of the packets that try a size.
            stream_window: 64 * 1024,
            ..NetOptions::default()
        };
        let mut proxies = Vec::new();
        let cluster = Cluster::through(1, &options, |_, address| {
            proxies.push(Proxy::new(address, Weather::default()));
            proxies[0].address
        });
        let mut task = start(&cluster.master, 1, Ending::Never).await.unwrap();
        while proxies[0].largest() < reached {
            task.partitions[0].next().await.unwrap().unwrap();
        }
        // Larger ones would be tried now.
        for _ in 0..100 {
            task.partitions[0].next().await.unwrap().unwrap();
        }
        assert!(proxies[0].largest() <= usize::from(allowed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_consumer_holds_its_producers_up_and_not_the_memory() {
    const WINDOW: usize = 1 << 20;
    let options = NetOptions {
        stream_window: WINDOW,
        ..NetOptions::default()
    };
    let cluster = Cluster::new(1, &options);
    let mut task = start(&cluster.master, 4, Ending::Never).await.unwrap();
    task.partitions[0].next().await.unwrap().unwrap();
    let produced = || task.watch.produced.load(Ordering::SeqCst);
    let before = held_up(&task.watch).await;
    let bytes = produced() as usize * ROWS * 8;
    // Per partition its window, a batch that is being read and one that is being sent.
    let allowed = 4 * (WINDOW + 3 * ROWS * 8);
    assert!(
        bytes <= allowed,
        "{bytes} bytes were produced, {allowed} allowed"
    );
    assert!(bytes >= 2 * WINDOW, "windows are not used: {bytes} bytes");
    // Reading one partition moves that one and no other.
    for _ in 0..100 {
        task.partitions[3].next().await.unwrap().unwrap();
    }
    assert!(produced() >= before + 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_on_a_worker_keeps_its_class() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let mut task = start(&cluster.master, 1, Ending::DivisionByZero(3))
        .await
        .unwrap();
    let results: Vec<_> = task.partitions.remove(0).collect().await;
    assert_eq!(results.len(), 4);
    let error = results.into_iter().find_map(Result::err).unwrap();
    match error.find_root() {
        DataFusionError::ArrowError(inner, _) => {
            assert!(matches!(**inner, ArrowError::DivideByZero));
        }
        other => panic!("{other:?}"),
    }
    let mut task = start(&cluster.master, 1, Ending::Panic(3)).await.unwrap();
    let error = task
        .partitions
        .remove(0)
        .try_collect::<Vec<_>>()
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("an operator with a bug") && text.contains("worker 1"),
        "{text}"
    );
    // The worker goes on.
    let task = start(&cluster.master, 1, Ending::After(2)).await.unwrap();
    for stream in task.partitions {
        assert_eq!(stream.try_collect::<Vec<_>>().await.unwrap().len(), 2);
    }
}

/// Reads until it fails, and what with; the stream must not end as if it were complete.
async fn loss(mut stream: BoxStream<'static, Result<RecordBatch>>) -> LostWorker {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => match LostWorker::in_error(&error) {
                Some(lost) => return lost.clone(),
                None => panic!("not lost but {error:?}"),
            },
            None => panic!("results were cut off without an error"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_the_middle_is_lost_by_name_and_never_cuts_results_off() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let mut task = start(&cluster.master, 2, Ending::Never).await.unwrap();
    task.partitions[0].next().await.unwrap().unwrap();
    // One packet says farewell, for which a socket full of batches may have no room.
    held_up(&task.watch).await;
    cluster.workers[0].shutdown().await;
    for stream in task.partitions {
        let lost = loss(stream).await;
        assert_eq!(lost.name, "worker 1");
        assert!(lost.reason.contains("shut down"), "{}", lost.reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_cut_off_is_lost_after_the_idle_timeout() {
    let options = NetOptions {
        idle_timeout: Duration::from_secs(1),
        keep_alive: Duration::from_millis(200),
        ..NetOptions::default()
    };
    let mut proxies = Vec::new();
    let cluster = Cluster::through(1, &options, |_, address| {
        proxies.push(Proxy::new(address, Weather::default()));
        proxies[0].address
    });
    let mut task = start(&cluster.master, 2, Ending::Never).await.unwrap();
    task.partitions[0].next().await.unwrap().unwrap();
    proxies[0].cut();
    for stream in task.partitions {
        let lost = loss(stream).await;
        assert_eq!(lost.name, "worker 1");
        assert!(lost.reason.contains("stopped answering"), "{}", lost.reason);
    }
    // The worker notices too, and its producers stop.
    until(|| task.watch.running.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_membership_declares_dead_is_lost_at_once() {
    let mut proxies = Vec::new();
    let cluster = Cluster::through(1, &NetOptions::default(), |_, address| {
        proxies.push(Proxy::new(address, Weather::default()));
        proxies[0].address
    });
    let mut task = start(&cluster.master, 2, Ending::Never).await.unwrap();
    task.partitions[0].next().await.unwrap().unwrap();
    // Nobody hears from it any more, as after kill -9.
    proxies[0].cut();
    let started = Instant::now();
    cluster
        .master
        .close_worker(NodeId(1), "it missed its heartbeats");
    for stream in task.partitions {
        let lost = loss(stream).await;
        assert_eq!(
            lost.to_string(),
            "worker 1 was lost: it missed its heartbeats"
        );
    }
    let took = started.elapsed();
    assert!(took < NetOptions::default().idle_timeout / 2, "{took:?}");
    let error = start(&cluster.master, 1, Ending::After(1))
        .await
        .err()
        .unwrap();
    assert_eq!(
        LostWorker::in_error(&error).unwrap().reason,
        "it missed its heartbeats"
    );
    // It is back at another address.
    let address = cluster.workers[0].local_address().unwrap();
    cluster
        .master
        .set_peer(skewer_net::PeerAddress::new(NodeId(1), "worker 1", address));
    let task = start(&cluster.master, 1, Ending::After(1)).await.unwrap();
    for stream in task.partitions {
        assert_eq!(stream.try_collect::<Vec<_>>().await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_which_version_it_runs() {
    let cluster = Cluster::new(1, &NetOptions::default());
    let resolver = cluster.master.resolver();
    let mut channel = resolver
        .get_worker_client_for_url(&worker_url(NodeId(1)))
        .await
        .unwrap();
    let info = channel
        .get_worker_info(GetWorkerInfoRequest {})
        .await
        .unwrap();
    assert_eq!(info.version, "test 1");
    let unknown = resolver
        .get_worker_client_for_url(&worker_url(NodeId(9)))
        .await;
    let text = unknown.err().unwrap().to_string();
    assert!(text.contains("skewer://worker-9"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_shut_down_gives_its_port_back() {
    let cluster = Cluster::new(2, &NetOptions::default());
    let task = start(&cluster.master, 2, Ending::After(5)).await.unwrap();
    for stream in task.partitions {
        stream.try_collect::<Vec<_>>().await.unwrap();
    }
    let resolver = cluster.workers[0].resolver();
    let address = cluster.workers[0].local_address().unwrap();
    cluster.workers[0].shutdown().await;
    drop(cluster);
    let bound = || std::net::UdpSocket::bind(address).is_ok();
    until(bound).await;
    let late = resolver
        .get_worker_client_for_url(&worker_url(NodeId(2)))
        .await;
    assert_eq!(
        late.err().unwrap().strip_backtrace(),
        "External error: this node has been shut down"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_can_have_many_more_partitions_than_a_connection_has_streams_at_first() {
    let options = NetOptions {
        stream_window: 100_000,
        ..NetOptions::default()
    };
    let cluster = Cluster::new(1, &options);
    let mut task = start(&cluster.master, 1_500, Ending::Never).await.unwrap();
    // All are open at the same time, and none ends.
    for stream in &mut task.partitions {
        stream.next().await.unwrap().unwrap();
    }
    assert_eq!(task.watch.running.load(Ordering::SeqCst), 1_500);
    drop(task.partitions);
    until(|| task.watch.running.load(Ordering::SeqCst) == 0).await;
}
