//! Ballista: a scheduler and two executors, each a process, as they are shipped.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use clap::Args;
use datafusion::arrow::datatypes::{DataType, Fields, Schema};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::cluster::WORKERS;
use super::process::{Process, READY};
use crate::corpus::Corpus;
use crate::error::BenchError;

/// How results call it.
pub const NAME: &str = "Ballista, plaintext";

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// How often an executor looks whether it is registered.
const LOOK: Duration = Duration::from_millis(5);

/// A scheduler and its executors. They end with this.
#[derive(Debug)]
pub struct Ballista {
    scheduler: Process,
    _executors: Vec<Process>,
    /// What executors write for each other.
    _home: TempDir,
}

/// What an executor process is told.
#[derive(Debug, Args)]
pub struct ExecutorArguments {
    /// Where the scheduler listens.
    #[arg(long)]
    scheduler: SocketAddr,
    /// Where it writes what it shuffles.
    #[arg(long)]
    directory: PathBuf,
}

impl Ballista {
    /// Starts the processes and waits until the executors are registered.
    pub async fn start() -> Result<Self, BenchError> {
        let home = tempfile::tempdir()?;
        let scheduler = Process::start(["ballista-scheduler"]).await?;
        let mut executors = Vec::new();
        for number in 1..=WORKERS {
            let directory = home.path().join(number.to_string());
            std::fs::create_dir(&directory).map_err(BenchError::file(&directory))?;
            let arguments = [
                "ballista-executor".as_ref(),
                "--scheduler".as_ref(),
                scheduler.addresses[0].as_ref(),
                "--directory".as_ref(),
                directory.as_os_str(),
            ];
            executors.push(Process::start(arguments).await?);
        }
        Ok(Self {
            scheduler,
            _executors: executors,
            _home: home,
        })
    }

    /// A session whose queries run on the executors, with the tables of `corpus`. It has as many
    /// partitions as the workers of the others have together.
    pub async fn session(&self, corpus: &Corpus) -> Result<SessionContext, BenchError> {
        let partitions = WORKERS as usize * SessionConfig::new().target_partitions();
        let config = SessionConfig::new_with_ballista().with_target_partitions(partitions);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .build();
        let url = format!("df://{}", self.scheduler.addresses[0]);
        let context = SessionContext::remote_with_state(&url, state).await?;
        for (table, directory) in corpus.tables() {
            let directory = format!("{}/", directory.display());
            let options = ParquetReadOptions::default();
            let read = context.read_parquet(&directory, options.clone()).await?;
            let schema = without_views(read.schema().as_arrow());
            context
                .register_parquet(table, &directory, options.schema(&schema))
                .await?;
        }
        Ok(context)
    }
}

/// Strings instead of views of them, which the files say that they have: with each few rows of a
/// result Ballista would send all that its views point into.
fn without_views(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    });
    Schema::new(fields.collect::<Fields>())
}

/// A scheduler process: prints where it listens, and serves until its input ends.
pub async fn schedule() -> Result<(), BenchError> {
    let listener = TcpListener::bind((HERE, 0)).await?;
    let address = listener.local_addr()?;
    let config = SchedulerConfig::default()
        .with_hostname(HERE.to_string())
        .with_port(address.port());
    let cluster = BallistaCluster::new_from_config(&config).await;
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(
        cluster.map_err(refused)?,
        Arc::new(config),
    );
    let scheduler = scheduler.await.map_err(refused)?;
    writeln!(std::io::stdout(), "{address}")?;
    tokio::select! {
        served = start_grpc_service_with_listener(listener, scheduler) => served.map_err(refused),
        ended = end_of_input() => ended,
    }
}

/// An executor process: says when it is registered, and runs tasks until its input ends. It has as
/// many places for tasks as a worker of the others has threads.
pub async fn execute(arguments: &ExecutorArguments) -> Result<(), BenchError> {
    let (port, grpc_port) = free_ports().await?;
    let config = ExecutorProcessConfig {
        bind_host: HERE.to_string(),
        external_host: Some(HERE.to_string()),
        port,
        grpc_port,
        scheduler_host: arguments.scheduler.ip().to_string(),
        scheduler_port: arguments.scheduler.port(),
        work_dir: Some(arguments.directory.display().to_string()),
        ..ExecutorProcessConfig::default()
    };
    let health = config.health.clone();
    let ready = async {
        // The scheduler knows it, and others can fetch from it.
        while !health.is_ready() || TcpStream::connect((HERE, port)).await.is_err() {
            tokio::time::sleep(LOOK).await;
        }
        writeln!(std::io::stdout(), "{READY}")?;
        end_of_input().await
    };
    tokio::select! {
        served = start_executor_process(Arc::new(config)) => served.map_err(refused),
        ended = ready => ended,
    }
}

/// Two ports that nobody has: an executor wants to know them before it listens.
async fn free_ports() -> Result<(u16, u16), BenchError> {
    let (one, two) = (
        TcpListener::bind((HERE, 0)).await?,
        TcpListener::bind((HERE, 0)).await?,
    );
    Ok((one.local_addr()?.port(), two.local_addr()?.port()))
}

/// Whoever started the process is gone when its input ends.
async fn end_of_input() -> Result<(), BenchError> {
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn refused(error: impl std::fmt::Display) -> BenchError {
    BenchError::Unexpected(format!("Ballista: {error}"))
}
