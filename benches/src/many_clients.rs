//! How many small statements a second a server answers to many connections.
//!
//! The server is the `skewer` binary in a process of its own, on a new database. Each connection
//! sends one statement after the other: 30 % insert a row, 50 % read one row by its key, 20 % group
//! some hundred rows. Several binaries take turns, so that a machine that gets slower slows all.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio_postgres::{Client, NoTls};

use crate::document::publish;
use crate::error::BenchError;
use crate::measure::median;
use crate::table::Table;

/// Many connections send small statements.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// The server's binary; several of them take turns [default: the one beside this program].
    #[arg(long)]
    binary: Vec<PathBuf>,
    /// Connections that send statements at the same time.
    #[arg(long, default_value_t = 40)]
    connections: usize,
    /// Seconds that each round measures.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds of each binary.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sends the statements as text, without preparing them.
    #[arg(long)]
    simple: bool,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// Rows of the table before the first round.
const ROWS: i64 = 200_000;

/// Keys that a grouping query reads.
const GROUPED: i64 = 500;

/// What a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Point,
    Group,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Insert, Self::Point, Self::Group];

    fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert a row",
            Self::Point => "read a row by its key",
            Self::Group => "group 500 rows",
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Insert => "INSERT INTO sale VALUES ($1, $1 % 7, 1.5, 'a note')",
            Self::Point => "SELECT note FROM sale WHERE id = $1",
            Self::Group => {
                "SELECT shop, count(*), sum(price) FROM sale WHERE id >= $1 AND id < $1 + 500 GROUP BY shop"
            }
        }
    }

    /// Draws a kind by its share.
    fn draw(random: &mut impl RngExt) -> Self {
        match random.random_range(0..10) {
            0..3 => Self::Insert,
            3..8 => Self::Point,
            _ => Self::Group,
        }
    }
}

/// One answered statement.
#[derive(Debug, Clone, Copy)]
struct Answer {
    kind: Kind,
    seconds: f64,
}

/// A server process, killed when it is dropped.
#[derive(Debug)]
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(binary: &Path, data: &Path) -> Result<Self, BenchError> {
        let mut child = Command::new(binary)
            .args([
                "serve",
                "--log",
                "json",
                "--listen",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(data)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::file(binary))?;
        let log = child.stderr.take();
        let mut lines = log.into_iter().flat_map(|log| BufReader::new(log).lines());
        let address = lines.find_map(|line| {
            let event: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
            Some(event["address"].as_str()?.to_owned())
        });
        // Reads the rest, so that the server never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        match address {
            Some(address) => Ok(Self { child, address }),
            None => Err(BenchError::Unexpected(format!(
                "{} did not say where it listens",
                binary.display()
            ))),
        }
    }

    async fn connect(&self) -> Result<Client, BenchError> {
        let (host, port) = self.address.split_once(':').unwrap_or_default();
        let url = format!("host={host} port={port} user=bench dbname=skewer");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the experiment and publishes its results.
///
/// # Errors
/// If a server does not start or refuses a statement.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut binaries = arguments.binary.clone();
    if binaries.is_empty() {
        binaries.push(std::env::current_exe()?.with_file_name("skewer"));
    }
    let mut rounds: Vec<Vec<Vec<Answer>>> = vec![Vec::new(); binaries.len()];
    for _ in 0..arguments.rounds {
        for (binary, rounds) in binaries.iter().zip(&mut rounds) {
            rounds.push(round(binary, arguments).await?);
        }
    }
    let mut text = format!(
        "{} connections, {} rounds of {} s by turns; medians of the rounds.\n",
        arguments.connections, arguments.rounds, arguments.seconds
    );
    for (binary, rounds) in binaries.iter().zip(&rounds) {
        text.push_str(&format!("\n`{}`:\n\n", binary.display()));
        text.push_str(&summary(rounds, arguments.seconds).to_string());
    }
    publish("many clients", &text, arguments.write)
}

/// All statements that one server answered in one round.
async fn round(binary: &Path, arguments: &Arguments) -> Result<Vec<Answer>, BenchError> {
    let data = tempfile::tempdir()?;
    let server = Server::start(binary, data.path())?;
    let client = server.connect().await?;
    client
        .batch_execute(&format!(
            "CREATE TABLE sale AS SELECT value AS id, value % 7 AS shop, CAST(value % 100 AS DOUBLE) AS price, \
             'a note about ' || value AS note FROM generate_series(0, {}) ORDER BY value",
            ROWS - 1
        ))
        .await?;
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut tasks = Vec::new();
    for number in 0..arguments.connections {
        let client = server.connect().await?;
        let simple = arguments.simple;
        tasks.push(tokio::spawn(connection(client, number, simple, until)));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await??);
    }
    Ok(answers)
}

/// Sends statements until the time is over.
async fn connection(
    client: Client,
    number: usize,
    simple: bool,
    until: Instant,
) -> Result<Vec<Answer>, BenchError> {
    let mut random = ChaCha8Rng::seed_from_u64(number as u64);
    let mut prepared = Vec::new();
    if !simple {
        for kind in Kind::ALL {
            prepared.push(client.prepare(kind.sql()).await?);
        }
    }
    let mut next = ROWS + number as i64 * 1_000_000;
    let mut answers = Vec::new();
    while Instant::now() < until {
        let kind = Kind::draw(&mut random);
        let key = match kind {
            Kind::Insert => {
                next += 1;
                next
            }
            Kind::Point => random.random_range(0..ROWS),
            Kind::Group => random.random_range(0..ROWS - GROUPED),
        };
        let begun = Instant::now();
        match prepared.get(kind as usize) {
            Some(statement) => {
                let rows = client.query(statement, &[&key]).await?;
                let expected = if kind == Kind::Insert { 0 } else { 1 };
                if rows.len() < expected {
                    let sql = kind.sql();
                    return Err(BenchError::Unexpected(format!("no rows for {key}: {sql}")));
                }
            }
            None => {
                let sql = kind.sql().replace("$1", &key.to_string());
                client.simple_query(&sql).await?;
            }
        }
        answers.push(Answer {
            kind,
            seconds: begun.elapsed().as_secs_f64(),
        });
    }
    Ok(answers)
}

/// Statements a second and waiting times by kind.
fn summary(rounds: &[Vec<Answer>], seconds: u64) -> Table {
    let mut table = Table::new(&["", "statements/s", "median, ms", "99 %, ms", "slowest, ms"]);
    let mut row = |what: &str, chosen: &dyn Fn(&Answer) -> bool| {
        let mut figures: [Vec<f64>; 4] = Default::default();
        for round in rounds {
            let mut times: Vec<f64> = round
                .iter()
                .filter(|a| chosen(a))
                .map(|a| a.seconds)
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| {
                let place = (times.len() as f64 * share) as usize;
                times
                    .get(place.min(times.len().saturating_sub(1)))
                    .copied()
                    .unwrap_or_default()
            };
            let values = [
                times.len() as f64 / seconds as f64,
                at(0.5) * 1e3,
                at(0.99) * 1e3,
                at(1.0) * 1e3,
            ];
            for (figure, value) in figures.iter_mut().zip(values) {
                figure.push(value);
            }
        }
        let cells = figures
            .iter()
            .map(|figure| format!("{:.1}", median(figure.iter().copied())));
        table.row([what.to_owned()].into_iter().chain(cells).collect());
    };
    row("all", &|_| true);
    for kind in Kind::ALL {
        row(kind.name(), &|answer| answer.kind == kind);
    }
    table
}
