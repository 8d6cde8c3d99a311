//! What was measured, as tables.

use std::fmt;

use super::cancellation::Cancellation;
use super::cluster::Transport;
use crate::measure::median;
use crate::table::{Table, count};

/// One query of one round.
#[derive(Debug)]
pub struct Round {
    /// Of TPC-H.
    pub number: i32,
    /// Seconds of each variant.
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
    /// The most that one of the workers had resident in the shuffle before, which is only counted.
    pub fast_peak_bytes: u64,
    /// The most that one of the workers had resident.
    pub peak_bytes: u64,
}

/// Queries of fresh processes.
#[derive(Debug)]
pub struct First {
    /// Of whom.
    pub name: &'static str,
    /// Seconds of the first.
    pub first: f64,
    /// Seconds of the second.
    pub second: f64,
}

/// All results.
#[derive(Debug, Default)]
pub struct Results {
    /// Who ran the queries: Skewer embedded first.
    pub variants: Vec<&'static str>,
    /// The queries.
    pub tpch: Vec<Round>,
    /// Bytes of the rows that are shuffled.
    pub shuffled_bytes: u64,
    /// The shuffles.
    pub shuffles: Vec<Shuffle>,
    /// The shuffles to a slow consumer.
    pub memory: Vec<Memory>,
    /// The first and the second query of fresh processes.
    pub first: Vec<First>,
    /// Queries that were cancelled.
    pub cancellations: Vec<Cancellation>,
}

impl Results {
    /// The median of what `of` says of the rounds of a query.
    fn of_query(&self, number: i32, of: impl Fn(&[f64]) -> f64) -> f64 {
        let rounds = self.tpch.iter().filter(|round| round.number == number);
        median(rounds.map(|round| of(&round.walls)))
    }

    fn tpch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "TPC-H at scale factor 1, medians:\n")?;
        let ours = Transport::Quic.name();
        let ours = self.variants.iter().position(|name| *name == ours);
        let ours = ours.unwrap_or_default();
        let others = ours + 1..self.variants.len();
        let mut head = vec!["query".to_owned()];
        head.extend(self.variants.iter().map(|name| format!("{name}, ms")));
        head.extend(
            others
                .clone()
                .map(|n| format!("QUIC ÷ {}", self.variants[n])),
        );
        let head: Vec<_> = head.iter().map(String::as_str).collect();
        let mut table = Table::new(&head);
        let mut numbers: Vec<_> = self.tpch.iter().map(|round| round.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut sums = vec![0.0; self.variants.len()];
        for &number in &numbers {
            let mut row = vec![format!("Q{number}")];
            for (column, sum) in sums.iter_mut().enumerate() {
                let wall = self.of_query(number, |walls| walls[column]);
                *sum += wall;
                row.push(format!("{:.0}", wall * 1e3));
            }
            for other in others.clone() {
                let ratio = self.of_query(number, |walls| walls[ours] / walls[other]);
                row.push(format!("{ratio:.2}"));
            }
            table.row(row);
        }
        let mut row = vec!["all".to_owned()];
        row.extend(sums.iter().map(|sum| format!("{:.0}", sum * 1e3)));
        row.extend(others.map(|other| format!("{:.2}", sums[ours] / sums[other])));
        table.row(row);
        writeln!(f, "{table}")
    }

    fn shuffles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = self.shuffled_bytes as f64 / 1e6;
        writeln!(
            f,
            "A shuffle of all columns of `lineitem`, {mega:.0} MB in memory, of which about half \
             stay with their worker:\n"
        )?;
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

    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Four times `lineitem` to a consumer that takes 4 ms a batch:\n"
        )?;
        let mut table = Table::new(&[
            "transport",
            "rows",
            "s",
            "peak of a worker, MB",
            "in a shuffle that is only counted, before, MB",
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
        writeln!(f, "{table}")
    }

    fn first(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "TPC-H Q3 as the first and as the second query of fresh workers; of the product every \
             process is fresh, of the others the coordinator is not, and has read the files' ends:\n"
        )?;
        let mut table = Table::new(&["processes", "first, ms", "second, ms", "difference, ms"]);
        let mut names: Vec<&str> = Vec::new();
        for run in &self.first {
            if !names.contains(&run.name) {
                names.push(run.name);
            }
        }
        for name in names {
            let of = |of: fn(&First) -> f64| {
                let runs = self.first.iter().filter(|run| run.name == name);
                format!("{:.0}", median(runs.map(of)) * 1e3)
            };
            table.row(vec![
                name.to_owned(),
                of(|run| run.first),
                of(|run| run.second),
                of(|run| run.first - run.second),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn cancellations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.cancellations.len();
        writeln!(
            f,
            "A query of `skewer serve` that shuffles `lineitem` twice, cancelled {runs} times \
             through PostgreSQL's protocol; after the request to cancel:\n"
        )?;
        let mut table = Table::new(&["", "median, ms", "worst, ms"]);
        let mut row = |name: &str, of: fn(&Cancellation) -> f64| {
            let times: Vec<f64> = self.cancellations.iter().map(of).collect();
            let worst = times.iter().copied().fold(0.0, f64::max);
            table.row(vec![
                name.to_owned(),
                format!("{:.0}", median(times) * 1e3),
                format!("{:.0}", worst * 1e3),
            ]);
        };
        row("the client has its answer", |run| run.answered);
        row("no worker computes any more", |run| run.computed);
        row("no worker uses a processor any more", |run| run.stopped);
        writeln!(f, "{table}")
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tpch.is_empty() {
            self.tpch(f)?;
        }
        if !self.shuffles.is_empty() {
            self.shuffles(f)?;
        }
        if !self.memory.is_empty() {
            self.memory(f)?;
        }
        if !self.first.is_empty() {
            self.first(f)?;
        }
        if !self.cancellations.is_empty() {
            self.cancellations(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_divided_by_each_that_comes_after_it() {
        let results = Results {
            variants: vec!["Skewer embedded", Transport::Quic.name(), "another"],
            tpch: vec![Round {
                number: 3,
                walls: vec![0.1, 0.2, 0.4],
            }],
            ..Results::default()
        };
        let text = results.to_string();
        assert!(text.contains("| QUIC ÷ another |"), "{text}");
        assert!(text.contains("| Q3 | 100 | 200 | 400 | 0.50 |"), "{text}");
        assert!(text.contains("| all | 100 | 200 | 400 | 0.50 |"), "{text}");
        assert!(!text.contains("shuffle"), "only what was measured: {text}");
    }

    #[test]
    fn a_cancelled_query_has_a_median_and_a_worst() {
        let cancellation = |stopped| Cancellation {
            answered: stopped / 4.0,
            computed: stopped / 2.0,
            stopped,
        };
        let results = Results {
            cancellations: [0.02, 0.3, 0.04].map(cancellation).to_vec(),
            ..Results::default()
        };
        let text = results.to_string();
        for row in [
            "| the client has its answer | 10 | 75 |",
            "| no worker computes any more | 20 | 150 |",
            "| no worker uses a processor any more | 40 | 300 |",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}
