//! `datafusion-distributed`'s own transport, in plaintext as it is shipped, and with mutual TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, DistributedExt, Worker, WorkerChannel, WorkerQueryContext,
};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};
use url::Url;

use crate::error::BenchError;

const CERTIFICATE: &str = "grpc.crt";
const KEY: &str = "grpc.key";
/// The name in all certificates.
const NAME: &str = "localhost";

/// Writes a certificate for gRPC into `directory`: the same for all of a cluster, kept in `home`.
pub fn write_certificate(directory: &Path, home: &Path) -> Result<(), BenchError> {
    if !home.join(KEY).exists() {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])
            .map_err(|error| BenchError::Unexpected(error.to_string()))?;
        fs::write(home.join(CERTIFICATE), made.cert.pem())?;
        fs::write(home.join(KEY), made.signing_key.serialize_pem())?;
    }
    for file in [CERTIFICATE, KEY] {
        fs::copy(home.join(file), directory.join(file))?;
    }
    Ok(())
}

/// Serves with TLS and without; where.
pub async fn serve(
    directory: &Path,
    environment: &Arc<RuntimeEnv>,
) -> Result<[String; 2], BenchError> {
    let resolver = tls(directory)?;
    let encrypted = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let resolver = resolver.clone();
        async move {
            let builder = context.builder;
            Ok(builder.with_distributed_channel_resolver(resolver).build())
        }
    })
    .with_runtime_env(Arc::clone(environment));
    let pem = Pem::read(directory)?;
    let config = ServerTlsConfig::new()
        .identity(pem.identity())
        .client_ca_root(pem.root());
    let server = Server::builder().tls_config(config).map_err(refused)?;
    let encrypted = spawn(server, encrypted).await?;
    let plain = Worker::default().with_runtime_env(Arc::clone(environment));
    let plain = spawn(Server::builder(), plain).await?;
    Ok([encrypted.to_string(), plain.to_string()])
}

async fn spawn(mut server: Server, worker: Worker) -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = server
        .add_service(worker.into_worker_server())
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    Ok(address)
}

fn refused(error: impl std::fmt::Display) -> BenchError {
    BenchError::Unexpected(format!("gRPC: {error}"))
}

struct Pem {
    certificate: String,
    key: String,
}

impl Pem {
    fn read(directory: &Path) -> std::io::Result<Self> {
        Ok(Self {
            certificate: fs::read_to_string(directory.join(CERTIFICATE))?,
            key: fs::read_to_string(directory.join(KEY))?,
        })
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.certificate, &self.key)
    }

    fn root(&self) -> Certificate {
        Certificate::from_pem(&self.certificate)
    }
}

/// Reaches workers with mutual TLS. A connection is made once.
pub fn tls(directory: &Path) -> Result<Tls, BenchError> {
    Ok(Tls {
        directory: directory.to_owned(),
        channels: Arc::default(),
    })
}

/// What [`tls`] gives.
#[derive(Debug, Clone)]
pub struct Tls {
    directory: PathBuf,
    channels: Arc<Mutex<Vec<(Url, Channel)>>>,
}

impl Tls {
    async fn channel(&self, url: &Url) -> Result<Channel, BenchError> {
        let mut channels = self.channels.lock().await;
        if let Some((_, channel)) = channels.iter().find(|(known, _)| known == url) {
            return Ok(channel.clone());
        }
        let pem = Pem::read(&self.directory)?;
        let config = ClientTlsConfig::new()
            .domain_name(NAME)
            .ca_certificate(pem.root())
            .identity(pem.identity());
        let endpoint = Channel::from_shared(url.to_string()).map_err(refused)?;
        let endpoint = endpoint.tls_config(config).map_err(refused)?;
        let channel = endpoint.connect().await.map_err(refused)?;
        channels.push((url.clone(), channel.clone()));
        Ok(channel)
    }
}

#[async_trait]
impl ChannelResolver for Tls {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let channel = self.channel(url).await;
        let channel = channel.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(create_worker_client(BoxCloneSyncChannel::new(channel)))
    }
}
