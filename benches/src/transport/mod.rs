//! The shuffle over QUIC against `datafusion-distributed`'s own over gRPC, and against Ballista.
//!
//! Two worker processes, and this one as coordinator. Everything but the transport is the same:
//! planner, tasks, files, partitions. Ballista has a planner and a shuffle of its own; the files
//! are the same, and it has as many places for tasks and partitions. Runs are interleaved: each
//! round runs every variant.
//!
//! * the 22 queries of TPC-H at scale factor 1;
//! * a shuffle of all columns of `lineitem` by its order's key, with processor time;
//! * the same of four times `lineitem`, to a consumer that is slow: memory of the workers;
//! * the first query of fresh processes, also of the product's own: `skewer serve` and workers;
//! * how soon the product's workers stop when a query is cancelled.
//!
//! gRPC is there with the cargo feature `grpc`, in plaintext as `datafusion-distributed` ships it,
//! and with mutual TLS, which QUIC always has; Ballista with the feature `ballista`.
//!
//! Modules:
//!
//! * [`cluster`]: worker processes, and sessions that use them
//! * [`worker`]: a worker process
//! * [`process`]: processes of this program
//! * [`product`]: processes of the product
//! * [`cancellation`]: cancelling a query of theirs
//! * [`plans`]: physical plans that shuffle
//! * [`results`]: what was measured, as tables
//! * `grpc`: the other transport
//! * `ballista`: scheduler, executors, and a session that uses them

#[cfg(feature = "ballista")]
pub mod ballista;
pub mod cancellation;
pub mod cluster;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod plans;
pub mod process;
pub mod product;
pub mod results;
pub mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use skewer::Session;

use crate::allocator::give_back_as_workers_do;
use crate::corpus::Corpus;
use crate::document::publish;
use crate::error::BenchError;
use crate::measure::timed;
use crate::workload::{CorpusName, tpch_query};
use cluster::{Cluster, Transport};
use product::Installation;
use results::{First, Memory, Results, Round, Shuffle};

/// Compares the shuffle over QUIC with that over gRPC, and with Ballista.
#[derive(Debug, Parser)]
pub struct Arguments {
    #[command(subcommand)]
    process: Option<Process>,
    /// Rounds of the TPC-H queries and of the shuffle.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Fresh clusters, for the first query.
    #[arg(long, default_value_t = 3)]
    fresh: usize,
    /// Queries that are cancelled.
    #[arg(long, default_value_t = 20)]
    cancellations: u32,
    /// Only these queries of TPC-H.
    #[arg(long, value_delimiter = ',')]
    queries: Vec<i32>,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// The `skewer` binary [default: the one beside this program]
    #[arg(long)]
    skewer: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Let the workers that have a slow consumer write into this directory where their memory was
    /// when it was most, one file a worker, of the last transport; they are slower.
    #[arg(long)]
    ledgers: Option<PathBuf>,
    #[command(flatten)]
    tuning: worker::Tuning,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The queries of TPC-H
    Tpch,
    /// A raw shuffle
    Shuffle,
    /// A slow consumer
    Memory,
    /// The first query of fresh processes
    First,
    /// Cancelling a query
    Cancel,
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// The product's cluster, with the tables of `corpus`.
    async fn product(&self, corpus: &Corpus) -> Result<Installation, BenchError> {
        let program = match &self.skewer {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("skewer"),
        };
        Installation::load(&program, corpus).await
    }
}

/// Processes that the experiment starts.
#[derive(Debug, Subcommand)]
enum Process {
    /// A worker
    #[command(hide = true)]
    Worker(worker::Arguments),
    /// Ballista's scheduler
    #[cfg(feature = "ballista")]
    #[command(hide = true)]
    BallistaScheduler,
    /// One of Ballista's executors
    #[cfg(feature = "ballista")]
    #[command(hide = true)]
    BallistaExecutor(ballista::ExecutorArguments),
}

/// Milliseconds that the slow consumer takes for a batch.
const SLOW: Duration = Duration::from_millis(4);

/// How often `lineitem` is sent to the slow consumer.
const COPIES: usize = 4;

/// Runs the experiment and publishes its results, or is one of its processes.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if let Some(Process::Worker(_)) = arguments.process {
        give_back_as_workers_do();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(async {
        match &arguments.process {
            Some(Process::Worker(worker)) => worker::run(worker).await,
            #[cfg(feature = "ballista")]
            Some(Process::BallistaScheduler) => ballista::schedule().await,
            #[cfg(feature = "ballista")]
            Some(Process::BallistaExecutor(executor)) => ballista::execute(executor).await,
            None => experiment(arguments).await,
        }
    });
    // A thread may still wait for input.
    runtime.shutdown_background();
    outcome
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let name = CorpusName::Tpch;
    let corpus = Corpus::open(&arguments.data, name.directory(), || name.generate()).await?;
    let embedded = corpus.database.session();
    embedded.sql("SET profile.level = 'off'").await?;
    let cluster = Cluster::start(arguments.tuning, None).await?;
    let mut variants = vec![Variant {
        name: "plain DataFusion",
        transport: None,
        context: corpus.plain().await?,
    }];
    for transport in Transport::ALL {
        variants.push(Variant {
            name: transport.name(),
            transport: Some(transport),
            context: cluster.session(transport, &corpus).await?,
        });
    }
    let mut results = Results::default();
    if arguments.has(Part::Tpch) {
        #[cfg(feature = "ballista")]
        let ballista = ballista::Ballista::start().await?;
        #[cfg(feature = "ballista")]
        variants.push(Variant {
            name: ballista::NAME,
            transport: None,
            context: ballista.session(&corpus).await?,
        });
        tpch(arguments, &embedded, &variants, &mut results).await?;
    }
    if arguments.has(Part::Shuffle) {
        shuffle(arguments, &cluster, &variants, &mut results).await?;
    }
    drop(cluster);
    if arguments.has(Part::Memory) {
        slow_consumer(arguments, &corpus, &mut results).await?;
    }
    if arguments.has(Part::First) || arguments.has(Part::Cancel) {
        let product = arguments.product(&corpus).await?;
        if arguments.has(Part::First) {
            first_query(arguments, &corpus, &product, &mut results).await?;
        }
        if arguments.has(Part::Cancel) {
            let running = product.start().await?;
            results.cancellations =
                cancellation::measure(&running, arguments.cancellations).await?;
            running.stop().await?;
        }
    }
    publish("transport", &results.to_string(), arguments.write)
}

/// What runs the queries, beside the database itself.
struct Variant {
    name: &'static str,
    transport: Option<Transport>,
    context: SessionContext,
}

async fn tpch(
    arguments: &Arguments,
    embedded: &Session,
    variants: &[Variant],
    results: &mut Results,
) -> Result<(), BenchError> {
    let all: Vec<i32> = (1..=22).collect();
    let numbers = match arguments.queries.is_empty() {
        true => &all,
        false => &arguments.queries,
    };
    results.variants = vec!["Skewer embedded"];
    results.variants.extend(variants.iter().map(|v| v.name));
    // The first round warms up.
    for round in 0..=arguments.rounds {
        for &number in numbers {
            let query = tpch_query(number)?;
            let count = results.variants.len();
            let mut walls = vec![0.0; count];
            let mut rows = None;
            // Forwards and backwards by turns: who runs first in this process faults in memory that the
            // next one there finds.
            for which in (0..count).map(|place| {
                if round % 2 == 0 {
                    place
                } else {
                    count - 1 - place
                }
            }) {
                let (given, took) = match which.checked_sub(1) {
                    None => timed(rows_of_skewer(embedded, &query)).await?,
                    Some(n) => timed(rows_of(&variants[n].context, &query)).await?,
                };
                let rows = *rows.get_or_insert(given);
                if given != rows {
                    return Err(BenchError::Unexpected(format!(
                        "TPC-H Q{number} has {given} rows by {}, and {rows} by another",
                        results.variants[which]
                    )));
                }
                walls[which] = took.wall;
            }
            if round > 0 {
                results.tpch.push(Round { number, walls });
            }
        }
    }
    Ok(())
}

/// Runs a query whose statements are split by semicolons: the second is the query if there are
/// several, as a view is made for it.
async fn rows_of(context: &SessionContext, sql: &[String]) -> Result<usize, BenchError> {
    let mut rows = 0;
    for statement in sql {
        let plan = context.sql(statement).await?.create_physical_plan().await?;
        let stream = execute_stream(plan, context.task_ctx())?;
        rows += drain(stream, Duration::ZERO).await?;
    }
    Ok(rows)
}

async fn rows_of_skewer(session: &Session, sql: &[String]) -> Result<usize, BenchError> {
    let mut rows = 0;
    for statement in sql {
        let batches = session.sql(statement).await?.collect().await?;
        let counted = statement.trim_start().starts_with(['s', 'w']);
        rows += batches
            .iter()
            .filter(|_| counted)
            .map(|batch| batch.num_rows())
            .sum::<usize>();
    }
    Ok(rows)
}

/// Reads a stream to its end, with a pause after each batch.
async fn drain(
    mut stream: SendableRecordBatchStream,
    pause: Duration,
) -> Result<usize, DataFusionError> {
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(rows)
}

async fn shuffle(
    arguments: &Arguments,
    cluster: &Cluster,
    variants: &[Variant],
    results: &mut Results,
) -> Result<(), BenchError> {
    results.shuffled_bytes = plans::bytes_of_lineitem(&variants[0].context).await?;
    for round in 0..=arguments.rounds {
        for Variant {
            transport, context, ..
        } in variants
        {
            let Some(transport) = transport else { continue };
            let plan = plans::counted_shuffle(context).await?;
            let before = cluster.cpu_seconds();
            let (rows, took) = timed(async {
                let stream = execute_stream(plan, context.task_ctx())?;
                drain(stream, Duration::ZERO).await
            })
            .await?;
            if rows != 1 {
                return Err(BenchError::Unexpected(format!("{rows} counts")));
            }
            let cpu = took.cpu + cluster.cpu_seconds() - before;
            if round > 0 {
                results.shuffles.push(Shuffle {
                    transport: *transport,
                    wall: took.wall,
                    cpu,
                });
            }
        }
    }
    Ok(())
}

/// Fresh workers for each transport: what one leaves behind is not the other's.
async fn slow_consumer(
    arguments: &Arguments,
    corpus: &Corpus,
    results: &mut Results,
) -> Result<(), BenchError> {
    for transport in Transport::ALL {
        let mut cluster = Cluster::start(arguments.tuning, arguments.ledgers.as_deref()).await?;
        let context = cluster.session(transport, corpus).await?;
        // Connections, code and footers are there before memory is looked at.
        let warm = plans::counted_shuffle(&context).await?;
        drain(execute_stream(warm, context.task_ctx())?, Duration::ZERO).await?;
        let fast_peak_bytes = cluster.peak_bytes()?;
        cluster.forget_peaks().await?;
        let plan = plans::large_shuffle(&context, COPIES).await?;
        let stream = execute_stream(plan, context.task_ctx())?;
        let started = Instant::now();
        let rows = drain(stream, SLOW).await?;
        results.memory.push(Memory {
            transport,
            rows,
            seconds: started.elapsed().as_secs_f64(),
            fast_peak_bytes,
            peak_bytes: cluster.peak_bytes()?,
        });
        cluster.stop().await?;
    }
    Ok(())
}

async fn first_query(
    arguments: &Arguments,
    corpus: &Corpus,
    product: &Installation,
    results: &mut Results,
) -> Result<(), BenchError> {
    let query = tpch_query(3)?;
    for _ in 0..arguments.fresh {
        for transport in Transport::ALL {
            let cluster = Cluster::start(arguments.tuning, None).await?;
            let context = cluster.session(transport, corpus).await?;
            let run = || rows_of(&context, &query);
            results.first.push(first(transport.name(), run).await?);
        }
        #[cfg(feature = "ballista")]
        {
            let ballista = ballista::Ballista::start().await?;
            let context = ballista.session(corpus).await?;
            let run = || rows_of(&context, &query);
            results.first.push(first(ballista::NAME, run).await?);
        }
        let running = product.start().await?;
        let run = || running.rows(&query);
        results.first.push(first(product::NAME, run).await?);
        running.stop().await?;
    }
    Ok(())
}

/// The first and the second run of a query.
async fn first<F: Future<Output = Result<usize, BenchError>>>(
    name: &'static str,
    run: impl Fn() -> F,
) -> Result<First, BenchError> {
    let (rows, first) = timed(run()).await?;
    let (again, second) = timed(run()).await?;
    if rows == 0 || rows != again {
        return Err(BenchError::Unexpected(format!(
            "TPC-H Q3 has {rows} rows by {name}, and then {again}"
        )));
    }
    Ok(First {
        name,
        first: first.wall,
        second: second.wall,
    })
}
