//! What a comparison measured, as tables.

use std::fmt;

use serde_json::{Value, json};

use super::process::Contender;
use crate::measure::{Took, median};
use crate::table::Table;

/// Of no run at all.
const NONE: Took = Took {
    wall: f64::NAN,
    cpu: f64::NAN,
};

/// What loading took.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// Until everything is on disk.
    pub took: Took,
    /// Bytes of the database's files afterwards.
    pub bytes: u64,
    /// The most memory, in bytes, that the process has had.
    pub peak: u64,
}

/// The runs of one query by one system.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// The first run.
    pub cold: Option<Took>,
    /// Those after it.
    pub hot: Vec<Took>,
    /// Rows of the answer.
    pub rows: u64,
    /// Why it has no answer, or stopped giving any.
    pub error: Option<String>,
    /// What differs between its answer and that of the first system which has one.
    pub differs: Option<String>,
    /// The most memory, in bytes, that the process has had.
    pub peak: u64,
}

impl Runs {
    /// The medians of the hot runs; NaN of none.
    fn hot(&self) -> Took {
        if self.error.is_some() {
            return NONE;
        }
        Took {
            wall: median(self.hot.iter().map(|took| took.wall)),
            cpu: median(self.hot.iter().map(|took| took.cpu)),
        }
    }

    fn cold(&self) -> Took {
        self.cold.unwrap_or(NONE)
    }
}

/// The runs of one query by all systems, in their order.
#[derive(Debug, Clone)]
pub struct QueryRuns {
    /// The query's name.
    pub name: String,
    /// The measurements of each system.
    pub runs: Vec<Runs>,
}

/// Everything that a comparison measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The systems.
    pub names: Vec<String>,
    /// What loading took, of those that were loaded.
    pub loaded: Vec<Option<Loaded>>,
    /// The queries.
    pub queries: Vec<QueryRuns>,
    /// Hot runs of each query.
    pub rounds: usize,
}

/// What is compared of two systems.
#[derive(Clone, Copy)]
enum Figure {
    Hot,
    Cpu,
    Cold,
}

impl Figure {
    const ALL: [Self; 3] = [Self::Hot, Self::Cpu, Self::Cold];

    fn title(self) -> &'static str {
        match self {
            Self::Hot => "hot, wall",
            Self::Cpu => "hot, processor",
            Self::Cold => "cold, wall",
        }
    }

    /// Seconds.
    fn value(self, runs: &Runs) -> f64 {
        match self {
            Self::Hot => runs.hot().wall,
            Self::Cpu => runs.hot().cpu,
            Self::Cold => runs.cold().wall,
        }
    }
}

/// How one system compares with another.
#[derive(Debug, Clone, PartialEq)]
struct Ratio {
    /// Seconds of both over all queries that both answer.
    sums: (f64, f64),
    geometric_mean: f64,
    /// The query in which the first is slowest compared with the second, and that in which it is fastest.
    worst: (f64, String),
    best: (f64, String),
    won: usize,
    queries: usize,
}

impl Ratio {
    /// Of pairs of seconds by query; `None` if there are none.
    fn new(pairs: impl IntoIterator<Item = (String, f64, f64)>) -> Option<Self> {
        let mut ratio: Option<Self> = None;
        let mut logarithms = 0.0;
        for (name, one, other) in pairs {
            if one.is_nan() || other.is_nan() || other <= 0.0 || one <= 0.0 {
                continue;
            }
            let here = one / other;
            let so_far = ratio.get_or_insert_with(|| Self {
                sums: (0.0, 0.0),
                geometric_mean: f64::NAN,
                worst: (here, name.clone()),
                best: (here, name.clone()),
                won: 0,
                queries: 0,
            });
            so_far.sums = (so_far.sums.0 + one, so_far.sums.1 + other);
            so_far.queries += 1;
            so_far.won += usize::from(here < 1.0);
            if here > so_far.worst.0 {
                so_far.worst = (here, name.clone());
            }
            if here < so_far.best.0 {
                so_far.best = (here, name);
            }
            logarithms += here.ln();
            so_far.geometric_mean = (logarithms / so_far.queries as f64).exp();
        }
        ratio
    }
}

/// Milliseconds, or a dash.
fn milliseconds(seconds: f64) -> String {
    if seconds.is_nan() {
        "–".to_owned()
    } else if seconds < 0.01 {
        format!("{:.1}", seconds * 1e3)
    } else {
        format!("{:.0}", seconds * 1e3)
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

fn quotient(one: f64, other: f64) -> String {
    let quotient = one / other;
    if quotient.is_finite() {
        format!("{quotient:.2}")
    } else {
        "–".to_owned()
    }
}

/// One query in one line, while a comparison runs.
pub fn line(query: &QueryRuns, contenders: &[Contender]) -> String {
    let mut text = query.name.clone();
    for (runs, contender) in query.runs.iter().zip(contenders) {
        text.push_str(&format!(
            "  {}: {}",
            contender.name,
            milliseconds(runs.hot().wall)
        ));
        if let Some(error) = &runs.error {
            text.push_str(&format!(" ({error})"));
        }
        if let Some(difference) = &runs.differs {
            text.push_str(&format!(" (another answer: {difference})"));
        }
    }
    text
}

impl Measured {
    fn ratio(&self, figure: Figure, other: usize) -> Option<Ratio> {
        Ratio::new(self.queries.iter().map(|query| {
            let value = |place: usize| figure.value(&query.runs[place]);
            (query.name.clone(), value(0), value(other))
        }))
    }

    /// The first system against each of the others.
    fn summary(&self) -> Table {
        let mut table = Table::new(&[
            "",
            "",
            "queries",
            "sum, ms",
            "sum of the other, ms",
            "ratio of sums",
            "geometric mean",
            "worst",
            "best",
            "won",
        ]);
        for (other, name) in self.names.iter().enumerate().skip(1) {
            for figure in Figure::ALL {
                let Some(ratio) = self.ratio(figure, other) else {
                    continue;
                };
                table.row(vec![
                    format!("{} ÷ {name}", self.names[0]),
                    figure.title().to_owned(),
                    ratio.queries.to_string(),
                    milliseconds(ratio.sums.0),
                    milliseconds(ratio.sums.1),
                    quotient(ratio.sums.0, ratio.sums.1),
                    format!("{:.2}", ratio.geometric_mean),
                    format!("{:.2} ({})", ratio.worst.0, ratio.worst.1),
                    format!("{:.2} ({})", ratio.best.0, ratio.best.1),
                    format!("{} of {}", ratio.won, ratio.queries),
                ]);
            }
        }
        table
    }

    fn by_query(&self) -> Table {
        let mut head = vec!["query".to_owned()];
        for name in &self.names {
            head.extend(["cold", "hot", "processor"].map(|figure| format!("{name}, {figure}, ms")));
        }
        for name in self.names.iter().skip(1) {
            head.push(format!("÷ {name}, hot"));
            head.push(format!("÷ {name}, processor"));
        }
        let head: Vec<_> = head.iter().map(String::as_str).collect();
        let mut table = Table::new(&head);
        for query in &self.queries {
            let mut row = vec![query.name.clone()];
            for runs in &query.runs {
                let hot = runs.hot();
                let figures = [runs.cold().wall, hot.wall, hot.cpu];
                row.extend(figures.map(milliseconds));
            }
            let hot: Vec<_> = query.runs.iter().map(Runs::hot).collect();
            for other in hot.iter().skip(1) {
                row.push(quotient(hot[0].wall, other.wall));
                row.push(quotient(hot[0].cpu, other.cpu));
            }
            table.row(row);
        }
        table
    }

    fn loads(&self) -> Option<Table> {
        let mut table = Table::new(&[
            "loading",
            "s",
            "processor, s",
            "on disk, MB",
            "most memory, MB",
        ]);
        let loaded = self.names.iter().zip(&self.loaded);
        let mut is_empty = true;
        for (name, loaded) in loaded {
            let Some(loaded) = loaded else { continue };
            is_empty = false;
            table.row(vec![
                name.clone(),
                format!("{:.1}", loaded.took.wall),
                format!("{:.1}", loaded.took.cpu),
                megabytes(loaded.bytes),
                megabytes(loaded.peak),
            ]);
        }
        (!is_empty).then_some(table)
    }

    /// Queries without an answer, and answers that differ.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for query in &self.queries {
            for (runs, name) in query.runs.iter().zip(&self.names) {
                let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
                if let Some(error) = &runs.error {
                    failures.push(format!("{} by {name}: {}", query.name, first_line(error)));
                }
                if let Some(difference) = &runs.differs {
                    failures.push(format!(
                        "{} by {name} has another answer: {difference}",
                        query.name
                    ));
                }
            }
        }
        failures
    }

    /// All measurements.
    pub fn to_json(&self) -> Value {
        let took = |took: &Took| json!({"wall": took.wall, "cpu": took.cpu});
        let queries = self.queries.iter().map(|query| {
            let systems = query.runs.iter().zip(&self.names);
            let systems = systems.map(|(runs, name)| {
                json!({
                    "system": name,
                    "cold": runs.cold.as_ref().map(took),
                    "hot": runs.hot.iter().map(took).collect::<Vec<_>>(),
                    "rows": runs.rows,
                    "error": runs.error,
                    "differs": runs.differs,
                    "peak_bytes": runs.peak,
                })
            });
            json!({"query": query.name, "systems": systems.collect::<Vec<_>>()})
        });
        let queries: Vec<_> = queries.collect();
        let loaded = self.loaded.iter().zip(&self.names);
        let loaded = loaded.filter_map(|(loaded, name)| {
            let loaded = loaded.as_ref()?;
            Some(json!({
                "system": name,
                "took": took(&loaded.took),
                "bytes": loaded.bytes,
                "peak_bytes": loaded.peak,
            }))
        });
        json!({"loaded": loaded.collect::<Vec<_>>(), "queries": queries})
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        if let Some(loads) = self.loads() {
            writeln!(f, "{loads}")?;
        }
        let mut peaks = Table::new(&["most memory of a process", "MB", "query"]);
        for (place, name) in self.names.iter().enumerate() {
            let peak = self
                .queries
                .iter()
                .max_by_key(|query| query.runs[place].peak);
            if let Some(query) = peak {
                let bytes = query.runs[place].peak;
                peaks.row(vec![name.clone(), megabytes(bytes), query.name.clone()]);
            }
        }
        writeln!(f, "{peaks}")?;
        writeln!(f, "{}", self.by_query())?;
        let failures = self.failures();
        if failures.is_empty() {
            return writeln!(f, "All answers are the same.");
        }
        writeln!(f, "Without an answer, or with another one:\n")?;
        for failure in failures {
            writeln!(f, "* {failure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_leave_out_what_one_system_cannot_answer() {
        let pairs = [("q1", 2.0, 1.0), ("q2", 1.0, 2.0), ("q3", f64::NAN, 1.0)];
        let pairs = pairs.map(|(name, one, other)| (name.to_owned(), one, other));
        let ratio = Ratio::new(pairs).unwrap();
        assert_eq!(ratio.sums, (3.0, 3.0));
        assert!((ratio.geometric_mean - 1.0).abs() < 1e-12);
        assert_eq!(ratio.worst, (2.0, "q1".to_owned()));
        assert_eq!(ratio.best, (0.5, "q2".to_owned()));
        assert_eq!((ratio.won, ratio.queries), (1, 2));
        assert_eq!(Ratio::new([]), None);
    }

    #[test]
    fn a_failed_query_has_no_time() {
        let took = Took {
            wall: 1.0,
            cpu: 2.0,
        };
        let mut runs = Runs {
            hot: vec![took; 3],
            ..Runs::default()
        };
        assert_eq!(runs.hot().cpu, 2.0);
        runs.error = Some("out of memory".to_owned());
        assert!(runs.hot().wall.is_nan());
    }
}
