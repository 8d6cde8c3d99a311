//! Who may take part, and who learns nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use skewer::cluster::{ClusterDirectory, JoinToken, MemberState, NodeId, Revocation};
use skewer_net::identity::{Credentials, Revocations, Trust};
use skewer_net::{NetOptions, Node, PeerAddress};
use skewer_tests::cluster::{Cluster, PATIENCE, binary};
use skewer_tests::contents::query;

/// Runs `skewer` with these arguments to its end.
fn skewer(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// What a worker says that does not start.
#[track_caller]
fn refused(data: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["worker", "--data", data.to_str().unwrap(), "--wait", "3"];
    all.extend(["--listen", "127.0.0.1:0"]);
    all.extend(arguments);
    let output = skewer(&all);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_one_worker_join_once_and_keys_are_private() {
    let mut cluster = Cluster::start(0);
    let token = cluster.token();
    let used = cluster.token();
    cluster.add_worker();
    let other = tempfile::tempdir().unwrap();
    for key in [
        cluster.master_directory().join("cluster/ca.key"),
        cluster.master_directory().join("cluster/node.key"),
        cluster.worker_directory(1).join("identity/node.key"),
    ] {
        let mode = std::fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{}", key.display());
    }
    // The second worker's number is used up by whoever joins with the token.
    let joined = skewer_net_join(&used).await;
    assert_eq!(joined, 2);
    let said = refused(&other.path().join("late"), &["--join", &used]);
    assert!(said.contains("has been used already"), "{said}");
    let cut = &token[..token.len() - 3];
    let said = refused(&other.path().join("cut"), &["--join", cut]);
    assert!(said.contains("copy it again"), "{said}");
    let said = refused(&other.path().join("without"), &[]);
    assert!(said.contains("skewer cluster token"), "{said}");
    let said = refused(&cluster.master_directory(), &["--join", &token]);
    assert!(said.contains("is a database"), "{said}");
    let said = refused(&cluster.worker_directory(1), &["--join", &token]);
    assert!(said.contains("has joined a cluster already"), "{said}");
    assert!(said.contains("skewer cluster token --worker 1"), "{said}");
    let said = refused(&cluster.worker_directory(1), &[]);
    assert!(said.contains("lock") || said.contains("open"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_worker_s_directory_does_not_throw_the_worker_out() {
    let cluster = Cluster::start(1);
    let copy = tempfile::tempdir().unwrap();
    let identity = copy.path().join("identity");
    std::fs::create_dir(&identity).unwrap();
    for file in ["ca.crt", "node.crt", "node.key", "master"] {
        let from = cluster.worker_directory(1).join("identity").join(file);
        std::fs::copy(from, identity.join(file)).unwrap();
    }
    let said = refused(copy.path(), &[]);
    assert!(said.contains("runs already, as another process"), "{said}");
    let member = cluster.member(1).unwrap();
    assert_eq!(member.state, MemberState::Alive);
}

/// Uses a token up without starting a worker; gives the number.
async fn skewer_net_join(token: &str) -> u32 {
    use skewer_net::identity::{Clock, SystemClock};
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let token = token.parse().unwrap();
    let options = NetOptions::default();
    let joined = skewer_net::join(&token, None, Duration::ZERO, &options, &clock);
    joined.await.unwrap().credentials.identity().node.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_worker_is_turned_out_and_stays_out() {
    let mut cluster = Cluster::start(2);
    // Whoever has its certificate is answered by the other worker, too.
    let identity = cluster.worker_directory(1).join("identity");
    let credentials = Credentials::load(&identity).unwrap();
    let trust = Trust::new(credentials.authority(), Arc::new(Revocations::in_memory())).unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let double = Node::bind(anywhere, credentials, trust, NetOptions::default()).unwrap();
    let other = cluster.member(2).unwrap().address.unwrap();
    let knock = async || {
        // Anew, since what is known to be lost is not asked again.
        double.close_worker(NodeId(2), "it is asked anew");
        double.set_peer(PeerAddress::new(NodeId(2), "worker 2", other));
        double.connect(NodeId(2)).await
    };
    knock().await.unwrap();
    let data = cluster.master_directory();
    let data = data.to_str().unwrap();
    let revoked = skewer(&["cluster", "revoke", "1", "--data", data]);
    assert!(revoked.status.success(), "{revoked:?}");
    cluster.wait_for(1, &MemberState::Lost(Arc::from("")));
    let member = cluster.member(1).unwrap();
    let MemberState::Lost(reason) = member.state else {
        panic!("{member:?}");
    };
    assert_eq!(&*reason, "its certificate has been revoked");
    assert_eq!(cluster.ended(1).code(), Some(1));
    assert!(
        cluster.log(1).contains("has been revoked"),
        "{}",
        cluster.log(1)
    );
    let said = refused(&cluster.worker_directory(1), &[]);
    assert!(said.contains("has been revoked"), "{said}");
    // The other worker is told a little later.
    let begun = Instant::now();
    let refusal = loop {
        match knock().await {
            Err(error) => break error.to_string(),
            Ok(()) => assert!(begun.elapsed() < PATIENCE, "worker 2 still answers"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(refusal.contains("revoked"), "{refusal}");
    let listed = skewer(&["cluster", "workers", "--data", data]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed, "1\thost-1\trevoked\n2\thost-2\n");
    let again = cluster.cluster_directory().revocations().entries().unwrap();
    assert_eq!(again, [Revocation::Node(NodeId(1))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_renewed_and_the_worker_keeps_its_rows() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    for sql in [
        "CREATE TABLE t (a BIGINT)",
        "INSERT INTO t SELECT value FROM range(10000)",
    ] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    cluster.kill(1);
    let identity = cluster.worker_directory(1).join("identity");
    let authority = cluster.cluster_directory().authority().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let then = SystemTime::now() - 10 * day;
    let expired = Credentials::issued_by(&authority, NodeId(1), "host-1", then, day).unwrap();
    expired.write(&identity).unwrap();

    let said = refused(&cluster.worker_directory(1), &[]);
    assert!(said.contains("expired"), "{said}");
    assert!(said.contains("skewer cluster token --worker"), "{said}");
    let data = cluster.master_directory();
    let token = |worker: &str| {
        let data = data.to_str().unwrap();
        let made = skewer(&["cluster", "token", "--data", data, "--worker", worker]);
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap()
    };
    let rows = async || {
        query(&session, "SELECT count(*), sum(a) FROM t")
            .await
            .unwrap()
    };
    // One of another cluster, for the worker of the same number there, changes nothing.
    let elsewhere = tempfile::tempdir().unwrap();
    let foreign = ClusterDirectory::init(elsewhere.path(), "master", SystemTime::now()).unwrap();
    let foreign = foreign.authority().unwrap();
    let foreign = JoinToken::new("127.0.0.1:1", foreign.certificate(), SystemTime::now(), day);
    let foreign = foreign.renewing(NodeId(1)).to_string();
    let said = refused(&cluster.worker_directory(1), &["--join", &foreign]);
    assert!(said.contains("is of another cluster"), "{said}");
    // One of another worker is not spent.
    let other = token("2");
    let said = refused(&cluster.worker_directory(1), &["--join", &other]);
    let expected = "renews the certificate of worker 2, and this is worker 1";
    assert!(said.contains(expected), "{said}");
    cluster.renew_worker(1, &token("1"));
    assert_eq!(rows().await, ["10000|49995000"]);

    // Nor does a worker lose its rows with its identity.
    cluster.kill(1);
    std::fs::remove_dir_all(&identity).unwrap();
    let said = refused(&cluster.worker_directory(1), &["--join", &other]);
    assert!(said.contains("belongs to node 1"), "{said}");
    cluster.renew_worker(1, &token("1"));
    assert_eq!(rows().await, ["10000|49995000"]);

    let unknown = skewer(&[
        "cluster",
        "token",
        "--data",
        data.to_str().unwrap(),
        "--worker",
        "9",
    ]);
    assert!(
        String::from_utf8(unknown.stderr)
            .unwrap()
            .contains("there is no worker 9")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_another_version_is_told_both_versions() {
    let mut cluster = Cluster::start(1);
    cluster.kill(1);
    let mut options = skewer::WorkerOptions::new(cluster.worker_directory(1));
    options.net.version = 99;
    // It has threads of its own.
    let started = tokio::task::spawn_blocking(move || skewer::Worker::start(options).err());
    let error = started.await.unwrap().unwrap().to_string();
    assert!(
        error.contains("version 99") && error.contains("version 1 "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_another_cluster_or_without_master_says_so() {
    let cluster = Cluster::start(0);
    let address = cluster.database().cluster().unwrap().address();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("other");
    let other = ClusterDirectory::init(&other, "master", SystemTime::now()).unwrap();
    let hour = Duration::from_secs(3600);
    let token = other.token(&address.to_string(), SystemTime::now(), hour);
    let token = token.unwrap().to_string();
    let said = refused(&elsewhere.path().join("worker"), &["--join", &token]);
    assert!(
        said.contains("is not the one that made the join token"),
        "{said}"
    );
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = nobody.local_addr().unwrap().to_string();
    let token = cluster
        .cluster_directory()
        .token(&nowhere, SystemTime::now(), hour);
    let token = token.unwrap().to_string();
    let said = refused(&elsewhere.path().join("worker"), &["--join", &token]);
    assert!(said.contains("does not answer"), "{said}");
}
