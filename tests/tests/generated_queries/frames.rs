//! Window frames that are the same however rows with equal values are ordered.

use rand::RngExt;

use crate::cases::Random;
use crate::naive::{Row, Value};

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
