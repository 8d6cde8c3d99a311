//! `skewer cluster`: making a cluster, and saying who takes part.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use skewer::cluster::{ClusterDirectory, ClusterOptions, IdentityError, NodeId, Revocation};

use crate::args::SqlArguments;
use crate::error::ShellError;
use crate::format::Format;
use crate::remote::Address;

/// What `skewer cluster` takes.
#[derive(Debug, Args)]
pub struct ClusterArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a cluster: its authority and the master's certificate, in the database's directory
    Init {
        /// Directory of the master's database, created if absent
        data: PathBuf,
        /// What the master is called
        #[arg(long, value_name = "NAME", default_value = "master")]
        name: String,
    },
    /// Print a token with which one machine can join as a worker
    Token {
        /// Directory of the master's database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Where workers reach the master, as host:port [default: where it has listened last]
        #[arg(long, value_name = "ADDR")]
        address: Option<String>,
        /// How long the token is good, as 30m, 24h or 7d
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime)]
        expires: Duration,
        /// Renew the certificate of the worker with this number, which has joined before
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        worker: Option<u32>,
    },
    /// Turn a worker out: its certificate is not accepted any more
    Revoke {
        /// The worker's number
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        worker: u32,
        /// Directory of the master's database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Spread what tables have over the workers that take part, and print what was moved
    Rebalance(Box<Rebalance>),
    /// List the workers that have joined
    Workers {
        /// Directory of the master's database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Rebalance {
    /// Where the master serves SQL clients, as host:port or postgresql://user@host:port; the
    /// password comes from PGPASSWORD or is asked for
    #[arg(long, value_name = "ADDR", value_parser = Address::parse)]
    connect: Address,
    /// PEM file with the server's certificate, or with one that has signed it
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Only this table, as SQL names it; may be repeated
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// How to write what was moved
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl ClusterArguments {
    /// What is to be run at the master, if that is what does it.
    pub fn as_sql(&self) -> Option<SqlArguments> {
        let Action::Rebalance(rebalance) = &self.action else {
            return None;
        };
        let Rebalance {
            connect,
            certificate,
            table,
            format,
        } = &**rebalance;
        let sql = match table.is_empty() {
            true => "REBALANCE".to_owned(),
            false => format!("REBALANCE TABLE {}", table.join(", ")),
        };
        let (connect, certificate) = (connect.clone(), certificate.clone());
        Some(SqlArguments::at_server(connect, certificate, sql, *format))
    }
}

/// A time with its unit.
fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time, as 30m, 24h or 7d are");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    match number.checked_mul(seconds) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(wrong()),
    }
}

/// Makes or changes a cluster.
pub fn run(arguments: &ClusterArguments) -> Result<(), ShellError> {
    match &arguments.action {
        Action::Init { data, name } => {
            let directory = ClusterOptions::directory_of(data);
            let cluster = ClusterDirectory::init(&directory, name, SystemTime::now())?;
            let authority = cluster.authority()?;
            let mut out = io::stdout().lock();
            writeln!(out, "cluster {}", authority.cluster())?;
            Ok(())
        }
        Action::Token {
            data,
            address,
            expires,
            worker,
        } => {
            let cluster = open(data)?;
            let address = match (address, cluster.address()) {
                (Some(address), _) => address.clone(),
                (None, Some(known)) if !is_unspecified(&known) => known,
                (None, known) => return Err(ShellError::Usage(no_address(known.as_deref()))),
            };
            let now = SystemTime::now();
            let token = match worker {
                None => cluster.token(&address, now, *expires)?,
                Some(worker) => {
                    let worker = known(&cluster, *worker)?;
                    cluster.renewal_token(worker, &address, now, *expires)?
                }
            };
            let mut out = io::stdout().lock();
            writeln!(out, "{token}")?;
            Ok(())
        }
        Action::Revoke { worker, data } => {
            let cluster = open(data)?;
            let node = known(&cluster, *worker)?;
            Ok(cluster.revocations().add(Revocation::Node(node))?)
        }
        // It is SQL.
        Action::Rebalance(_) => Ok(()),
        Action::Workers { data } => {
            let cluster = open(data)?;
            let revocations = cluster.revocations();
            let mut out = io::stdout().lock();
            for node in cluster.workers()? {
                let worker = cluster.worker(node)?;
                match revocations.check(&worker) {
                    Ok(()) => writeln!(out, "{}\t{}", node.0, worker.name)?,
                    Err(IdentityError::Revoked { .. }) => {
                        writeln!(out, "{}\t{}\trevoked", node.0, worker.name)?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }
}

/// The cluster of the database in `data`.
fn open(data: &std::path::Path) -> Result<ClusterDirectory, ShellError> {
    let directory = ClusterOptions::directory_of(data);
    if !directory.exists() {
        let data = data.display();
        return Err(ShellError::Usage(format!(
            "{data} has no cluster: make one with `skewer cluster init {data}`"
        )));
    }
    Ok(ClusterDirectory::open(&directory)?)
}

/// The worker with this number.
fn known(cluster: &ClusterDirectory, worker: u32) -> Result<NodeId, ShellError> {
    let node = NodeId(worker);
    match cluster.workers()?.contains(&node) {
        true => Ok(node),
        false => Err(ShellError::Usage(format!("there is no {node}"))),
    }
}

fn is_unspecified(address: &str) -> bool {
    let address = address.parse::<std::net::SocketAddr>();
    address.is_ok_and(|address| address.ip().is_unspecified())
}

fn no_address(known: Option<&str>) -> String {
    match known {
        Some(known) => format!(
            "the master listens at {known}, which leads workers nowhere: \
             say with --address HOST:PORT where they reach it"
        ),
        None => "the master has not listened yet: start it with `skewer serve --cluster-listen`, \
                 or say with --address HOST:PORT where workers will reach it"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_has_a_unit() {
        assert_eq!(lifetime("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(lifetime("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(lifetime("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        for wrong in [
            "",
            "h",
            "24",
            "0h",
            "-1h",
            "1 h",
            "99999999999999999999d",
            "1ü",
        ] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
