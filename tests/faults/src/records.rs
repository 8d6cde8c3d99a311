//! The log of all runs: one JSON object a line. A run of the laboratory continues where it ended.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cases::Case;
use crate::error::{Context, Result};
use crate::fault::Place;
use crate::sql::{Finding, Times};

/// Which program ran a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The one that is judged.
    Judged,
    /// The one with which it is compared.
    Baseline,
}

/// One run of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The case's id.
    pub case: String,
    /// Who ran it.
    pub program: Program,
    /// Whether the fault was there.
    pub faulty: bool,
    /// The query.
    pub query_id: i64,
    /// From sending the statement to reading its last row.
    pub elapsed_ns: u64,
    /// Of the time in which threads of the database could run, the share in which they had no processor.
    /// Without nodes that were throttled.
    pub contention: f64,
    /// What the database says about the time.
    pub times: Times,
    /// How long it took to read `sys.diagnoses`.
    pub reading_ns: u64,
    /// `sys.diagnoses`, in order of its places.
    pub diagnoses: Vec<Finding>,
    /// HybridTune's rules, the most conspicuous first.
    pub hybridtune: Vec<Finding>,
}

/// The end of a case: all its runs are above.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseEnd {
    /// The case.
    pub case: Case,
    /// Who ran it.
    pub program: Program,
    /// Where each of its faults was.
    pub places: Vec<Place>,
    /// Why it was not run, if it was not.
    pub skipped: Option<String>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// A run.
    Run(Run),
    /// A case is finished.
    Case(CaseEnd),
}

/// A log that is written.
#[derive(Debug)]
pub struct Log {
    file: File,
    finished: HashSet<(Program, String)>,
}

impl Log {
    /// Opens a log, or begins one. What an interrupted case left is removed.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: &Path) -> Result<Log> {
        let (lines, finished) = match fs::read_to_string(path) {
            Ok(text) => finished(&text),
            Err(_) => (Vec::new(), HashSet::new()),
        };
        let kept: String = lines
            .iter()
            .filter_map(|line| serde_json::to_string(line).ok())
            .map(|line| line + "\n")
            .collect();
        let temporary = path.with_extension("new");
        fs::write(&temporary, kept).context(temporary.display())?;
        fs::rename(&temporary, path).context(path.display())?;
        let file = File::options()
            .append(true)
            .open(path)
            .context(path.display())?;
        Ok(Log { file, finished })
    }

    /// Whether a case need not run again.
    pub fn is_finished(&self, program: Program, case: &Case) -> bool {
        self.finished.contains(&(program, case.id.clone()))
    }

    /// Writes a case with its runs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, end: CaseEnd, runs: Vec<Run>) -> Result<()> {
        let key = (end.program, end.case.id.clone());
        let lines = runs.into_iter().map(Line::Run).chain([Line::Case(end)]);
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(&line).context("a line of the log")?;
            text.push('\n');
        }
        self.file.write_all(text.as_bytes()).context("the log")?;
        self.file.flush().context("the log")?;
        self.finished.insert(key);
        Ok(())
    }
}

/// The lines of a log that belong to finished cases.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(path).context(path.display())?;
    Ok(finished(&text).0)
}

/// Lines of finished cases. The last line may be torn.
fn finished(text: &str) -> (Vec<Line>, HashSet<(Program, String)>) {
    let lines: Vec<Line> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let ends = lines.iter().filter_map(|line| match line {
        Line::Case(end) => Some((end.program, end.case.id.clone())),
        Line::Run(_) => None,
    });
    let finished: HashSet<_> = ends.collect();
    let belongs = |line: &Line| match line {
        Line::Case(_) => true,
        Line::Run(run) => finished.contains(&(run.program, run.case.clone())),
    };
    (lines.into_iter().filter(belongs).collect(), finished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Draw, Set, Topology, draw};
    use crate::fault::Fault;

    #[test]
    fn a_log_goes_on_after_a_torn_case() {
        let cases = draw(&Draw {
            set: Set::Tune,
            seed: 1,
            faulty: 2,
            clean: 0,
            faults: vec![Fault::HeavyKey],
            topologies: vec![Topology::Single],
        });
        let path = std::env::temp_dir().join(format!("skewer-faults-log-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let run = |case: &Case| Run {
            case: case.id.clone(),
            program: Program::Judged,
            faulty: true,
            query_id: 1,
            elapsed_ns: 5,
            contention: 0.0,
            times: Times::default(),
            reading_ns: 1,
            diagnoses: vec![Finding::default()],
            hybridtune: Vec::new(),
        };
        let end = |case: &Case| CaseEnd {
            case: case.clone(),
            program: Program::Judged,
            places: vec![Place::default()],
            skipped: None,
        };
        let mut log = Log::open(&path).unwrap();
        log.write(end(&cases[0]), vec![run(&cases[0])]).unwrap();
        drop(log);
        // Another case was interrupted within a line.
        let torn = serde_json::to_string(&Line::Run(run(&cases[1]))).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        write!(file, "{torn}\n{}", &torn[..20]).unwrap();
        drop(file);
        let mut log = Log::open(&path).unwrap();
        assert!(log.is_finished(Program::Judged, &cases[0]));
        assert!(!log.is_finished(Program::Baseline, &cases[0]));
        assert!(!log.is_finished(Program::Judged, &cases[1]));
        log.write(end(&cases[1]), vec![run(&cases[1])]).unwrap();
        assert_eq!(read(&path).unwrap().len(), 4);
        fs::remove_file(&path).unwrap();
    }
}
