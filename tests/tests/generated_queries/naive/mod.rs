//! Queries that a naive evaluator understands, which carries with each row the ids of the rows it
//! was made from.

mod evaluate;
mod generate;
mod rows;
mod sql;

use std::collections::{BTreeMap, BTreeSet};

use crate::frames::{ByPlace, Over};

pub use self::sql::in_order;

pub type Value = Option<i64>;
pub type Base = (&'static str, i64);
pub type Row = (Vec<Value>, BTreeSet<Base>);

#[derive(Debug, Clone)]
pub enum Scalar {
    Column(usize),
    Constant(i64),
    Plus(usize, i64),
    Coalesce(usize, i64),
    /// A function of one row that the profiler times.
    Same(usize),
}

#[derive(Debug, Clone, Copy)]
pub enum Fold {
    CountAll,
    Count(usize),
    Sum(usize),
    Max(usize),
}

/// What a correlated scalar subquery makes of its rows.
#[derive(Debug, Clone, Copy)]
pub enum Look {
    /// An aggregate of all, also of none.
    All(Fold),
    /// An aggregate of all, if there are any: of groups by what is equal.
    Group(Fold),
    /// The least value of a column, NULL before the others.
    First(usize),
    /// An aggregate of all, each twice, as a union has them.
    Twice(Fold),
    /// The first column of the second of those that differ, in the order of all columns.
    Second,
    /// How many are in the greatest group by a column.
    GreatestGroup(usize),
    /// Of groups by a column, and of the one of all: the rows of each, 100 for each, and 10,000 for that one.
    RolledUp(usize),
    /// The sum of the first column of two rows: of all with the same value in another column the first in
    /// the order of that and all columns.
    FirstTwo(usize),
    /// How many are in the greatest of a window's partitions by a column.
    GreatestPartition(usize),
    /// How many of all are, by a column, equal to one of them.
    Equals(usize),
    /// As `RolledUp`, by the first column of the row that it is asked for.
    RolledUpAround,
    /// How many they are, and those of all that can be reached from them in a step, from a column to a column
    /// of theirs with the same value.
    Walked(usize, usize),
}

/// A query that the naive evaluator understands.
#[derive(Debug, Clone)]
pub enum Naive {
    Scan(&'static str),
    /// A view, which is a scan, a filter and a projection.
    View,
    /// Keeps rows whose column is greater than a number.
    Filter(Box<Naive>, Scalar, i64),
    /// Keeps rows whose column is a number.
    Equal(Box<Naive>, Scalar, i64),
    Project(Box<Naive>, Vec<Scalar>),
    Join(Box<Naive>, Box<Naive>, Kind, usize, usize),
    /// The same with USING: the column that two columns become, and all of both sides, of rows where
    /// it is NULL or at least a number.
    Using(Box<Naive>, Box<Naive>, Kind, (usize, usize), i64),
    /// Keeps rows of the left side that have, or have not, a match on the right.
    Tested(Box<Naive>, Box<Naive>, bool, Match),
    /// The same, and also those whose column is greater than a number.
    TestedOr(Box<Naive>, Box<Naive>, bool, Match, usize, i64),
    /// Keeps rows whose column is greater than the greatest of another query's.
    GreaterThanAll(Box<Naive>, Box<Naive>, usize, usize),
    /// Rows with and without a match by any condition.
    JoinOn(Box<Naive>, Box<Naive>, Kind, Match),
    /// The same of rows of which there are, or are not, some of a third query, that are equal in a column to one
    /// of the left side and at least one of the right.
    JoinIf(Box<Naive>, Box<Naive>, Kind, Match, Third),
    /// The rows joined with themselves, which have a name of their own.
    Twice(Box<Naive>, usize, usize),
    /// Keeps rows whose column is, or is not, among the values of another query's.
    In(Box<Naive>, Box<Naive>, bool, Vec<(usize, usize)>),
    /// Appends what the matches on the right come to; maybe asked for by rows that have a random number,
    /// which are others when they are made again.
    Looked(Box<Naive>, Box<Naive>, Look, Match, bool),
    /// Asks a join for each row; keeps those of a certain answer, or appends it.
    Asked(Box<Naive>, Pairs, Ask),
    /// Appends whether there are, or are not, matches on the right.
    Marked(Box<Naive>, Box<Naive>, bool, Match),
    /// As `Aggregate`, once for each of some sets of the keys.
    GroupingSets(Box<Naive>, Vec<usize>, Sets, Vec<Fold>),
    /// Of all rows with the same value in a column, the first in the order of all columns.
    DistinctOn(Box<Naive>, usize),
    /// Appends sums, each of a column over the rows of a frame.
    Window(Box<Naive>, Vec<(usize, Over)>),
    /// The rows that differ, with what window functions of their places return.
    ByPlace(Box<Naive>, Vec<ByPlace>),
    /// Two rows of each: a column and one of two others, of which a list is made. It is read in SELECT, or beside
    /// the rows.
    Unnest(Box<Naive>, usize, [usize; 2], bool),
    /// Asks the list of two columns of a row for each; keeps those of a certain answer, or appends it. The list
    /// is a column, or made where it is asked.
    Listed(Box<Naive>, [usize; 2], bool, AskList),
    /// The first rows, in the order of all columns, of those that differ.
    Limit(Box<Naive>, usize),
    /// The first rows in the order of a column, and those that tie with the last of them.
    FirstWithTies(Box<Naive>, usize, usize),
    /// Rows of the left side, each once, that are, or are not, on the right.
    InOther(Box<Naive>, Box<Naive>, bool),
    Aggregate(Box<Naive>, Vec<usize>, Vec<Fold>),
    UnionAll(Box<Naive>, Box<Naive>),
    Union(Box<Naive>, Box<Naive>),
    /// The rows, and those of another query that can be reached from them in a number of steps, each
    /// from a row's column to another column of the rows with the same value in one of theirs.
    Reached(Box<Naive>, Box<Naive>, usize, (usize, usize), i64, Step),
    Distinct(Box<Naive>),
}

/// What a recursive term does with the rows that are reached in a step.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Nothing: one for each way.
    Pairs,
    Distinct,
    /// Groups them by what is reached.
    Grouped,
    /// Sums up over those that reach the same.
    Framed,
    /// There is one step, to the rows for which there is a way.
    Among,
    /// Goes to the first alone, in the order of all columns, of those that differ.
    First,
    /// The same as a value: to nowhere, if there is none.
    Value,
    /// Goes on from each with what has the same origin, which becomes that of what is reached.
    Met,
    /// Goes on from those of the greatest origin.
    Greatest,
}

impl Step {
    fn kind(self) -> &'static str {
        match self {
            Self::Pairs => "recursion",
            Self::Distinct => "recursion to rows that differ",
            Self::Grouped => "recursion to groups",
            Self::Framed => "recursion to frames",
            Self::Among => "recursion to rows that are found",
            Self::First => "recursion with a lateral subquery",
            Self::Value => "recursion with a scalar subquery",
            Self::Met => "recursion joined with itself",
            Self::Greatest => "recursion that asks for itself",
        }
    }

    /// Whether it reads the rows of an iteration more than once.
    fn is_dependent(self) -> bool {
        matches!(self, Self::First | Self::Value | Self::Met | Self::Greatest)
    }
}

impl Look {
    /// Whether it is joined with the values that it is asked for.
    fn is_dependent(self) -> bool {
        !matches!(self, Self::All(_) | Self::Group(_) | Self::First(_))
    }

    fn kind(self) -> &'static str {
        match self {
            Self::All(_) => "correlated scalar subquery",
            Self::Group(_) => "correlated scalar subquery with groups",
            Self::First(_) => "correlated scalar subquery with a limit",
            Self::Twice(_) => "correlated union",
            Self::Second => "correlated offset",
            Self::GreatestGroup(_) => "correlated groups",
            Self::RolledUp(_) => "correlated rollup",
            Self::FirstTwo(_) => "correlated distinct on with a limit",
            Self::GreatestPartition(_) => "correlated window",
            Self::Equals(_) => "reference to a query further out",
            Self::RolledUpAround => "correlated rollup by a column around",
            Self::Walked(..) => "correlated recursion",
        }
    }
}

/// Which sets of keys rows are grouped by; each says of each key whether it is among them.
#[derive(Debug, Clone)]
pub enum Sets {
    /// All keys, all but the last, …, none.
    Rollup,
    /// All that there are.
    Cube,
    Listed(Vec<Vec<bool>>),
}

/// What rows of the left and of the right side have to have in common: a column of each is equal, or a
/// column of the left side is less than one of the right, or both, or nothing.
#[derive(Debug, Clone, Copy)]
pub struct Match {
    equal: Option<(usize, usize)>,
    less: Option<(usize, usize)>,
}

/// Rows that rows of two sides are joined by, which are none of either.
#[derive(Debug, Clone)]
pub struct Third {
    rows: Box<Naive>,
    /// Whether there are to be such rows.
    has: bool,
    /// A column of the left side, and the one that is equal to it.
    equal: (usize, usize),
    /// A column of the right side, and the one that is not less.
    least: (usize, usize),
}

/// Rows of a join that a query around it asks for. Both sides have columns of the same names. In SQL the row
/// around is `l`, and the sides are `r` and `o`.
#[derive(Debug, Clone)]
pub struct Pairs {
    left: Box<Naive>,
    right: Box<Naive>,
    /// Columns of the sides that are equal.
    on: (usize, usize),
    /// A column of the row around, and the one of the right side that is equal to it.
    equal: (usize, usize),
    /// A column of the row around, and one of the left side that is greater.
    less: Option<(usize, usize)>,
}

/// What is asked of rows of a join.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// To be there, or not to be.
    Exists(bool),
    /// Whether they are there, or are not, as a value.
    Marked(bool),
    /// To have, or not to have, the value of a column in one of the right side.
    In(bool, usize, usize),
    /// The greatest value of a column of the right side.
    Greatest(usize),
}

impl Ask {
    fn kind(self) -> &'static str {
        match self {
            Self::Exists(true) => "exists in a join",
            Self::Exists(false) => "not exists in a join",
            Self::Marked(_) => "exists in a join as a value",
            Self::In(true, ..) => "in a join",
            Self::In(false, ..) => "not in a join",
            Self::Greatest(_) => "scalar subquery of a join",
        }
    }

    /// Whether the answer becomes a column.
    fn is_value(self) -> bool {
        matches!(self, Self::Marked(_) | Self::Greatest(_))
    }
}

/// What is asked of a list.
#[derive(Debug, Clone, Copy)]
pub enum AskList {
    Greatest,
    /// Where the value of a column is first.
    Place(usize),
    /// To have, or not to have, the value of a column.
    In(bool, usize),
    /// To have, or not to have, a value that is greater than a number.
    Exists(bool, i64),
}

impl AskList {
    fn kind(self, is_column: bool) -> &'static str {
        match (self, is_column) {
            (Self::Greatest, false) => "scalar subquery of a list",
            (Self::Greatest, true) => "scalar subquery of a column of lists",
            (Self::Place(_), false) => "ordinality",
            (Self::Place(_), true) => "ordinality in a column of lists",
            (Self::In(true, _), false) => "in a list",
            (Self::In(true, _), true) => "in a column of lists",
            (Self::In(false, _), false) => "not in a list",
            (Self::In(false, _), true) => "not in a column of lists",
            (Self::Exists(true, _), false) => "exists in a list",
            (Self::Exists(true, _), true) => "exists in a column of lists",
            (Self::Exists(false, _), false) => "not exists in a list",
            (Self::Exists(false, _), true) => "not exists in a column of lists",
        }
    }

    /// Whether the answer becomes a column.
    fn is_value(self) -> bool {
        matches!(self, Self::Greatest | Self::Place(_))
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
    fn of_subquery(self) -> &'static str {
        match self {
            Self::Inner => "join on a subquery",
            Self::Left => "left join on a subquery",
            Self::Right => "right join on a subquery",
            Self::Full => "full join on a subquery",
        }
    }
}

/// What makes the view.
pub const VIEW: &str = "CREATE VIEW v AS SELECT b AS a, a AS b FROM t WHERE b > 0";

pub type Tables = BTreeMap<&'static str, Vec<(i64, Vec<Value>)>>;

impl Naive {
    /// How many kinds of queries [`Naive::kinds`] tells apart.
    pub const KINDS: usize = 83;

    /// The kinds of queries that this one is made of.
    pub fn kinds(&self, into: &mut BTreeSet<&'static str>) {
        let (kind, inputs) = self.parts();
        into.insert(kind);
        inputs.iter().for_each(|input| input.kinds(into));
    }

    /// How many joins it takes.
    pub fn joins(&self) -> usize {
        let (_, inputs) = self.parts();
        let own = match self {
            Self::Twice(input, ..) => 1 + input.joins(),
            Self::UnionAll(..) | Self::Union(..) => 0,
            _ => inputs.len().saturating_sub(1),
        };
        own + inputs.iter().map(|input| input.joins()).sum::<usize>()
    }

    /// Whether it has subqueries that are joined with the values that they are asked for: which joins there
    /// are then does not tell what the planner has left out.
    pub fn is_dependent(&self) -> bool {
        let (_, inputs) = self.parts();
        let own = match self {
            Self::Looked(.., look, _, is_random) => *is_random || look.is_dependent(),
            Self::Reached(.., step) => step.is_dependent(),
            Self::JoinIf(..) | Self::Listed(..) => true,
            // Of joins within it some may be left out.
            Self::Asked(_, pairs, _) => pairs.left.joins() + pairs.right.joins() > 0,
            _ => false,
        };
        own || inputs.iter().any(|input| input.is_dependent())
    }

    /// How many window functions it has.
    pub fn windows(&self) -> usize {
        let (_, inputs) = self.parts();
        let own = match self {
            Self::Window(_, sums) => sums.len(),
            Self::ByPlace(_, functions) => functions.len(),
            Self::Twice(input, ..) => input.windows(),
            Self::Reached(.., Step::Framed) => 1,
            _ => 0,
        };
        own + inputs.iter().map(|input| input.windows()).sum::<usize>()
    }

    /// Its kind and its inputs.
    fn parts(&self) -> (&'static str, Vec<&Self>) {
        let (kind, inputs): (_, &[&Self]) = match self {
            Self::Scan(_) => ("scan", &[]),
            Self::View => ("view", &[]),
            Self::Filter(input, ..) => ("filter", &[input]),
            Self::Equal(input, ..) => ("equality", &[input]),
            Self::Project(input, _) => ("projection", &[input]),
            Self::Join(left, right, kind, ..) => (kind.sql(), &[left, right]),
            Self::Using(left, right, ..) => ("using", &[left, right]),
            Self::Tested(left, right, true, ..) => ("exists", &[left, right]),
            Self::Tested(left, right, false, ..) => ("not exists", &[left, right]),
            Self::TestedOr(left, right, true, ..) => ("exists or", &[left, right]),
            Self::TestedOr(left, right, false, ..) => ("not exists or", &[left, right]),
            Self::GreaterThanAll(left, right, ..) => ("scalar subquery", &[left, right]),
            Self::Aggregate(input, ..) => ("aggregate", &[input]),
            Self::JoinOn(left, right, ..) => ("join on", &[left, right]),
            Self::JoinIf(left, right, kind, _, third) => {
                (kind.of_subquery(), &[left, right, &third.rows])
            }
            Self::Asked(input, pairs, ask) => (ask.kind(), &[input, &pairs.left, &pairs.right]),
            Self::Twice(input, ..) => ("common table", &[input]),
            Self::In(left, right, is, columns) => {
                let kind = match (is, columns.len()) {
                    (true, 1) => "in",
                    (false, 1) => "not in",
                    (true, _) => "row in",
                    (false, _) => "row not in",
                };
                (kind, &[left, right])
            }
            Self::Looked(left, right, .., true) => ("subquery of random rows", &[left, right]),
            Self::Looked(left, right, look, ..) => (look.kind(), &[left, right]),
            Self::Marked(left, right, true, _) => ("exists as a value", &[left, right]),
            Self::Marked(left, right, false, _) => ("not exists as a value", &[left, right]),
            Self::GroupingSets(input, _, Sets::Rollup, _) => ("rollup", &[input]),
            Self::GroupingSets(input, _, Sets::Cube, _) => ("cube", &[input]),
            Self::GroupingSets(input, _, Sets::Listed(_), _) => ("grouping sets", &[input]),
            Self::DistinctOn(input, _) => ("distinct on", &[input]),
            Self::Window(input, ..) => ("window", &[input]),
            Self::ByPlace(input, ..) => ("window by place", &[input]),
            Self::Unnest(input, .., false) => ("unnest", &[input]),
            Self::Unnest(input, .., true) => ("unnest beside", &[input]),
            Self::Listed(input, _, is_column, ask) => (ask.kind(*is_column), &[input]),
            Self::Limit(input, _) => ("limit", &[input]),
            Self::FirstWithTies(input, ..) => ("first with ties", &[input]),
            Self::InOther(left, right, true) => ("intersect", &[left, right]),
            Self::InOther(left, right, false) => ("except", &[left, right]),
            Self::UnionAll(left, right) => ("union all", &[left, right]),
            Self::Union(left, right) => ("union", &[left, right]),
            Self::Reached(left, right, .., step) => (step.kind(), &[left, right]),
            Self::Distinct(input) => ("distinct", &[input]),
        };
        (kind, inputs.to_vec())
    }

    pub fn width(&self) -> usize {
        match self {
            Self::Scan(_) | Self::View => 2,
            Self::Filter(input, ..) | Self::Equal(input, ..) | Self::Distinct(input) => {
                input.width()
            }
            Self::Project(_, scalars) => scalars.len(),
            Self::Tested(input, ..)
            | Self::TestedOr(input, ..)
            | Self::GreaterThanAll(input, ..)
            | Self::In(input, ..)
            | Self::DistinctOn(input, _)
            | Self::Limit(input, _)
            | Self::FirstWithTies(input, ..)
            | Self::InOther(input, ..) => input.width(),
            Self::Join(left, right, ..)
            | Self::JoinOn(left, right, ..)
            | Self::JoinIf(left, right, ..) => left.width() + right.width(),
            Self::Twice(input, ..) => 2 * input.width(),
            Self::Looked(input, ..) | Self::Marked(input, ..) => input.width() + 1,
            Self::Asked(input, _, ask) => input.width() + usize::from(ask.is_value()),
            Self::Listed(input, .., ask) => input.width() + usize::from(ask.is_value()),
            Self::Using(left, right, ..) => 1 + left.width() + right.width(),
            Self::Aggregate(_, keys, folds) | Self::GroupingSets(_, keys, _, folds) => {
                keys.len() + folds.len()
            }
            Self::Window(input, sums) => input.width() + sums.len(),
            Self::ByPlace(input, functions) => input.width() + functions.len(),
            Self::Unnest(..) | Self::Reached(..) => 2,
            Self::UnionAll(left, _) | Self::Union(left, _) => left.width(),
        }
    }
}
