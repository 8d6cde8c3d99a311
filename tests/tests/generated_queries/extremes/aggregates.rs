//! Queries that aggregate table `v`, and what they come to.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::values::{Row, Rows};
use crate::cases::Random;

/// A whole number made of a row.
#[derive(Debug, Clone, Copy)]
enum Number {
    A,
    MinusA,
    APlusB,
    AMinusB,
    APlus(i64),
    AbsA,
    B,
    MinusB,
    K,
}

impl Number {
    /// Of numbers that are far from the ends, any of these fits.
    const ALL: &[Self] = &[
        Self::A,
        Self::A,
        Self::MinusA,
        Self::MinusA,
        Self::APlusB,
        Self::AMinusB,
        Self::APlus(1),
        Self::AbsA,
        Self::B,
        Self::MinusB,
        Self::K,
    ];
    /// These fit whatever the numbers are.
    const FIT: &[Self] = &[Self::A, Self::B, Self::K];

    fn sql(self) -> String {
        match self {
            Self::A => "a".to_owned(),
            Self::MinusA => "-a".to_owned(),
            Self::APlusB => "a + b".to_owned(),
            Self::AMinusB => "a - b".to_owned(),
            Self::APlus(more) => format!("a + {more}"),
            Self::AbsA => "abs(a)".to_owned(),
            Self::B => "b".to_owned(),
            Self::MinusB => "-b".to_owned(),
            Self::K => "k".to_owned(),
        }
    }

    /// What it is if it need not fit.
    fn value_of(self, row: &Row) -> Option<i128> {
        let (a, b) = (row.a.map(i128::from), row.b.map(i128::from));
        match self {
            Self::A => a,
            Self::MinusA => a.map(|a| -a),
            Self::APlusB => Some(a? + b?),
            Self::AMinusB => Some(a? - b?),
            Self::APlus(more) => a.map(|a| a + i128::from(more)),
            Self::AbsA => a.map(i128::abs),
            Self::B => b,
            Self::MinusB => b.map(|b| -b),
            Self::K => row.k.map(i128::from),
        }
    }

    /// Whether it does not fit its type for a row.
    fn overflows(self, row: &Row) -> bool {
        let number = self.value_of(row);
        number.is_some_and(|number| match self {
            Self::B | Self::MinusB => i32::try_from(number).is_err(),
            _ => i64::try_from(number).is_err(),
        })
    }
}

/// What is made of a set of rows.
#[derive(Debug, Clone, Copy)]
enum Fold {
    CountAll,
    Count(Number),
    CountDistinct(Number),
    Min(Number),
    Max(Number),
    Sum(Number),
    SumDistinct(Number),
    MinFloat,
    MaxFloat,
    SumFloat,
    MinText,
    MaxText,
    CountDistinctText,
    MinDate,
    MaxDate,
}

impl Fold {
    fn generate(random: &mut Random, numbers: &[Number]) -> Self {
        let number = *numbers.choose(random).expect("a number");
        match random.random_range(0..20) {
            0 => Self::CountAll,
            1 => Self::Count(number),
            2 => Self::CountDistinct(number),
            3..6 => Self::Min(number),
            6..9 => Self::Max(number),
            9 | 10 => Self::Sum(number),
            11 => Self::SumDistinct(number),
            12 => Self::MinFloat,
            13 => Self::MaxFloat,
            14 => Self::SumFloat,
            15 => Self::MinText,
            16 => Self::MaxText,
            17 => Self::CountDistinctText,
            18 => Self::MinDate,
            _ => Self::MaxDate,
        }
    }

    fn number(self) -> Option<Number> {
        match self {
            Self::Count(number)
            | Self::CountDistinct(number)
            | Self::Min(number)
            | Self::Max(number)
            | Self::Sum(number)
            | Self::SumDistinct(number) => Some(number),
            _ => None,
        }
    }

    fn is_sum(self) -> bool {
        matches!(self, Self::Sum(_) | Self::SumDistinct(_))
    }

    fn sql(self) -> String {
        let of = self.number().map(Number::sql).unwrap_or_default();
        match self {
            Self::CountAll => "count(*)".to_owned(),
            Self::Count(_) => format!("count({of})"),
            Self::CountDistinct(_) => format!("count(DISTINCT {of})"),
            Self::Min(_) => format!("min({of})"),
            Self::Max(_) => format!("max({of})"),
            Self::Sum(_) => format!("sum({of})"),
            Self::SumDistinct(_) => format!("sum(DISTINCT {of})"),
            Self::MinFloat => "min(f)".to_owned(),
            Self::MaxFloat => "max(f)".to_owned(),
            Self::SumFloat => "sum(f)".to_owned(),
            Self::MinText => "min(s)".to_owned(),
            Self::MaxText => "max(s)".to_owned(),
            Self::CountDistinctText => "count(DISTINCT s)".to_owned(),
            Self::MinDate => "min(d)".to_owned(),
            Self::MaxDate => "max(d)".to_owned(),
        }
    }

    /// What it comes to, as text; `None` if no BIGINT is that.
    fn result_of(self, rows: &[&Row]) -> Option<String> {
        let numbers = || {
            let number = self.number();
            rows.iter().filter_map(move |row| number?.value_of(row))
        };
        let floats = || rows.iter().filter_map(|row| row.f);
        let texts = || rows.iter().filter_map(|row| row.s);
        let dates = || rows.iter().filter_map(|row| row.d);
        let distinct = || numbers().collect::<BTreeSet<i128>>();
        let whole = |number: i128| i64::try_from(number).ok().map(|n| n.to_string());
        let or_null = |text: Option<String>| Some(text.unwrap_or_else(|| "NULL".to_owned()));
        let text = |text: Option<&str>| or_null(text.map(str::to_owned));
        let float = |float: Option<f64>| or_null(float.map(|f| format!("{f:?}")));
        let of_any = |number: Option<i128>| match number {
            Some(number) => whole(number),
            None => or_null(None),
        };
        match self {
            Self::CountAll => Some(rows.len().to_string()),
            Self::Count(_) => Some(numbers().count().to_string()),
            Self::CountDistinct(_) => Some(distinct().len().to_string()),
            Self::Min(_) => of_any(numbers().min()),
            Self::Max(_) => of_any(numbers().max()),
            Self::Sum(_) => of_any(numbers().reduce(|a, b| a + b)),
            Self::SumDistinct(_) => of_any(distinct().into_iter().reduce(|a, b| a + b)),
            // NaN is greater than all others.
            Self::MinFloat => float(floats().min_by(f64::total_cmp)),
            Self::MaxFloat => float(floats().max_by(f64::total_cmp)),
            Self::SumFloat => float(floats().reduce(|a, b| a + b)),
            Self::MinText => text(texts().min()),
            Self::MaxText => text(texts().max()),
            Self::CountDistinctText => Some(texts().collect::<BTreeSet<&str>>().len().to_string()),
            Self::MinDate => text(dates().min()),
            Self::MaxDate => text(dates().max()),
        }
    }

    /// Whether a sum may not fit though the whole does, in some order.
    fn may_overflow(self, rows: &[&Row]) -> bool {
        let Some(number) = self.number().filter(|_| self.is_sum()) else {
            return false;
        };
        let numbers = || rows.iter().filter_map(|row| number.value_of(row));
        let positive: i128 = numbers().filter(|n| *n > 0).sum();
        let negative: i128 = numbers().filter(|n| *n < 0).sum();
        i64::try_from(positive).is_err() || i64::try_from(negative).is_err()
    }
}

/// Which rows are looked at.
#[derive(Debug, Clone, Copy)]
enum Condition {
    Greater(Number, i64),
    NotGreater(Number, i64),
    Equal(Number, i64),
    Between(Number, i64, i64),
    IsNull(Number),
    GreaterOrNull(Number, i64),
    TextIs(&'static str),
    TextBefore(&'static str),
    FloatAbove(f64),
    NotFloatAbove(f64),
    DateFrom(&'static str),
}

impl Condition {
    fn generate(random: &mut Random, numbers: &[Number]) -> Self {
        let number = *numbers.choose(random).expect("a number");
        let ends = [0, 1, -1, 3, i64::MAX, i64::MIN + 1];
        let end = *ends.choose(random).expect("a number");
        match random.random_range(0..11) {
            0 | 1 => Self::Greater(number, end),
            2 => Self::NotGreater(number, end),
            3 => Self::Equal(number, end),
            4 => Self::Between(number, -1, end),
            5 => Self::IsNull(number),
            6 => Self::GreaterOrNull(number, end),
            7 => Self::TextIs(["", "a", "B"][random.random_range(0..3)]),
            8 => Self::TextBefore(["", "a", "zz"][random.random_range(0..3)]),
            9 => match random.random_range(0..2) {
                0 => Self::FloatAbove([0.0, 1.5][random.random_range(0..2)]),
                _ => Self::NotFloatAbove(1.5),
            },
            _ => Self::DateFrom(
                ["0001-01-01", "1970-01-01", "9999-12-31"][random.random_range(0..3)],
            ),
        }
    }

    fn number(self) -> Option<Number> {
        match self {
            Self::Greater(number, _)
            | Self::NotGreater(number, _)
            | Self::Equal(number, _)
            | Self::Between(number, ..)
            | Self::IsNull(number)
            | Self::GreaterOrNull(number, _) => Some(number),
            _ => None,
        }
    }

    fn sql(self) -> String {
        let of = self.number().map(Number::sql).unwrap_or_default();
        match self {
            Self::Greater(_, end) => format!("{of} > {end}"),
            Self::NotGreater(_, end) => format!("NOT ({of} > {end})"),
            Self::Equal(_, end) => format!("{of} = {end}"),
            Self::Between(_, from, to) => format!("{of} BETWEEN {from} AND {to}"),
            Self::IsNull(_) => format!("({of}) IS NULL"),
            Self::GreaterOrNull(_, end) => format!("({of} > {end} OR ({of}) IS NULL)"),
            Self::TextIs(text) => format!("s = '{text}'"),
            Self::TextBefore(text) => format!("s < '{text}'"),
            Self::FloatAbove(float) => format!("f > {float:?}"),
            Self::NotFloatAbove(float) => format!("NOT (f > {float:?})"),
            Self::DateFrom(date) => format!("d >= DATE '{date}'"),
        }
    }

    /// Whether it holds; `None` is NULL.
    fn holds(self, row: &Row) -> Option<bool> {
        let number = self.number().map(|number| number.value_of(row));
        let number = number.flatten();
        let above = |float: f64| row.f.map(|f| f.total_cmp(&float).is_gt());
        Some(match self {
            Self::Greater(_, end) => number? > i128::from(end),
            Self::NotGreater(_, end) => number? <= i128::from(end),
            Self::Equal(_, end) => number? == i128::from(end),
            Self::Between(_, from, to) => (i128::from(from)..=i128::from(to)).contains(&number?),
            Self::IsNull(_) => number.is_none(),
            Self::GreaterOrNull(_, end) => number.is_none_or(|n| n > i128::from(end)),
            Self::TextIs(text) => row.s? == text,
            Self::TextBefore(text) => row.s? < text,
            Self::FloatAbove(float) => above(float)?,
            Self::NotFloatAbove(float) => !above(float)?,
            Self::DateFrom(date) => row.d? >= date,
        })
    }
}

/// A query.
#[derive(Debug)]
pub struct Aggregation {
    is_grouped: bool,
    folds: Vec<(Fold, Option<Condition>)>,
    condition: Option<Condition>,
}

/// What a query comes to.
#[derive(Debug)]
pub struct Expected {
    /// Its rows; `None` if a number does not fit.
    pub rows: Option<Vec<String>>,
    /// Whether a number does not fit on the way.
    pub may_overflow: bool,
}

impl Aggregation {
    /// Several aggregates, most of a few numbers made of the same columns.
    pub fn generate(random: &mut Random, may_overflow: bool) -> Self {
        let numbers = match may_overflow {
            true => Number::ALL,
            false => Number::FIT,
        };
        let few: Vec<Number> = (0..random.random_range(1..4))
            .map(|_| *numbers.choose(random).expect("a number"))
            .collect();
        let folds = (0..random.random_range(1..6)).map(|_| {
            let mut fold = Fold::generate(random, &few);
            if fold.is_sum() && !may_overflow {
                fold = Fold::Max(few[0]);
            }
            let filter = random.random_range(0..4) == 0;
            let filter = filter.then(|| Condition::generate(random, &few));
            (fold, filter)
        });
        let folds = folds.collect();
        let condition = random.random_range(0..2) == 0;
        Self {
            is_grouped: random.random_range(0..2) == 0,
            folds,
            condition: condition.then(|| Condition::generate(random, &few)),
        }
    }

    pub fn sql(&self) -> String {
        let folds = self.folds.iter().map(|(fold, filter)| match filter {
            Some(filter) => format!("{} FILTER (WHERE {})", fold.sql(), filter.sql()),
            None => fold.sql(),
        });
        let key = self.is_grouped.then(|| "k".to_owned());
        let items: Vec<String> = key.into_iter().chain(folds).collect();
        let mut sql = format!("SELECT {} FROM v", items.join(", "));
        if let Some(condition) = self.condition {
            sql = format!("{sql} WHERE {}", condition.sql());
        }
        if self.is_grouped {
            sql.push_str(" GROUP BY k");
        }
        sql
    }

    pub fn evaluate(&self, rows: &Rows) -> Expected {
        let holds = |condition: Option<Condition>, row: &Row| {
            condition.is_none_or(|condition| condition.holds(row) == Some(true))
        };
        let mut groups: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
        if !self.is_grouped {
            groups.insert(None, Vec::new());
        }
        for row in rows.all().filter(|row| holds(self.condition, row)) {
            let key = self.is_grouped.then_some(row.k).flatten();
            groups.entry(key).or_default().push(row);
        }
        let folded = self.folds.iter().filter_map(|(fold, _)| fold.number());
        let filters = self.folds.iter().filter_map(|(_, filter)| filter.as_ref());
        let compared = filters.chain(&self.condition).filter_map(|c| c.number());
        let mut numbers = folded.chain(compared);
        // A plan may evaluate what is asked of a row before it is known that the row is left out.
        let mut may_overflow = numbers.any(|number| rows.all().any(|row| number.overflows(row)));
        let mut lines = Some(Vec::new());
        for (key, rows) in groups {
            let mut cells = Vec::new();
            if self.is_grouped {
                cells.push(Some(
                    key.map_or_else(|| "NULL".to_owned(), |k| k.to_string()),
                ));
            }
            for (fold, filter) in &self.folds {
                let rows = rows.iter().copied();
                let rows: Vec<&Row> = rows.filter(|row| holds(*filter, row)).collect();
                may_overflow |= fold.may_overflow(&rows);
                cells.push(fold.result_of(&rows));
            }
            let cells: Option<Vec<String>> = cells.into_iter().collect();
            lines = lines.zip(cells).map(|(mut lines, cells)| {
                lines.push(cells.join("|"));
                lines
            });
        }
        may_overflow |= lines.is_none();
        Expected {
            rows: lines,
            may_overflow,
        }
    }
}
