//! What was measured, as tables.

use std::fmt;

use super::cluster::Transport;
use crate::measure::median;
use crate::table::{Table, count};

/// One query of one round.
#[derive(Debug)]
pub struct Round {
    /// Of TPC-H.
    pub number: i32,
    /// Seconds: Skewer embedded, plain DataFusion, then the transports.
    pub walls: Vec<f64>,
}

/// One shuffle.
#[derive(Debug)]
pub struct Shuffle {
    /// Over what.
    pub transport: Transport,
    /// Seconds by the clock.
    pub wall: f64,
    /// Seconds of processor time of all three processes.
    pub cpu: f64,
}

/// A shuffle to a slow consumer.
#[derive(Debug)]
pub struct Memory {
    /// Over what.
    pub transport: Transport,
    /// Rows that arrived.
    pub rows: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// The most that one of the workers had resident in the fast shuffle before.
    pub fast_peak_bytes: u64,
    /// The most that one of the workers had resident.
    pub peak_bytes: u64,
}

/// All results.
#[derive(Debug, Default)]
pub struct Results {
    /// The queries.
    pub tpch: Vec<Round>,
    /// Bytes of the rows that are shuffled.
    pub shuffled_bytes: u64,
    /// The shuffles.
    pub shuffles: Vec<Shuffle>,
    /// The shuffles to a slow consumer.
    pub memory: Vec<Memory>,
    /// Seconds of the first and the second query of fresh workers.
    pub first: Vec<(Transport, f64, f64)>,
}

impl Results {
    /// The median of what `of` says of the rounds of a query.
    fn of_query(&self, number: i32, of: impl Fn(&[f64]) -> f64) -> f64 {
        let rounds = self.tpch.iter().filter(|round| round.number == number);
        median(rounds.map(|round| of(&round.walls)))
    }

    fn tpch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut head = vec!["query", "Skewer embedded, ms", "plain DataFusion, ms"];
        let names: Vec<_> = Transport::ALL
            .iter()
            .map(|transport| format!("{}, ms", transport.name()))
            .collect();
        head.extend(names.iter().map(String::as_str));
        let ratios: Vec<_> = Transport::ALL[1..]
            .iter()
            .map(|transport| format!("QUIC ÷ {}", transport.name()))
            .collect();
        head.extend(ratios.iter().map(String::as_str));
        let mut table = Table::new(&head);
        let mut numbers: Vec<_> = self.tpch.iter().map(|round| round.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let columns = 2 + Transport::ALL.len();
        let mut sums = vec![0.0; columns];
        for &number in &numbers {
            let mut row = vec![format!("Q{number}")];
            for (column, sum) in sums.iter_mut().enumerate() {
                let wall = self.of_query(number, |walls| walls[column]);
                *sum += wall;
                row.push(format!("{:.0}", wall * 1e3));
            }
            for other in 3..columns {
                let ratio = self.of_query(number, |walls| walls[2] / walls[other]);
                row.push(format!("{ratio:.2}"));
            }
            table.row(row);
        }
        let mut row = vec!["all".to_owned()];
        row.extend(sums.iter().map(|sum| format!("{:.0}", sum * 1e3)));
        row.extend(sums[3..].iter().map(|sum| format!("{:.2}", sums[2] / sum)));
        table.row(row);
        writeln!(f, "{table}")
    }

    fn shuffles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["transport", "MB/s", "processor seconds a GB"]);
        for transport in Transport::ALL {
            let runs = || {
                self.shuffles
                    .iter()
                    .filter(|run| run.transport == transport)
            };
            let bytes = self.shuffled_bytes as f64;
            table.row(vec![
                transport.name().to_owned(),
                format!("{:.0}", bytes / 1e6 / median(runs().map(|run| run.wall))),
                format!("{:.2}", median(runs().map(|run| run.cpu)) / (bytes / 1e9)),
            ]);
        }
        writeln!(f, "{table}")
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "TPC-H at scale factor 1, medians:\n")?;
        self.tpch(f)?;
        let mega = self.shuffled_bytes as f64 / 1e6;
        writeln!(
            f,
            "A shuffle of all columns of `lineitem`, {mega:.0} MB in memory, of which about half \
             stay with their worker:\n"
        )?;
        self.shuffles(f)?;
        writeln!(
            f,
            "Four times `lineitem` to a consumer that takes 4 ms a batch:\n"
        )?;
        let mut table = Table::new(&[
            "transport",
            "rows",
            "s",
            "peak of a worker, MB",
            "of the same without a slow consumer, once, MB",
        ]);
        for run in &self.memory {
            table.row(vec![
                run.transport.name().to_owned(),
                count(run.rows as u64),
                format!("{:.1}", run.seconds),
                format!("{:.0}", run.peak_bytes as f64 / 1e6),
                format!("{:.0}", run.fast_peak_bytes as f64 / 1e6),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "TPC-H Q3 as the first and as the second query of fresh workers:\n"
        )?;
        let mut table = Table::new(&["transport", "first, ms", "second, ms", "difference, ms"]);
        for transport in Transport::ALL {
            let runs = || self.first.iter().filter(|run| run.0 == transport);
            table.row(vec![
                transport.name().to_owned(),
                format!("{:.0}", median(runs().map(|run| run.1)) * 1e3),
                format!("{:.0}", median(runs().map(|run| run.2)) * 1e3),
                format!("{:.0}", median(runs().map(|run| run.1 - run.2)) * 1e3),
            ]);
        }
        write!(f, "{table}")
    }
}
