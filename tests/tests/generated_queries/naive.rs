//! Queries that a naive evaluator understands, which carries with each row the ids of the rows it
//! was made from.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;

use crate::cases::Random;
use crate::frames::{ByPlace, Over};

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
    Join(Box<Naive>, Box<Naive>, Kind, usize, usize),
    /// Keeps rows of the left side that have, or have not, a match on the right.
    Tested(Box<Naive>, Box<Naive>, bool, Match),
    /// The same, and also those whose column is greater than a number.
    TestedOr(Box<Naive>, Box<Naive>, bool, Match, usize, i64),
    /// Keeps rows whose column is greater than the greatest of another query's.
    GreaterThanAll(Box<Naive>, Box<Naive>, usize, usize),
    /// As `Aggregate`, also for no keys, and for all but the last of them.
    Rollup(Box<Naive>, Vec<usize>, Vec<Fold>),
    /// Of all rows with the same value in a column, the first in the order of all columns.
    DistinctOn(Box<Naive>, usize),
    /// Appends sums, each of a column over the rows of a frame.
    Window(Box<Naive>, Vec<(usize, Over)>),
    /// The rows that differ, with what window functions of their places return.
    ByPlace(Box<Naive>, Vec<ByPlace>),
    /// Two rows of each: a column and one of two others.
    Unnest(Box<Naive>, usize, [usize; 2]),
    /// The first rows, in the order of all columns, of those that differ.
    Limit(Box<Naive>, usize),
    /// Rows of the left side, each once, that are, or are not, on the right.
    InOther(Box<Naive>, Box<Naive>, bool),
    Aggregate(Box<Naive>, Vec<usize>, Vec<Fold>),
    UnionAll(Box<Naive>, Box<Naive>),
    Distinct(Box<Naive>),
}

/// What rows of the left and of the right side have to have in common: a column of each is equal, or a
/// column of the left side is less than one of the right, or both, or nothing.
#[derive(Debug, Clone, Copy)]
pub struct Match {
    equal: Option<(usize, usize)>,
    less: Option<(usize, usize)>,
}

impl Match {
    fn generate(random: &mut Random, left: usize, right: usize) -> Self {
        let mut columns = || (random.random_range(0..left), random.random_range(0..right));
        let (equal, less) = (columns(), columns());
        Self {
            equal: Some(equal).filter(|_| random.random_range(0..5) > 0),
            less: Some(less).filter(|_| random.random_range(0..2) == 0),
        }
    }

    fn sql(self) -> String {
        let equal = self.equal.map(|(l, r)| format!("l.c{l} = r.c{r}"));
        let less = self.less.map(|(l, r)| format!("l.c{l} < r.c{r}"));
        let all: Vec<_> = equal.into_iter().chain(less).collect();
        match all.is_empty() {
            true => "true".to_owned(),
            false => all.join(" AND "),
        }
    }

    fn is_met(self, left: &[Value], right: &[Value]) -> bool {
        let both = |(l, r): (usize, usize)| left[l].zip(right[r]);
        let is_equal = |columns| both(columns).is_some_and(|(left, right)| left == right);
        let is_less = |columns| both(columns).is_some_and(|(left, right)| left < right);
        self.equal.is_none_or(is_equal) && self.less.is_none_or(is_less)
    }

    /// Whether rows are made of those that they are found among, too: not where every row would have to
    /// be compared with every other.
    fn is_told(self) -> bool {
        self.equal.is_some() || self.less.is_none()
    }

    /// The rows, as they are made, and whether they have a match among `others`.
    fn test(self, rows: &[Row], others: &[Row]) -> Vec<(Row, bool)> {
        let mut found = tested(rows, others, |l, r| self.is_met(l, r));
        if !self.is_told() {
            for ((found, _), row) in found.iter_mut().zip(rows) {
                found.clone_from(row);
            }
        }
        found
    }
}

/// Which rows without a partner a join returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

impl Kind {
    fn sql(self) -> &'static str {
        match self {
            Self::Inner => "JOIN",
            Self::Left => "LEFT JOIN",
            Self::Right => "RIGHT JOIN",
            Self::Full => "FULL JOIN",
        }
    }

    fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full)
    }

    fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }
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
        let other = |random: &mut Random| {
            let below = random.random_range(0..depth);
            Box::new(Self::generate(random, below))
        };
        match random.random_range(0..20) {
            0 => Self::Filter(input, scalar(random), random.random_range(0..3)),
            1 => {
                let width = random.random_range(1..=3);
                Self::Project(input, (0..width).map(|_| scalar(random)).collect())
            }
            2 | 3 => {
                let other = other(random);
                let (l, r) = (column(random), random.random_range(0..other.width()));
                let kind = match random.random_range(0..6) {
                    0 => Kind::Left,
                    1 => Kind::Right,
                    2 => Kind::Full,
                    _ => Kind::Inner,
                };
                Self::Join(input, other, kind, l, r)
            }
            4..=7 => {
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
                if keys.is_empty() || random.random_range(0..4) > 0 {
                    Self::Aggregate(input, keys, folds)
                } else {
                    Self::Rollup(input, keys, folds)
                }
            }
            8..=10 => {
                let other = other(random);
                let matching = Match::generate(random, width, other.width());
                let has = random.random_range(0..2) == 0;
                if random.random_range(0..2) == 0 {
                    Self::Tested(input, other, has, matching)
                } else {
                    let number = random.random_range(0..3);
                    Self::TestedOr(input, other, has, matching, column(random), number)
                }
            }
            11 => {
                let other = other(random);
                let (l, r) = (column(random), random.random_range(0..other.width()));
                Self::GreaterThanAll(input, other, l, r)
            }
            12 => Self::DistinctOn(input, column(random)),
            13 => {
                let sums = (0..random.random_range(1..=2))
                    .map(|_| (column(random), Over::generate(random, width)));
                Self::Window(input, sums.collect())
            }
            18 => {
                let functions =
                    (0..random.random_range(1..=2)).map(|_| ByPlace::generate(random, width));
                Self::ByPlace(input, functions.collect())
            }
            14 => Self::Unnest(input, column(random), [column(random), column(random)]),
            15 => Self::Limit(input, random.random_range(1..5)),
            16 => {
                let other = other(random);
                let width = width.min(other.width()).min(2);
                let columns: Vec<_> = (0..width).map(Scalar::Column).collect();
                Self::InOther(
                    Box::new(Self::Project(input, columns.clone())),
                    Box::new(Self::Project(other, columns)),
                    random.random_range(0..2) == 0,
                )
            }
            17 => {
                let other = other(random);
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

    /// How many kinds of queries [`Naive::kinds`] tells apart.
    pub const KINDS: usize = 23;

    /// The kinds of queries that this one is made of.
    pub fn kinds(&self, into: &mut BTreeSet<&'static str>) {
        let (kind, inputs) = self.parts();
        into.insert(kind);
        inputs.iter().for_each(|input| input.kinds(into));
    }

    /// How many joins it takes.
    pub fn joins(&self) -> usize {
        let (_, inputs) = self.parts();
        let own = usize::from(inputs.len() == 2 && !matches!(self, Self::UnionAll(..)));
        own + inputs.iter().map(|input| input.joins()).sum::<usize>()
    }

    /// How many window functions it has.
    pub fn windows(&self) -> usize {
        let (_, inputs) = self.parts();
        let own = match self {
            Self::Window(_, sums) => sums.len(),
            Self::ByPlace(_, functions) => functions.len(),
            _ => 0,
        };
        own + inputs.iter().map(|input| input.windows()).sum::<usize>()
    }

    /// Its kind and its inputs.
    fn parts(&self) -> (&'static str, Vec<&Self>) {
        let (kind, inputs): (_, &[&Self]) = match self {
            Self::Scan(_) => ("scan", &[]),
            Self::Filter(input, ..) => ("filter", &[input]),
            Self::Project(input, _) => ("projection", &[input]),
            Self::Join(left, right, kind, ..) => (kind.sql(), &[left, right]),
            Self::Tested(left, right, true, ..) => ("exists", &[left, right]),
            Self::Tested(left, right, false, ..) => ("not exists", &[left, right]),
            Self::TestedOr(left, right, true, ..) => ("exists or", &[left, right]),
            Self::TestedOr(left, right, false, ..) => ("not exists or", &[left, right]),
            Self::GreaterThanAll(left, right, ..) => ("scalar subquery", &[left, right]),
            Self::Aggregate(input, ..) => ("aggregate", &[input]),
            Self::Rollup(input, ..) => ("rollup", &[input]),
            Self::DistinctOn(input, _) => ("distinct on", &[input]),
            Self::Window(input, ..) => ("window", &[input]),
            Self::ByPlace(input, ..) => ("window by place", &[input]),
            Self::Unnest(input, ..) => ("unnest", &[input]),
            Self::Limit(input, _) => ("limit", &[input]),
            Self::InOther(left, right, true) => ("intersect", &[left, right]),
            Self::InOther(left, right, false) => ("except", &[left, right]),
            Self::UnionAll(left, right) => ("union all", &[left, right]),
            Self::Distinct(input) => ("distinct", &[input]),
        };
        (kind, inputs.to_vec())
    }

    fn width(&self) -> usize {
        match self {
            Self::Scan(_) => 2,
            Self::Filter(input, ..) | Self::Distinct(input) => input.width(),
            Self::Project(_, scalars) => scalars.len(),
            Self::Tested(input, ..)
            | Self::TestedOr(input, ..)
            | Self::GreaterThanAll(input, ..)
            | Self::DistinctOn(input, _)
            | Self::Limit(input, _)
            | Self::InOther(input, ..) => input.width(),
            Self::Join(left, right, ..) => left.width() + right.width(),
            Self::Aggregate(_, keys, folds) | Self::Rollup(_, keys, folds) => {
                keys.len() + folds.len()
            }
            Self::Window(input, sums) => input.width() + sums.len(),
            Self::ByPlace(input, functions) => input.width() + functions.len(),
            Self::Unnest(..) => 2,
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
            Self::Join(left, right, kind, l, r) => {
                let mut items: Vec<_> = (0..left.width()).map(|c| format!("l.c{c}")).collect();
                items.extend((0..right.width()).map(|c| format!("r.c{c}")));
                format!(
                    "SELECT {} FROM ({}) AS l {} ({}) AS r ON l.c{l} = r.c{r}",
                    named(items),
                    left.sql(),
                    kind.sql(),
                    right.sql()
                )
            }
            Self::Tested(left, right, has, matching) => {
                let not = if *has { "" } else { "NOT " };
                format!(
                    "SELECT * FROM ({}) AS l WHERE {not}EXISTS (SELECT 1 FROM ({}) AS r WHERE {})",
                    left.sql(),
                    right.sql(),
                    matching.sql()
                )
            }
            Self::TestedOr(left, right, has, matching, column, number) => {
                let not = if *has { "" } else { "NOT " };
                format!(
                    "SELECT * FROM ({}) AS l WHERE {not}EXISTS (SELECT 1 FROM ({}) AS r WHERE {}) \
                     OR l.c{column} > {number}",
                    left.sql(),
                    right.sql(),
                    matching.sql()
                )
            }
            Self::GreaterThanAll(left, right, l, r) => {
                format!(
                    "SELECT * FROM ({}) AS l WHERE l.c{l} > (SELECT max(r.c{r}) FROM ({}) AS r)",
                    left.sql(),
                    right.sql()
                )
            }
            Self::DistinctOn(input, key) => {
                // The key first, and no column twice: DataFusion 55.2 panics then.
                let others = (0..input.width()).filter(|c| c != key);
                let columns = in_order(std::iter::once(*key).chain(others));
                format!(
                    "SELECT * FROM (SELECT DISTINCT ON (c{key}) * FROM ({}) AS q \
                     ORDER BY {columns}) AS q",
                    input.sql()
                )
            }
            Self::Window(input, sums) => {
                let sums = sums
                    .iter()
                    .zip(input.width()..)
                    .map(|((sum, over), column)| {
                        format!("sum(c{sum}) OVER ({}) AS c{column}", over.sql())
                    });
                let sums = sums.collect::<Vec<_>>().join(", ");
                format!("SELECT *, {sums} FROM ({}) AS q", input.sql())
            }
            Self::ByPlace(input, functions) => {
                let width = input.width();
                let functions = functions
                    .iter()
                    .zip(width..)
                    .map(|(function, column)| format!("{} AS c{column}", function.sql(width)));
                let functions = functions.collect::<Vec<_>>().join(", ");
                format!(
                    "SELECT *, {functions} FROM (SELECT DISTINCT * FROM ({}) AS q) AS q",
                    input.sql()
                )
            }
            Self::Unnest(input, one, [first, second]) => {
                format!(
                    "SELECT c{one} AS c0, unnest(make_array(c{first}, c{second})) AS c1 \
                     FROM ({}) AS q",
                    input.sql()
                )
            }
            Self::Limit(input, rows) => {
                let columns = in_order(0..input.width());
                format!(
                    "SELECT * FROM (SELECT DISTINCT * FROM ({}) AS q \
                     ORDER BY {columns} LIMIT {rows}) AS q",
                    input.sql()
                )
            }
            Self::InOther(left, right, is) => {
                let operation = if *is { "INTERSECT" } else { "EXCEPT" };
                format!("{} {operation} {}", left.sql(), right.sql())
            }
            Self::Rollup(input, keys, folds) => {
                let mut items: Vec<_> = keys.iter().map(|c| format!("q.c{c}")).collect();
                let group = items.join(", ");
                items.extend(folds.iter().map(|fold| fold.sql()));
                format!(
                    "SELECT {} FROM ({}) AS q GROUP BY ROLLUP ({group})",
                    named(items),
                    input.sql()
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
            Self::Join(left, right, kind, l, r) => {
                let widths = (left.width(), right.width());
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                join(&left, &right, *kind, (*l, *r), widths)
            }
            Self::Tested(left, right, has, matching) => {
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let found = matching.test(&left, &right).into_iter();
                let found = found.filter(|(_, is_met)| is_met == has);
                found.map(|(row, _)| row).collect()
            }
            Self::TestedOr(left, right, has, matching, column, number) => {
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let found = matching.test(&left, &right).into_iter();
                let is_greater = |values: &[Value]| values[*column].is_some_and(|v| v > *number);
                let found =
                    found.filter(|((values, _), is_met)| is_met == has || is_greater(values));
                found.map(|(row, _)| row).collect()
            }
            Self::GreaterThanAll(left, right, l, r) => {
                let right = right.evaluate(tables);
                let greatest = right.iter().filter_map(|(values, _)| values[*r]).max();
                let all: BTreeSet<Base> = lineage(&right.iter().collect::<Vec<_>>());
                let mut rows = left.evaluate(tables);
                rows.retain(|(values, _)| {
                    matches!((values[*l], greatest), (Some(value), Some(max)) if value > max)
                });
                for (_, from) in &mut rows {
                    from.extend(&all);
                }
                rows
            }
            Self::DistinctOn(input, key) => {
                let rows = input.evaluate(tables);
                grouped(&rows, &[*key])
                    .into_values()
                    .map(|rows| {
                        let first = rows.iter().map(|(values, _)| values).min();
                        (first.cloned().unwrap_or_default(), lineage(&rows))
                    })
                    .collect()
            }
            Self::Window(input, sums) => {
                let rows = input.evaluate(tables);
                let appended = rows.iter().map(|(values, from)| {
                    let (mut appended, mut from) = (values.clone(), from.clone());
                    for (sum, over) in sums {
                        let frame = over.frame(&rows, values);
                        appended.push(Fold::Sum(*sum).evaluate(&frame));
                        from.extend(lineage(&frame));
                    }
                    (appended, from)
                });
                appended.collect()
            }
            Self::ByPlace(input, functions) => {
                let rows = distinct(input.evaluate(tables));
                let appended = rows.iter().map(|(values, from)| {
                    let (mut appended, mut from) = (values.clone(), from.clone());
                    for function in functions {
                        let (value, frame) = function.evaluate(&rows, values);
                        appended.push(value);
                        from.extend(lineage(&frame));
                    }
                    (appended, from)
                });
                appended.collect()
            }
            Self::Unnest(input, one, two) => {
                let rows = input.evaluate(tables).into_iter();
                rows.flat_map(|(values, from)| {
                    two.map(|other| (vec![values[*one], values[other]], from.clone()))
                })
                .collect()
            }
            Self::Limit(input, count) => {
                let mut rows = distinct(input.evaluate(tables));
                rows.truncate(*count);
                rows
            }
            Self::InOther(left, right, is) => {
                let right = right.evaluate(tables);
                let rows = distinct(left.evaluate(tables));
                let found = tested(&rows, &right, |values, other| values == other);
                let found = found.into_iter().filter(|(_, is_met)| is_met == is);
                found.map(|(row, _)| row).collect()
            }
            Self::Aggregate(input, keys, folds) => {
                let rows = input.evaluate(tables);
                aggregate(&rows, keys, folds)
            }
            Self::Rollup(input, keys, folds) => {
                let rows = input.evaluate(tables);
                let sets = (0..=keys.len()).flat_map(|kept| {
                    let groups = aggregate(&rows, &keys[..kept], folds).into_iter();
                    groups.map(move |(mut values, from)| {
                        // Keys that this set is not grouped by are NULL.
                        let none = std::iter::repeat_n(None, keys.len() - kept);
                        values.splice(kept..kept, none);
                        (values, from)
                    })
                });
                sets.collect()
            }
            Self::UnionAll(left, right) => {
                let mut rows = left.evaluate(tables);
                rows.extend(right.evaluate(tables));
                rows
            }
            Self::Distinct(input) => distinct(input.evaluate(tables)),
        }
    }
}

/// Columns as ORDER BY takes them for the order of [`Value`]s.
pub fn in_order(columns: impl Iterator<Item = usize>) -> String {
    let columns: Vec<_> = columns.map(|c| format!("c{c} NULLS FIRST")).collect();
    columns.join(", ")
}

fn join(
    left: &[Row],
    right: &[Row],
    kind: Kind,
    (l, r): (usize, usize),
    (left_width, right_width): (usize, usize),
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut right_met = vec![false; right.len()];
    for (values, from) in left {
        let mut met = false;
        for ((more, also), right_met) in right.iter().zip(&mut right_met) {
            if values[l].is_some() && values[l] == more[r] {
                (met, *right_met) = (true, true);
                let values = values.iter().chain(more).copied().collect();
                rows.push((values, from.union(also).copied().collect()));
            }
        }
        if !met && kind.keeps_left() {
            let mut values = values.clone();
            values.extend(std::iter::repeat_n(None, right_width));
            rows.push((values, from.clone()));
        }
    }
    for ((more, also), met) in right.iter().zip(right_met) {
        if !met && kind.keeps_right() {
            let mut values = vec![None; left_width];
            values.extend(more);
            rows.push((values, also.clone()));
        }
    }
    rows
}

/// Rows by their values in `keys`.
fn grouped<'a>(rows: &'a [Row], keys: &[usize]) -> BTreeMap<Vec<Value>, Vec<&'a Row>> {
    let mut groups: BTreeMap<Vec<Value>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = keys.iter().map(|c| row.0[*c]).collect();
        groups.entry(key).or_default().push(row);
    }
    groups
}

fn aggregate(rows: &[Row], keys: &[usize], folds: &[Fold]) -> Vec<Row> {
    let mut groups = grouped(rows, keys);
    if keys.is_empty() {
        groups.entry(Vec::new()).or_default();
    }
    let groups = groups.into_iter().map(|(mut values, rows)| {
        values.extend(folds.iter().map(|fold| fold.evaluate(&rows)));
        (values, lineage(&rows))
    });
    groups.collect()
}

/// Each of the rows, made of its matches among `others`, too, and whether it has any.
fn tested(
    rows: &[Row],
    others: &[Row],
    is_met: impl Fn(&[Value], &[Value]) -> bool,
) -> Vec<(Row, bool)> {
    let tested = rows.iter().map(|(values, from)| {
        let met = others.iter().filter(|(other, _)| is_met(values, other));
        let met: Vec<&Row> = met.collect();
        let from = from.union(&lineage(&met)).copied().collect();
        ((values.clone(), from), !met.is_empty())
    });
    tested.collect()
}

fn lineage(rows: &[&Row]) -> BTreeSet<Base> {
    let all = rows.iter().flat_map(|(_, from)| from.iter().copied());
    all.collect()
}

/// Equal rows become one, of all of their lineages; in order.
fn distinct(rows: Vec<Row>) -> Vec<Row> {
    let mut groups: BTreeMap<Vec<Value>, BTreeSet<Base>> = BTreeMap::new();
    for (values, from) in rows {
        groups.entry(values).or_default().extend(from);
    }
    groups.into_iter().collect()
}
