//! Worker processes, and sessions that use them.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver};
use skewer_net::identity::{Authority, Credentials, NodeId};
use skewer_net::transport::worker_url;
use skewer_net::{Node, PeerAddress};
use tempfile::TempDir;
use url::Url;

use super::process::Process;
use super::worker::{FORGET, Tuning, network, node};
use crate::corpus::Corpus;
use crate::error::BenchError;
use crate::measure::{cpu_seconds_of, forget_peak_of, peak_bytes_of, resident_bytes_of};

/// How batches get from worker to worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Ours, with mutual TLS.
    Quic,
    /// `datafusion-distributed`'s, with mutual TLS.
    #[cfg(feature = "grpc")]
    GrpcTls,
    /// `datafusion-distributed`'s, as it is shipped.
    #[cfg(feature = "grpc")]
    Grpc,
}

impl Transport {
    /// All that this program was built with.
    #[cfg(feature = "grpc")]
    pub const ALL: [Self; 3] = [Self::Quic, Self::GrpcTls, Self::Grpc];
    /// All that this program was built with.
    #[cfg(not(feature = "grpc"))]
    pub const ALL: [Self; 1] = [Self::Quic];

    /// How results call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "QUIC, mutual TLS",
            #[cfg(feature = "grpc")]
            Self::GrpcTls => "gRPC, mutual TLS",
            #[cfg(feature = "grpc")]
            Self::Grpc => "gRPC, plaintext",
        }
    }
}

/// Memory that has been freed is given back to the system within this time.
const SETTLED: Duration = Duration::from_secs(5);

/// How many worker processes there are.
pub const WORKERS: u32 = 2;

/// Two worker processes. They end with this.
#[derive(Debug)]
pub struct Cluster {
    /// The certificates.
    home: TempDir,
    /// Each has an address for each transport.
    workers: Vec<Process>,
    coordinator: Node,
}

impl Cluster {
    /// Starts the processes and waits until they serve. At their end they write into the directory
    /// `ledgers`, if there is one, where they had memory.
    pub async fn start(tuning: Tuning, ledgers: Option<&Path>) -> Result<Self, BenchError> {
        let home = tempfile::tempdir()?;
        let now = SystemTime::now();
        let authority = Authority::create(now).map_err(network)?;
        for number in 0..=WORKERS {
            let day = Duration::from_secs(86_400);
            let name = format!("node {number}");
            let node = Credentials::issued_by(&authority, NodeId(number), &name, now, day);
            let directory = home.path().join(number.to_string());
            node.and_then(|node| node.write(&directory))
                .map_err(network)?;
            #[cfg(feature = "grpc")]
            super::grpc::write_certificate(&directory, home.path())?;
        }
        let mut workers = Vec::new();
        for number in 1..=WORKERS {
            let identity = home.path().join(number.to_string());
            let mut arguments = vec!["worker".into(), "--identity".into(), identity.into()];
            arguments.extend(tuning.arguments().into_iter().map(OsString::from));
            if let Some(directory) = ledgers {
                let ledger = directory.join(format!("worker-{number}.txt"));
                arguments.extend(["--ledger".into(), ledger.into()]);
            }
            workers.push(Process::start(arguments).await?);
        }
        let coordinator = node(&home.path().join("0"), tuning)?;
        let addresses: Vec<_> = workers.iter().map(|w| w.addresses[0].clone()).collect();
        for (number, address) in (1..).zip(&addresses) {
            let address = address.parse().map_err(network)?;
            let id = NodeId(number);
            coordinator.set_peer(PeerAddress::new(id, &id.to_string(), address));
        }
        let peers = addresses.join(" ");
        for worker in &mut workers {
            worker.tell(&peers).await?;
        }
        Ok(Self {
            home,
            workers,
            coordinator,
        })
    }

    /// A session whose queries run on the workers, over `transport`, with the tables of `corpus`.
    pub async fn session(
        &self,
        transport: Transport,
        corpus: &Corpus,
    ) -> Result<SessionContext, BenchError> {
        let builder = SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new())
            .with_distributed_planner()
            // Every table is worth two workers.
            .with_distributed_file_scan_config_bytes_per_partition(1 << 20)?;
        let builder = match transport {
            Transport::Quic => builder
                .with_distributed_worker_resolver(Urls(
                    (1..=WORKERS).map(|n| worker_url(NodeId(n))).collect(),
                ))
                .with_distributed_channel_resolver(self.coordinator.resolver()),
            #[cfg(feature = "grpc")]
            Transport::GrpcTls => builder
                .with_distributed_worker_resolver(Urls(self.urls(1, "https")?))
                .with_distributed_channel_resolver(super::grpc::tls(self.directory())?),
            #[cfg(feature = "grpc")]
            Transport::Grpc => {
                builder.with_distributed_worker_resolver(Urls(self.urls(2, "http")?))
            }
        };
        let context = SessionContext::from(builder.build());
        corpus.register(&context).await?;
        Ok(context)
    }

    #[cfg(feature = "grpc")]
    fn urls(&self, place: usize, scheme: &str) -> Result<Vec<Url>, BenchError> {
        self.workers
            .iter()
            .map(|worker| {
                let address = &worker.addresses[place];
                Url::parse(&format!("{scheme}://{address}")).map_err(network)
            })
            .collect()
    }

    /// Where the coordinator's certificate is.
    pub fn directory(&self) -> &Path {
        self.home.path()
    }

    /// Processor time of the workers so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.pids().map(cpu_seconds_of).sum()
    }

    /// Waits until the workers have given back what they have freed, and lets peaks of memory
    /// begin anew.
    pub async fn forget_peaks(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + SETTLED;
        let mut before = u64::MAX;
        while Instant::now() < deadline {
            let now: Result<Vec<u64>, _> = self.pids().map(resident_bytes_of).collect();
            let now = now?.into_iter().sum();
            if now >= before {
                break;
            }
            before = now;
            tokio::time::sleep(SETTLED / 10).await;
        }
        for worker in &mut self.workers {
            worker.say(FORGET).await?;
        }
        self.pids().try_for_each(forget_peak_of)
    }

    /// Ends the processes, so that they can write their ledgers.
    pub async fn stop(self) -> Result<(), BenchError> {
        for worker in self.workers {
            worker.stop().await?;
        }
        Ok(())
    }

    /// The most memory that any of the workers has had resident.
    pub fn peak_bytes(&self) -> Result<u64, BenchError> {
        let peaks: Result<Vec<u64>, _> = self.pids().map(peak_bytes_of).collect();
        Ok(peaks?.into_iter().max().unwrap_or(0))
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().filter_map(Process::id)
    }
}

struct Urls(Vec<Url>);

impl WorkerResolver for Urls {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}
