//! Runs cases: with the fault and without it, interleaved.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::cases::{Case, Topology, WORKERS};
use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::fault::Place;
use crate::inject::{Active, inject};
use crate::processes::{PATIENCE, Processes, Schedule, Start};
use crate::records::{Program, Run};
use crate::sql::{Client, Finding, integer};
use crate::workload::{Injection, Plan, Reader, Side, Size, plan, shared_tables, sizing_query};

/// A running database with the tables that all cases share.
#[derive(Debug)]
pub struct Laboratory {
    processes: Processes,
    program: Program,
    size: Size,
    hybridtune: Vec<&'static str>,
    /// Numbers tables of cases.
    cases: usize,
}

/// Rows with which the size is found.
const FIRST_ROWS: u64 = 100_000;

/// How a case ended.
#[derive(Debug)]
pub enum Outcome {
    /// All its runs.
    Done {
        /// With the fault and without it.
        runs: Vec<Run>,
        /// Where each fault was.
        places: Vec<Place>,
    },
    /// It could not be run: why.
    Skipped(String),
}

impl Laboratory {
    /// Starts a database and makes its tables, so large that a query takes about `target`.
    ///
    /// # Errors
    /// If it does not start, or a statement fails.
    pub async fn start(
        binary: &Path,
        program: Program,
        topology: Topology,
        directory: &Path,
        hierarchy: Option<&Hierarchy>,
        target: Duration,
    ) -> Result<Laboratory> {
        let processes = Processes::start(&Start {
            binary,
            topology,
            directory,
            hierarchy,
        })?;
        let client = Client::connect(&processes.address).await?;
        if topology != Topology::Single {
            await_workers(&client).await?;
        }
        client.run_all(&shared_tables(FIRST_ROWS)).await?;
        let first = shortest(&processes, &client).await?;
        let scale = target.as_secs_f64() / first.as_secs_f64().max(0.001);
        let rows = (FIRST_ROWS as f64 * scale).clamp(50_000.0, 4_000_000.0) as u64;
        client.run_all(&shared_tables(rows)).await?;
        let size = Size {
            rows,
            clean: shortest(&processes, &client).await?,
        };
        let hybridtune = client.hybridtune_views().await;
        Ok(Laboratory {
            processes,
            program,
            size,
            hybridtune,
            cases: 0,
        })
    }

    /// How large the tables are.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Which process has ended, if one has: then nothing can be run any more.
    pub fn ended(&mut self) -> Option<String> {
        self.processes.ended()
    }

    /// Runs a case in pairs of runs.
    pub async fn run(&mut self, case: &Case, pairs: usize) -> Outcome {
        self.cases += 1;
        let plan = plan(case, self.cases, self.size, processors());
        match self.try_run(case, plan, pairs).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Skipped(error.to_string()),
        }
    }

    async fn try_run(&self, case: &Case, mut plan: Plan, pairs: usize) -> Result<Outcome> {
        let client = Client::connect(&self.processes.address).await?;
        client.run_all(&plan.session).await?;
        let result = self.run_pairs(&client, case, &mut plan, pairs).await;
        // Statements after a fault undo what lasts. The first error is the interesting one.
        let mut undone = Ok(());
        for sql in plan.with.after.iter().chain(&plan.teardown) {
            undone = undone.and(client.run(sql).await);
        }
        let runs = result?;
        undone?;
        Ok(Outcome::Done {
            runs,
            places: plan.places,
        })
    }

    async fn run_pairs(
        &self,
        client: &Client,
        case: &Case,
        plan: &mut Plan,
        pairs: usize,
    ) -> Result<Vec<Run>> {
        self.set_up(client, plan).await?;
        let _both = start_all(&self.processes, &plan.both)?;
        if let Some(dose) = plan.spill {
            let limit = self.memory_limit(client, &plan.with.sql, dose).await?;
            plan.with
                .before
                .push(format!("SET memory_limit = '{limit} kB'"));
        }
        // Neither side is the first to read its rows.
        client.run(&plan.without.sql).await?;
        if plan.with.sql != plan.without.sql {
            client.run(&plan.with.sql).await?;
        }
        let mut runs = Vec::new();
        for pair in 0..pairs {
            let order = if pair % 2 == 0 {
                [false, true]
            } else {
                [true, false]
            };
            for faulty in order {
                let faulty = faulty && !case.is_clean();
                let side = if faulty { &plan.with } else { &plan.without };
                runs.push(self.run_side(client, case, side, faulty).await?);
            }
        }
        Ok(runs)
    }

    async fn set_up(&self, client: &Client, plan: &mut Plan) -> Result<()> {
        if plan.owned.is_some()
            && let Some((last, others)) = plan.setup.split_last()
        {
            client.run_all(others).await?;
            let before = owners(client).await?;
            client.run(last).await?;
            let after = owners(client).await?;
            let gained = |(node, rows): &(i64, i64)| {
                let had = before.iter().find(|(one, _)| one == node);
                rows - had.map_or(0, |(_, rows)| *rows)
            };
            let most = after.iter().max_by_key(|owner| gained(owner));
            for place in &mut plan.places {
                place.worker = most.map(|(node, _)| *node);
            }
        } else {
            client.run_all(&plan.setup).await?;
        }
        if let Some(sql) = &plan.row {
            let row = client.number(sql).await?;
            for place in plan.places.iter_mut().filter(|place| place.table.is_some()) {
                place.row = Some(row);
            }
        }
        Ok(())
    }

    async fn run_side(
        &self,
        client: &Client,
        case: &Case,
        side: &Side,
        faulty: bool,
    ) -> Result<Run> {
        client.run_all(&side.before).await?;
        let active = start_all(&self.processes, &side.injections)?;
        let ahead = self.send_ahead(&side.injections).await?;
        let before = self.processes.schedules();
        let read = client.read(&side.sql, side.reader).await;
        let after = self.processes.schedules();
        drop(active);
        for statement in ahead {
            let _ = statement.await;
        }
        let undone = client_after(client, side).await;
        let elapsed = read?;
        let query_id = undone?;
        let (diagnoses, reading) = self.diagnoses(client, query_id).await?;
        Ok(Run {
            case: case.id.clone(),
            program: self.program,
            faulty,
            query_id,
            elapsed_ns: elapsed.as_nanos() as u64,
            contention: contention(&before, &after),
            times: client.times(query_id).await?,
            reading_ns: reading.as_nanos() as u64,
            diagnoses,
            hybridtune: client.hybridtune(&self.hybridtune, query_id).await?,
        })
    }

    /// A busy machine may be too slow for a query over schema `sys`: it is asked again.
    async fn diagnoses(&self, client: &Client, query_id: i64) -> Result<(Vec<Finding>, Duration)> {
        for _ in 0..2 {
            if let Ok(read) = client.diagnoses(query_id).await {
                return Ok(read);
            }
        }
        client.diagnoses(query_id).await
    }

    /// Sends statements that are to be ahead in the queue, and waits until they are.
    async fn send_ahead(&self, injections: &[Injection]) -> Result<Vec<JoinHandle<()>>> {
        let mut sent = Vec::new();
        for injection in injections {
            let Injection::Ahead { statements } = injection else {
                continue;
            };
            for _ in 0..*statements {
                let client = Client::connect(&self.processes.address).await?;
                sent.push(tokio::spawn(async move {
                    let _ = client.read(&sizing_query(), Reader::Fast).await;
                }));
            }
            let client = Client::connect(&self.processes.address).await?;
            let begun = Instant::now();
            // The first may be over already on a fast machine.
            while client.number("SELECT count(*) FROM sys.running").await? < *statements as i64 {
                if sent.iter().any(JoinHandle::is_finished) {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    return Err(Error::new(format!(
                        "no {statements} statements run or wait after {PATIENCE:?}"
                    )));
                }
            }
        }
        Ok(sent)
    }

    /// The memory limit in kB with which a query spills: about `dose` of what its rows take, or less.
    async fn memory_limit(&self, client: &Client, sql: &str, dose: f64) -> Result<u64> {
        const BYTES_OF_A_ROW: f64 = 100.0;
        let mut limit = (self.size.rows as f64 * BYTES_OF_A_ROW * dose / 1024.0) as u64;
        let mut last = Error::new("no memory limit makes the query spill");
        for _ in 0..8 {
            client
                .run(&format!("SET memory_limit = '{limit} kB'"))
                .await?;
            let ran = client.run(sql).await;
            client.run("SET memory_limit = 'unlimited'").await?;
            if let Err(error) = ran {
                // Too little even to spill.
                last = error;
                limit = limit * 5 / 4;
                continue;
            }
            let query = client.last_query(Reader::Fast).await?;
            let spilled = format!(
                "SELECT coalesce(sum(spilled_bytes), 0) FROM sys.operator_contribution WHERE query_id = {query}"
            );
            if client.number(&spilled).await? > 0 {
                return Ok(limit);
            }
            limit = limit * 3 / 5;
        }
        Err(last)
    }
}

/// Waits until all workers take part.
///
/// # Errors
/// If they do not, in time.
pub async fn await_workers(client: &Client) -> Result<()> {
    let sql = "SELECT count(*) FROM sys.cluster WHERE state = 'alive'";
    wait_for(client, sql, WORKERS, "workers that take part").await
}

/// Notes which query was the last, and undoes settings.
async fn client_after(client: &Client, side: &Side) -> Result<i64> {
    let query_id = client.last_query(side.reader).await;
    client.run_all(&side.after).await?;
    query_id
}

fn start_all<'a>(processes: &'a Processes, injections: &[Injection]) -> Result<Vec<Active<'a>>> {
    injections
        .iter()
        .map(|injection| inject(processes, injection))
        .collect()
}

/// The processors of this machine.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long the query of the size takes, at best of three, if nobody else uses the processors.
async fn shortest(processes: &Processes, client: &Client) -> Result<Duration> {
    // A query of the laboratory does not keep more processors busy.
    let processors = processors().min(4) as u64;
    let ran = || {
        processes
            .schedules()
            .iter()
            .map(|schedule| schedule.ran_ns)
            .sum::<u64>()
    };
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let before = ran();
        let elapsed = client.read(&sizing_query(), Reader::Fast).await?;
        let alone = Duration::from_nanos(ran().saturating_sub(before) / processors);
        shortest = shortest.min(elapsed).min(alone);
    }
    Ok(shortest)
}

/// Rows that each worker owns.
async fn owners(client: &Client) -> Result<Vec<(i64, i64)>> {
    let rows = client
        .rows("SELECT worker_id, rows FROM sys.cluster")
        .await?;
    let owner = |row| Some((integer(row, "worker_id")?, integer(row, "rows")?));
    Ok(rows.iter().filter_map(owner).collect())
}

async fn wait_for(client: &Client, sql: &str, expected: i64, what: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let found = client.number(sql).await?;
        if found == expected {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(Error::new(format!(
                "{found} of {expected} {what} after {PATIENCE:?}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The share of waiting for a processor in the time that threads could run. A throttled node would count
/// its own limit, and is left out.
pub fn contention(before: &[Schedule], after: &[Schedule]) -> f64 {
    let (mut ran, mut waited) = (0, 0);
    for (before, after) in before.iter().zip(after) {
        if after.throttled_ns > before.throttled_ns {
            continue;
        }
        // Threads that have ended take their counts with them.
        ran += after.ran_ns.saturating_sub(before.ran_ns);
        waited += after.waited_ns.saturating_sub(before.waited_ns);
    }
    waited as f64 / ((ran + waited) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_a_share_of_nodes_that_are_not_throttled() {
        let before = [Schedule::default(); 2];
        let mut after = before;
        after[0] = Schedule {
            ran_ns: 300,
            waited_ns: 100,
            throttled_ns: 0,
        };
        after[1] = Schedule {
            ran_ns: 10,
            waited_ns: 900,
            throttled_ns: 800,
        };
        assert!((contention(&before, &after) - 0.25).abs() < 1e-9);
        assert!(contention(&before, &before).abs() < 1e-9);
    }
}
