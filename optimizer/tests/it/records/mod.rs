//! A plan at level `records` returns what the plain plan returns, and its log says exactly
//! which base rows each result row was computed from.

mod plans;
mod queries;
mod running;

use std::collections::{BTreeMap, BTreeSet};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::physical_plan::displayable;

use crate::records::queries::{REPLAYABLE, SAME_RESULT};
use crate::records::running::{
    Options, Profiled, context, only, run_plain, run_profiled, sorted, tables, try_profiled,
};

#[tokio::test]
async fn the_result_is_the_unprofiled_one() {
    let tables = tables(60);
    for options in Options::all() {
        let context = context(&tables, options);
        for sql in REPLAYABLE.iter().chain(SAME_RESULT) {
            let expected = run_plain(&context, sql).await;
            let profiled = run_profiled(&context, sql, options).await;
            if options.piggyback && REPLAYABLE.contains(sql) {
                let outputs: i64 = profiled.sources.values().sum();
                assert_eq!(outputs, expected.len() as i64, "{sql}: rows with a source");
            }
            if sql.contains("LIMIT 3") {
                assert_eq!(profiled.rows.len(), expected.len(), "{sql}");
                continue;
            }
            assert_eq!(
                sorted(profiled.rows),
                sorted(expected),
                "{sql}\n{}",
                profiled.plan
            );
        }
    }
}

/// Where ids are read without a join between, making them shorter would be one more step.
#[tokio::test]
async fn ids_are_narrow_below_joins_where_tables_say_that_they_fit() {
    let tables = tables(20);
    let join = "SELECT a.k, count(*) FROM a JOIN b ON a.k = b.k GROUP BY a.k";
    let below_an_aggregate =
        "SELECT m, w FROM (SELECT k, max(v) AS m FROM a GROUP BY k) AS g JOIN b ON g.k = b.k";
    for (sql, expected) in [
        (join, 2),
        (below_an_aggregate, 1),
        ("SELECT k, count(*) FROM a GROUP BY k", 0),
    ] {
        for narrow in [false, true] {
            let options = Options {
                narrow,
                ..Options::default()
            };
            let profiled = run_profiled(&context(&tables, options), sql, options).await;
            let found = profiled.plan.matches("narrow_id(").count();
            let expected = if narrow { expected } else { 0 };
            assert_eq!(found, expected, "{sql}\n{}", profiled.plan);
        }
    }
    for (piggyback, sample_rate) in [(true, None), (false, Some(0.5))] {
        let options = Options {
            narrow: true,
            piggyback,
            sample_rate,
            ..Options::default()
        };
        let profiled = run_profiled(&context(&tables, options), join, options).await;
        assert!(!profiled.plan.contains("narrow_id("), "{}", profiled.plan);
    }
}

#[tokio::test]
async fn every_result_row_is_made_again_from_its_lineage_alone() {
    let tables = tables(30);
    for options in [
        Options::default(),
        Options {
            skip_partial: true,
            narrow: true,
            ..Options::default()
        },
        Options {
            narrow: true,
            ..Options::default()
        },
    ] {
        let context_of_all = context(&tables, options);
        for sql in REPLAYABLE {
            let profiled = run_profiled(&context_of_all, sql, options).await;
            for (row, lineage) in profiled.rows.iter().zip(&profiled.lineage) {
                assert!(!lineage.is_empty(), "{sql}: {row} has no lineage");
                let small = context(&only(&tables, lineage), Options::default());
                let again = run_plain(&small, sql).await;
                assert!(
                    again.contains(row),
                    "{sql}: {row} is not made from {lineage:?} but {again:?}\n{}",
                    profiled.plan
                );
            }
        }
    }
}

#[tokio::test]
async fn a_groups_lineage_is_exactly_its_rows() {
    let tables = tables(60);
    let keys = tables["a"].column(0).as_primitive::<Int64Type>().clone();
    for options in [
        Options::default(),
        Options {
            skip_partial: true,
            ..Options::default()
        },
    ] {
        let context = context(&tables, options);
        let sql = "SELECT k, sum(v) FROM a GROUP BY k";
        let profiled = run_profiled(&context, sql, options).await;
        assert!(
            profiled.plan.contains("mode=Partial"),
            "not distributed:\n{}",
            profiled.plan
        );
        for (row, lineage) in profiled.rows.iter().zip(&profiled.lineage) {
            let key = row.split('|').next().unwrap().parse::<i64>().ok();
            let expected: BTreeSet<(String, i64)> = keys
                .iter()
                .enumerate()
                .filter(|(_, k)| *k == key)
                .map(|(i, _)| ("a".to_owned(), 100 + i as i64))
                .collect();
            assert_eq!(*lineage, expected, "{row}");
        }
    }
}

#[tokio::test]
async fn lineage_survives_spilled_groups() {
    let tables = tables(20_000);
    let options = Options {
        memory: Some(600_000),
        ..Options::default()
    };
    let context = context(&tables, options);
    let sql = "SELECT v * 1000 + k % 7 AS g, s, array_agg(k) FROM a GROUP BY 1, 2";
    let expected = run_plain(&context, sql).await.len();
    let profiled = run_profiled(&context, sql, options).await;
    assert_eq!(profiled.rows.len(), expected);
    let all: usize = profiled.lineage.iter().map(BTreeSet::len).sum();
    assert!(!profiled.spilled.is_empty(), "nothing was spilled");
    assert_eq!(all, 20_000, "every row is in the lineage of one group");
    let options = Options {
        piggyback: true,
        ..options
    };
    let profiled = run_profiled(&context, sql, options).await;
    assert_eq!(profiled.rows.len(), expected);
    assert!(!profiled.spilled.is_empty(), "nothing was spilled");
    assert!(!profiled.sources.is_empty());
}

/// Runs a query with less and less memory, until an operator spills. Which operators find memory depends on how
/// the others get on: where one runs out of it instead of spilling, another round may find it spilling.
async fn spilling(
    tables: &BTreeMap<&'static str, RecordBatch>,
    options: Options,
    (operator, sql): (&str, &str),
) -> Profiled {
    const ROUNDS: usize = 4;
    let mut last = String::new();
    for _ in 0..ROUNDS {
        let mut bytes = 4 << 20;
        while bytes > 4 << 10 {
            let options = Options {
                memory: Some(bytes),
                ..options
            };
            match try_profiled(&context(tables, options), sql, options).await {
                Ok(profiled) if profiled.spilled.contains(operator) => return profiled,
                Ok(profiled) => last = profiled.plan,
                Err(error) => last = error,
            }
            bytes -= bytes / 8;
        }
    }
    panic!("{sql}: {operator} does not spill, {last}");
}

#[tokio::test]
async fn lineage_is_the_same_where_sorts_joins_windows_and_groups_spill() {
    let tables = tables(6_000);
    let join = "a JOIN b ON a.k = b.k AND a.v = b.w";
    let (sort, merge, group) = ("SortExec", "SortMergeJoinExec", "AggregateExec");
    for (operator, sql) in [
        (sort, "SELECT k, v, s FROM a ORDER BY s, v, k"),
        (
            sort,
            "SELECT s, k, v, count(*) OVER (PARTITION BY s, k, v) FROM a",
        ),
        (sort, &format!("SELECT a.v, a.s, b.w FROM {join}")),
        (merge, &format!("SELECT a.v, a.s, b.w FROM {join}")),
        (
            group,
            "SELECT s, k, v, array_agg(s || v) FROM a GROUP BY s, k, v",
        ),
        (
            sort,
            &format!("SELECT s, count(*) FROM (SELECT s, w FROM {join}) AS j GROUP BY s"),
        ),
    ] {
        let options = Options {
            sort_merge: true,
            ..Options::default()
        };
        let whole = run_profiled(&context(&tables, options), sql, options).await;
        assert!(whole.spilled.is_empty());
        let spilled = spilling(&tables, options, (operator, sql)).await;
        let [whole, spilled] = [whole, spilled].map(|profiled| {
            let mut rows: Vec<_> = profiled.rows.into_iter().zip(profiled.lineage).collect();
            assert!(rows.iter().all(|(_, lineage)| !lineage.is_empty()), "{sql}");
            rows.sort();
            rows
        });
        assert!(whole == spilled, "{sql}: another lineage where it spills");
    }
}

#[tokio::test]
async fn a_sample_traces_the_same_records_every_time_and_no_others() {
    let tables = tables(400);
    let options = Options {
        sample_rate: Some(0.2),
        ..Options::default()
    };
    let context = context(&tables, options);
    let sql = "SELECT k, count(*) FROM a GROUP BY k";
    let mut seen = Vec::new();
    for _ in 0..2 {
        let profiled = run_profiled(&context, sql, options).await;
        assert_eq!(
            sorted(profiled.rows),
            sorted(run_plain(&context, sql).await)
        );
        let records: BTreeSet<_> = profiled.lineage.into_iter().flatten().collect();
        assert!((40..140).contains(&records.len()), "{}", records.len());
        seen.push(records);
    }
    assert_eq!(seen[0], seen[1]);
    let options = Options {
        piggyback: true,
        ..options
    };
    let profiled = run_profiled(&context, sql, options).await;
    assert!(!profiled.sources.is_empty());
    assert!(
        profiled
            .sources
            .keys()
            .all(|source| seen[0].contains(source))
    );
}

/// The joins of a plan, in order: their modes and types.
fn joins(plan: &str) -> Vec<String> {
    let lines = plan.lines().map(str::trim);
    let joins = lines.filter(|line| line.starts_with("HashJoinExec"));
    joins
        .map(|line| line.split(", on=").next().unwrap_or(line).to_owned())
        .collect()
}

#[tokio::test]
async fn what_is_timed_below_a_join_does_not_change_how_the_join_is_done() {
    let tables = tables(400);
    let context = context(&tables, Options::default());
    let sql = "SELECT count(*) FROM a JOIN b ON a.k = b.k WHERE a.s LIKE '%1%'";
    let plain = context.sql(sql).await.unwrap();
    let plain = plain.create_physical_plan().await.unwrap();
    let plain = joins(&displayable(plain.as_ref()).indent(false).to_string());
    let profiled = run_profiled(&context, sql, Options::default()).await;
    assert!(profiled.plan.contains("TimedEvaluationExec"));
    assert_eq!(joins(&profiled.plan), plain);
    assert!(plain[0].contains("CollectLeft"), "{plain:?}");
}

/// The elements of lists of up to 100 numbers.
const ELEMENTS: &str = "(SELECT k, unnest(range(0, v::BIGINT)) AS x FROM a)";

#[tokio::test]
async fn records_are_packed_only_between_an_unnest_and_what_takes_their_rows_at_once() {
    let context = context(&tables(60), Options::default());
    for (sql, is_packed) in [
        (
            format!("SELECT x, count(*) FROM {ELEMENTS} GROUP BY x"),
            true,
        ),
        (format!("SELECT sum(x) FROM {ELEMENTS} AS t"), true),
        (
            format!("SELECT count(DISTINCT k), count(DISTINCT x) FROM {ELEMENTS} AS t"),
            false,
        ),
        (
            format!("SELECT x, array_agg(k ORDER BY k) FROM {ELEMENTS} GROUP BY x"),
            false,
        ),
        (
            format!("SELECT x, count(*) FROM {ELEMENTS} WHERE x > k GROUP BY x"),
            false,
        ),
        (format!("SELECT x, k FROM {ELEMENTS} ORDER BY x"), false),
    ] {
        for piggyback in [false, true] {
            let options = Options {
                piggyback,
                ..Options::default()
            };
            let plan = run_profiled(&context, &sql, options).await.plan;
            assert_eq!(plan.contains("packed_record"), is_packed, "{sql}\n{plan}");
        }
    }
}

#[tokio::test]
async fn what_packed_records_take_is_packed_with_them() {
    let context = context(&tables(60), Options::default());
    let of_each_row = "(SELECT k, v::BIGINT AS x FROM a)";
    for (elements, timed, has_column) in [(ELEMENTS, 2, false), (of_each_row, 1, true)] {
        let sql = format!("SELECT repeat('x', x), count(*) FROM {elements} AS e GROUP BY 1");
        let profiled = run_profiled(&context, &sql, Options::default()).await;
        let plan = profiled.plan;
        assert_eq!(plan.matches("TimedEvaluationExec").count(), timed, "{plan}");
        let captured = plan.split("__skewer_capture_").nth(1).unwrap();
        let arguments = captured.split(')').next().unwrap();
        assert_eq!(arguments.contains("latency"), has_column, "{plan}");
    }
}

#[tokio::test]
async fn a_sample_traces_all_elements_of_its_records() {
    let tables = tables(400);
    let context_of_all = context(&tables, Options::default());
    let sql = format!("SELECT x, count(*) FROM {ELEMENTS} GROUP BY x");
    let options = Options {
        sample_rate: Some(0.2),
        ..Options::default()
    };
    let whole = run_profiled(&context_of_all, &sql, Options::default()).await;
    let sampled = run_profiled(&context_of_all, &sql, options).await;
    let records: BTreeSet<_> = sampled.lineage.iter().flatten().cloned().collect();
    assert!((40..140).contains(&records.len()), "{}", records.len());
    let of_row: BTreeMap<_, _> = sampled.rows.iter().zip(&sampled.lineage).collect();
    for (row, lineage) in whole.rows.iter().zip(&whole.lineage) {
        let traced: BTreeSet<_> = lineage.intersection(&records).cloned().collect();
        assert_eq!(*of_row[row], traced, "{row}");
    }
}

#[tokio::test]
async fn an_element_s_lineage_is_exactly_the_records_that_have_it() {
    let tables = tables(60);
    let sql = "SELECT x, max(upper(s)) \
               FROM (SELECT s, unnest(range(0, v::BIGINT)) AS x FROM a) AS t GROUP BY x";
    for skip_partial in [false, true] {
        for batch_rows in [16, 1000] {
            let options = Options {
                skip_partial,
                batch_rows: Some(batch_rows),
                ..Options::default()
            };
            let context = context(&tables, options);
            let profiled = run_profiled(&context, sql, options).await;
            assert_eq!(profiled.rows.len(), 100);
            for (row, lineage) in profiled.rows.iter().zip(&profiled.lineage) {
                let x: i64 = row.split('|').next().unwrap().parse().unwrap();
                let has_it = (0..60).filter(|i| (i * 37) % 101 > x);
                let expected = has_it.map(|i| ("a".to_owned(), 100 + i));
                assert_eq!(*lineage, expected.collect(), "{row}");
            }
        }
    }
}
