//! What was found, as tables.

use std::fmt;
use std::time::Duration;

use skewer_profiling::Level;

use super::membership::Network;
use super::{connections, membership, plans, sys};
use crate::table::{Table, count};

/// One query with some number of workers, at each level.
#[derive(Debug)]
pub struct Query {
    /// What it is.
    pub name: &'static str,
    /// What was found.
    pub levels: Vec<(Level, plans::Findings, sys::Findings)>,
}

/// Everything.
#[derive(Debug)]
pub struct Results {
    /// Of real nodes.
    pub connections: connections::Findings,
    /// What was simulated.
    pub network: Network,
    /// By number of workers.
    pub membership: Vec<membership::Findings>,
    /// By number of workers, and query.
    pub queries: Vec<Query>,
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

fn bytes(bytes: f64) -> String {
    match bytes {
        small if small < 1e4 => format!("{small:.0} B"),
        medium if medium < 1e6 => format!("{:.0} kB", medium / 1e3),
        large if large < 1e9 => format!("{:.1} MB", large / 1e6),
        huge => format!("{:.1} GB", huge / 1e9),
    }
}

impl Results {
    fn membership(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#### Membership, simulated\n")?;
        writeln!(
            f,
            "{} µs from node to node, 10 Gbit/s at the master, and {:.0} µs of its processor time \
             for each message, as measured below.\n",
            self.network.delay.as_micros(),
            self.network.message_cost.as_secs_f64() * 1e6
        )?;
        let mut table = Table::new(&[
            "workers",
            "heartbeat messages a second",
            "of a core at the master, %",
            "a killed process: messages",
            "bytes",
            "all know it after, ms",
            "a silent host: all know it after, s",
        ]);
        for found in &self.membership {
            let messages = found.steady.messages as f64;
            let load = messages * self.network.message_cost.as_secs_f64()
                + found.steady.logic.as_secs_f64();
            table.row(vec![
                found.workers.to_string(),
                count(found.steady.messages),
                format!("{:.2}", load * 100.0),
                count(found.killed.messages),
                bytes(found.killed.bytes as f64),
                ms(found.killed_known),
                format!("{:.2}", found.silent_known.as_secs_f64()),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "All workers start within one second:\n")?;
        let mut table = Table::new(&[
            "workers",
            "messages",
            "bytes",
            "logic's processor time, ms",
            "all know all after, ms",
        ]);
        for found in &self.membership {
            table.row(vec![
                found.workers.to_string(),
                count(found.start.messages),
                bytes(found.start.bytes as f64),
                ms(found.start.logic),
                ms(found.all_know_all),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn connections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.connections;
        writeln!(f, "#### Connections, measured and multiplied\n")?;
        let mut table = Table::new(&["of real nodes over loopback", "measured"]);
        for (name, value) in [
            (
                "memory of a node without connections",
                bytes(found.node_bytes),
            ),
            ("open files of a node", format!("{:.1}", found.node_files)),
            ("memory of one end of a connection", bytes(found.end_bytes)),
            (
                "processor time to make a connection, both ends, ms",
                format!("{:.2}", found.connect_seconds * 1e3),
            ),
            (
                "of a core for one end of an idle connection, %",
                format!("{:.4}", found.idle_load * 100.0),
            ),
            (
                "processor time of a question with its answer, both ends, µs",
                format!("{:.0}", found.call_seconds * 1e6),
            ),
            (
                "memory of one end of an idle stream",
                bytes(found.stream_bytes),
            ),
        ] {
            table.row(vec![name.to_owned(), value]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "If every worker has asked every other one:\n")?;
        let mut table = Table::new(&[
            "workers",
            "connection ends of a worker",
            "memory",
            "of a core while idle, %",
            "connections of the cluster",
        ]);
        for found in &self.membership {
            let workers = f64::from(found.workers);
            // To and from each other worker, and the master.
            let ends = 2.0 * workers;
            table.row(vec![
                found.workers.to_string(),
                count(ends as u64),
                bytes(ends * self.connections.end_bytes),
                format!("{:.1}", ends * self.connections.idle_load * 100.0),
                count((workers * (workers + 1.0)) as u64),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn plans(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#### Plans and streams, simulated\n")?;
        let mut table = Table::new(&[
            "workers",
            "query",
            "fragments",
            "tasks",
            "plans, bytes",
            "a task's plan, bytes",
            "planning, ms",
            "encoding, ms",
            "streams of a worker, each way",
            "streams",
            "memory of a worker's idle streams",
        ]);
        for query in &self.queries {
            let Some((_, plan, _)) = query.levels.first() else {
                continue;
            };
            let streams = plan.streams_of_worker();
            table.row(vec![
                plan.size.workers.to_string(),
                query.name.to_owned(),
                plan.stages.len().to_string(),
                count(plan.plans),
                bytes(plan.plan_bytes as f64),
                bytes(plan.plan_bytes as f64 / plan.plans.max(1) as f64),
                ms(plan.planning),
                ms(plan.sending),
                count(streams as u64),
                count(plan.streams() as u64),
                bytes(2.0 * streams as f64 * self.connections.stream_bytes),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn sys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#### Schema `sys` per query, simulated\n")?;
        let mut table = Table::new(&[
            "workers",
            "query",
            "level",
            "rows on a worker",
            "of them `tuples_sent`",
            "bytes on a worker",
            "rows on the master",
            "rows of the cluster",
            "bytes of the cluster",
        ]);
        for query in &self.queries {
            for (level, plan, volume) in &query.levels {
                let workers = u64::from(plan.size.workers);
                table.row(vec![
                    plan.size.workers.to_string(),
                    query.name.to_owned(),
                    level.to_string(),
                    count(volume.worker.rows),
                    count(volume.worker.tuples_sent),
                    bytes(volume.worker.bytes as f64),
                    count(volume.master.rows),
                    count(volume.master.rows + workers * volume.worker.rows),
                    bytes((volume.master.bytes + workers * volume.worker.bytes) as f64),
                ]);
            }
        }
        write!(f, "{table}")
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.membership(f)?;
        self.connections(f)?;
        self.plans(f)?;
        self.sys(f)
    }
}
