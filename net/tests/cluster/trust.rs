//! Who is let in, and what the others are told.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use datafusion::common::Result;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use skewer_net::frame::{FrameKind, Hello, encode};
use skewer_net::identity::authority::NODE_LIFETIME;
use skewer_net::identity::verify::Refusal;
use skewer_net::identity::{
    Authority, Clock, ClusterDirectory, Credentials, IdentityError, JoinToken, NodeId,
    PeerIdentity, Revocation, SystemClock, Trust,
};
use skewer_net::{CallHandler, NetError, NetOptions, Node, PeerAddress, Services, join};

use crate::proxy::{Proxy, Weather};
use crate::support::{anywhere, authority, credentials, node, trust};

/// Answers with the caller's number.
struct WhoAsks;

#[async_trait]
impl CallHandler for WhoAsks {
    async fn call(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(format!("{} {method} {body}", peer.node).into_bytes())
    }
}

fn calls() -> Services {
    Services {
        calls: Some(Arc::new(WhoAsks)),
        ..Services::default()
    }
}

#[derive(Debug)]
struct Later(Duration);

impl Clock for Later {
    fn now(&self) -> SystemTime {
        SystemTime::now() + self.0
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A serving worker 1 and what a caller with these things gets.
async fn ask(worker: Node, caller: Credentials, trust: Trust, options: NetOptions) -> NetError {
    let text = attempt(worker, caller, trust, options).await;
    text.expect_err("it should have been refused")
}

async fn attempt(
    worker: Node,
    caller: Credentials,
    trust: Trust,
    options: NetOptions,
) -> Result<String, NetError> {
    worker.serve(calls());
    let caller = Node::bind(anywhere(), caller, trust, options).unwrap();
    let address = worker.local_address().unwrap();
    caller.set_peer(PeerAddress::new(NodeId(1), "worker 1", address));
    let answer = caller.call(NodeId(1), "asks", b"who am I".to_vec()).await?;
    Ok(String::from_utf8(answer).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_cluster_is_answered_and_known_by_its_certificate() {
    let ours = authority();
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    let caller = credentials(&ours, NodeId(2));
    let answer = attempt(worker, caller, trust(&ours), NetOptions::default())
        .await
        .unwrap();
    assert_eq!(answer, "worker 2 asks who am I");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_another_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    let caller = credentials(&theirs, NodeId(2));
    let error = ask(worker, caller, trust(&ours), NetOptions::default()).await;
    let refused = NetError::Refused {
        peer: "worker 1".to_owned(),
        reason: Refusal::OtherAuthority,
    };
    assert_eq!(error.to_string(), refused.to_string());
    // And the caller itself refuses a worker of another authority.
    let worker = node(&theirs, NodeId(1), &NetOptions::default());
    let caller = credentials(&ours, NodeId(2));
    let error = ask(worker, caller, trust(&ours), NetOptions::default()).await;
    assert!(
        matches!(
            error,
            NetError::Identity(IdentityError::OtherAuthority { .. })
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused_on_both_sides() {
    let ours = authority();
    let long_ago = SystemTime::now() - YEAR;
    let expired = |number| {
        let day = Duration::from_secs(24 * 3600);
        Credentials::issued_by(&ours, NodeId(number), "old", long_ago, day).unwrap()
    };
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    let error = ask(worker, expired(2), trust(&ours), NetOptions::default()).await;
    assert!(
        matches!(
            error,
            NetError::Refused {
                reason: Refusal::Expired,
                ..
            }
        ),
        "{error}"
    );
    let worker = Node::bind(anywhere(), expired(1), trust(&ours), NetOptions::default()).unwrap();
    let caller = credentials(&ours, NodeId(2));
    let error = ask(worker, caller, trust(&ours), NetOptions::default()).await;
    assert!(
        matches!(error, NetError::Identity(IdentityError::Expired { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("expired at"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_judged_by_the_clock_that_is_given() {
    let ours = authority();
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    let late = trust(&ours).with_clock(Arc::new(Later(3 * YEAR)));
    let error = ask(
        worker,
        credentials(&ours, NodeId(2)),
        late,
        NetOptions::default(),
    )
    .await;
    assert!(
        matches!(error, NetError::Identity(IdentityError::Expired { .. })),
        "{error}"
    );
    let future = SystemTime::now() + YEAR;
    let unborn = Credentials::issued_by(&ours, NodeId(1), "new", future, NODE_LIFETIME).unwrap();
    let worker = Node::bind(anywhere(), unborn, trust(&ours), NetOptions::default()).unwrap();
    let caller = credentials(&ours, NodeId(2));
    let error = ask(worker, caller, trust(&ours), NetOptions::default()).await;
    assert!(error.to_string().contains("compare the clocks"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_revoked_is_thrown_out_and_not_let_in_again() {
    let ours = authority();
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    worker.serve(calls());
    let address = worker.local_address().unwrap();
    let caller = node(&ours, NodeId(2), &NetOptions::default());
    caller.set_peer(PeerAddress::new(NodeId(1), "worker 1", address));
    caller.call(NodeId(1), "asks", Vec::new()).await.unwrap();
    let serial = caller.identity().serial.clone();
    worker.revoke(Revocation::Serial(serial)).unwrap();
    // The connection dies; the next handshake does not succeed.
    let error = loop {
        match caller.call(NodeId(1), "asks", Vec::new()).await {
            Err(error @ NetError::Refused { .. }) => break error,
            Err(NetError::Lost(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(error.to_string().contains("revoked"), "{error}");
    // Its neighbour is not concerned.
    let other = node(&ours, NodeId(3), &NetOptions::default());
    other.set_peer(PeerAddress::new(NodeId(1), "worker 1", address));
    other.call(NodeId(1), "asks", Vec::new()).await.unwrap();
    worker.revoke(Revocation::Node(NodeId(3))).unwrap();
    assert!(other.call(NodeId(1), "asks", Vec::new()).await.is_err());
    // And who has revoked a worker does not talk to it either.
    let master = node(&ours, NodeId::MASTER, &NetOptions::default());
    master.set_peer(PeerAddress::new(NodeId(1), "worker 1", address));
    master.revoke(Revocation::Node(NodeId(1))).unwrap();
    master.set_peer(PeerAddress::new(NodeId(1), "worker 1", address));
    let error = master
        .call(NodeId(1), "asks", Vec::new())
        .await
        .unwrap_err();
    assert!(
        matches!(error, NetError::Identity(IdentityError::Revoked { .. })),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_version_is_refused_with_both_versions_named() {
    let ours = authority();
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    let newer = NetOptions {
        version: 2,
        ..NetOptions::default()
    };
    let error = ask(worker, credentials(&ours, NodeId(2)), trust(&ours), newer).await;
    assert!(
        matches!(
            error,
            NetError::OtherVersion {
                ours: 2,
                theirs: 1,
                ..
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("version 1") && text.contains("version 2"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_answers_at_anothers_address_is_noticed() {
    let ours = authority();
    let worker = node(&ours, NodeId(7), &NetOptions::default());
    let caller = credentials(&ours, NodeId(2));
    let error = ask(worker, caller, trust(&ours), NetOptions::default()).await;
    assert_eq!(
        error.to_string(),
        "worker 7 answered where worker 1 was expected"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    let ours = authority();
    let first = node(&ours, NodeId(1), &NetOptions::default());
    let address = first.local_address().unwrap();
    let second = Node::bind(
        address,
        credentials(&ours, NodeId(2)),
        trust(&ours),
        NetOptions::default(),
    );
    let text = second.unwrap_err().to_string();
    assert!(text.contains(&address.to_string()), "{text}");
}

#[derive(Debug)]
struct BelievesAnything;

impl ServerCertVerifier for BelievesAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_certificate_nothing_is_answered() {
    let ours = authority();
    let worker = node(&ours, NodeId(1), &NetOptions::default());
    worker.serve(calls());
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(BelievesAnything))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"skewer/1".to_vec()];
    let tls = QuicClientConfig::try_from(tls).unwrap();
    let endpoint = quinn::Endpoint::client(anywhere()).unwrap();
    let address = worker.local_address().unwrap();
    let config = quinn::ClientConfig::new(Arc::new(tls));
    let connecting = endpoint.connect_with(config, address, "skewer").unwrap();
    // TLS 1.3 lets the caller begin before it is judged: what counts is that nothing comes back.
    if let Ok(connection) = connecting.await {
        if let Ok((mut send, mut receive)) = connection.open_bi().await {
            let hello = Hello::new(1, "nobody").encode();
            let _ = send
                .write_all(&encode(FrameKind::Hello, &hello).unwrap())
                .await;
            assert!(receive.read_to_end(1_000).await.is_err(), "it was answered");
        }
        let closed = connection.closed().await;
        match closed {
            // certificate_required, RFC 8446.
            quinn::ConnectionError::ConnectionClosed(close) => {
                assert_eq!(u64::from(close.error_code), 0x100 + 116);
            }
            other => panic!("{other}"),
        }
    }
}

/// A master that lets workers join.
struct Master {
    directory: tempfile::TempDir,
    cluster: ClusterDirectory,
    node: Node,
}

fn master() -> Master {
    let directory = tempfile::tempdir().unwrap();
    let cluster = ClusterDirectory::init(directory.path(), "master", SystemTime::now()).unwrap();
    let credentials = cluster.credentials().unwrap();
    let authority = cluster.authority().unwrap();
    let trust = Trust::new(authority.certificate(), cluster.revocations()).unwrap();
    let trust = trust.with_tokens(cluster.tokens());
    let node = Node::bind(anywhere(), credentials, trust, NetOptions::default()).unwrap();
    node.serve(Services {
        calls: Some(Arc::new(WhoAsks)),
        admissions: Some(cluster.clone()),
        worker: None,
    });
    Master {
        directory,
        cluster,
        node,
    }
}

impl Master {
    fn token(&self, lifetime: Duration) -> JoinToken {
        let address = self.node.local_address().unwrap().to_string();
        self.cluster
            .token(&address, SystemTime::now(), lifetime)
            .unwrap()
    }
}

async fn try_join(token: &JoinToken, name: Option<&str>) -> Result<Credentials, NetError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    join(token, name, Duration::ZERO, &NetOptions::default(), &clock)
        .await
        .map(|joined| joined.credentials)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_joins_with_a_token_once_and_is_answered_from_then_on() {
    let master = master();
    let token = master.token(HOUR).to_string().parse::<JoinToken>().unwrap();
    let credentials = try_join(&token, Some("host-b")).await.unwrap();
    assert_eq!(credentials.identity().to_string(), "worker 1 (host-b)");
    let home = tempfile::tempdir().unwrap();
    credentials.write(home.path()).unwrap();
    let credentials = Credentials::load(home.path()).unwrap();
    let authority = master.cluster.authority().unwrap();
    let worker = Node::bind(
        anywhere(),
        credentials,
        trust(&authority),
        NetOptions::default(),
    )
    .unwrap();
    let address = master.node.local_address().unwrap();
    worker.set_peer(PeerAddress::new(NodeId::MASTER, "the master", address));
    let answer = worker
        .call(NodeId::MASTER, "asks", b"again".to_vec())
        .await
        .unwrap();
    assert_eq!(answer, b"worker 1 asks again");
    let again = try_join(&token, None).await.unwrap_err();
    assert!(
        matches!(again, NetError::Identity(IdentityError::TokenUsed)),
        "{again}"
    );
    let second = try_join(&master.token(HOUR), None).await.unwrap();
    assert_eq!(second.identity().node, NodeId(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused_with_its_reason() {
    let (ours, theirs) = (master(), master());
    let expired = ours.token(Duration::ZERO);
    let error = try_join(&expired, None).await.unwrap_err();
    assert!(
        matches!(error, NetError::Identity(IdentityError::TokenExpired)),
        "{error}"
    );
    // The joiner's clock is slow: the master says it.
    #[derive(Debug)]
    struct Slow;
    impl Clock for Slow {
        fn now(&self) -> SystemTime {
            SystemTime::now() - Duration::from_secs(600)
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(Slow);
    let error = join(
        &expired,
        None,
        Duration::ZERO,
        &NetOptions::default(),
        &clock,
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, NetError::Identity(IdentityError::TokenExpired)),
        "{error}"
    );
    // Of the right authority, but never given out.
    let authority = ours.cluster.authority().unwrap();
    let address = ours.node.local_address().unwrap().to_string();
    let forged = JoinToken::new(&address, authority.certificate(), SystemTime::now(), HOUR);
    let error = try_join(&forged, None).await.unwrap_err();
    assert!(
        matches!(error, NetError::Identity(IdentityError::TokenUnknown)),
        "{error}"
    );
    // Somebody else answers at the token's address.
    let authority: Authority = theirs.cluster.authority().unwrap();
    let other = JoinToken::new(&address, authority.certificate(), SystemTime::now(), HOUR);
    let error = try_join(&other, None).await.unwrap_err();
    assert!(
        matches!(
            error,
            NetError::Identity(IdentityError::NotTheTokensMaster { .. })
        ),
        "{error}"
    );
    assert!(ours.directory.path().join("ca.key").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_does_not_answer_at_once_is_called_until_it_does() {
    let master = master();
    let silent = std::net::UdpSocket::bind(anywhere()).unwrap();
    let targets = vec![
        silent.local_addr().unwrap(),
        master.node.local_address().unwrap(),
    ];
    let proxy = Proxy::in_turn(targets, Weather::default());
    let address = proxy.address.to_string();
    let token = master.cluster.token(&address, SystemTime::now(), HOUR);
    let token = token.unwrap();
    let options = NetOptions {
        connect_timeout: Duration::from_secs(1),
        ..NetOptions::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let wait = Duration::from_secs(60);
    let joined = join(&token, None, wait, &options, &clock).await.unwrap();
    assert_eq!(joined.credentials.identity().node, NodeId(1));
    assert!(proxy.callers() >= 2, "{}", proxy.callers());
    // A refusal ends the waiting, as it stays one.
    let again = join(&token, None, wait, &options, &clock).await;
    assert!(
        matches!(again, Err(NetError::Identity(IdentityError::TokenUsed))),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_join_with_one_token_one_succeeds() {
    let master = master();
    let token = master.token(HOUR);
    let (first, second) = tokio::join!(try_join(&token, None), try_join(&token, None));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    assert_eq!(master.cluster.workers().unwrap().len(), 1);
}
