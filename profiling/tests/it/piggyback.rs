//! What records carry in their rows is what the SQL over the log says of them: of generated
//! lineages, of several aggregates, partitions, tables and ties.

use std::collections::BTreeMap;

use crate::support::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use skewer_profiling::{Carried, Gathering, Impacts, LineageMode, Retention, Sources, SysTables};

const TABLES: [&str; 2] = ["main.t", "main.u"];

/// The scan of a table, by its place in `TABLES`; aggregates have the numbers from 0 on.
const SCANS: [i64; 2] = [100, 101];

/// A record and what it takes on its way to who is made of it.
#[derive(Debug, Clone)]
struct Input {
    /// From the aggregate before, or a table.
    record: Origin,
    ns: i64,
}

#[derive(Debug, Clone)]
enum Origin {
    Base {
        table: usize,
        row_id: i64,
    },
    /// The record of a group, modulo their number; there is none before the first aggregate.
    Group(usize),
}

/// Groups of one partition, each of some inputs.
#[derive(Debug, Clone)]
struct Partition {
    self_ns: i64,
    groups: Vec<Vec<Input>>,
}

/// Aggregates, each with the groups of the one before, and result rows.
#[derive(Debug, Clone)]
struct Case {
    aggregates: Vec<Vec<Partition>>,
    outputs: Vec<Vec<Input>>,
}

fn input() -> impl Strategy<Value = Input> {
    let origin = prop_oneof![
        1 => (0..2usize, 1..6i64).prop_map(|(table, row_id)| Origin::Base { table, row_id }),
        2 => (0..50usize).prop_map(Origin::Group),
    ];
    // Few different latencies, so that there are ties.
    (origin, 0..5i64).prop_map(|(record, ns)| Input {
        record,
        ns: ns * 100,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let inputs = |least| prop::collection::vec(input(), least..5);
    let partition = (0..1000i64, prop::collection::vec(inputs(0), 1..4))
        .prop_map(|(self_ns, groups)| Partition { self_ns, groups });
    let aggregate = prop::collection::vec(partition, 1..3);
    let aggregates = prop::collection::vec(aggregate, 0..4);
    (aggregates, prop::collection::vec(inputs(1), 1..6)).prop_map(|(aggregates, outputs)| Case {
        aggregates,
        outputs,
    })
}

impl Case {
    /// The base record or the group that an input is, where `groups` come from the aggregate before.
    fn resolve(input: &Input, groups: usize) -> Origin {
        match input.record {
            Origin::Group(_) if groups == 0 => Origin::Base {
                table: 0,
                row_id: 3,
            },
            Origin::Group(group) => Origin::Group(group % groups),
            Origin::Base { table, row_id } => Origin::Base { table, row_id },
        }
    }

    /// Records it in the log, as query 1.
    fn log(&self, tables: &SysTables) {
        let recorder = recorder(1);
        let mut before = 0;
        for (operator, partitions) in (0..).zip(&self.aggregates) {
            let mut made = 0;
            for (partition, work) in (0..).zip(partitions) {
                recorder.operator_stats(stats(operator, partition, work.self_ns));
                let mut edges: BTreeMap<Option<usize>, Vec<(i64, i64, i64)>> = BTreeMap::new();
                for group in &work.groups {
                    for input in group {
                        let (table, id) = match Self::resolve(input, before) {
                            Origin::Base { table, row_id } => (Some(table), row_id),
                            Origin::Group(group) => (None, group as i64),
                        };
                        let edge = (made as i64, id, input.ns);
                        edges.entry(table).or_default().push(edge);
                    }
                    made += 1;
                }
                for (table, edges) in edges {
                    let origin = match table {
                        Some(table) => (SCANS[table], Some(TABLES[table])),
                        None => (operator - 1, None),
                    };
                    lineage(&recorder, (operator, partition), origin, &edges);
                }
            }
            before = made;
        }
        for (row, inputs) in (0..).zip(&self.outputs) {
            for input in inputs {
                let (origin, id) = match Self::resolve(input, before) {
                    Origin::Base { table, row_id } => ((SCANS[table], Some(TABLES[table])), row_id),
                    Origin::Group(group) => {
                        ((self.aggregates.len() as i64 - 1, None), group as i64)
                    }
                };
                outputs(&recorder, row, origin, &[(id, input.ns)]);
            }
        }
        tables.finish(&recorder, finished("SELECT"));
    }

    /// Carries it from record to record, as query 2.
    fn carry(&self, tables: &SysTables) {
        let sources = Sources::new(TABLES);
        let arrives = |input: &Input, groups: &[Carried]| {
            let record = match Self::resolve(input, groups.len()) {
                Origin::Base { table, row_id } => {
                    let (factor, offset) = sources.number(TABLES[table]).unwrap();
                    Carried::base(row_id * factor + offset)
                }
                Origin::Group(group) => groups[group],
            };
            record.after(input.ns * 1000)
        };
        let mut before: Vec<Carried> = Vec::new();
        for partitions in &self.aggregates {
            let mut made = Vec::new();
            for work in partitions {
                let mut gathering = Gathering::default();
                gathering.resize(work.groups.len());
                for (group, inputs) in work.groups.iter().enumerate() {
                    for input in inputs {
                        gathering.arrival().add(group, arrives(input, &before));
                    }
                }
                let emitted = gathering.emit(work.groups.len(), work.self_ns, &mut 0.0);
                made.extend(emitted.map(|(carried, _)| carried));
            }
            before = made;
        }
        let mut impacts = Impacts::default();
        for inputs in &self.outputs {
            let records = inputs.iter().map(|input| arrives(input, &before));
            impacts.add(records.reduce(Carried::and).unwrap());
        }
        let recorder = recorder(2);
        recorder.set_lineage_mode(LineageMode::Piggyback);
        recorder.impactful_sources(impacts.rows(&sources), impacts.forgotten());
        tables.finish(&recorder, finished("SELECT"));
    }
}

#[test]
fn carried_latencies_are_those_of_the_log() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    let test = |case: Case| {
        runtime.block_on(async {
            let tables = SysTables::open(None, Retention::default());
            case.log(&tables);
            case.carry(&tables);
            let context = session(&tables);
            let mut answers = Vec::new();
            for query in [1, 2] {
                let sql = format!(
                    "SELECT rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,
                            outputs
                     FROM sys.expensive_inputs WHERE query_id = {query} ORDER BY rank"
                );
                answers.push(rows(&context, &sql).await);
            }
            prop_assert_eq!(&answers[0], &answers[1]);
            Ok(())
        })
    };
    runner.run(&case(), test).unwrap();
}
