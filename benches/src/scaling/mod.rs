//! What grows with the number of workers, simulated and measured for up to a thousand.
//!
//! * [`membership`]: heartbeats, arrivals and losses, over a simulated network
//! * [`connections`]: memory and processor time of real connections and streams
//! * [`plans`]: what is sent before a query's first row, and streams of a shuffle
//! * [`sys`]: what a query leaves in schema `sys`
//! * [`results`]: all of it as tables

pub mod connections;
pub mod membership;
pub mod plans;
pub mod results;
pub mod sys;

use clap::Parser;
use skewer_net::NetOptions;
use skewer_profiling::Level;

use crate::document::publish_in;
use crate::error::BenchError;
use membership::Network;
use plans::{QUERIES, Size};
use results::{Query, Results};

/// Shows what grows with the number of workers.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// How many workers there are.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    workers: Vec<u32>,
    /// Partitions of each worker, usually its cores.
    #[arg(long, default_value_t = 8)]
    partitions: usize,
    /// Segments of each table on each worker.
    #[arg(long, default_value_t = 4)]
    segments: u64,
    /// Rows of each table on each worker.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Real nodes that are connected with each other, to be measured.
    #[arg(long, default_value_t = 32)]
    nodes: u32,
    /// Questions that they ask each other.
    #[arg(long, default_value_t = 2000)]
    calls: u32,
    /// Streams that are open at a time.
    #[arg(long, default_value_t = 10_000)]
    streams: u32,
    /// The largest UDP payload that they try. Workers of a large cluster are on different hosts,
    /// and have Ethernet's; those on one machine have larger packets.
    #[arg(long, default_value_t = NetOptions::default().largest_payload)]
    largest_payload: u16,
    /// Leave out plans and schema `sys`, which take longest.
    #[arg(long, conflicts_with = "write")]
    without_queries: bool,
    /// Write the results into docs/scaling.md.
    #[arg(long)]
    write: bool,
}

/// Simulates, measures, and publishes what was found.
///
/// # Errors
/// If something of it fails.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Runtime::new()?;
    let results = runtime.block_on(results(arguments))?;
    publish_in(
        "scaling.md",
        "scaling",
        &results.to_string(),
        arguments.write,
    )
}

async fn results(arguments: &Arguments) -> Result<Results, BenchError> {
    let connections = connections::measure(
        arguments.nodes,
        arguments.calls,
        arguments.streams,
        arguments.largest_payload,
    )
    .await?;
    let network = Network {
        // A question and its answer are two messages, of which each end has its half.
        message_cost: std::time::Duration::from_secs_f64(connections.call_seconds / 4.0),
        ..Network::default()
    };
    let mut results = Results {
        connections,
        network,
        membership: Vec::new(),
        queries: Vec::new(),
    };
    for &workers in &arguments.workers {
        results
            .membership
            .push(membership::simulate(workers, network)?);
        let size = Size {
            workers,
            partitions: arguments.partitions,
            segments: arguments.segments,
            rows: arguments.rows,
        };
        let queries = QUERIES.iter().filter(|_| !arguments.without_queries);
        for (name, sql) in queries {
            let mut levels = Vec::new();
            for level in [Level::Counters, Level::Calls, Level::Records] {
                let (plan, recorder) = plans::simulate(size, sql, level).await?;
                let volume = sys::simulate(&plan, &recorder).await?;
                levels.push((level, plan, volume));
            }
            results.queries.push(Query { name, levels });
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_simulation_of_a_small_cluster_says_something_about_everything() {
        let arguments = Arguments::parse_from([
            "scaling",
            "--workers",
            "1,5",
            "--partitions",
            "2",
            "--rows",
            "50000",
            "--nodes",
            "3",
            "--calls",
            "10",
            "--streams",
            "300",
        ]);
        let text = results(&arguments).await.unwrap().to_string();
        for title in ["Membership", "Connections", "Plans", "Schema `sys`"] {
            assert!(text.contains(title), "{text}");
        }
        let numbers = text
            .lines()
            .filter(|line| line.starts_with("| 5 |"))
            .count();
        assert!(numbers >= 5, "{text}");
    }
}
