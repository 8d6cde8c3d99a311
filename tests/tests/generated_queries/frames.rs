//! Windows: frames that are the same however rows with equal values are ordered, and functions of
//! places among rows that differ.

use rand::RngExt;

use crate::cases::Random;
use crate::naive::{Fold, Row, Value, in_order};

/// Which rows a window function looks at.
#[derive(Debug, Clone, Copy)]
pub struct Over {
    /// The column that the partitions have in common.
    key: usize,
    /// The column that they are ordered by.
    order: usize,
    frame: Frame,
}

#[derive(Debug, Clone, Copy)]
enum Frame {
    /// The whole partition, in no order.
    Whole,
    /// All rows up to this one and those equal to it.
    Before,
    /// This one, those equal to it, and all after.
    After,
    /// Rows whose values are less by at most the one number, and greater by at most the other.
    Near(i64, i64),
    /// The same, counted in different values.
    Groups(usize, usize),
    /// Those with at least so many different values before this one.
    LongBefore(usize),
}

impl Over {
    pub fn generate(random: &mut Random, width: usize) -> Self {
        let number = |random: &mut Random| random.random_range(0..3);
        Self {
            key: random.random_range(0..width),
            order: random.random_range(0..width),
            frame: match random.random_range(0..6) {
                0 => Frame::Whole,
                1 => Frame::Before,
                2 => Frame::After,
                3 => Frame::Near(number(random), number(random)),
                4 => Frame::Groups(number(random) as usize, number(random) as usize),
                _ => Frame::LongBefore(number(random) as usize),
            },
        }
    }

    pub fn sql(self) -> String {
        let frame = match self.frame {
            Frame::Whole => return format!("PARTITION BY c{}", self.key),
            Frame::Before => "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW".to_owned(),
            Frame::After => "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING".to_owned(),
            Frame::Near(less, more) => {
                format!("RANGE BETWEEN {less} PRECEDING AND {more} FOLLOWING")
            }
            Frame::Groups(before, after) => {
                format!("GROUPS BETWEEN {before} PRECEDING AND {after} FOLLOWING")
            }
            Frame::LongBefore(before) => {
                format!("GROUPS BETWEEN UNBOUNDED PRECEDING AND {before} PRECEDING")
            }
        };
        format!(
            "PARTITION BY c{} ORDER BY c{} {frame}",
            self.key, self.order
        )
    }

    /// The frame of a row with these values.
    pub fn frame<'a>(self, rows: &'a [Row], row: &[Value]) -> Vec<&'a Row> {
        let partition = rows
            .iter()
            .filter(|(values, _)| values[self.key] == row[self.key]);
        // NULL comes last.
        let rank = |value: Value| (value.is_none(), value);
        let mut different: Vec<_> = partition
            .clone()
            .map(|(v, _)| rank(v[self.order]))
            .collect();
        different.sort_unstable();
        different.dedup();
        let place = |values: &[Value]| different.binary_search(&rank(values[self.order]));
        let place = |values: &[Value]| place(values).expect("a value of the partition");
        let own = place(row);
        let is_in = |(values, _): &&Row| {
            let other = place(values);
            match self.frame {
                Frame::Whole => true,
                Frame::Before => other <= own,
                Frame::After => other >= own,
                Frame::Near(less, more) => match (values[self.order], row[self.order]) {
                    (Some(value), Some(own)) => (own - less..=own + more).contains(&value),
                    (value, own) => value == own,
                },
                Frame::Groups(before, after) => other + before >= own && other <= own + after,
                Frame::LongBefore(before) => other + before <= own,
            }
        };
        partition.filter(is_in).collect()
    }
}

/// A window function of places, over rows that differ.
#[derive(Debug, Clone, Copy)]
pub struct ByPlace {
    column: usize,
    /// The column that the partitions have in common.
    key: usize,
    /// The column that they are ordered by first, then by all others.
    order: usize,
    function: Function,
}

#[derive(Debug, Clone, Copy)]
enum Function {
    /// The value so many places before.
    Lag(i64),
    /// The value so many places behind.
    Lead(i64),
    Sum(Rows),
    FirstValue(Rows),
    LastValue(Rows),
    /// The value in this place of the frame, from 1.
    NthValue(usize, Rows),
}

/// From one place to another one, counted from the row's own; `None` is where the partition ends.
#[derive(Debug, Clone, Copy)]
struct Rows(Option<i64>, Option<i64>);

impl ByPlace {
    pub fn generate(random: &mut Random, width: usize) -> Self {
        let function = match random.random_range(0..7) {
            0 => Function::Lag(random.random_range(0..4)),
            1 => Function::Lead(random.random_range(0..4)),
            2 => Function::FirstValue(Rows::generate(random)),
            3 => Function::LastValue(Rows::generate(random)),
            4 => Function::NthValue(random.random_range(1..4), Rows::generate(random)),
            _ => Function::Sum(Rows::generate(random)),
        };
        Self {
            column: random.random_range(0..width),
            key: random.random_range(0..width),
            order: random.random_range(0..width),
            function,
        }
    }

    /// `width` is how many columns the rows have.
    pub fn sql(self, width: usize) -> String {
        let (c, key) = (self.column, self.key);
        let (function, rows) = match self.function {
            Function::Lag(places) => (format!("lag(c{c}, {places})"), None),
            Function::Lead(places) => (format!("lead(c{c}, {places})"), None),
            Function::Sum(rows) => (format!("sum(c{c})"), Some(rows)),
            Function::FirstValue(rows) => (format!("first_value(c{c})"), Some(rows)),
            Function::LastValue(rows) => (format!("last_value(c{c})"), Some(rows)),
            Function::NthValue(place, rows) => (format!("nth_value(c{c}, {place})"), Some(rows)),
        };
        let others = (0..width).filter(|other| *other != self.order);
        let order = in_order(std::iter::once(self.order).chain(others));
        let rows = rows.map(Rows::sql).unwrap_or_default();
        format!("{function} OVER (PARTITION BY c{key} ORDER BY {order}{rows})")
    }

    /// What it returns for a row with these values, and the rows that it looks at.
    pub fn evaluate<'a>(self, rows: &'a [Row], row: &[Value]) -> (Value, Vec<&'a Row>) {
        let partition = rows.iter().filter(|(v, _)| v[self.key] == row[self.key]);
        let mut partition: Vec<&Row> = partition.collect();
        partition.sort_by_key(|(values, _)| (values[self.order], values));
        let own = partition.iter().position(|(values, _)| values == row);
        let own = own.expect("it is of this partition") as i64;
        let value = |row: Option<&&Row>| row.and_then(|(values, _)| values[self.column]);
        let only = |place: i64| {
            let found = usize::try_from(place).ok();
            let found = found.and_then(|place| partition.get(place));
            (value(found), found.copied().into_iter().collect())
        };
        let frame = |rows: Rows| rows.frame(&partition, own);
        match self.function {
            Function::Lag(places) => only(own - places),
            Function::Lead(places) => only(own + places),
            Function::Sum(rows) => {
                let frame = frame(rows);
                (Fold::Sum(self.column).evaluate(frame), frame.to_vec())
            }
            Function::FirstValue(rows) => (value(frame(rows).first()), frame(rows).to_vec()),
            Function::LastValue(rows) => (value(frame(rows).last()), frame(rows).to_vec()),
            Function::NthValue(place, rows) => {
                let frame = frame(rows);
                (value(frame.get(place - 1)), frame.to_vec())
            }
        }
    }
}

impl Rows {
    fn generate(random: &mut Random) -> Self {
        let mut place = || Some(random.random_range(-3..=3)).filter(|place| *place > -3);
        match (place(), place()) {
            (Some(one), Some(other)) => Self(Some(one.min(other)), Some(one.max(other))),
            ends => Self(ends.0, ends.1),
        }
    }

    fn sql(self) -> String {
        let place = |place: Option<i64>, end: &str| match place {
            None => format!("UNBOUNDED {end}"),
            Some(0) => "CURRENT ROW".to_owned(),
            Some(place) if place < 0 => format!("{} PRECEDING", -place),
            Some(place) => format!("{place} FOLLOWING"),
        };
        let (first, last) = (place(self.0, "PRECEDING"), place(self.1, "FOLLOWING"));
        format!(" ROWS BETWEEN {first} AND {last}")
    }

    fn frame<'a, 'b>(self, partition: &'b [&'a Row], own: i64) -> &'b [&'a Row] {
        let rows = partition.len() as i64;
        let first = self.0.map_or(0, |place| (own + place).clamp(0, rows));
        let end = self
            .1
            .map_or(rows, |place| (own + place + 1).clamp(0, rows));
        partition
            .get(first as usize..end as usize)
            .unwrap_or_default()
    }
}
