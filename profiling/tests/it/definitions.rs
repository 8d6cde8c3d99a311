//! On generated lineage the views give what the definitions say, evaluated naively: record by
//! record, without SQL.

use std::collections::BTreeMap;

use crate::support::*;
use datafusion::arrow::array::Int64Array;
use proptest::prelude::*;
use skewer_profiling::{
    Ids, Latencies, LatencyChunk, LatencyKind, Method, OutputChunk, Retention, SysTables,
};

const QUERY: i64 = 7;

/// Scans 1 and 3 read table `a`, scan 2 reads table `b`; 10, 11 and 12 capture lineage, each
/// from scans and from those before it.
const SCANS: [(i64, &str); 3] = [(1, "a"), (2, "b"), (3, "a")];
const CAPTURING: [i64; 3] = [10, 11, 12];

/// A record: of a table, or of an operator that captures lineage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    Base(&'static str, i64),
    Made(i64, i64),
}

#[derive(Debug, Clone)]
struct Edge {
    /// Operator and id of the record that was made.
    output: (i64, i64),
    input_operator: i64,
    input: i64,
    latency: i64,
}

/// A generated query. Its record `id` of an operator is in partition `id % 2`.
#[derive(Debug, Clone)]
struct Log {
    edges: Vec<Edge>,
    self_ns: BTreeMap<(i64, i64), i64>,
    /// Of each result row and origin a record, if it has one, and what it took.
    outputs: Vec<Vec<(i64, Option<i64>, i64)>>,
    /// Latencies of base records by themselves: table, row, nanoseconds.
    latencies: Vec<(&'static str, i64, i64)>,
}

fn table_of(operator: i64) -> Option<&'static str> {
    let scan = SCANS.iter().find(|(scan, _)| *scan == operator);
    scan.map(|(_, table)| *table)
}

fn record(operator: i64, id: i64) -> Record {
    match table_of(operator) {
        Some(table) => Record::Base(table, id),
        None => Record::Made(operator, id),
    }
}

fn log() -> impl Strategy<Value = Log> {
    (1..=3_usize).prop_flat_map(|levels| {
        let latency = prop_oneof![0..4_i64, 0..1000_i64];
        let edge = (0..levels, 0..5_i64, 0..5_usize, 0..6_i64, latency.clone());
        let edge = edge.prop_map(|(level, output, origin, input, latency)| {
            // Of the operators that exist below this one.
            let below: Vec<i64> = SCANS
                .iter()
                .map(|(scan, _)| *scan)
                .chain(CAPTURING[..level].iter().copied())
                .collect();
            Edge {
                output: (CAPTURING[level], output),
                input_operator: below[origin % below.len()],
                input,
                latency,
            }
        });
        let last = CAPTURING[levels - 1];
        let origins = prop_oneof![
            Just(vec![last]),
            Just(vec![last, 1]),
            Just(vec![last, 10]),
            Just(vec![2, 3]),
        ];
        let row = prop::collection::vec((prop::option::weighted(0.9, 0..5_i64), latency), 2);
        let rows = prop::collection::vec(row, 1..5);
        let outputs = (origins, rows).prop_map(|(origins, rows)| {
            let of_row = |row: Vec<(Option<i64>, i64)>| {
                origins
                    .iter()
                    .zip(row)
                    .map(|(origin, (id, ns))| (*origin, id, ns))
                    .collect()
            };
            rows.into_iter().map(of_row).collect()
        });
        let partition = (prop::sample::select(&CAPTURING[..]), 0..2_i64);
        (
            prop::collection::vec(edge, 1..30),
            prop::collection::btree_map(partition, 0..500_i64, 0..6),
            outputs,
            prop::collection::vec(
                (prop::sample::select(vec!["a", "b"]), 0..6_i64, 0..50_i64),
                0..6,
            ),
        )
            .prop_map(|(edges, self_ns, outputs, latencies)| Log {
                edges,
                self_ns,
                outputs,
                latencies,
            })
    })
}

/// What the definitions say about a record, or a result row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Latency {
    total: i64,
    source: Option<(i64, &'static str)>,
    remediated: Option<i64>,
    shuffle: i64,
}

impl Log {
    /// Of a record as it was made.
    fn latency_of(&self, record: &Record) -> Latency {
        match record {
            Record::Base(table, row) => Latency {
                total: 0,
                source: Some((*row, table)),
                remediated: None,
                shuffle: 0,
            },
            Record::Made(operator, id) => {
                let edges: Vec<&Edge> = self
                    .edges
                    .iter()
                    .filter(|edge| edge.output == (*operator, *id))
                    .collect();
                let inputs = edges.iter().map(|edge| {
                    let input = crate::definitions::record(edge.input_operator, edge.input);
                    arrived(self.latency_of(&input), edge.latency)
                });
                let shuffle = self.shuffle(*operator, *id % 2, edges.len());
                let slowest = slowest(inputs.collect());
                Latency {
                    total: slowest.total + shuffle,
                    remediated: slowest.remediated.map(|remediated| remediated + shuffle),
                    shuffle: slowest.shuffle + shuffle,
                    ..slowest
                }
            }
        }
    }

    fn shuffle(&self, operator: i64, partition: i64, edges: usize) -> i64 {
        let Some(self_ns) = self.self_ns.get(&(operator, partition)) else {
            return 0;
        };
        let in_partition =
            |edge: &&Edge| edge.output.0 == operator && edge.output.1 % 2 == partition;
        let all = self.edges.iter().filter(in_partition).count();
        if all == 0 {
            return 0;
        }
        (edges as f64 * (*self_ns as f64 / all as f64)).round() as i64
    }

    fn of_output(&self, row: usize) -> Latency {
        let records = self.outputs[row].iter().map(|(operator, id, latency)| {
            let made = match id {
                Some(id) => self.latency_of(&record(*operator, *id)),
                None => slowest(Vec::new()),
            };
            arrived(made, *latency)
        });
        slowest(records.collect())
    }

    /// The base records of a result row, with the latency of the slowest way.
    fn lineage(&self, row: usize) -> BTreeMap<(&'static str, i64), i64> {
        let mut found = BTreeMap::new();
        for (operator, id, latency) in &self.outputs[row] {
            if let Some(id) = id {
                self.follow(&record(*operator, *id), *latency, &mut found);
            }
        }
        found
    }

    fn follow(
        &self,
        record: &Record,
        latency: i64,
        found: &mut BTreeMap<(&'static str, i64), i64>,
    ) {
        match record {
            Record::Base(table, row) => {
                let slowest = found.entry((*table, *row)).or_insert(latency);
                *slowest = latency.max(*slowest);
            }
            Record::Made(operator, id) => {
                for edge in self
                    .edges
                    .iter()
                    .filter(|edge| edge.output == (*operator, *id))
                {
                    let input = crate::definitions::record(edge.input_operator, edge.input);
                    self.follow(&input, latency + edge.latency, found);
                }
            }
        }
    }

    fn self_time(&self, table: &str, row: i64) -> i64 {
        if self.latencies.is_empty() {
            let edges = self.edges.iter();
            let edges = edges
                .filter(|edge| table_of(edge.input_operator) == Some(table) && edge.input == row)
                .map(|edge| edge.latency);
            let outputs = self.outputs.iter().flatten();
            let outputs = outputs
                .filter(|(operator, id, _)| table_of(*operator) == Some(table) && *id == Some(row))
                .map(|(_, _, latency)| *latency);
            edges.chain(outputs).sum()
        } else {
            let latencies = self.latencies.iter();
            latencies
                .filter(|found| (found.0, found.1) == (table, row))
                .map(|found| found.2)
                .sum()
        }
    }

    fn record(&self, tables: &SysTables) {
        let recorder = recorder(QUERY);
        for ((operator, partition), self_ns) in &self.self_ns {
            recorder.operator_stats(stats(*operator, *partition, *self_ns));
        }
        for edge in &self.edges {
            let input = (edge.input_operator, table_of(edge.input_operator));
            let edges = [(edge.output.1, edge.input, edge.latency)];
            lineage(&recorder, (edge.output.0, edge.output.1 % 2), input, &edges);
        }
        // A chunk for each column of records: two of them may be of the same origin.
        for column in 0..self.outputs[0].len() {
            let origin = self.outputs[0][column].0;
            let records = self.outputs.iter().map(|row| row[column]);
            let (ids, ps): (Vec<Option<i64>>, Vec<i64>) =
                records.map(|(_, id, ns)| (id, ns * 1000)).unzip();
            recorder.output_records(OutputChunk {
                first_output_row: 0,
                operator_id: origin,
                table_name: table_of(origin).map(Into::into),
                record_ids: Ids::encode_nullable(&Int64Array::from(ids)),
                latency: Latencies::encode(&ps),
            });
        }
        for (table, row, ns) in &self.latencies {
            recorder.record_latency(LatencyChunk {
                fragment_id: 0,
                operator_id: 4,
                partition: 0,
                table_name: Some((*table).into()),
                row_ids: Ids::encode(&[*row]),
                latency: Latencies::encode(&[*ns * 1000]),
                kind: LatencyKind::Computation,
                method: Method::Measured,
                error: Latencies::constant(50_000, 1),
            });
        }
        tables.finish(&recorder, finished("SELECT"));
    }
}

fn arrived(record: Latency, latency: i64) -> Latency {
    Latency {
        total: record.total + latency,
        remediated: record.remediated.map(|remediated| remediated + latency),
        ..record
    }
}

/// The slowest of some records, and how slow the slowest would be without its source. Ties go
/// to the smallest row id, then to the first table, then to the least shuffle latency.
fn slowest(records: Vec<Latency>) -> Latency {
    let order = |record: &&Latency| {
        let source = record.source;
        (-record.total, source.is_none(), source, record.shuffle)
    };
    let Some(slowest) = records.iter().min_by_key(order).cloned() else {
        return Latency {
            total: 0,
            source: None,
            remediated: None,
            shuffle: 0,
        };
    };
    let without = |record: &Latency| {
        if slowest.source.is_some() && record.source == slowest.source {
            record.remediated
        } else {
            Some(record.total)
        }
    };
    Latency {
        remediated: records.iter().filter_map(without).max(),
        ..slowest
    }
}

fn texts(values: &[i64]) -> Vec<String> {
    values.iter().map(i64::to_string).collect()
}

async fn check(log: &Log) -> Result<(), TestCaseError> {
    let tables = SysTables::open(None, Retention::default());
    log.record(&tables);
    let context = session(&tables);

    let mut expected: Vec<Vec<String>> = Vec::new();
    let mut impacts: BTreeMap<(i64, &str), (i64, i64, i64)> = BTreeMap::new();
    for row in 0..log.outputs.len() {
        let latency = log.of_output(row);
        let remediated = latency.remediated.unwrap_or(0);
        let (source, table) = match latency.source {
            Some((source, table)) => (source.to_string(), table.to_owned()),
            None => (String::new(), String::new()),
        };
        let mut texts = texts(&[row as i64, latency.total]);
        texts.extend([table, source]);
        texts.extend(self::texts(&[remediated, latency.shuffle]));
        expected.push(texts);
        if let Some(source) = latency.source {
            let impact = impacts.entry(source).or_default();
            impact.0 = impact.0.max(latency.total);
            impact.1 = impact.1.max(remediated);
            impact.2 += 1;
        }
    }
    let sql = "SELECT output_row, total_ns, source_table, source_row_id, remediated_ns, shuffle_ns
               FROM sys.output_latency WHERE query_id = 7 ORDER BY output_row";
    prop_assert_eq!(rows(&context, sql).await, expected);

    let mut expected: Vec<(i64, i64, &str, Vec<String>)> = impacts
        .iter()
        .map(|((row, table), (total, remediated, outputs))| {
            let impact = total - remediated;
            let self_time = log.self_time(table, *row);
            let mut texts = vec![(*table).to_owned()];
            texts.extend(self::texts(&[
                *row,
                impact,
                *total,
                *remediated,
                *outputs,
                self_time,
            ]));
            (-impact, *row, *table, texts)
        })
        .collect();
    expected.sort();
    let expected: Vec<Vec<String>> = expected.into_iter().map(|impact| impact.3).collect();
    let sql =
        "SELECT table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns
               FROM sys.expensive_inputs WHERE query_id = 7 ORDER BY rank";
    prop_assert_eq!(rows(&context, sql).await, expected);

    let lineages: Vec<_> = (0..log.outputs.len()).map(|row| log.lineage(row)).collect();
    for (row, lineage) in lineages.iter().enumerate().take(2) {
        let expected: Vec<Vec<String>> = lineage
            .iter()
            .map(|((table, row), latency)| {
                vec![(*table).to_owned(), row.to_string(), latency.to_string()]
            })
            .collect();
        let sql = format!(
            "SELECT table_name, row_id, latency_ns FROM backward_trace(7, {row}) ORDER BY 1, 2"
        );
        prop_assert_eq!(rows(&context, &sql).await, expected);
    }
    // To ask for a table that the query has not read is an error.
    let origins = log.edges.iter().map(|edge| edge.input_operator);
    let of_outputs = log.outputs.iter().flatten().map(|(origin, _, _)| *origin);
    let Some(table) = origins.chain(of_outputs).filter_map(table_of).min() else {
        return Ok(());
    };
    let row = 2;
    let expected: Vec<Vec<String>> = lineages
        .iter()
        .enumerate()
        .filter(|(_, lineage)| lineage.contains_key(&(table, row)))
        .map(|(output, _)| vec![output.to_string()])
        .collect();
    let sql = format!("SELECT output_row FROM forward_trace(7, '{table}', {row}) ORDER BY 1");
    prop_assert_eq!(rows(&context, &sql).await, expected);
    Ok(())
}

proptest! {
    // A case plans four to five statements, which takes a second without optimisation.
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn views_and_traces_follow_the_definitions(log in log()) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(check(&log))?;
    }
}
