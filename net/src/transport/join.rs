//! How a machine becomes a worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint, RecvStream, SendStream, TokioRuntime};
use rustls::pki_types::CertificateDer;

use super::connect::Call;
use super::options::NetOptions;
use super::stream::{Inbound, Outbound, PeerName, SendError};
use crate::error::NetError;
use crate::frame::body::{Reader, Writer};
use crate::frame::{FrameError, FrameKind};
use crate::identity::clock::unix_seconds;
use crate::identity::credentials::key_and_request;
use crate::identity::verify::Refusal;
use crate::identity::{Clock, Credentials, IdentityError, JoinToken, tls};

/// What joining gives.
#[derive(Debug, Clone)]
pub struct Joined {
    /// To be kept with [`Credentials::write`]: the token is used up.
    pub credentials: Credentials,
    /// Where the master answered.
    pub master: SocketAddr,
}

/// Joins the cluster that made a token: makes a key, which stays here, and has the master certify
/// it. Without a `name` the worker is called `worker-<n>`.
///
/// A master that does not answer, or hangs up, is called again until `wait` has passed, and has as
/// long for its certificate; with a `wait` of zero it is called once, for
/// [`NetOptions::connect_timeout`]. A call that asked for a certificate is the last one: it may have
/// used the token up.
///
/// # Errors
/// [`NetError::Identity`] with [`IdentityError::TokenExpired`], [`IdentityError::TokenUsed`],
/// [`IdentityError::TokenUnknown`] or [`IdentityError::NotTheTokensMaster`];
/// [`NetError::Unreachable`] or [`NetError::Lost`] if `wait` has passed; [`NetError::OtherVersion`];
/// or what the master says.
pub async fn join(
    token: &JoinToken,
    name: Option<&str>,
    wait: Duration,
    options: &NetOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Joined, NetError> {
    if token.expires_at <= unix_seconds(clock.now()) {
        return Err(IdentityError::TokenExpired.into());
    }
    let deadline = Instant::now() + wait;
    let Reached {
        endpoint,
        connection,
        stream: (send, receive),
        master,
    } = reach(token, name, deadline, options, clock).await?;
    let (key, request) = key_and_request()?;
    let mut body = Writer::default();
    body.option(name, |body, name| body.text(name));
    body.bytes(&request);
    let mut out = Outbound::new(send);
    let mut answer = Inbound::new(receive, the_master());
    match out.frame(FrameKind::Join, &body.finish()).await {
        Err(SendError::Frame(error)) => return Err(answer.wrong(error)),
        // If it was not written the answer says why.
        Err(SendError::ReceiverGone) => {}
        Ok(()) => {
            let _ = out.end().await;
        }
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let reply = tokio::time::timeout(
        left.max(options.connect_timeout),
        answer.expect(FrameKind::Reply, "a certificate"),
    );
    let reply = reply.await.map_err(|_| NetError::Unreachable {
        peer: "the master".to_owned(),
        address: master.to_string(),
        reason: "it did not answer in time".to_owned(),
    })??;
    let (authority, certificate) =
        certificates(&reply.payload).map_err(|error| answer.wrong(error))?;
    if !token.is_of(&authority) {
        return Err(IdentityError::NotTheTokensMaster {
            address: token.address.clone(),
        }
        .into());
    }
    let credentials = Credentials::new(authority, certificate, &key)?;
    connection.close(0u32.into(), b"joined");
    endpoint.wait_idle().await;
    Ok(Joined {
        credentials,
        master,
    })
}

fn the_master() -> PeerName {
    PeerName::Other("the master".to_owned())
}

/// A connection to the master on which the token was shown, and nothing was asked yet.
struct Reached {
    endpoint: Endpoint,
    connection: Connection,
    stream: (SendStream, RecvStream),
    master: SocketAddr,
}

/// Calls the master until it answers or `deadline` has passed, at least once.
async fn reach(
    token: &JoinToken,
    name: Option<&str>,
    deadline: Instant,
    options: &NetOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Reached, NetError> {
    let mut waits = pauses();
    let mut told = None;
    loop {
        let error = match call(token, name, options, clock).await {
            Ok(reached) => return Ok(reached),
            Err(error) => error,
        };
        let may_pass = matches!(error, NetError::Unreachable { .. } | NetError::Lost(_));
        if !may_pass || Instant::now() >= deadline {
            return Err(error);
        }
        let text = error.to_string();
        if told.as_ref() != Some(&text) {
            tracing::warn!(master = token.address, error = text, "trying again");
            told = Some(text);
        }
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}

/// Calls the master once.
async fn call(
    token: &JoinToken,
    name: Option<&str>,
    options: &NetOptions,
    clock: &Arc<dyn Clock>,
) -> Result<Reached, NetError> {
    let master = resolve(&token.address).await?;
    let here = match master {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    };
    let (socket, buffer) = options.socket(here)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(options.endpoint(), None, socket, runtime);
    let endpoint = endpoint.map_err(|error| NetError::Listen {
        address: here,
        reason: error.to_string(),
    })?;
    let (tls, verdict) = tls::joiner(token, clock, options.version)?;
    let call = Call {
        endpoint: &endpoint,
        address: master,
        peer: "the master",
        tls: Arc::new(tls),
        verdict,
        transport: Arc::new(options.asking(master.ip(), buffer, 1)),
        options,
        name: name.unwrap_or("a new worker"),
    };
    let connection = call.connect().await.map_err(of_token)?;
    let lost = |error| NetError::Lost(the_master().lost(&error));
    let stream = connection.open_bi().await.map_err(lost)?;
    Ok(Reached {
        endpoint,
        connection,
        stream,
        master,
    })
}

/// How long to wait between one call of a master that does not answer and the next: 100 ms, then
/// twice as long each time, up to 2 s. Never ends.
pub fn pauses() -> impl Iterator<Item = Duration> {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);
    std::iter::successors(Some(FIRST), |pause| Some((*pause * 2).min(LONGEST)))
}

async fn resolve(address: &str) -> Result<SocketAddr, NetError> {
    let unreachable = |reason: String| NetError::Unreachable {
        peer: "the master".to_owned(),
        address: address.to_owned(),
        reason,
    };
    let found = tokio::net::lookup_host(address).await;
    let mut found = found.map_err(|error| unreachable(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| unreachable("the name has no address".to_owned()))
}

type Certificate = CertificateDer<'static>;

fn certificates(reply: &[u8]) -> Result<(Certificate, Certificate), FrameError> {
    let mut body = Reader::new(FrameKind::Reply, reply);
    // The worker's number, which its certificate has too.
    body.u32()?;
    let authority = CertificateDer::from(body.bytes()?.to_vec());
    let certificate = CertificateDer::from(body.bytes()?.to_vec());
    body.finish()?;
    Ok((authority, certificate))
}

/// What a refused handshake means if one has shown a token.
fn of_token(error: NetError) -> NetError {
    match error {
        NetError::Refused { reason, .. } => match reason {
            Refusal::Expired => IdentityError::TokenExpired.into(),
            Refusal::Revoked => IdentityError::TokenUsed.into(),
            Refusal::Denied | Refusal::OtherAuthority | Refusal::WrongPeer => {
                IdentityError::TokenUnknown.into()
            }
            _ => error,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use quinn::{ClientConfig, ServerConfig};

    use super::*;
    use crate::frame::{Frame, Hello};
    use crate::identity::{ClusterDirectory, SystemClock, Trust};
    use crate::transport::{Node, Services};

    /// A new cluster, and whom its master lets in.
    fn cluster(directory: &Path, now: SystemTime) -> (ClusterDirectory, Trust) {
        let cluster = ClusterDirectory::init(directory, "master", now).unwrap();
        let authority = cluster.authority().unwrap();
        let trust = Trust::new(authority.certificate(), cluster.revocations()).unwrap();
        let trust = trust.with_tokens(cluster.tokens());
        (cluster, trust)
    }

    /// A master that lets machines join, where it is, and a token for one of them.
    fn admitting(cluster: &ClusterDirectory, trust: Trust) -> (Node, SocketAddr, JoinToken) {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let credentials = cluster.credentials().unwrap();
        let master = Node::bind(here, credentials, trust, NetOptions::default()).unwrap();
        master.serve(Services {
            admissions: Some(cluster.clone()),
            ..Services::default()
        });
        let address = master.local_address().unwrap();
        let hour = Duration::from_secs(3600);
        let token = cluster.token(&address.to_string(), SystemTime::now(), hour);
        (master, address, token.unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_token_opens_the_door_to_joining_and_to_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (cluster, trust) = cluster(directory.path(), SystemTime::now());
        let (_master, address, token) = admitting(&cluster, trust);
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = NetOptions::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (tls, verdict) = tls::joiner(&token, &clock, options.version).unwrap();
        let endpoint = Endpoint::client(here).unwrap();
        let call = Call {
            endpoint: &endpoint,
            address,
            peer: "the master",
            tls: Arc::new(tls),
            verdict,
            transport: Arc::new(options.asking(address.ip(), 1 << 20, 1)),
            options: &options,
            name: "nobody",
        };
        let connection = call.connect().await.unwrap();
        for kind in [
            FrameKind::Info,
            FrameKind::Call,
            FrameKind::Execute,
            FrameKind::SetPlan,
        ] {
            let (send, receive) = connection.open_bi().await.unwrap();
            let mut out = Outbound::new(send);
            out.frame(kind, &[]).await.unwrap();
            let mut answer = Inbound::new(receive, PeerName::Other("the master".to_owned()));
            assert!(
                matches!(answer.next().await, Err(NetError::Remote(_))),
                "{kind:?}"
            );
        }
        // A request that is no signing request costs the token and certifies nobody.
        let answer = certificate(&connection, b"certify me").await;
        assert!(matches!(answer, Err(NetError::Remote(_))));
        assert!(cluster.worker(crate::identity::NodeId(1)).is_err());
    }

    /// A caller stops the stream of the master's HELLO as soon as it has read it, which may be before
    /// the master has said the stream's end. This one does not read it at all.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_caller_that_stops_the_stream_of_hello_is_let_in() {
        let directory = tempfile::tempdir().unwrap();
        let (cluster, trust) = cluster(directory.path(), SystemTime::now());
        let (_master, address, token) = admitting(&cluster, trust);
        let options = NetOptions::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (tls, _) = tls::joiner(&token, &clock, options.version).unwrap();
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(options.asking(address.ip(), 1 << 20, 1)));
        let connecting = endpoint.connect_with(config, address, tls::SERVER_NAME);
        let connection = connecting.unwrap().await.unwrap();

        let (send, mut receive) = connection.open_bi().await.unwrap();
        receive.stop(0u32.into()).unwrap();
        let mut out = Outbound::new(send);
        let hello = Hello::new(options.version, "a caller").encode();
        out.frame(FrameKind::Hello, &hello).await.unwrap();
        out.end().await.unwrap();

        let (_, request) = key_and_request().unwrap();
        let reply = certificate(&connection, &request).await.unwrap();
        let (authority, _) = certificates(&reply.payload).unwrap();
        assert!(token.is_of(&authority));
    }

    /// Asks for a certificate without a name.
    async fn certificate(connection: &Connection, request: &[u8]) -> Result<Frame, NetError> {
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut out = Outbound::new(send);
        let mut body = Writer::default();
        body.option(None::<&str>, |body, name| body.text(name));
        body.bytes(request);
        out.frame(FrameKind::Join, &body.finish()).await.unwrap();
        let mut answer = Inbound::new(receive, PeerName::Other("the master".to_owned()));
        answer.expect(FrameKind::Reply, "a certificate").await
    }

    /// A master whose machine stalls gives a caller up with "no HELLO": the caller has not used its
    /// token up, and calls again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_master_that_hangs_up_is_called_again() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let (cluster, trust) = cluster(directory.path(), now);
        let options = NetOptions::default();
        let tls = tls::server(&cluster.credentials().unwrap(), &trust, options.version).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let master = Endpoint::server(ServerConfig::with_crypto(Arc::new(tls)), here).unwrap();
        let address = master.local_addr().unwrap().to_string();
        let version = options.version;
        let serving = tokio::spawn(async move {
            let mut has_hung_up = false;
            // Calls that end early, too, are followed by others.
            while let Some(incoming) = master.accept().await {
                let Ok(connection) = incoming.await else {
                    continue;
                };
                if has_hung_up {
                    tokio::spawn(greet(connection, version));
                } else {
                    connection.close(0u32.into(), b"no HELLO");
                    has_hung_up = true;
                }
            }
        });
        let token = cluster
            .token(&address, now, Duration::from_secs(3600))
            .unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let deadline = Instant::now() + Duration::from_secs(60);
        let reached = reach(&token, None, deadline, &options, &clock)
            .await
            .unwrap();
        reached.connection.close(0u32.into(), b"seen");
        serving.abort();
    }

    /// Answers a HELLO, and nothing else.
    async fn greet(connection: Connection, version: u16) -> Option<()> {
        let (send, receive) = connection.accept_bi().await.ok()?;
        let mut question = Inbound::new(receive, PeerName::Other("the caller".to_owned()));
        question.expect(FrameKind::Hello, "a HELLO").await.ok()?;
        let mut out = Outbound::new(send);
        let hello = Hello::new(version, "master").encode();
        out.frame(FrameKind::Hello, &hello).await.ok()?;
        let _ = out.end().await;
        connection.closed().await;
        Some(())
    }
}
