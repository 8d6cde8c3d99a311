//! Queries that are recorded by hand.

use std::sync::Arc;

use skewer_profiling::{Level, SysTables};

use super::case::{Case, Did, did, waited};

/// The worked case of PerfDebug (SoCC '19), figure 5; records h1 to h5 have the row ids 1 to 5.
pub(crate) fn figure_5() -> Arc<SysTables> {
    let case = Case::new(Level::Records, 1.0);
    case.operator(
        (0, 0, None),
        "CoalescePartitionsExec",
        "",
        &[waited(5, 5, 0, 29_000)],
    );
    case.operator(
        (0, 1, Some(0)),
        "AggregateExec",
        "mode=FinalPartitioned, gby=[word@0 as word], aggr=[count(Int64(1))]",
        &[waited(4, 2, 60, 29_000), waited(6, 3, 120, 29_000)],
    );
    case.operator(
        (0, 2, Some(1)),
        "RepartitionExec",
        "partitioning=Hash([word@0], 2), input_partitions=2",
        &[waited(4, 4, 0, 29_000), waited(6, 6, 0, 29_000)],
    );
    case.operator(
        (1, 3, Some(2)),
        "AggregateExec",
        "mode=Partial, gby=[word@0 as word], aggr=[count(Int64(1))]",
        &[did(10, 5, 60), did(7, 5, 70)],
    );
    case.operator(
        (1, 4, Some(3)),
        "UnnestExec",
        "",
        &[did(3, 10, 1), did(2, 7, 1)],
    );
    case.operator(
        (1, 5, Some(4)),
        "TimedEvaluationExec",
        "expr=[words_of(line@0)]",
        &[did(3, 3, 29_459), did(2, 2, 424)],
    );
    case.scan(
        (1, 6, Some(5)),
        "main.input",
        "partitions=2, partition_sizes=[1, 1]",
        &[did(0, 3, 1), did(0, 2, 1)],
    );
    let input = (6, Some("main.input"));
    case.lineage(
        (3, 0),
        input,
        &[
            (1, 1, 486),
            (1, 2, 28848),
            (2, 1, 486),
            (2, 2, 28848),
            (3, 1, 486),
            (3, 2, 28848),
            (3, 3, 611),
            (4, 1, 486),
            (4, 2, 28848),
            (5, 1, 239),
        ],
    );
    case.lineage(
        (3, 1),
        input,
        &[
            (6, 5, 264),
            (7, 5, 264),
            (8, 4, 160),
            (8, 5, 264),
            (9, 4, 160),
            (9, 5, 264),
            (10, 4, 160),
        ],
    );
    case.lineage(
        (1, 0),
        (3, None),
        &[(1, 1, 0), (1, 6, 0), (2, 2, 0), (2, 7, 0)],
    );
    case.lineage(
        (1, 1),
        (3, None),
        &[
            (3, 3, 0),
            (3, 8, 0),
            (4, 4, 0),
            (4, 9, 0),
            (5, 5, 0),
            (5, 10, 0),
        ],
    );
    case.outputs(1, &[1, 2, 3, 4, 5]);
    case.latency((5, 0), "main.input", &[(1, 486), (2, 28848), (3, 611)]);
    case.latency((5, 1), "main.input", &[(4, 160), (5, 264)]);
    case.finish(
        "SELECT word, count(*)\nFROM (SELECT unnest(words_of(line)) AS word FROM input)\n\
         GROUP BY word",
        (3, 29_400),
        5,
    )
}

/// Ten groups over a thousand records, 900 of them in one group.
pub(crate) fn hot_key() -> Arc<SysTables> {
    let case = Case::new(Level::Records, 0.5);
    let gather = did(10, 10, 0);
    case.operator((0, 0, None), "CoalescePartitionsExec", "", &[gather]);
    case.operator(
        (0, 1, Some(0)),
        "AggregateExec",
        "mode=SinglePartitioned, gby=[state@0 as state], aggr=[median(weather.snow)]",
        &[did(990, 9, 1_900), did(10, 1, 20)],
    );
    case.operator(
        (0, 2, Some(1)),
        "RepartitionExec",
        "partitioning=Hash([state@0], 2), input_partitions=1",
        &[waited(990, 990, 2, 20), waited(10, 10, 1, 20)],
    );
    case.operator(
        (1, 3, Some(2)),
        "TimedEvaluationExec",
        "expr=[state_of(zip@0) as state]",
        &[did(1_000, 1_000, 10)],
    );
    case.scan(
        (1, 4, Some(3)),
        "main.weather",
        "file_groups={2 groups: [[tables/3/1.parquet], [tables/3/2.parquet]]}, \
         projection=[zip, snow], file_type=parquet",
        &[did(0, 1_000, 8)],
    );
    let edge = |record: i64| match record {
        0..900 => (1, record, 0),
        _ => (2 + record % 8, record, 0),
    };
    let edges: Vec<_> = (0..990).map(edge).collect();
    case.lineage((1, 0), (4, Some("main.weather")), &edges);
    let edges: Vec<_> = (990..1_000).map(|record| (10, record, 0)).collect();
    case.lineage((1, 1), (4, Some("main.weather")), &edges);
    case.outputs(1, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let sql = "SELECT state_of(zip) AS state, median(snow) FROM weather GROUP BY 1";
    case.finish(sql, (2, 1_980), 10)
}

/// Many trips against three boroughs, of which one takes long in every pair.
pub(crate) fn self_time() -> Arc<SysTables> {
    let case = Case::new(Level::Records, 1.0);
    case.operator(
        (0, 0, None),
        "AggregateExec",
        "mode=Single, gby=[name@1 as name], aggr=[avg(trips.cost)]",
        &[did(300, 3, 3)],
    );
    case.operator(
        (0, 1, Some(0)),
        "FilterExec",
        "within(x@0, y@1, shape@4)",
        &[did(900, 300, 3_100)],
    );
    case.operator((0, 2, Some(1)), "CrossJoinExec", "", &[did(303, 900, 2)]);
    case.scan((0, 3, Some(2)), "main.boroughs", "", &[did(0, 3, 1)]);
    case.scan((0, 4, Some(2)), "main.trips", "", &[did(0, 300, 1)]);
    let cost = |borough: i64| if borough == 2 { 9 } else { 0 };
    let trips: Vec<_> = (0..300)
        .map(|trip| (1 + trip % 3, trip, cost(1 + trip % 3)))
        .collect();
    let boroughs: Vec<_> = trips
        .iter()
        .map(|(name, _, cost)| (*name, *name, *cost))
        .collect();
    case.lineage((0, 0), (3, Some("main.boroughs")), &boroughs);
    case.lineage((0, 0), (4, Some("main.trips")), &trips);
    case.outputs(0, &[1, 2, 3]);
    let trips: Vec<_> = (0..300).map(|trip| (trip, 10)).collect();
    case.latency((1, 0), "main.trips", &trips);
    case.latency((1, 0), "main.boroughs", &[(1, 30), (2, 2_900), (3, 40)]);
    let sql = "SELECT name, avg(cost) FROM trips, boroughs WHERE within(x, y, shape) GROUP BY name";
    case.finish(sql, (8, 3_140), 3)
}

/// Carts of three items each, and one, with the row id 1, of another number; the items are joined with
/// a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carts {
    /// All of them.
    pub(crate) carts: i64,
    /// Items of the large one.
    pub(crate) large: i64,
    /// What makes rows of carts.
    pub(crate) makes_rows: &'static str,
    /// How many carts are as large as the first.
    pub(crate) alike: i64,
    /// How many rows the join returns for each item.
    pub(crate) joined: i64,
    /// Milliseconds that the scan of the carts takes.
    pub(crate) scan_ms: i64,
    /// Milliseconds that recording takes.
    pub(crate) recording_ms: u64,
    pub(crate) sample_rate: f64,
}

impl Default for Carts {
    fn default() -> Self {
        Self {
            carts: 40,
            large: 3_000,
            makes_rows: "UnnestExec",
            alike: 1,
            joined: 1,
            scan_ms: 40,
            recording_ms: 0,
            sample_rate: 1.0,
        }
    }
}

impl Carts {
    /// Items of all carts.
    fn items(self) -> i64 {
        3 * (self.carts - self.alike) + self.alike * self.large
    }

    /// The query that counts the items of each kind. An item takes a millisecond in what makes rows, two in
    /// the join and one in the aggregate.
    pub(crate) fn fan_out(self) -> Arc<SysTables> {
        let items = self.items();
        let rows = items * self.joined;
        let case = Case::new(Level::Records, self.sample_rate);
        case.operator(
            (0, 0, None),
            "AggregateExec",
            "mode=Single, gby=[kind@0 as kind], aggr=[count(Int64(1))]",
            &[did(rows, 2, items)],
        );
        let joined = [did(items + 5, rows, 2 * items)];
        let on = "mode=CollectLeft, join_type=Inner, on=[(item@0, item@0)]";
        case.operator((0, 1, Some(0)), "HashJoinExec", on, &joined);
        case.scan((0, 2, Some(1)), "main.kinds", "", &[did(0, 5, 1)]);
        let made = [did(self.carts, items, items)];
        case.operator((0, 3, Some(1)), self.makes_rows, "", &made);
        let scanned = [did(0, self.carts, self.scan_ms)];
        case.scan((0, 4, Some(3)), "main.input", "", &scanned);
        let cart = |item: i64| match item - self.alike * self.large {
            small if small >= 0 => 1 + self.alike + small / 3,
            _ => 1 + item / self.large,
        };
        let rows = (0..rows).map(|row| row / self.joined);
        let carts: Vec<_> = rows.clone().map(|item| (item % 2, cart(item), 0)).collect();
        let kinds: Vec<_> = rows.map(|item| (item % 2, item % 5, 0)).collect();
        case.lineage((0, 0), (4, Some("main.input")), &carts);
        case.lineage((0, 0), (2, Some("main.kinds")), &kinds);
        case.outputs(0, &[0, 1]);
        case.overhead(self.recording_ms);
        let sql = "SELECT kind, count(*) FROM (SELECT unnest(items) AS item FROM input) JOIN kinds \
                   USING (item) GROUP BY kind";
        case.finish(sql, (0, 4 * items + 1 + self.scan_ms), 2)
    }
}

/// Records that cost alike.
pub(crate) fn ordinary() -> Arc<SysTables> {
    let case = Case::new(Level::Records, 1.0);
    case.operator(
        (0, 0, None),
        "AggregateExec",
        "mode=Single, gby=[k@0 as k], aggr=[sum(t.v)]",
        &[did(100, 4, 12)],
    );
    case.operator(
        (0, 1, Some(0)),
        "TimedEvaluationExec",
        "expr=[f(v@1) as v]",
        &[did(100, 100, 203)],
    );
    case.scan((0, 2, Some(1)), "main.t", "", &[did(0, 100, 1)]);
    let edges: Vec<_> = (0..100)
        .map(|record| (record % 4, record, 2 + i64::from(record == 7)))
        .collect();
    case.lineage((0, 0), (2, Some("main.t")), &edges);
    case.outputs(0, &[0, 1, 2, 3]);
    let records: Vec<_> = edges.iter().map(|edge| (edge.1, edge.2)).collect();
    case.latency((1, 0), "main.t", &records);
    case.finish("SELECT k, sum(f(v)) FROM t GROUP BY k", (120, 220), 4)
}

/// A deep plan with a join, a spilling sort and uneven tasks, which failed in the end.
pub(crate) fn counters() -> Arc<SysTables> {
    let case = Case::new(Level::Counters, 1.0);
    let two = |rows_in: i64, rows_out: i64, self_ms: i64| {
        [
            did(rows_in, rows_out, self_ms),
            did(rows_in / 9, rows_out / 9, self_ms / 9),
        ]
    };
    let merged = waited(2_000_000, 2_000_000, 31, 4_100);
    case.operator(
        (0, 0, None),
        "SortPreservingMergeExec",
        "[total@1 DESC], fetch=100",
        &[merged],
    );
    let mut sort = two(1_800_000, 1_800_000, 1_350);
    sort[0].memory = 64 << 20;
    sort[1].memory = 8 << 20;
    sort[0].spilled = 190_000_000;
    case.operator(
        (1, 1, Some(0)),
        "SortExec",
        "expr=[total@1 DESC], preserve_partitioning=[true]",
        &sort,
    );
    case.operator(
        (1, 2, Some(1)),
        "ProjectionExec",
        "expr=[name@0 as name, sum(lineitem.price * Int64(1) - lineitem.discount)@1 as total]",
        &two(1_800_000, 1_800_000, 9),
    );
    case.operator(
        (1, 3, Some(2)),
        "AggregateExec",
        "mode=FinalPartitioned, gby=[name@0 as name], \
         aggr=[sum(lineitem.price * Int64(1) - lineitem.discount)]",
        &two(1_900_000, 1_800_000, 880),
    );
    case.operator(
        (1, 4, Some(3)),
        "RepartitionExec",
        "partitioning=Hash([name@0], 2), input_partitions=2",
        &two(1_900_000, 1_900_000, 90),
    );
    case.operator(
        (2, 5, Some(4)),
        "AggregateExec",
        "mode=Partial, gby=[name@0 as name], \
         aggr=[sum(lineitem.price * Int64(1) - lineitem.discount)]",
        &two(5_400_000, 1_900_000, 720),
    );
    case.operator(
        (2, 6, Some(5)),
        "ProjectionExec",
        "expr=[name@1 as name, price@2 as price, discount@3 as discount]",
        &two(5_400_000, 5_400_000, 4),
    );
    case.operator(
        (2, 7, Some(6)),
        "HashJoinExec",
        "mode=Partitioned, join_type=Left, on=[(id@0, part@2)], filter=price@1 > discount@2, \
         projection=[id@0, name@1, price@3, discount@4]",
        &two(5_600_000, 5_400_000, 610),
    );
    case.operator(
        (2, 8, Some(7)),
        "RepartitionExec",
        "partitioning=Hash([id@0], 2), input_partitions=1",
        &two(180_000, 180_000, 7),
    );
    case.operator(
        (3, 9, Some(8)),
        "DataSourceExec",
        "file_groups={1 group: [[data/part.parquet]]}, projection=[id, name], file_type=parquet",
        &[did(0, 200_000, 19)],
    );
    case.operator(
        (2, 10, Some(7)),
        "FilterExec",
        "price@1 > 100 AND discount@2 < Decimal128(0.05)",
        &two(6_000_000, 5_400_000, 55),
    );
    case.operator(
        (2, 11, Some(10)),
        "RepartitionExec",
        "partitioning=RoundRobinBatch(2), input_partitions=1",
        &two(6_000_000, 6_000_000, 3),
    );
    case.operator(
        (4, 12, Some(11)),
        "DataSourceExec",
        "file_groups={2 groups: [[data/a.parquet], [data/b.parquet]]}, \
         projection=[part, price, discount], file_type=parquet, predicate=price@1 > 100",
        &[did(0, 6_600_000, 140)],
    );
    case.end(
        "SELECT name, sum(price * (1 - discount)) AS total FROM part LEFT JOIN lineitem ON part.id = \
         lineitem.part AND price > discount WHERE price > 100 GROUP BY name ORDER BY total DESC",
        "failed",
        Some("the disk is full"),
        (14, 4_200),
        0,
    )
}

/// A query on three workers whose second stage is slow: what is above it waits, in the exchanges between
/// workers. A pass-through operator is below one of them.
pub(crate) fn on_workers() -> Arc<SysTables> {
    let case = Case::new(Level::Counters, 1.0);
    let on_three = |rows_in: i64, rows_out: i64, self_ms: i64, wait_ms: i64| -> Vec<Did> {
        (0..3)
            .map(|_| waited(rows_in / 3, rows_out / 3, self_ms / 3, wait_ms))
            .collect()
    };
    let gathered = "from 3 tasks";
    case.operator(
        (0, 0, None),
        "NetworkCoalesceExec",
        gathered,
        &[waited(300, 300, 0, 900)],
    );
    case.operator(
        (1, 1, Some(0)),
        "AggregateExec",
        "mode=FinalPartitioned, gby=[name@0 as name], aggr=[count(Int64(1))]",
        &on_three(3_000, 300, 60, 880),
    );
    case.operator(
        (1, 2, Some(1)),
        "NetworkShuffleExec",
        "partitioning=Hash([name@0], 3), input_partitions=1",
        &on_three(3_000, 3_000, 0, 870),
    );
    case.operator(
        (2, 3, Some(2)),
        "SoundPropertiesExec",
        "",
        &on_three(3_000, 3_000, 0, 0),
    );
    case.operator(
        (2, 4, Some(3)),
        "HashJoinExec",
        "mode=CollectLeft, join_type=Inner, on=[(kind@0, kind@1)]",
        &on_three(33_000, 3_000, 2_400, 0),
    );
    case.operator(
        (2, 5, Some(4)),
        "NetworkBroadcastExec",
        "input_partitions=1, consumer_tasks=3, output_partitions=3",
        &on_three(3_000, 3_000, 0, 30),
    );
    case.scan((3, 6, Some(5)), "main.kinds", "", &on_three(0, 1_000, 3, 0));
    case.scan(
        (2, 7, Some(4)),
        "main.input",
        "",
        &on_three(0, 30_000, 90, 0),
    );
    case.finish(
        "SELECT name, count(*) FROM input JOIN kinds USING (kind) GROUP BY name",
        (5, 950),
        300,
    )
}

/// A query of which nothing was recorded.
pub(crate) fn off() -> Arc<SysTables> {
    Case::new(Level::Off, 1.0).finish("SELECT 1", (1, 2), 1)
}
