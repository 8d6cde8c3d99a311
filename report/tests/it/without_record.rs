//! What a query takes without a record: estimated from the log, against what is known.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer_profiling::sampling::Choice;
use skewer_profiling::{Level, SysTables};

use super::Fixture;
use super::case::{Case, Did, MS, QUERY, did, waited};
use super::cases::Carts;
use skewer_diagnosis::ProfileSource;
use skewer_diagnosis::source::rows;
use skewer_diagnosis::what_if::{ShareOfBytes, estimate_sql};

/// The estimate in milliseconds.
async fn estimate(tables: &Arc<SysTables>, table: &str, row_id: i64) -> f64 {
    estimate_by_bytes(tables, (table, row_id), None).await
}

/// The same of a record that has a share of the bytes that a scan of its table read.
async fn estimate_by_bytes(
    tables: &Arc<SysTables>,
    (table, row_id): (&str, i64),
    bytes: Option<(f64, i64)>,
) -> f64 {
    let own = format!("SELECT CAST({row_id} AS BIGINT) AS id");
    let bytes = bytes.map(|(share, scan)| ShareOfBytes {
        share,
        scans: vec![scan],
    });
    let sql = estimate_sql(QUERY, table, &own, bytes.as_ref());
    let answer = Fixture::new(tables).query(&sql).await.unwrap();
    let without = rows(&answer).next().unwrap().integer("without_ns");
    without.unwrap() as f64 / MS as f64
}

/// How the tasks of a query follow each other.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// What is above the exchange begins when what is below it has ended.
    InTurn,
    /// Both work all the time.
    AtTheSameTime,
    /// One processor does it all.
    OnOneProcessor,
}

/// A table of lines that are parsed by one task, and unnested and counted by several.
#[derive(Debug)]
struct Lines {
    /// Words of each line, and the task that counts them.
    lines: Vec<(i64, usize)>,
    tasks: usize,
    /// Milliseconds for each word: to be read, parsed, unnested, looked at, counted.
    costs: [i64; 5],
    order: Order,
}

impl Lines {
    fn generate(random: &mut ChaCha8Rng) -> Self {
        let tasks = random.random_range(1..=6);
        let mut lines: Vec<(i64, usize)> = (0..random.random_range(2..40))
            .map(|_| (random.random_range(1..9), random.random_range(0..tasks)))
            .collect();
        let expensive = random.random_range(0..lines.len());
        lines[expensive].0 = random.random_range(1..300);
        Self {
            lines,
            tasks,
            costs: std::array::from_fn(|_| random.random_range(0..20)),
            order: [Order::InTurn, Order::AtTheSameTime, Order::OnOneProcessor]
                [random.random_range(0..3)],
        }
    }

    /// What the query takes, in milliseconds, if it has only the lines that `keep` says.
    fn takes(&self, keep: impl Fn(usize) -> bool) -> i64 {
        let [read, parse, unnest, look, count] = self.costs;
        let mut below = 0;
        let mut above = vec![0; self.tasks];
        for (line, (words, task)) in self.lines.iter().enumerate() {
            if keep(line) {
                below += words * (read + parse);
                above[*task] += words * (unnest + look + count);
            }
        }
        let longest = above.iter().copied().max().unwrap_or_default();
        match self.order {
            Order::InTurn => below + longest,
            Order::AtTheSameTime => below.max(longest),
            Order::OnOneProcessor => below + above.iter().sum::<i64>(),
        }
    }

    /// What is recorded of the query. The profiler took one part in ten of each task.
    fn profile(&self, planning_ms: i64, idle_ms: i64) -> Arc<SysTables> {
        let [read, parse, unnest, look, count] = self.costs.map(|cost| cost * 10);
        let case = Case::new(Level::Records, 1.0);
        let words_of = |task: usize| {
            let lines = self.lines.iter().filter(move |line| line.1 == task);
            lines.map(|line| line.0).sum::<i64>()
        };
        let words: i64 = self.lines.iter().map(|line| line.0).sum();
        let lines = self.lines.len() as i64;
        let in_tasks = |cost: i64| {
            let tasks = (0..self.tasks).map(|task| did(words_of(task), 3, cost * words_of(task)));
            tasks.collect::<Vec<_>>()
        };
        case.operator((0, 0, None), "CoalescePartitionsExec", "", &[did(3, 3, 0)]);
        let counting = in_tasks(count);
        case.operator((1, 1, Some(0)), "AggregateExec", "mode=Partial", &counting);
        case.operator((1, 2, Some(1)), "TimedEvaluationExec", "", &in_tasks(look));
        case.operator((1, 3, Some(2)), "UnnestExec", "", &in_tasks(unnest));
        let moved = in_tasks(0);
        case.operator((1, 4, Some(3)), "RepartitionExec", "", &moved);
        let parsing = [did(lines, lines, parse * words)];
        case.operator((2, 5, Some(4)), "TimedEvaluationExec", "", &parsing);
        let reading = [waited(
            0,
            lines,
            read * words / 2,
            read * words - read * words / 2,
        )];
        case.scan((2, 6, Some(5)), "main.t", "", &reading);
        let (mut parsed, mut looked, mut edges) = (vec![], vec![vec![]; self.tasks], vec![]);
        for (id, (words, task)) in (0..).zip(&self.lines) {
            parsed.push((id, parse * words));
            for word in 0..*words {
                looked[*task].push((id, look));
                edges.push((*task, (3 * *task as i64 + word % 3, id, 0)));
            }
        }
        case.latency((5, 0), "main.t", &parsed);
        for (task, looked) in looked.iter().enumerate() {
            let here = edges.iter().filter(|edge| edge.0 == task);
            let here: Vec<_> = here.map(|edge| edge.1).collect();
            case.latency((2, task as i64), "main.t", looked);
            case.lineage((1, task as i64), (6, Some("main.t")), &here);
        }
        case.outputs(1, &[0, 1, 2]);
        let busy = words * (read + parse + unnest + look + count);
        case.overhead(busy as u64 / 10);
        let execution = self.takes(|_| true) * 10 + idle_ms;
        case.finish("SELECT …", (planning_ms, execution), 3)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_estimate_is_what_the_query_takes_without_the_record() {
    let mut random = ChaCha8Rng::seed_from_u64(2019);
    let mut better = 0;
    for case in 0..24 {
        let query = Lines::generate(&mut random);
        let expensive = (0..query.lines.len()).max_by_key(|line| query.lines[*line].0);
        let expensive = expensive.unwrap();
        let (planning, idle) = (random.random_range(0..50), random.random_range(0..50));
        // Execution that is no task's can hide that a task waited for the only processor.
        let idle = if matches!(query.order, Order::InTurn) && query.tasks == 1 {
            idle
        } else {
            0
        };
        let tables = query.profile(planning, idle);
        let found = estimate(&tables, "main.t", expensive as i64).await;
        // One part in ten was the profiler's.
        let truth = (planning + idle + query.takes(|line| line != expensive) * 9) as f64;
        let all = (planning + idle + query.takes(|_| true) * 10) as f64;
        assert!(
            (found - truth).abs() <= 0.01 * all,
            "case {case}: {found} ms of {all} ms, not {truth} ms: {query:?}"
        );
        // The computation on the record alone, taken off the query's time, says less.
        let computed = query.lines[expensive].0 * (query.costs[1] + query.costs[3]) * 10;
        let cautious = all - computed as f64;
        better += usize::from((found - truth).abs() < (cautious - truth).abs());
    }
    assert!(better >= 20, "better in {better} of 24 cases");
}

/// A table `t` that is scanned, evaluated and counted, so many rows, by one task.
fn small(rows: i64, sample_rate: f64, wait_ms: i64) -> Case {
    let case = Case::new(Level::Records, sample_rate);
    let counted = [did(rows, 1, 100)];
    case.operator((0, 0, None), "AggregateExec", "mode=Single", &counted);
    let evaluated = [did(rows, rows, 800)];
    case.operator((0, 1, Some(0)), "TimedEvaluationExec", "", &evaluated);
    let scanned = [waited(0, rows, 100, wait_ms)];
    case.scan((0, 2, Some(1)), "main.t", "", &scanned);
    case.outputs(0, &[1]);
    case
}

#[tokio::test(flavor = "multi_thread")]
async fn execution_that_no_task_accounts_for_stays() {
    let case = small(2, 1.0, 0);
    case.latency((1, 0), "main.t", &[(1, 600), (2, 200)]);
    case.lineage((0, 0), (2, Some("main.t")), &[(1, 1, 600), (1, 2, 200)]);
    let tables = case.finish("SELECT …", (7, 5_000), 1);
    // Three of four parts of the evaluation, one of two edges.
    assert_eq!(
        estimate(&tables, "main.t", 1).await,
        5_007.0 - 600.0 - 100.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scan_waits_for_belongs_to_its_rows() {
    let case = small(4, 1.0, 400);
    case.latency((1, 0), "main.t", &[(1, 600), (2, 200)]);
    let edges = [(1, 1, 600), (1, 1, 0), (1, 1, 0), (1, 2, 200)];
    case.lineage((0, 0), (2, Some("main.t")), &edges);
    let tables = case.finish("SELECT …", (0, 1_400), 1);
    assert_eq!(estimate(&tables, "main.t", 1).await, 1_400.0 * 0.25);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_not_traced_count_as_those_that_were() {
    let case = small(3, 0.5, 0);
    let half = Choice::of_rate(0.5);
    let other = (2..).find(|id| half.traces(*id)).unwrap();
    // This one was traced before the rate fell to a half.
    let earlier = (2..).find(|id| !half.traces(*id)).unwrap();
    let latencies = [(1, 600), (other, 100), (earlier, 100)];
    case.latency((1, 0), "main.t", &latencies);
    let edges = latencies.map(|(id, ms)| (1, id, ms));
    case.lineage((0, 0), (2, Some("main.t")), &edges);
    let tables = case.finish("SELECT …", (0, 1_000), 1);
    // 600 of 600 + 2 × 100; one edge of 1 + 2 × 1.
    let without = 1_000.0 - 800.0 * 600.0 / 800.0 - 200.0 / 3.0;
    assert!((estimate(&tables, "main.t", 1).await - without).abs() < 0.001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_filter_removes_is_still_worth_its_evaluation() {
    let case = small(2, 1.0, 0);
    case.latency((1, 0), "main.t", &[(1, 799), (2, 1)]);
    case.lineage((0, 0), (2, Some("main.t")), &[(1, 2, 1)]);
    let tables = case.finish("SELECT …", (0, 1_000), 1);
    assert_eq!(estimate(&tables, "main.t", 1).await, 201.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_scan_took_for_a_long_record_goes_by_its_bytes() {
    let of = |case: Case| case.finish("SELECT …", (0, 1_400), 1);
    let case = small(2, 1.0, 400);
    case.latency((1, 0), "main.t", &[(1, 600), (2, 200)]);
    case.lineage((0, 0), (2, Some("main.t")), &[(1, 1, 600), (1, 2, 200)]);
    // Of the scan nine of ten bytes, of the aggregate one of two edges.
    let without = 1_400.0 - 600.0 - 0.9 * 500.0 - 50.0;
    let found = estimate_by_bytes(&of(case), ("main.t", 1), Some((0.9, 2))).await;
    assert!((found - without).abs() < 0.001, "{found}");
    // One that a filter removes is read, too.
    let case = small(2, 1.0, 400);
    case.latency((1, 0), "main.t", &[(1, 600), (2, 200)]);
    case.lineage((0, 0), (2, Some("main.t")), &[(1, 2, 200)]);
    let without = 1_400.0 - 600.0 - 0.9 * 500.0;
    let found = estimate_by_bytes(&of(case), ("main.t", 1), Some((0.9, 2))).await;
    assert!((found - without).abs() < 0.001, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_record_was_read_by_the_task_that_its_tuples_are_in() {
    let profile = |same_fragment: bool| {
        let case = Case::new(Level::Records, 1.0);
        let below = i64::from(!same_fragment);
        case.operator(
            (0, 0, None),
            "AggregateExec",
            "mode=Partial",
            &[did(10, 1, 0), did(10, 1, 0)],
        );
        let scanned = [did(0, 10, 100), did(0, 10, 900)];
        case.scan((below, 1, Some(0)), "main.t", "", &scanned);
        case.lineage((0, 0), (1, Some("main.t")), &[(1, 2, 0)]);
        case.lineage((0, 1), (1, Some("main.t")), &[(4, 1, 0), (4, 3, 0)]);
        case.outputs(0, &[1, 4]);
        case.finish("SELECT …", (0, 900), 2)
    };
    // 800 of 1000 ms were for the record, all of them in the second task.
    let found = estimate_by_bytes(&profile(true), ("main.t", 1), Some((0.8, 1))).await;
    assert!((found - 100.0).abs() < 0.001, "{found}");
    // Nobody knows which task it was.
    let found = estimate_by_bytes(&profile(false), ("main.t", 1), Some((0.8, 1))).await;
    assert!((found - 0.2 * 900.0).abs() < 0.001, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_join_a_record_is_one_of_the_rows() {
    let case = Case::new(Level::Records, 1.0);
    let counted = [did(100, 1, 100)];
    case.operator((0, 0, None), "AggregateExec", "mode=Single", &counted);
    let joined = [did(110, 100, 400)];
    case.operator((0, 1, Some(0)), "HashJoinExec", "mode=CollectLeft", &joined);
    let small = [did(0, 10, 300)];
    case.scan((0, 2, Some(1)), "main.small", "", &small);
    let large = [did(0, 100, 200)];
    case.scan((0, 3, Some(1)), "main.large", "", &large);
    // Record 1 of the small table meets 90 of 100 records of the large one.
    let small: Vec<_> = (0..100).map(|row| (1, 1 + row / 90, 0)).collect();
    let large: Vec<_> = (0..100).map(|row| (1, row, 0)).collect();
    case.lineage((0, 0), (2, Some("main.small")), &small);
    case.lineage((0, 0), (3, Some("main.large")), &large);
    case.outputs(0, &[1]);
    let tables = case.finish("SELECT …", (0, 1_000), 1);
    let without = 1_000.0 - 0.9 * (100.0 + 400.0) - 300.0 / 10.0;
    assert_eq!(estimate(&tables, "main.small", 1).await, without);
}

#[tokio::test(flavor = "multi_thread")]
async fn from_an_unnest_on_a_record_is_as_many_rows_as_arrive_also_below_a_join() {
    let carts = Carts {
        large: 1_000,
        ..Carts::default()
    };
    // All but the scans: 1,000 of 1,117 rows of 4 × 1,117 ms. The scan of the carts: 1 of 40.
    let without = 4.0 * 117.0 + 1.0 + 39.0;
    let found = estimate(&carts.fan_out(), "main.input", 1).await;
    assert!((found - without).abs() < 0.001, "{found}");
    // Where a join makes rows of the items, nobody knows how many of them were the cart's.
    let joined = Carts { joined: 2, ..carts };
    let without = 3.0 * 117.0 + 1_116.0 + 1.0 + 39.0;
    let found = estimate(&joined.fan_out(), "main.input", 1).await;
    assert!((found - without).abs() < 0.001, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_consumer_of_the_result_took_goes_by_its_rows() {
    let case = Case::new(Level::Records, 1.0);
    let unnest = Did {
        output_wait_ms: 60,
        ..did(10, 100, 20)
    };
    case.operator((0, 0, None), "UnnestExec", "", &[unnest]);
    case.scan((0, 1, Some(0)), "main.t", "", &[did(0, 10, 10)]);
    // Record 1 became 91 result rows, 2 to 10 one each.
    let records: Vec<i64> = (0..100).map(|row| (row - 89).max(1)).collect();
    case.outputs_of((1, Some("main.t")), &records);
    let tables = case.finish("SELECT unnest(items) FROM t", (1, 100), 100);
    let of_one = |rows: f64| 1.0 + 10.0 + (1.0 - rows / 100.0) * (60.0 + 30.0);
    let large = estimate(&tables, "main.t", 1).await;
    assert!((large - of_one(91.0)).abs() < 0.001, "{large}");
    let small = estimate(&tables, "main.t", 7).await;
    assert!((small - of_one(1.0)).abs() < 0.001, "{small}");
}

/// A union has the partitions of its inputs one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_one_of_the_rows_of_its_branch_of_a_union() {
    let of_tables = |second: &'static str| {
        let case = Case::new(Level::Records, 1.0);
        let aggregated = [did(10, 1, 10), did(90, 1, 90)];
        case.operator((0, 0, None), "AggregateExec", "", &aggregated);
        let union = [did(10, 10, 1), did(90, 90, 9)];
        case.operator((0, 1, Some(0)), "UnionExec", "", &union);
        case.scan((0, 2, Some(1)), "main.t", "", &[did(0, 10, 10)]);
        case.scan((0, 3, Some(1)), second, "", &[did(0, 90, 90)]);
        let edges = |group: i64, ids: std::ops::Range<i64>| -> Vec<_> {
            ids.map(|id| (group, id, 0)).collect()
        };
        case.lineage((0, 0), (2, Some("main.t")), &edges(1, 0..10));
        case.lineage((0, 1), (3, Some(second)), &edges(2, 0..90));
        case.outputs(0, &[1, 2]);
        case.finish("SELECT …", (0, 210), 2)
    };
    let close = |found: f64, without: f64| assert!((found - without).abs() < 0.001, "{found}");
    let two = of_tables("main.u");
    close(estimate(&two, "main.t", 7).await, 210.0 - 1.0 - 0.1 - 1.0);
    close(estimate(&two, "main.u", 7).await, 210.0 - 1.0 - 0.1 - 1.0);
    // A table that is read twice: both scans have the record.
    let twice = of_tables("main.t");
    close(estimate(&twice, "main.t", 7).await, 210.0 - 2.0 - 0.2 - 2.0);
}

/// Those that an exchange above the union brings together.
#[tokio::test(flavor = "multi_thread")]
async fn above_a_union_a_record_is_one_of_all_rows() {
    let case = Case::new(Level::Records, 1.0);
    case.operator((0, 0, None), "AggregateExec", "", &[did(100, 1, 100)]);
    case.operator(
        (0, 1, Some(0)),
        "CoalescePartitionsExec",
        "",
        &[did(100, 100, 0)],
    );
    case.operator((1, 2, Some(1)), "UnionExec", "", &[did(100, 100, 10)]);
    case.scan((1, 3, Some(2)), "main.t", "", &[did(0, 10, 10)]);
    case.scan((1, 4, Some(2)), "main.u", "", &[did(0, 90, 90)]);
    let edges = |ids: std::ops::Range<i64>| ids.map(|id| (1, id, 0)).collect::<Vec<_>>();
    case.lineage((0, 0), (3, Some("main.t")), &edges(0..10));
    case.lineage((0, 0), (4, Some("main.u")), &edges(0..90));
    case.outputs(0, &[1]);
    let tables = case.finish("SELECT …", (0, 210), 1);
    let without = estimate(&tables, "main.t", 7).await;
    let expected = 210.0 - 1.0 - 0.01 * (10.0 + 100.0);
    assert!((without - expected).abs() < 0.001, "{without}");
}
