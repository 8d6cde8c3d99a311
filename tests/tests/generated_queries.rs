//! Generated queries: profiled they return what they return unprofiled, and the lineage of every
//! row is what a naive evaluator that carries sets of row ids says.
//!
//! Deterministic. `SKEWER_SEED=n` generates other queries, `SKEWER_CASES=n` another number of them.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::Volatility;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, Level, Session};
use skewer_tests::contents::{lines, query};

type Random = ChaCha8Rng;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The cases of a test: a name to find one again, and its source of randomness.
fn cases(default: u64) -> impl Iterator<Item = (String, Random)> {
    let seed = setting("SKEWER_SEED", 2019);
    (0..setting("SKEWER_CASES", default)).map(move |case| {
        let mut random = Random::seed_from_u64(seed);
        random.set_stream(case);
        (format!("SKEWER_SEED={seed}, case {case}"), random)
    })
}

/// A session with small batches, so that small tables have many, and functions that take time.
async fn session(database: &Database, level: Level, skip_partial: bool) -> Session {
    let session = database.session();
    for sql in [
        format!("SET profile.level = '{level}'"),
        "SET datafusion.execution.batch_size = 4".to_owned(),
    ] {
        session.sql(&sql).await.unwrap();
    }
    if skip_partial {
        for sql in [
            "SET datafusion.execution.skip_partial_aggregation_probe_rows_threshold = 0",
            "SET datafusion.execution.skip_partial_aggregation_probe_ratio_threshold = 0.0",
        ] {
            session.sql(sql).await.unwrap();
        }
    }
    session.register_row_udf(
        "same",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |row| Ok(row[0].clone()),
    );
    session
}

/// A query's schema and rows, or its error.
async fn run(session: &Session, sql: &str) -> Result<(SchemaRef, Vec<String>, i64), String> {
    let stream = session.sql(sql).await.map_err(|e| e.to_string())?;
    let (schema, query_id) = (stream.schema(), stream.query_id());
    let batches = stream.collect().await.map_err(|e| e.to_string())?;
    let rows = lines(&batches).map_err(|e| e.to_string())?;
    Ok((schema, rows, query_id.unwrap_or_default()))
}

// Queries with everything.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Integer,
    Float,
    Text,
}

/// A query in parentheses and the types of its columns, which are called `c0`, `c1`, …
#[derive(Debug, Clone)]
struct Relation {
    sql: String,
    types: Vec<Type>,
}

/// Generates queries with everything.
struct Generator {
    random: Random,
    aliases: usize,
}

impl Generator {
    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.choose(&mut self.random).expect("a choice")
    }

    fn relation(&mut self, depth: usize) -> Relation {
        if depth == 0 {
            return if self.below(2) == 0 {
                Relation {
                    sql: "(SELECT a AS c0, b AS c1, f AS c2, s AS c3 FROM t)".to_owned(),
                    types: vec![Type::Integer, Type::Integer, Type::Float, Type::Text],
                }
            } else {
                Relation {
                    sql: "(SELECT a AS c0, d AS c1, s AS c2 FROM u)".to_owned(),
                    types: vec![Type::Integer, Type::Integer, Type::Text],
                }
            };
        }
        match self.below(13) {
            0 | 1 => self.project(depth),
            2 => self.filter(depth),
            3 | 4 => self.join(depth),
            5 | 6 => self.aggregate(depth),
            7 => self.distinct(depth),
            8 => self.set_operation(depth),
            9 => self.sort_limit(depth),
            10 => self.window(depth),
            11 => self.unnest(depth),
            _ => self.subquery(depth),
        }
    }

    /// An expression of a type over columns of these types.
    fn expression(&mut self, types: &[Type], wanted: Type, alias: &str) -> String {
        let columns: Vec<usize> = (0..types.len()).filter(|c| types[*c] == wanted).collect();
        let Some(column) = columns.choose(&mut self.random) else {
            return match wanted {
                Type::Integer => "CAST(7 AS BIGINT)".to_owned(),
                Type::Float => "CAST(0.5 AS DOUBLE)".to_owned(),
                Type::Text => "'p,q'".to_owned(),
            };
        };
        let column = format!("{alias}.c{column}");
        let number = self.below(4);
        match (wanted, self.below(6)) {
            (Type::Integer, 0) => format!("{column} + {number}"),
            (Type::Integer, 1) => format!("coalesce({column}, {number})"),
            (Type::Integer, 2) => format!("same({column})"),
            (Type::Integer, 3) => {
                format!("CASE WHEN {column} > {number} THEN {column} ELSE -1 END")
            }
            (Type::Float, 0) => format!("{column} * 0.5"),
            (Type::Text, 0) => format!("upper({column})"),
            (Type::Text, 1) => format!("{column} || ',{number}'"),
            (Type::Text, 2) => format!("replace({column}, 'x', 'yx')"),
            _ => column,
        }
    }

    fn predicate(&mut self, types: &[Type], alias: &str) -> String {
        let wanted = [Type::Integer, Type::Integer, Type::Float, Type::Text][self.below(4)];
        let left = self.expression(types, wanted, alias);
        let number = self.below(5);
        let one = match (wanted, self.below(5)) {
            (_, 0) => format!("{left} IS NOT NULL"),
            (Type::Text, 1 | 2) => format!("{left} LIKE '%{}%'", self.pick(&["x", "y", "z", ","])),
            (Type::Text, _) => format!("{left} >= 'x1'"),
            (Type::Integer, 1) => format!("{left} IN (1, 2, {number})"),
            (_, 2) => format!("{left} <> {number}"),
            (_, _) => format!("{left} > {number}"),
        };
        match self.below(6) {
            0 => format!("NOT ({one})"),
            1 => format!("({one} OR {})", self.predicate(types, alias)),
            2 => format!("{one} AND {}", self.predicate(types, alias)),
            _ => one,
        }
    }

    fn project(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let width = 1 + self.below(4);
        let mut types = Vec::new();
        let mut items = Vec::new();
        for position in 0..width {
            let wanted = [Type::Integer, Type::Integer, Type::Float, Type::Text][self.below(4)];
            let expression = self.expression(&input.types, wanted, &alias);
            items.push(format!("{expression} AS c{position}"));
            types.push(wanted);
        }
        let sql = format!(
            "(SELECT {} FROM {} AS {alias})",
            items.join(", "),
            input.sql
        );
        Relation { sql, types }
    }

    fn filter(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let predicate = self.predicate(&input.types, &alias);
        let sql = format!("(SELECT * FROM {} AS {alias} WHERE {predicate})", input.sql);
        Relation { sql, ..input }
    }

    /// Two columns of the same type to join on, if there are any.
    fn condition(&mut self, left: &Relation, right: &Relation, l: &str, r: &str) -> Option<String> {
        let mut pairs = Vec::new();
        for (i, one) in left.types.iter().enumerate() {
            for (j, other) in right.types.iter().enumerate() {
                if one == other {
                    pairs.push(format!("{l}.c{i} = {r}.c{j}"));
                }
            }
        }
        pairs.choose(&mut self.random).cloned()
    }

    fn join(&mut self, depth: usize) -> Relation {
        let left = self.relation(depth - 1);
        let below = self.below(depth);
        let right = self.relation(below);
        let (l, r) = (self.alias(), self.alias());
        let Some(mut on) = self.condition(&left, &right, &l, &r) else {
            return left;
        };
        if self.below(4) == 0 {
            let more = self.predicate(&right.types, &r);
            on = format!("{on} AND {more}");
        }
        let kind = self.pick(&[
            "INNER",
            "INNER",
            "LEFT",
            "RIGHT",
            "FULL",
            "LEFT SEMI",
            "LEFT ANTI",
        ]);
        let mut items: Vec<_> = (0..left.types.len())
            .map(|c| format!("{l}.c{c} AS c{c}"))
            .collect();
        let mut types = left.types.clone();
        if !kind.contains("SEMI") && !kind.contains("ANTI") {
            for (c, kind) in right.types.iter().enumerate().take(3) {
                items.push(format!("{r}.c{c} AS c{}", types.len()));
                types.push(*kind);
            }
        }
        let sql = format!(
            "(SELECT {} FROM {} AS {l} {kind} JOIN {} AS {r} ON {on})",
            items.join(", "),
            left.sql,
            right.sql
        );
        Relation { sql, types }
    }

    fn aggregate(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let mut items = Vec::new();
        let mut types = Vec::new();
        let mut keys = Vec::new();
        for _ in 0..self.below(3) {
            let wanted = [Type::Integer, Type::Text][self.below(2)];
            let key = self.expression(&input.types, wanted, &alias);
            if key.contains(&alias) {
                keys.push((types.len() + 1).to_string());
                items.push(format!("{key} AS c{}", types.len()));
                types.push(wanted);
            }
        }
        for _ in 0..=self.below(3) {
            let argument = self.expression(&input.types, Type::Integer, &alias);
            let float = self.expression(&input.types, Type::Float, &alias);
            let text = self.expression(&input.types, Type::Text, &alias);
            let (item, kind) = match self.below(9) {
                0 => ("count(*)".to_owned(), Type::Integer),
                1 => (format!("count({text})"), Type::Integer),
                2 => (format!("count(DISTINCT {argument})"), Type::Integer),
                3 => (format!("sum({argument})"), Type::Integer),
                4 => (format!("avg({float})"), Type::Float),
                5 => (format!("max({text})"), Type::Text),
                6 => (format!("min({argument})"), Type::Integer),
                7 => {
                    let filter = self.predicate(&input.types, &alias);
                    (format!("sum({float}) FILTER (WHERE {filter})"), Type::Float)
                }
                _ => (format!("max({argument}) - min({argument})"), Type::Integer),
            };
            items.push(format!("{item} AS c{}", types.len()));
            types.push(kind);
        }
        let mut sql = format!("SELECT {} FROM {} AS {alias}", items.join(", "), input.sql);
        if !keys.is_empty() {
            let rollup = self.below(6) == 0;
            let keys = if rollup {
                let keys = items[..keys.len()].iter();
                let keys: Vec<_> = keys
                    .map(|item| item.rsplit_once(" AS ").unwrap().0)
                    .collect();
                format!("ROLLUP ({})", keys.join(", "))
            } else {
                keys.join(", ")
            };
            sql = format!("{sql} GROUP BY {keys}");
            if self.below(4) == 0 {
                sql = format!("{sql} HAVING count(*) > 1");
            }
        }
        Relation {
            sql: format!("({sql})"),
            types,
        }
    }

    fn distinct(&mut self, depth: usize) -> Relation {
        let input = self.project(depth);
        let alias = self.alias();
        let sql = format!("(SELECT DISTINCT * FROM {} AS {alias})", input.sql);
        Relation { sql, ..input }
    }

    fn set_operation(&mut self, depth: usize) -> Relation {
        let left = self.relation(depth - 1);
        let below = self.below(depth);
        let right = self.relation(below);
        let (l, r) = (self.alias(), self.alias());
        let types: Vec<_> = left.types.iter().copied().take(2).collect();
        let mut sides = Vec::new();
        for (side, alias) in [(&left, &l), (&right, &r)] {
            let items: Vec<_> = types
                .iter()
                .enumerate()
                .map(|(c, kind)| format!("{} AS c{c}", self.expression(&side.types, *kind, alias)))
                .collect();
            sides.push(format!(
                "SELECT {} FROM {} AS {alias}",
                items.join(", "),
                side.sql
            ));
        }
        let operation = self.pick(&["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"]);
        let sql = format!("({} {operation} {})", sides[0], sides[1]);
        Relation { sql, types }
    }

    /// Ordered by all columns: rows that tie are the same.
    fn order(types: &[Type]) -> String {
        let keys: Vec<_> = (0..types.len()).map(|c| format!("c{c}")).collect();
        keys.join(", ")
    }

    fn sort_limit(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let order = Self::order(&input.types);
        let (limit, offset) = (1 + self.below(9), self.below(3));
        let sql = format!(
            "(SELECT * FROM {} AS {alias} ORDER BY {order} LIMIT {limit} OFFSET {offset})",
            input.sql
        );
        Relation { sql, ..input }
    }

    fn window(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let order = Self::order(&input.types);
        let argument = self.expression(&input.types, Type::Integer, &alias);
        let key = self.below(input.types.len());
        let function = match self.below(4) {
            0 => format!("row_number() OVER (ORDER BY {order})"),
            1 => format!("rank() OVER (PARTITION BY c{key} ORDER BY {order})"),
            2 => format!("sum({argument}) OVER (PARTITION BY c{key})"),
            _ => format!("lag({argument}) OVER (ORDER BY {order})"),
        };
        let mut types = input.types;
        // An unsigned rank becomes what the others are.
        let sql = format!(
            "(SELECT {alias}.*, CAST({function} AS BIGINT) AS c{} FROM {} AS {alias})",
            types.len(),
            input.sql
        );
        types.push(Type::Integer);
        Relation { sql, types }
    }

    fn unnest(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let text = self.expression(&input.types, Type::Text, &alias);
        let number = self.expression(&input.types, Type::Integer, &alias);
        let sql = format!(
            "(SELECT {number} AS c0, unnest(string_to_array({text}, ',')) AS c1 FROM {} AS {alias})",
            input.sql
        );
        Relation {
            sql,
            types: vec![Type::Integer, Type::Text],
        }
    }

    fn subquery(&mut self, depth: usize) -> Relation {
        let (outer, inner) = (self.relation(depth - 1), self.relation(0));
        let (o, i) = (self.alias(), self.alias());
        let value = self.expression(&outer.types, Type::Integer, &o);
        let other = self.expression(&inner.types, Type::Integer, &i);
        let from = format!("{} AS {o}", outer.sql);
        let inside = format!("{} AS {i}", inner.sql);
        let condition = match self.below(5) {
            0 => format!("{value} IN (SELECT {other} FROM {inside})"),
            1 => format!("{value} > (SELECT min({other}) FROM {inside})"),
            2 => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("EXISTS (SELECT 1 FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
            3 => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("NOT EXISTS (SELECT 1 FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
            _ => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("{value} <= (SELECT max({other}) FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
        };
        let sql = format!("(SELECT * FROM {from} WHERE {condition})");
        Relation { sql, ..outer }
    }

    /// A whole query, and whether the sequence of its rows is determined.
    fn query(&mut self) -> (String, bool) {
        let depth = 1 + self.below(4);
        let relation = self.relation(depth);
        let from = format!("SELECT * FROM {} AS q", relation.sql);
        match self.below(4) {
            0 => (
                format!("{from} ORDER BY {}", Self::order(&relation.types)),
                true,
            ),
            1 => {
                let sql = format!(
                    "WITH q AS {} SELECT * FROM q UNION ALL SELECT * FROM q",
                    relation.sql
                );
                (sql, false)
            }
            _ => (from, false),
        }
    }
}

/// Tables `t(a, b, f, s)` and `u(a, d, s)` of several segments, with NULLs, duplicates and
/// numbers whose sums are exact in any order.
async fn tables(database: &Database) {
    let session = database.session();
    session
        .sql("CREATE TABLE t (a BIGINT, b BIGINT, f DOUBLE, s VARCHAR)")
        .await
        .unwrap();
    session
        .sql("CREATE TABLE u (a BIGINT, d BIGINT, s VARCHAR)")
        .await
        .unwrap();
    for segment in 0..3 {
        let (mut t, mut u) = (Vec::new(), Vec::new());
        for row in segment * 6..segment * 6 + 6 {
            let a = if row % 7 == 3 {
                "NULL".to_owned()
            } else {
                (row % 5).to_string()
            };
            let s = ["'x1,y'", "'y'", "NULL", "'z,x2,z'", "''"][row % 5];
            t.push(format!("({a}, {}, {}.5, {s})", row * row % 6, row % 4));
            let d = if row % 4 == 1 {
                "NULL".to_owned()
            } else {
                (row % 3).to_string()
            };
            u.push(format!("({}, {d}, {s})", row * 3 % 8));
        }
        for (table, rows) in [("t", t), ("u", u)] {
            let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
            session.sql(&sql).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_profiled_query_returns_what_it_returns_unprofiled() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    tables(&database).await;
    let plain = session(&database, Level::Off, false).await;
    let plain_skipping = session(&database, Level::Off, true).await;
    let records = session(&database, Level::Records, false).await;
    let records_skipping = session(&database, Level::Records, true).await;
    let counters = session(&database, Level::Counters, false).await;
    let calls = session(&database, Level::Calls, true).await;
    let (mut valid, mut rows) = (0, 0);
    let mut all = 0;
    for (number, (case, random)) in cases(100).enumerate() {
        let mut generator = Generator { random, aliases: 0 };
        let (sql, ordered) = generator.query();
        let skip = generator.below(3) == 0;
        let (plain, records) = if skip {
            (&plain_skipping, &records_skipping)
        } else {
            (&plain, &records)
        };
        let others = if number % 2 == 0 { &counters } else { &calls };
        all += 1;
        let expected = run(plain, &sql).await;
        for (level, session) in [("records", records), ("counters or calls", others)] {
            let profiled = run(session, &sql).await;
            match (&expected, profiled) {
                (Ok((schema, expected, _)), Ok((profiled_schema, mut profiled, _))) => {
                    assert_eq!(*schema, profiled_schema, "{case}, {level}:\n{sql}");
                    let mut expected = expected.clone();
                    if !ordered {
                        expected.sort();
                        profiled.sort();
                    }
                    assert_eq!(expected, profiled, "{case}, {level}:\n{sql}");
                }
                (Err(expected), Err(profiled)) => {
                    assert_eq!(*expected, profiled, "{case}, {level}:\n{sql}");
                }
                (Ok(_), Err(error)) => panic!("{case}, only at {level}: {error}\n{sql}"),
                (Err(error), Ok(_)) => panic!("{case}, only at off: {error}\n{sql}"),
            }
        }
        if let Ok((_, expected, _)) = expected {
            valid += 1;
            rows += usize::from(!expected.is_empty());
        }
    }
    // What the generator gives is what the planner can plan, nearly always, and has rows.
    assert!(valid * 10 >= all * 9, "{valid} of {all} queries are valid");
    assert!(rows * 2 >= all, "{rows} of {all} queries have rows");
}

// Queries whose lineage a naive evaluator knows.

type Value = Option<i64>;
type Base = (&'static str, i64);
type Row = (Vec<Value>, BTreeSet<Base>);

#[derive(Debug, Clone)]
enum Scalar {
    Column(usize),
    Plus(usize, i64),
    Coalesce(usize, i64),
    /// A function of one row that the profiler times.
    Same(usize),
}

impl Scalar {
    fn evaluate(&self, row: &[Value]) -> Value {
        match self {
            Self::Column(c) | Self::Same(c) => row[*c],
            Self::Plus(c, n) => row[*c].map(|value| value + n),
            Self::Coalesce(c, n) => row[*c].or(Some(*n)),
        }
    }

    fn sql(&self) -> String {
        match self {
            Self::Column(c) => format!("c{c}"),
            Self::Same(c) => format!("same(c{c})"),
            Self::Plus(c, n) => format!("c{c} + {n}"),
            Self::Coalesce(c, n) => format!("coalesce(c{c}, {n})"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fold {
    CountAll,
    Count(usize),
    Sum(usize),
    Max(usize),
}

impl Fold {
    fn evaluate(self, rows: &[&Row]) -> Value {
        let values = |c: usize| rows.iter().filter_map(move |(values, _)| values[c]);
        match self {
            Self::CountAll => Some(rows.len() as i64),
            Self::Count(c) => Some(values(c).count() as i64),
            Self::Sum(c) => values(c).reduce(|a, b| a + b),
            Self::Max(c) => values(c).max(),
        }
    }

    fn sql(self) -> String {
        match self {
            Self::CountAll => "count(*)".to_owned(),
            Self::Count(c) => format!("count(c{c})"),
            Self::Sum(c) => format!("sum(c{c})"),
            Self::Max(c) => format!("max(c{c})"),
        }
    }
}

/// A query that the naive evaluator understands.
#[derive(Debug, Clone)]
enum Naive {
    Scan(&'static str),
    /// Keeps rows whose column is greater than a number.
    Filter(Box<Naive>, Scalar, i64),
    Project(Box<Naive>, Vec<Scalar>),
    InnerJoin(Box<Naive>, Box<Naive>, usize, usize),
    Aggregate(Box<Naive>, Vec<usize>, Vec<Fold>),
    UnionAll(Box<Naive>, Box<Naive>),
    Distinct(Box<Naive>),
}

type Tables = BTreeMap<&'static str, Vec<(i64, Vec<Value>)>>;

impl Naive {
    fn generate(random: &mut Random, depth: usize) -> Self {
        if depth == 0 {
            return Self::Scan(["t", "u"][random.random_range(0..2)]);
        }
        let input = Box::new(Self::generate(random, depth - 1));
        let width = input.width();
        let column = |random: &mut Random| random.random_range(0..width);
        let scalar = |random: &mut Random| {
            let c = random.random_range(0..width);
            match random.random_range(0..5) {
                0 => Scalar::Plus(c, 1),
                1 => Scalar::Coalesce(c, 2),
                2 => Scalar::Same(c),
                _ => Scalar::Column(c),
            }
        };
        match random.random_range(0..9) {
            0 => Self::Filter(input, scalar(random), random.random_range(0..3)),
            1 => {
                let width = random.random_range(1..=3);
                Self::Project(input, (0..width).map(|_| scalar(random)).collect())
            }
            2 | 3 => {
                let below = random.random_range(0..depth);
                let other = Box::new(Self::generate(random, below));
                let (l, r) = (column(random), random.random_range(0..other.width()));
                Self::InnerJoin(input, other, l, r)
            }
            4..=6 => {
                let mut keys: Vec<_> = (0..random.random_range(0..=2))
                    .map(|_| column(random))
                    .collect();
                keys.dedup();
                let folds = (0..random.random_range(1..=2)).map(|_| {
                    let c = column(random);
                    match random.random_range(0..4) {
                        0 => Fold::CountAll,
                        1 => Fold::Count(c),
                        2 => Fold::Sum(c),
                        _ => Fold::Max(c),
                    }
                });
                let folds = folds.collect();
                Self::Aggregate(input, keys, folds)
            }
            7 => {
                let below = random.random_range(0..depth);
                let other = Box::new(Self::generate(random, below));
                let width = width.min(other.width()).min(2);
                let columns: Vec<_> = (0..width).map(Scalar::Column).collect();
                Self::UnionAll(
                    Box::new(Self::Project(input, columns.clone())),
                    Box::new(Self::Project(other, columns)),
                )
            }
            _ => Self::Distinct(Box::new(Self::Project(input, vec![scalar(random)]))),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Scan(_) => 2,
            Self::Filter(input, ..) | Self::Distinct(input) => input.width(),
            Self::Project(_, scalars) => scalars.len(),
            Self::InnerJoin(left, right, ..) => left.width() + right.width(),
            Self::Aggregate(_, keys, folds) => keys.len() + folds.len(),
            Self::UnionAll(left, _) => left.width(),
        }
    }

    fn sql(&self) -> String {
        let named = |items: Vec<String>| {
            let items = items.iter().enumerate();
            items
                .map(|(c, item)| format!("{item} AS c{c}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::Scan(table) => format!("SELECT a AS c0, b AS c1 FROM {table}"),
            Self::Filter(input, scalar, number) => {
                format!(
                    "SELECT * FROM ({}) AS q WHERE {} > {number}",
                    input.sql(),
                    scalar.sql()
                )
            }
            Self::Project(input, scalars) => {
                let items = named(scalars.iter().map(Scalar::sql).collect());
                format!("SELECT {items} FROM ({}) AS q", input.sql())
            }
            Self::InnerJoin(left, right, l, r) => {
                let mut items: Vec<_> = (0..left.width()).map(|c| format!("l.c{c}")).collect();
                items.extend((0..right.width()).map(|c| format!("r.c{c}")));
                format!(
                    "SELECT {} FROM ({}) AS l JOIN ({}) AS r ON l.c{l} = r.c{r}",
                    named(items),
                    left.sql(),
                    right.sql()
                )
            }
            Self::Aggregate(input, keys, folds) => {
                let mut items: Vec<_> = keys.iter().map(|c| format!("q.c{c}")).collect();
                let group = items.join(", ");
                items.extend(folds.iter().map(|fold| fold.sql()));
                let group = if keys.is_empty() {
                    group
                } else {
                    format!(" GROUP BY {group}")
                };
                format!("SELECT {} FROM ({}) AS q{group}", named(items), input.sql())
            }
            Self::UnionAll(left, right) => format!("{} UNION ALL {}", left.sql(), right.sql()),
            Self::Distinct(input) => format!("SELECT DISTINCT * FROM ({}) AS q", input.sql()),
        }
    }

    fn evaluate(&self, tables: &Tables) -> Vec<Row> {
        match self {
            Self::Scan(table) => {
                let rows = tables[table].iter();
                rows.map(|(id, values)| (values.clone(), BTreeSet::from([(*table, *id)])))
                    .collect()
            }
            Self::Filter(input, scalar, number) => {
                let mut rows = input.evaluate(tables);
                rows.retain(|(values, _)| scalar.evaluate(values).is_some_and(|v| v > *number));
                rows
            }
            Self::Project(input, scalars) => {
                let rows = input.evaluate(tables).into_iter();
                rows.map(|(values, from)| {
                    (
                        scalars
                            .iter()
                            .map(|scalar| scalar.evaluate(&values))
                            .collect(),
                        from,
                    )
                })
                .collect()
            }
            Self::InnerJoin(left, right, l, r) => {
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let mut rows = Vec::new();
                for (values, from) in &left {
                    for (more, also) in &right {
                        if values[*l].is_some() && values[*l] == more[*r] {
                            let values = values.iter().chain(more).copied().collect();
                            rows.push((values, from.union(also).copied().collect()));
                        }
                    }
                }
                rows
            }
            Self::Aggregate(input, keys, folds) => {
                let rows = input.evaluate(tables);
                let mut groups: BTreeMap<Vec<Value>, Vec<&Row>> = BTreeMap::new();
                if keys.is_empty() {
                    groups.insert(Vec::new(), Vec::new());
                }
                for row in &rows {
                    let key = keys.iter().map(|c| row.0[*c]).collect();
                    groups.entry(key).or_default().push(row);
                }
                let groups = groups.into_iter();
                groups
                    .map(|(mut values, rows)| {
                        values.extend(folds.iter().map(|fold| fold.evaluate(&rows)));
                        let from = rows.iter().flat_map(|(_, from)| from.iter().copied());
                        (values, from.collect())
                    })
                    .collect()
            }
            Self::UnionAll(left, right) => {
                let mut rows = left.evaluate(tables);
                rows.extend(right.evaluate(tables));
                rows
            }
            Self::Distinct(input) => {
                let mut groups: BTreeMap<Vec<Value>, BTreeSet<Base>> = BTreeMap::new();
                for (values, from) in input.evaluate(tables) {
                    groups.entry(values).or_default().extend(from);
                }
                groups.into_iter().collect()
            }
        }
    }
}

/// Tiny tables `t(a, b)` and `u(a, b)` of several segments, and what is in them.
async fn tiny_tables(database: &Database) -> Tables {
    let session = database.session();
    let mut tables = Tables::new();
    for (number, table) in ["t", "u"].into_iter().enumerate() {
        session
            .sql(&format!("CREATE TABLE {table} (a BIGINT, b BIGINT)"))
            .await
            .unwrap();
        for segment in 0..3 {
            let rows = (segment * 3..segment * 3 + 3).map(|row| {
                let a = if (row + number) % 5 == 2 {
                    "NULL".to_owned()
                } else {
                    (row % 3).to_string()
                };
                format!("({a}, {})", row * (row + number) % 4)
            });
            let rows: Vec<_> = rows.collect();
            let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
            session.sql(&sql).await.unwrap();
        }
        let rows = query(&session, &format!("SELECT _row_id, a, b FROM {table}"))
            .await
            .unwrap();
        let rows = rows.iter().map(|line| {
            let mut values = line.split('|').map(|value| value.parse().ok());
            (values.next().flatten().expect("an id"), values.collect())
        });
        tables.insert(table, rows.collect());
    }
    tables
}

fn table(log_name: &str) -> &'static str {
    match log_name {
        "main.t" => "t",
        "main.u" => "u",
        other => panic!("no rows of a table {other} are in the query"),
    }
}

/// The lineage of each result row, followed edge by edge through the log.
async fn logged_lineage(session: &Session, query_id: i64, rows: usize) -> Vec<BTreeSet<Base>> {
    let fields = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    let sql = format!(
        "SELECT operator_id, output_id, input_operator_id, input_id, table_name \
         FROM sys.lineage WHERE query_id = {query_id}"
    );
    let mut edges: BTreeMap<(String, String), Vec<Vec<String>>> = BTreeMap::new();
    for line in query(session, &sql).await.unwrap() {
        let edge = fields(&line);
        edges
            .entry((edge[0].clone(), edge[1].clone()))
            .or_default()
            .push(edge[2..].to_vec());
    }
    let sql = format!(
        "SELECT output_row, operator_id, record_id, table_name \
         FROM sys.output_records WHERE query_id = {query_id} AND record_id IS NOT NULL"
    );
    let mut lineage = vec![BTreeSet::new(); rows];
    for line in query(session, &sql).await.unwrap() {
        let record = fields(&line);
        let output_row: usize = record[0].parse().unwrap();
        let mut open = vec![record[1..].to_vec()];
        while let Some(record) = open.pop() {
            if record[2] == "NULL" {
                let key = (record[0].clone(), record[1].clone());
                open.extend(edges.get(&key).cloned().unwrap_or_default());
            } else {
                lineage[output_row].insert((table(&record[2]), record[1].parse().unwrap()));
            }
        }
    }
    lineage
}

/// The lineage of one result row as `backward_trace` gives it.
async fn traced(session: &Session, query_id: i64, row: usize) -> BTreeSet<Base> {
    let sql = format!("SELECT table_name, row_id FROM backward_trace({query_id}, {row})");
    let lines = query(session, &sql).await.unwrap();
    let mut lineage = BTreeSet::new();
    for line in &lines {
        let (name, id) = line.split_once('|').unwrap();
        let new = lineage.insert((table(name), id.parse().unwrap()));
        assert!(new, "backward_trace gives {line} twice");
    }
    lineage
}

/// For equal rows: how many, and the lineage of all of them together.
fn by_values(rows: Vec<(String, BTreeSet<Base>)>) -> BTreeMap<String, (usize, BTreeSet<Base>)> {
    let mut groups: BTreeMap<String, (usize, BTreeSet<Base>)> = BTreeMap::new();
    for (values, lineage) in rows {
        let group = groups.entry(values).or_default();
        group.0 += 1;
        group.1.extend(lineage);
    }
    groups
}

#[tokio::test]
async fn lineage_is_what_a_naive_evaluator_says() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    let tables = tiny_tables(&database).await;
    let whole = session(&database, Level::Records, false).await;
    let skipping = session(&database, Level::Records, true).await;
    let (mut checked, mut simplified) = (0, 0);
    for (number, (case, mut random)) in cases(100).enumerate() {
        let depth = random.random_range(1..=4);
        let naive = Naive::generate(&mut random, depth);
        let expected = naive.evaluate(&tables);
        if expected.len() > 200 {
            continue;
        }
        let sql = naive.sql();
        let session = if random.random_range(0..3) == 0 {
            &skipping
        } else {
            &whole
        };
        let (_, rows, query_id) = run(session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let lineage = logged_lineage(session, query_id, rows.len()).await;
        // SQL over the log agrees with the log: one row of each query, all rows of some.
        let some = if rows.is_empty() {
            0
        } else {
            random.random_range(0..rows.len())
        };
        for (row, logged) in lineage.iter().enumerate().take(12) {
            if row == some || number % 20 == 0 {
                let traced = traced(session, query_id, row).await;
                assert_eq!(
                    &traced, logged,
                    "{case}: backward_trace of row {row}\n{sql}"
                );
            }
        }
        let text = |value: &Value| value.map_or("NULL".to_owned(), |number| number.to_string());
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|(values, from)| (values.iter().map(text).collect::<Vec<_>>().join("|"), from))
            .collect();
        let mut found: Vec<_> = rows.into_iter().zip(lineage).collect();
        expected.sort();
        found.sort();
        // Where a join only tests whether a row exists (its columns are not used, and duplicates
        // do not matter), the planner makes it a semi join, whose other side is not in the
        // lineage; and an aggregate of which only is used that it has one row is not computed.
        let sql_of_plan = format!(
            "SELECT count(*) FROM sys.operators WHERE query_id = {query_id} \
             AND (details LIKE '%join_type=%Semi%' OR name = 'PlaceholderRowExec')"
        );
        if query(session, &sql_of_plan).await.unwrap() != ["0"] {
            simplified += 1;
            let whole = by_values(expected);
            let part = by_values(found);
            assert!(whole.keys().eq(part.keys()), "{case}: rows\n{sql}");
            for (values, (rows, lineage)) in &part {
                let (all_rows, all) = &whole[values];
                assert_eq!(rows, all_rows, "{case}: rows {values}\n{sql}");
                assert!(lineage.is_subset(all), "{case}: lineage of {values}\n{sql}");
            }
            continue;
        }
        assert_eq!(
            expected, found,
            "{case}: expected and found rows with their lineage\n{sql}"
        );
        checked += found.len();
    }
    assert!(checked > 200, "only {checked} rows were checked");
    assert!(
        simplified < 20,
        "{simplified} queries were simplified by the planner"
    );
}
