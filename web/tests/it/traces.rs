use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use skewer::{Database, DatabaseBuilder, Session};
use skewer_web::{TraceCounters, TraceExporter, TraceOptions, WebOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::client::{Browser, no_users, serve};

/// No export takes longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A request as it came: head and body.
type Received = (String, Value);

/// A collector that answers all requests with `answer`.
struct Collector {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Received>,
}

impl Collector {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(receive(stream, sender.clone(), answer));
            }
        });
        Self { address, requests }
    }

    /// The spans of the next request.
    async fn spans(&mut self) -> (String, Vec<Value>) {
        let request = tokio::time::timeout(PATIENCE, self.requests.recv()).await;
        let (head, body) = request.expect("no spans came").unwrap();
        let of_service = &body["resourceSpans"][0];
        let service = &of_service["resource"]["attributes"][0];
        assert_eq!(service["key"], "service.name");
        assert_eq!(service["value"]["stringValue"], "skewer");
        let spans = of_service["scopeSpans"][0]["spans"].as_array().unwrap();
        (head, spans.clone())
    }
}

async fn receive(
    mut stream: TcpStream,
    requests: mpsc::UnboundedSender<Received>,
    answer: &'static str,
) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse::<usize>().unwrap())
    });
    let whole = end + 4 + length.unwrap();
    while bytes.len() < whole {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
    }
    let body = serde_json::from_slice(&bytes[end + 4..]).unwrap();
    // Who receives may have ended.
    let _ = requests.send((head, body));
    stream.write_all(answer.as_bytes()).await.unwrap();
}

const TAKEN: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// An exporter that runs until it is stopped.
struct Exporting {
    counters: Arc<TraceCounters>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn export(database: &Database, address: SocketAddr) -> Exporting {
    let options = TraceOptions::new(&format!("http://{address}"));
    let exporter = TraceExporter::new(database, options).unwrap();
    let counters = exporter.counters();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(exporter.run(async {
        let _ = stopped.await;
    }));
    Exporting {
        counters,
        stop,
        task,
    }
}

async fn run(session: &Session, sql: &str) {
    let result = session.sql(sql).await;
    result.unwrap().collect().await.unwrap();
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key}: {span}"))
}

fn time(span: &Value, key: &str) -> i64 {
    text(span, key).parse().unwrap()
}

fn attribute(span: &Value, key: &str) -> Option<String> {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|pair| pair["key"] == key)?;
    let value = &found["value"];
    let value = value["stringValue"].as_str().or(value["intValue"].as_str());
    Some(value.unwrap().to_owned())
}

/// The only span of a name.
fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<_> = spans.iter().filter(|span| span["name"] == name).collect();
    let [span] = found.as_slice() else {
        panic!("{} spans {name} in {spans:#?}", found.len());
    };
    span
}

fn sizes() -> [(&'static str, DatabaseBuilder); 2] {
    let one = Database::builder();
    let several = Database::builder().workers(3);
    [("one process", one), ("three workers", several)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_and_tasks_of_a_query_hang_below_the_span_of_its_caller() {
    for (size, builder) in sizes() {
        let database = builder.build().unwrap();
        let session = database.session();
        let table =
            "CREATE TABLE t AS SELECT value AS a, value % 7 AS b FROM generate_series(1, 30000)";
        run(&session, table).await;
        let mut collector = Collector::start(TAKEN).await;
        let exporting = export(&database, collector.address);
        let sql = format!("SELECT b, count(*) FROM t GROUP BY b /*traceparent='{PARENT}'*/");
        run(&session, &sql).await;
        let query_id = session.last_query_id().unwrap();
        let (head, spans) = collector.spans().await;
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let root = named(&spans, "SELECT");
        assert_eq!(text(root, "parentSpanId"), CALLER, "{size}");
        assert_eq!(root["kind"], 2);
        assert_eq!(root["flags"], 0x301);
        assert_eq!(attribute(root, "db.system.name").unwrap(), "skewer");
        assert_eq!(attribute(root, "db.query.text").unwrap(), sql);
        assert_eq!(attribute(root, "db.response.returned_rows").unwrap(), "7");
        assert_eq!(
            attribute(root, "skewer.query_id").unwrap(),
            query_id.to_string()
        );
        let by_id: HashMap<&str, &Value> = spans
            .iter()
            .map(|span| (text(span, "spanId"), span))
            .collect();
        assert_eq!(by_id.len(), spans.len(), "{size}: ids are not unique");
        for span in &spans {
            assert_eq!(text(span, "traceId"), TRACE);
            let (start, end) = (
                time(span, "startTimeUnixNano"),
                time(span, "endTimeUnixNano"),
            );
            assert!(start <= end, "{span}");
            assert!(time(root, "startTimeUnixNano") <= start, "{span}");
            if span["name"] != "SELECT" {
                assert!(by_id.contains_key(text(span, "parentSpanId")), "{span}");
            }
        }
        let parent = |span: &Value| text(by_id[text(span, "parentSpanId")], "name").to_owned();
        assert_eq!(parent(named(&spans, "planning")), "SELECT");
        assert_eq!(parent(named(&spans, "execution")), "SELECT");
        // The same tree as in schema sys.
        let fragments: Vec<(i64, Option<i64>)> = session
            .query_as(&format!(
                "SELECT DISTINCT fragment_id, parent_fragment_id FROM sys.task_stats \
                 JOIN sys.fragments USING (query_id, fragment_id) WHERE query_id = {query_id}"
            ))
            .await
            .unwrap();
        assert!(fragments.len() > 1, "{size}: {fragments:?}");
        for (fragment, above) in fragments {
            let span = named(&spans, &format!("fragment {fragment}"));
            let above = above.map_or("execution".to_owned(), |above| format!("fragment {above}"));
            assert_eq!(parent(span), above, "{size}");
        }
        let tasks: Vec<(i64, i64, i64, Option<i64>)> = session
            .query_as(&format!(
                "SELECT fragment_id, worker_id, partition, cpu_ns FROM sys.task_stats WHERE query_id = {query_id}"
            ))
            .await
            .unwrap();
        let of_tasks: Vec<_> = spans.iter().filter(|span| span["name"] == "task").collect();
        assert_eq!(of_tasks.len(), tasks.len(), "{size}");
        for (fragment, worker, partition, cpu_ns) in tasks {
            let is_task = |span: &&&Value| {
                parent(span) == format!("fragment {fragment}")
                    && attribute(span, "skewer.worker") == Some(worker.to_string())
                    && attribute(span, "skewer.partition") == Some(partition.to_string())
            };
            let span = of_tasks.iter().find(is_task).unwrap();
            let cpu_ns = cpu_ns.map(|ns| ns.to_string());
            assert_eq!(attribute(span, "skewer.cpu_ns"), cpu_ns, "{size}");
            assert!(attribute(span, "skewer.rows").is_some(), "{size}: {span}");
        }
        let returned: i64 = of_tasks
            .iter()
            .filter(|span| parent(span) == "fragment 0")
            .map(|span| {
                attribute(span, "skewer.rows")
                    .unwrap()
                    .parse::<i64>()
                    .unwrap()
            })
            .sum();
        assert_eq!(returned, 7, "{size}");
        let since = Instant::now();
        while exporting.counters.exported() < spans.len() as u64 {
            assert!(since.elapsed() < PATIENCE, "{:?}", exporting.counters);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(exporting.counters.exported(), spans.len() as u64);
        assert_eq!(exporting.counters.dropped(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_queries_that_callers_record_are_exported() {
    let database = Database::in_memory().unwrap();
    let mut collector = Collector::start(TAKEN).await;
    let exporting = export(&database, collector.address);
    let session = database.session();
    // Not sampled by its caller, not recorded, and not a query of a user.
    let unsampled = PARENT.replace("-01", "-00");
    run(&session, &format!("SELECT 1 /*traceparent='{unsampled}'*/")).await;
    run(&session, "SET profile.level = 'off'").await;
    run(&session, "SELECT 2").await;
    run(&session, "RESET ALL").await;
    run(&session, "SELECT count(*) FROM sys.queries").await;
    run(&session, &format!("SET trace.parent = '{PARENT}'")).await;
    session.sql("SELECT a FROM nosuch").await.unwrap_err();
    let mut spans = collector.spans().await.1;
    run(&session, "RESET trace.parent").await;
    run(&session, "SELECT 3").await;
    exporting.stop.send(()).unwrap();
    exporting.task.await.unwrap();
    let failed = named(&spans, "SELECT");
    assert_eq!(text(failed, "parentSpanId"), CALLER);
    assert_eq!(failed["status"]["code"], 2);
    assert!(
        text(&failed["status"], "message").contains("nosuch"),
        "{failed}"
    );
    spans = collector.spans().await.1;
    let root = named(&spans, "SELECT");
    assert_eq!(attribute(root, "db.query.text").unwrap(), "SELECT 3");
    assert!(root.get("parentSpanId").is_none(), "{root}");
    assert_ne!(text(root, "traceId"), TRACE);
    assert!(root.get("status").is_none(), "{root}");
    assert!(collector.requests.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_collector_does_not_take_is_dropped_and_counted() {
    const PART: &str = "HTTP/1.1 200 OK\r\ncontent-length: 41\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\": \"1\"}}";
    const NEVER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno";
    for (answer, rejected) in [(PART, Some(1)), (NEVER, None)] {
        let database = Database::in_memory().unwrap();
        let mut collector = Collector::start(answer).await;
        let exporting = export(&database, collector.address);
        run(&database.session(), "SELECT 1").await;
        let (_, spans) = collector.spans().await;
        let counters = Arc::clone(&exporting.counters);
        exporting.stop.send(()).unwrap();
        exporting.task.await.unwrap();
        let all = spans.len() as u64;
        assert_eq!(counters.dropped(), rejected.unwrap_or(all), "{answer}");
        assert_eq!(counters.exported(), all - counters.dropped());
        let options = WebOptions {
            traces: Some(Arc::clone(&counters)),
            ..no_users()
        };
        let served = serve(database, options).await;
        let metrics = Browser::with_token(&served)
            .await
            .get("/metrics")
            .await
            .text();
        let dropped = format!("\nskewer_spans_dropped_total {}\n", counters.dropped());
        assert!(metrics.contains(&dropped), "{metrics}");
        assert!(
            metrics.contains("\nskewer_traces_missed_total 0\n"),
            "{metrics}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_or_silent_holds_up_no_query() {
    // Its connections are never accepted.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [silent.local_addr().unwrap(), {
        let address = away.local_addr().unwrap();
        drop(away);
        address
    }] {
        let database = Database::in_memory().unwrap();
        let exporting = export(&database, address);
        let session = database.session();
        let since = Instant::now();
        for _ in 0..20 {
            run(&session, "SELECT 1").await;
        }
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
        let since = Instant::now();
        exporting.stop.send(()).unwrap();
        exporting.task.await.unwrap();
        assert!(since.elapsed() < Duration::from_secs(10), "it ends late");
    }
}
