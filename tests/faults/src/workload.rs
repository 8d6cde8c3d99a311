//! The SQL of a case: tables, and the query with the fault and without it.

use std::time::Duration;

use crate::cases::{Case, Shape, Topology};
use crate::fault::{Fault, Place};

/// Keys of the tables: `0` to `KEYS - 1`.
const KEYS: u32 = 20_000;

/// What is done to processes while a query runs. Node 0 is the server or the master.
#[expect(
    missing_docs,
    reason = "fields are named as in the sentences above them"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum Injection {
    /// The worker may use so many processors.
    Quota { worker: i64, processors: f64 },
    /// The worker is stopped for this share of the time.
    Stop { worker: i64, share: f64 },
    /// The node runs on this processor only.
    Pin { node: i64, processor: usize },
    /// Threads of the laboratory compute: on this processor, or on any.
    Spin {
        threads: usize,
        processor: Option<usize>,
    },
    /// So many statements are sent before.
    Ahead { statements: usize },
    /// Packets from and to the worker take so much longer.
    Delay { worker: i64, delay: Duration },
}

/// How the rows of a result are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reader {
    /// As fast as they come.
    Fast,
    /// The client pauses ten times, and does not read its socket meanwhile.
    Pauses(Duration),
    /// The client fetches from a cursor, and pauses between, for so long in total.
    Cursor(Duration),
}

/// How a query is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// Settings before it.
    pub before: Vec<String>,
    /// Settings after it.
    pub after: Vec<String>,
    /// The query.
    pub sql: String,
    /// What is done meanwhile.
    pub injections: Vec<Injection>,
    /// How its rows are read.
    pub reader: Reader,
}

impl Side {
    fn of(sql: String) -> Side {
        Side {
            before: Vec::new(),
            after: Vec::new(),
            sql,
            injections: Vec::new(),
            reader: Reader::Fast,
        }
    }
}

/// All of a case.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Makes tables that only this case has.
    pub setup: Vec<String>,
    /// Removes them.
    pub teardown: Vec<String>,
    /// Settings of the session.
    pub session: Vec<String>,
    /// What is done to processes on both sides.
    pub both: Vec<Injection>,
    /// The run with the fault.
    pub with: Side,
    /// The run without it.
    pub without: Side,
    /// Where each fault is.
    pub places: Vec<Place>,
    /// Returns the id of the row that is at fault.
    pub row: Option<String>,
    /// The table of which one worker has most rows, and which worker is to be named.
    pub owned: Option<String>,
    /// Whether the memory limit is still to be found with which the query spills this share.
    pub spill: Option<f64>,
}

/// How large tables are, and how long queries take with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Rows of the tables.
    pub rows: u64,
    /// About how long a clean query takes.
    pub clean: Duration,
}

/// The tables that all cases share.
pub fn shared_tables(rows: u64) -> Vec<String> {
    vec![
        "DROP TABLE IF EXISTS facts".to_owned(),
        "DROP TABLE IF EXISTS dims".to_owned(),
        "DROP TABLE IF EXISTS tiny".to_owned(),
        table("facts", "", rows, &uniform(1), 1),
        format!(
            "CREATE TABLE dims AS SELECT value AS key, 'label ' || value % 1000 AS label \
             FROM generate_series(0, {})",
            KEYS - 1
        ),
        "CREATE TABLE tiny AS SELECT value AS k FROM generate_series(0, 9)".to_owned(),
    ]
}

/// The query by which tables are sized.
pub fn sizing_query() -> String {
    query(Shape::Aggregate, "facts")
}

/// A number from 0 to 4294967290 that looks random, for each row.
fn hash(salt: u32) -> String {
    format!("((value + {salt}) * 2654435761 % 4294967291)")
}

/// A number from 0 up to 1, for each row; independent of [`hash`].
fn share(salt: u32) -> String {
    format!("(CAST((value + {salt}) * 40503 % 1000003 AS DOUBLE) / 1000003)")
}

fn uniform(salt: u32) -> String {
    format!("{} % {KEYS}", hash(salt))
}

/// `key` for a share of the rows, and all others for the rest.
fn heavy(salt: u32, dose: f64, key: &str) -> String {
    format!(
        "CASE WHEN {} < {dose} THEN {key} ELSE {} END",
        share(salt),
        uniform(salt)
    )
}

/// Keys of Zipf's distribution, by the inverse of its continuous form.
fn zipf(salt: u32, exponent: f64) -> String {
    let share = share(salt);
    if (exponent - 1.0).abs() < 0.01 {
        return format!("CAST(power({KEYS}.0, {share}) AS BIGINT)");
    }
    let power = 1.0 - exponent;
    format!(
        "CAST(power((power({KEYS}.0, {power}) - 1) * {share} + 1, {}) AS BIGINT)",
        1.0 / power
    )
}

fn table(name: &str, clause: &str, rows: u64, key: &str, salt: u32) -> String {
    format!(
        "CREATE TABLE {name}{clause} AS SELECT value AS id, {key} AS key, {} AS amount, \
         'text ' || (value + {salt}) * 7919 % 100003 AS text, (value + {salt}) % 97 AS bucket \
         FROM generate_series(0, {})",
        share(salt),
        rows.saturating_sub(1)
    )
}

fn query(shape: Shape, facts: &str) -> String {
    match shape {
        Shape::Join => format!(
            "SELECT count(*), sum(length(md5(f.text || coalesce(d.label, '')))) \
             FROM {facts} AS f LEFT JOIN dims AS d ON f.key = d.key"
        ),
        Shape::Window => format!(
            "SELECT max(place), sum(running) FROM (SELECT \
             row_number() OVER (PARTITION BY key ORDER BY amount) AS place, \
             sum(amount) OVER (PARTITION BY key ORDER BY amount) AS running FROM {facts})"
        ),
        Shape::Distinct => {
            format!("SELECT count(*) FROM (SELECT DISTINCT text, key, bucket FROM {facts})")
        }
        Shape::Filter => format!(
            "SELECT count(*) FROM {facts} WHERE regexp_like(text || md5(text), '(7.*8|9.*[a-c]+f)$')"
        ),
        Shape::Aggregate | Shape::Special => format!(
            "SELECT bucket, count(*), sum(length(md5(text))), avg(amount) FROM {facts} GROUP BY bucket"
        ),
    }
}

/// The settings under which each join by key has an exchange.
pub const EXCHANGED_JOINS: [&str; 2] = [
    "SET datafusion.optimizer.hash_join_single_partition_threshold = 0",
    "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
];

/// A statement that skew makes slow, over one or more tables that differ in the names of their keys: which keys
/// share a partition is chance.
#[derive(Debug, Clone)]
pub struct Skewed {
    /// What it is.
    pub title: &'static str,
    /// The tables.
    pub runs: Vec<SkewedRun>,
    /// With remedies it is to take at most this share of its time.
    pub limit: f64,
}

/// A statement over one table.
#[derive(Debug, Clone)]
pub struct SkewedRun {
    /// Makes the table.
    pub setup: Vec<String>,
    /// Removes it.
    pub teardown: Vec<String>,
    /// The statement.
    pub sql: String,
}

/// Tables of each statement over keys of Zipf's distribution.
const KEY_SETS: u32 = 5;

/// Statements that skew makes slow, over tables of `rows` rows. They join with the table `dims` of
/// [`shared_tables`].
pub fn skewed(rows: u64) -> [Skewed; 4] {
    const SALT: u32 = 57;
    let run = |keys: &str, sql: &str| SkewedRun {
        setup: vec![
            "DROP TABLE IF EXISTS skewed".to_owned(),
            table("skewed", "", rows, keys, SALT),
        ],
        teardown: vec!["DROP TABLE IF EXISTS skewed".to_owned()],
        sql: sql.to_owned(),
    };
    let join = |kind: &str| {
        format!(
            "SELECT count(*), sum(length(regexp_replace(f.text || ' of ' || coalesce(d.label, 'none 0'), \
             '([a-z]+) ([0-9]+)', '\\2 \\1', 'g'))) FROM skewed AS f {kind} JOIN dims AS d ON f.key = d.key"
        )
    };
    // Sums of doubles would depend on the order of rows.
    let window = "SELECT max(place), max(other), sum(running) FROM (SELECT \
                  row_number() OVER (PARTITION BY key ORDER BY amount) AS place, \
                  sum(bucket) OVER (PARTITION BY key ORDER BY amount) AS running, \
                  rank() OVER (PARTITION BY key ORDER BY text) AS other FROM skewed)";
    let groups = "SELECT count(*), sum(middle), sum(texts) FROM (SELECT key, median(id) AS middle, \
                  count(DISTINCT text) AS texts FROM skewed GROUP BY key)";
    let over_zipf = |sql: &str| -> Vec<SkewedRun> {
        let keys = |set| format!("{} + {}", zipf(SALT, 1.5), set * KEYS);
        (0..KEY_SETS).map(|set| run(&keys(set), sql)).collect()
    };
    [
        Skewed {
            title: "join, one key has half of the rows",
            runs: vec![run(&heavy(SALT, 0.5, "4711"), &join("INNER"))],
            limit: 0.55,
        },
        Skewed {
            title: "outer join, 80 % of the keys are NULL",
            runs: vec![run(&heavy(SALT, 0.8, "NULL"), &join("LEFT"))],
            limit: 0.5,
        },
        Skewed {
            title: "index by window, keys of Zipf's distribution (1.5)",
            runs: over_zipf(window),
            limit: 0.7,
        },
        Skewed {
            title: "index by groups, keys of Zipf's distribution (1.5)",
            runs: over_zipf(groups),
            limit: 0.7,
        },
    ]
}

/// Makes the SQL of a case. `number` makes the names of its tables its own.
pub fn plan(case: &Case, number: usize, size: Size, processors: usize) -> Plan {
    let sql = query(case.shape, "facts");
    let mut plan = Plan {
        setup: Vec::new(),
        teardown: Vec::new(),
        session: vec![
            format!("SET profile.level = '{}'", case.level),
            "SET statement_timeout = '120s'".to_owned(),
        ],
        both: Vec::new(),
        with: Side::of(sql.clone()),
        without: Side::of(sql),
        places: Vec::new(),
        row: None,
        owned: None,
        spill: None,
    };
    if case.shape == Shape::Join {
        plan.session.extend(EXCHANGED_JOINS.map(str::to_owned));
    }
    for injected in &case.faults {
        let place = inject(
            &mut plan,
            case,
            injected.fault,
            injected.dose,
            number,
            size,
            processors,
        );
        plan.places.push(place);
    }
    plan
}

fn inject(
    plan: &mut Plan,
    case: &Case,
    fault: Fault,
    dose: f64,
    number: usize,
    size: Size,
    processors: usize,
) -> Place {
    let mut place = Place::default();
    let salt = case.salt;
    match fault {
        Fault::Clean => {}
        Fault::ThrottledWorker => {
            place.worker = Some(case.worker);
            let quota = Injection::Quota {
                worker: case.worker,
                processors: dose,
            };
            plan.with.injections.push(quota);
        }
        Fault::StoppedWorker => {
            place.worker = Some(case.worker);
            plan.with.injections.push(Injection::Stop {
                worker: case.worker,
                share: dose,
            });
        }
        Fault::NoisyNeighbour => {
            let node = match case.topology {
                Topology::Single => 0,
                Topology::Cluster | Topology::Cabled => case.worker,
            };
            let processor = salt as usize % processors.max(1);
            place.worker = Some(node);
            plan.both.push(Injection::Pin { node, processor });
            let spin = Injection::Spin {
                threads: dose as usize,
                processor: Some(processor),
            };
            plan.with.injections.push(spin);
        }
        Fault::BusyMachine => {
            let spin = Injection::Spin {
                threads: dose as usize,
                processor: None,
            };
            plan.with.injections.push(spin);
        }
        Fault::Spill => {
            plan.spill = Some(dose);
            plan.with
                .after
                .push("SET memory_limit = 'unlimited'".to_owned());
        }
        Fault::HeavyKey | Fault::ZipfKey | Fault::NullKey | Fault::DefaultKey => {
            let heavy_key = (1000 + salt % (KEYS - 1000)).to_string();
            let default = if salt.is_multiple_of(2) { "0" } else { "-1" };
            let (keys, names) = match fault {
                Fault::HeavyKey => (heavy(salt, dose, &heavy_key), vec![heavy_key]),
                Fault::NullKey => (heavy(salt, dose, "NULL"), vec!["NULL".to_owned()]),
                Fault::DefaultKey => (heavy(salt, dose, default), vec![default.to_owned()]),
                _ => (zipf(salt, dose), vec!["1".to_owned()]),
            };
            place.keys = names;
            let (with, without) = two_tables(plan, number);
            plan.setup.push(table(&with, "", size.rows, &keys, salt));
            plan.setup
                .push(table(&without, "", size.rows, &uniform(salt), salt));
            plan.with.sql = query(case.shape, &with);
            plan.without.sql = query(case.shape, &without);
        }
        Fault::SizeSkew => {
            let (with, without) = two_tables(plan, number);
            let clause = " PARTITION BY HASH (key)";
            let keys = heavy(salt, dose, &(salt % KEYS).to_string());
            // The skewed one is made last: see `owned`.
            plan.setup
                .push(table(&without, clause, size.rows, &uniform(salt), salt));
            plan.setup
                .push(table(&with, clause, size.rows, &keys, salt));
            plan.with.sql = query(case.shape, &with);
            plan.without.sql = query(case.shape, &without);
            plan.owned = Some(with);
        }
        Fault::ExpensiveRecord => {
            let rows = (size.rows / 15).max(1000);
            let id = u64::from(salt) * 7919 % rows;
            let long = (rows as f64 * 25.5 * dose) as u64;
            let (with, without) = two_tables(plan, number);
            let make = |name: &str, stars: String| {
                format!(
                    "CREATE TABLE {name} AS SELECT value AS movie, {stars} AS stars \
                     FROM generate_series(0, {})",
                    rows - 1
                )
            };
            let short = "1 + value % 50".to_owned();
            let one_long = format!("CASE WHEN value = {id} THEN {long} ELSE {short} END");
            let repeated = |count: &str| format!("repeat('5,4,', {count})");
            plan.setup.push(make(&with, repeated(&one_long)));
            plan.setup.push(make(&without, repeated(&short)));
            let ask = |name: &str| {
                format!(
                    "SELECT star, count(*) FROM (SELECT unnest(string_to_array(stars, ',')) AS star \
                     FROM {name}) GROUP BY star"
                )
            };
            plan.with.sql = ask(&with);
            plan.without.sql = ask(&without);
            plan.row = Some(format!("SELECT _row_id FROM {with} WHERE movie = {id}"));
            place.table = Some(with);
        }
        Fault::MultiplyingKey => {
            let rows = (size.rows / 4).max(1000);
            let repeated = ((rows as f64 * dose).sqrt() as u64).max(2);
            let key = u64::from(salt) + rows;
            place.keys = vec![key.to_string()];
            let make = |name: &str, keys: &str| {
                format!(
                    "CREATE TABLE {name} AS SELECT {keys} AS key, 'text ' || value % 1000 AS text \
                     FROM generate_series(0, {})",
                    rows - 1
                )
            };
            let one_key = format!("CASE WHEN value < {repeated} THEN {key} ELSE value END");
            let (with, without) = two_tables(plan, number);
            for (name, keys) in [(&with, one_key.as_str()), (&without, "value")] {
                for side in ["left", "right"] {
                    let name = format!("{name}_{side}");
                    plan.setup.push(make(&name, keys));
                    plan.teardown.push(format!("DROP TABLE IF EXISTS {name}"));
                }
            }
            let ask = |name: &str| {
                format!(
                    "SELECT count(*), sum(length(md5(l.text || r.text))) \
                     FROM {name}_left AS l JOIN {name}_right AS r ON l.key = r.key"
                )
            };
            plan.session.extend(EXCHANGED_JOINS.map(str::to_owned));
            plan.with.sql = ask(&with);
            plan.without.sql = ask(&without);
        }
        Fault::WrongEstimate => {
            let (with, other) = two_tables(plan, number);
            let value = format!(
                "CASE WHEN {} < {dose} THEN value % 10 ELSE value END",
                share(salt)
            );
            plan.setup.push(format!(
                "CREATE TABLE {with} AS SELECT value AS id, {value} AS a, {value} AS b, {value} AS c, \
                 'text ' || value % 1000 AS text FROM generate_series(0, {})",
                size.rows * 3 - 1
            ));
            plan.setup.push(format!(
                "CREATE TABLE {other} AS SELECT value * 10 AS id, 'label ' || value % 1000 AS label \
                 FROM generate_series(0, {})",
                size.rows / 10
            ));
            let ask = |filter: &str| {
                format!(
                    "SELECT count(*), sum(length(md5(l.text || r.label))) \
                     FROM {with} AS l JOIN {other} AS r ON l.id = r.id WHERE {filter}"
                )
            };
            // The planner takes the three conditions for independent. Of the second form it knows nothing.
            plan.with.sql = ask("l.a < 10 AND l.b < 10 AND l.c < 10");
            plan.without.sql = ask("abs(l.a) + abs(l.b) + abs(l.c) < 30");
        }
        Fault::SlowClient => {
            let pause = size.clean.max(Duration::from_millis(300)).mul_f64(dose);
            // Enough for all pauses, and to fill the socket's buffers.
            plan.with.sql = "SELECT id, key, amount, text FROM facts WHERE id < 100000".to_owned();
            plan.without.sql = plan.with.sql.clone();
            let by_cursor = salt.is_multiple_of(2);
            plan.with.reader = if by_cursor {
                Reader::Cursor(pause)
            } else {
                Reader::Pauses(pause)
            };
            plan.without.reader = if by_cursor {
                Reader::Cursor(Duration::ZERO)
            } else {
                Reader::Fast
            };
        }
        Fault::Queue => {
            plan.with
                .before
                .push("SET max_running_queries = 1".to_owned());
            plan.with.injections.push(Injection::Ahead {
                statements: dose as usize,
            });
            plan.with
                .after
                .push("SET max_running_queries = 100".to_owned());
        }
        Fault::Planning => {
            let ask = |tables: usize| {
                let joined: Vec<String> = (1..tables)
                    .map(|n| {
                        format!(
                            "JOIN tiny AS t{n} ON t{}.k = t{n}.k AND t{n}.k <> {n}",
                            n - 1
                        )
                    })
                    .collect();
                format!("SELECT count(*) FROM tiny AS t0 {}", joined.join(" "))
            };
            plan.with.sql = ask(dose as usize);
            plan.without.sql = ask(2);
        }
        Fault::StarvedProfiler => {
            plan.with
                .before
                .push(format!("SET profile.memory_bytes = '{dose} kB'"));
            plan.with
                .after
                .push("RESET profile.memory_bytes".to_owned());
        }
        Fault::SlowLink => {
            place.worker = Some(case.worker);
            let delay = Duration::from_secs_f64(dose / 1000.0);
            plan.with.injections.push(Injection::Delay {
                worker: case.worker,
                delay,
            });
        }
    }
    place
}

/// Names for the table with the fault and the one without it.
fn two_tables(plan: &mut Plan, number: usize) -> (String, String) {
    let names = (
        format!("case{number}_with"),
        format!("case{number}_without"),
    );
    for name in [&names.0, &names.1] {
        plan.teardown.push(format!("DROP TABLE IF EXISTS {name}"));
    }
    names
}
