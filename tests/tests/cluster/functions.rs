//! Functions that a program brings along, on the master and on workers.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::{Functions, Session, Worker, WorkerOptions};
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;

use crate::reads::fill;

/// A function of one text that answers `answer`.
fn answering(functions: Functions, name: &str, answer: &'static str) -> Functions {
    functions.with_row_udf(
        name,
        vec![DataType::Utf8View],
        DataType::Utf8View,
        Volatility::Immutable,
        move |_| Ok(ScalarValue::Utf8View(Some(answer.to_owned()))),
    )
}

fn register(session: &Session, name: &str, answer: &'static str) {
    session.register_row_udf(
        name,
        vec![DataType::Utf8View],
        DataType::Utf8View,
        Volatility::Immutable,
        move |_| Ok(ScalarValue::Utf8View(Some(answer.to_owned()))),
    );
}

fn options(cluster: &Cluster, functions: Functions) -> WorkerOptions {
    let mut options = WorkerOptions::new(cluster.worker_directory(9));
    options.join = Some(cluster.token().parse().unwrap());
    options.listen = "127.0.0.1:0".to_owned();
    options.threads = Some(2);
    options.functions = functions;
    options
}

async fn answers(session: &Session, function: &str) -> Vec<String> {
    let sql = format!(
        "SELECT {function}(CAST(id AS VARCHAR)) AS a, count(*) FROM t GROUP BY a HAVING count(*) > 1"
    );
    query(session, &sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_function_of_the_masters_does_not_take_part() {
    let functions = || answering(answering(Functions::new(), "first", "1"), "second", "2");
    let cluster = Cluster::with(0, |builder| builder.functions(functions()));
    let lacking = options(&cluster, answering(Functions::new(), "second", "2"));
    // Workers have threads of their own, which cannot be waited for on these.
    let started = tokio::task::spawn_blocking(move || Worker::start(lacking).map(drop));
    let error = started.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("may call first,"), "{error}");
    assert!(!error.contains("second"), "{error}");

    let mut equipped = options(&cluster, functions());
    equipped.join = None;
    let worker = tokio::task::spawn_blocking(move || Worker::start(equipped));
    let worker = worker.await.unwrap().unwrap();
    let session = cluster.session();
    fill(&session, "t").await;
    assert_eq!(answers(&session, "first").await, ["1|60000"]);
    tokio::task::spawn_blocking(move || drop(worker))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_a_session_is_called_in_place_of_one_that_workers_have_by_its_name() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    register(&session, "upper", "of this session");
    assert_eq!(answers(&session, "upper").await, ["of this session|60000"]);
    assert_eq!(answers(&cluster.session(), "upper").await, [""; 0]);
}
