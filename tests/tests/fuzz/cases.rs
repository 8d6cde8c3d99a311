//! Which cases a test has, and processes that run them.
//!
//! A statement that overflows a stack ends the process that runs it. So the cases run in another process, the same
//! test program, which notes each case before it begins with it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// A case that takes longer does not end any more: statements are cancelled long before.
const HANGS: Duration = Duration::from_secs(240);

/// How many failures are told.
const MOST_FAILURES: usize = 20;

/// What the process of the cases is told.
const PLACE: &str = "SKEWER_FUZZ_PLACE";
const FIRST: &str = "SKEWER_FUZZ_FIRST";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

pub(crate) fn seed() -> u64 {
    number("SKEWER_SEED").unwrap_or(52)
}

/// The random numbers of a case.
pub(crate) fn random(case: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    random.set_stream(case);
    random
}

/// The cases that a process is to run, if this is one of them.
pub(crate) struct Cases {
    place: PathBuf,
    next: u64,
    end: u64,
    until: Option<Instant>,
}

impl Cases {
    /// Nothing if this process is to watch another one.
    pub(crate) fn of_this_process(usual: u64) -> Option<Self> {
        let place = PathBuf::from(std::env::var_os(PLACE)?);
        let seconds = number("SKEWER_FUZZ_SECONDS");
        let end = match seconds {
            Some(_) => u64::MAX,
            None => number("SKEWER_CASES").unwrap_or(usual),
        };
        Some(Self {
            place,
            next: number(FIRST).unwrap_or(0),
            end,
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        })
    }

    /// The next case.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        if self.next == self.end || is_over {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Notes what is about to run.
    pub(crate) fn note(&self, case: u64, what: &str) {
        fs::write(self.place.join("now"), format!("{case}\n{what}")).unwrap();
    }

    /// Notes that the case has failed.
    pub(crate) fn failed(&self, case: u64, what: &str, why: &str) {
        let file = self.place.join(format!("failed-{case}"));
        fs::write(file, format!("{why}\n{what}")).unwrap();
    }
}

/// Runs the cases of the test `name` in other processes, and fails if one of them fails.
pub(crate) fn watch(name: &str) {
    let place = tempfile::tempdir().unwrap();
    let mut failures: Vec<(u64, String)> = Vec::new();
    let mut first = 0;
    loop {
        let mut child = start(name, place.path(), first);
        let ended = wait(&mut child, place.path());
        let errors = fs::read_to_string(place.path().join("stderr")).unwrap_or_default();
        match ended {
            Ok(true) => break,
            Ok(false) if !place.path().join("now").exists() => panic!("no case began: {errors}"),
            Ok(false) => {}
            Err(()) => {}
        }
        let how = match ended {
            Err(()) => "does not end".to_owned(),
            _ => format!("ends the process: {}", last_lines(&errors)),
        };
        let now = fs::read_to_string(place.path().join("now")).unwrap();
        let (case, what) = now.split_once('\n').unwrap();
        let case = case.parse().unwrap();
        failures.push((case, format!("{how}\n{what}")));
        first = case + 1;
        if failures.len() == MOST_FAILURES {
            break;
        }
    }
    for entry in fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(case) = file.strip_prefix("failed-") {
            failures.push((case.parse().unwrap(), fs::read_to_string(&path).unwrap()));
        }
    }
    failures.sort();
    let mut told = String::new();
    for (case, why) in failures.iter().take(MOST_FAILURES) {
        let why: String = why.chars().take(2_000).collect();
        write!(told, "\n\nSKEWER_SEED={} case {case}: {why}", seed()).unwrap();
    }
    assert!(failures.is_empty(), "{} cases fail{told}", failures.len());
}

/// As much memory as a machine may have: what asks for more must not get it.
const MEMORY_KIB: u64 = 24 << 20;

fn start(name: &str, place: &Path, first: u64) -> Child {
    let limited = format!("ulimit -v {MEMORY_KIB}; ulimit -c 0; exec \"$0\" \"$@\"");
    let stderr = fs::File::create(place.join("stderr")).unwrap();
    let files = place.join("files");
    fs::create_dir_all(&files).unwrap();
    Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PLACE, place)
        .env(FIRST, first.to_string())
        .current_dir(files)
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

/// Whether the process has ended well, or an error if its case does not end.
fn wait(child: &mut Child, place: &Path) -> Result<bool, ()> {
    let now = place.join("now");
    let mut seen = String::new();
    let mut since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status.success());
        }
        let at = fs::read_to_string(&now).unwrap_or_default();
        if at != seen {
            (seen, since) = (at, Instant::now());
        }
        if since.elapsed() > HANGS {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
