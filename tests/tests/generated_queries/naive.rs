//! Queries that a naive evaluator understands, which carries with each row the ids of the rows it
//! was made from.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;

use crate::cases::Random;

pub type Value = Option<i64>;
pub type Base = (&'static str, i64);
pub type Row = (Vec<Value>, BTreeSet<Base>);

#[derive(Debug, Clone)]
pub enum Scalar {
    Column(usize),
    Plus(usize, i64),
    Coalesce(usize, i64),
    /// A function of one row that the profiler times.
    Same(usize),
}

impl Scalar {
    pub fn evaluate(&self, row: &[Value]) -> Value {
        match self {
            Self::Column(c) | Self::Same(c) => row[*c],
            Self::Plus(c, n) => row[*c].map(|value| value + n),
            Self::Coalesce(c, n) => row[*c].or(Some(*n)),
        }
    }

    pub fn sql(&self) -> String {
        match self {
            Self::Column(c) => format!("c{c}"),
            Self::Same(c) => format!("same(c{c})"),
            Self::Plus(c, n) => format!("c{c} + {n}"),
            Self::Coalesce(c, n) => format!("coalesce(c{c}, {n})"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Fold {
    CountAll,
    Count(usize),
    Sum(usize),
    Max(usize),
}

impl Fold {
    pub fn evaluate(self, rows: &[&Row]) -> Value {
        let values = |c: usize| rows.iter().filter_map(move |(values, _)| values[c]);
        match self {
            Self::CountAll => Some(rows.len() as i64),
            Self::Count(c) => Some(values(c).count() as i64),
            Self::Sum(c) => values(c).reduce(|a, b| a + b),
            Self::Max(c) => values(c).max(),
        }
    }

    pub fn sql(self) -> String {
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
pub enum Naive {
    Scan(&'static str),
    /// Keeps rows whose column is greater than a number.
    Filter(Box<Naive>, Scalar, i64),
    Project(Box<Naive>, Vec<Scalar>),
    InnerJoin(Box<Naive>, Box<Naive>, usize, usize),
    Aggregate(Box<Naive>, Vec<usize>, Vec<Fold>),
    UnionAll(Box<Naive>, Box<Naive>),
    Distinct(Box<Naive>),
}

pub type Tables = BTreeMap<&'static str, Vec<(i64, Vec<Value>)>>;

impl Naive {
    pub fn generate(random: &mut Random, depth: usize) -> Self {
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

    pub fn sql(&self) -> String {
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

    pub fn evaluate(&self, tables: &Tables) -> Vec<Row> {
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
