//! Statements whose effect a model predicts, and a process that is killed while it runs them.
//!
//! A *workload* is a sequence of statements that a seed determines. The child runs it and writes
//! one line to its standard output after each statement that was acknowledged; the parent kills
//! it at a random moment, opens the database and compares it with the model after exactly as many
//! statements, or one more: the one that was in flight counts as a whole or not at all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, DatabaseBuilder, Error, Session};

use crate::contents::query;

/// What the tables `a` and `b` hold: rows by id, as the statements left them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    a: BTreeMap<i64, i64>,
    /// `None` while the table does not exist.
    b: Option<BTreeMap<i64, i64>>,
    next: i64,
}

/// One statement and the model after it.
#[derive(Debug)]
pub struct Step {
    /// The statement.
    pub sql: String,
    /// What the database holds after it.
    pub after: Model,
}

/// The statements that a seed determines, without end.
#[derive(Debug)]
pub struct Workload {
    random: ChaCha8Rng,
    model: Model,
    created: bool,
}

impl Workload {
    /// The workload of a seed, from its beginning.
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            model: Model::default(),
            created: false,
        }
    }

    fn statement(&mut self) -> String {
        if !std::mem::replace(&mut self.created, true) {
            return "CREATE TABLE a (id BIGINT NOT NULL, v BIGINT)".to_owned();
        }
        let model = &mut self.model;
        match self.random.random_range(0..100) {
            0..40 => {
                let rows = match self.random.random_range(0..10) {
                    0 => 5000,
                    _ => self.random.random_range(1..20),
                };
                let (from, to) = (model.next, model.next + rows - 1);
                model.next += rows;
                model.a.extend((from..=to).map(|id| (id, id * 3)));
                format!("INSERT INTO a SELECT value, value * 3 FROM generate_series({from}, {to})")
            }
            40..60 => {
                let (modulus, rest) = (
                    self.random.random_range(2..9),
                    self.random.random_range(0..9),
                );
                for (id, v) in &mut model.a {
                    if id % modulus == rest {
                        *v += 1;
                    }
                }
                format!("UPDATE a SET v = v + 1 WHERE id % {modulus} = {rest}")
            }
            60..80 => {
                let below = self.random.random_range(0..=model.next);
                let modulus = self.random.random_range(2..6);
                model.a.retain(|id, _| *id >= below || id % modulus != 0);
                format!("DELETE FROM a WHERE id < {below} AND id % {modulus} = 0")
            }
            80..88 => {
                model.b = Some(model.a.clone());
                "CREATE OR REPLACE TABLE b AS SELECT * FROM a".to_owned()
            }
            88..92 if model.b.is_some() => {
                model.b = None;
                "DROP TABLE b".to_owned()
            }
            92..95 => {
                model.a.clear();
                "TRUNCATE a".to_owned()
            }
            _ => {
                if let Some(b) = &mut model.b {
                    let highest = model.a.keys().copied().max().unwrap_or(0);
                    b.retain(|id, _| *id > highest / 2);
                    format!("DELETE FROM b WHERE id <= {}", highest / 2)
                } else {
                    model.b = Some(BTreeMap::new());
                    "CREATE TABLE b (id BIGINT NOT NULL, v BIGINT)".to_owned()
                }
            }
        }
    }
}

impl Iterator for Workload {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let sql = self.statement();
        Some(Step {
            sql,
            after: self.model.clone(),
        })
    }
}

/// Whether a database holds what the model says.
pub async fn holds(session: &Session, model: &Model) -> Result<bool, Error> {
    let table = |rows: &BTreeMap<i64, i64>| -> Vec<String> {
        rows.iter().map(|(id, v)| format!("{id}|{v}")).collect()
    };
    let found = |name: &'static str| async move {
        match query(session, &format!("SELECT id, v FROM {name} ORDER BY id")).await {
            Ok(rows) => Ok(Some(rows)),
            Err(Error::UnknownTable { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let a = found("a").await?.unwrap_or_default();
    let b = found("b").await?;
    Ok(a == table(&model.a) && b == model.b.as_ref().map(table))
}

/// Runs a workload in this process, for as long as it lives. Writes the number of acknowledged
/// statements, one a line, to standard output.
pub async fn run_child(path: &Path, seed: u64) -> Result<(), Error> {
    let db = builder(path).build()?;
    let session = db.session();
    let mut out = std::io::stdout().lock();
    for (number, step) in Workload::new(seed).enumerate() {
        session.sql(&step.sql).await?;
        // A parent that is gone is a reason to stop.
        if writeln!(out, "{}", number + 1)
            .and_then(|()| out.flush())
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

fn builder(path: &Path) -> DatabaseBuilder {
    Database::builder().path(path).worker_threads(2)
}

/// Kills a child `kills` times, each with a database and a seed of its own, and checks what is
/// left. `child` is the program, to be called with `--child <path> <seed>`.
///
/// # Errors
/// A text that says with which seed what was lost, or invented.
pub async fn kill_repeatedly(child: &Path, kills: u64, first_seed: u64) -> Result<u64, String> {
    let mut acknowledged_in_all = 0;
    for seed in first_seed..first_seed + kills {
        acknowledged_in_all += kill_once(child, seed)
            .await
            .map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(acknowledged_in_all)
}

async fn kill_once(child: &Path, seed: u64) -> Result<u64, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = scratch.path().join("db");
    let mut process = Command::new(child)
        .arg("--child")
        .arg(&path)
        .arg(seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| e.to_string())?;
    let output = process.stdout.take().ok_or("the child has no output")?;
    let mut random = ChaCha8Rng::seed_from_u64(!seed);
    // From before the database exists to after some hundred statements.
    let patience = Duration::from_micros(random.next_u64() % 1_500_000);
    let lines = std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // A last line that was cut off is an acknowledgement that was not given.
        lines.filter_map(|line| line.parse::<u64>().ok()).last()
    });
    let started = Instant::now();
    while started.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(200));
        if let Some(status) = process.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("the child ended by itself: {status}"));
        }
    }
    process.kill().map_err(|e| e.to_string())?;
    process.wait().map_err(|e| e.to_string())?;
    let acknowledged = lines.join().map_err(|_| "reading panicked")?.unwrap_or(0);

    let db = builder(&path)
        .build()
        .map_err(|e| format!("opening again: {e}"))?;
    check(&db, seed, acknowledged).await?;
    db.close().await.map_err(|e| e.to_string())?;
    Ok(acknowledged)
}

/// Whether the database holds the workload's state after `acknowledged` statements, or one more.
///
/// # Errors
/// A text that says what the next statement was, if it holds neither.
pub async fn check(db: &Database, seed: u64, acknowledged: u64) -> Result<(), String> {
    let session = db.session();
    let mut workload = Workload::new(seed);
    let before = match acknowledged {
        0 => Model::default(),
        n => workload
            .nth(n as usize - 1)
            .map(|s| s.after)
            .unwrap_or_default(),
    };
    let in_flight = workload.next().ok_or("the workload has an end")?;
    for model in [&before, &in_flight.after] {
        if holds(&session, model).await.map_err(|e| e.to_string())? {
            return Ok(());
        }
    }
    Err(format!(
        "after {acknowledged} acknowledged statements the database holds neither their effect \
         nor that and {}",
        in_flight.sql
    ))
}
