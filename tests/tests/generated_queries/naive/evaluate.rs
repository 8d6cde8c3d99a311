//! What naive queries return, and what it is made of.

use std::collections::BTreeSet;

use super::rows::{aggregate, distinct, equal, grouped, join, join_found, lineage, tested};
use super::{
    Ask, AskList, Base, Fold, Kind, Look, Match, Naive, Pairs, Row, Scalar, Sets, Step, Tables,
    Third, Value,
};

impl Scalar {
    pub fn evaluate(&self, row: &[Value]) -> Value {
        match self {
            Self::Column(c) | Self::Same(c) => row[*c],
            Self::Plus(c, n) => row[*c].map(|value| value + n),
            Self::Constant(n) => Some(*n),
            Self::Coalesce(c, n) => row[*c].or(Some(*n)),
        }
    }
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
}

impl Look {
    /// What the rows of `all` come to that are `met`, and what that is made of.
    fn evaluate(self, met: &[&Row], all: &[Row]) -> (Value, BTreeSet<Base>) {
        let greatest = |key: usize| {
            let groups = grouped(met.iter().copied(), &[key]).into_values();
            groups.map(|rows| rows.len() as i64).max()
        };
        let value = match self {
            Self::All(fold) => fold.evaluate(met),
            Self::Group(_) | Self::First(_) if met.is_empty() => None,
            Self::Group(fold) => fold.evaluate(met),
            Self::First(c) => met.iter().map(|(values, _)| values[c]).min().flatten(),
            Self::Twice(fold) => fold.evaluate(&[met, met].concat()),
            Self::Second => {
                let met: Vec<Row> = met.iter().map(|row| (*row).clone()).collect();
                let second = distinct(met).into_iter().nth(1).unwrap_or_default();
                return (second.0.first().copied().flatten(), second.1);
            }
            Self::GreatestGroup(key) | Self::GreatestPartition(key) => greatest(key),
            Self::RolledUp(key) => {
                let groups = grouped(met.iter().copied(), &[key]).len() + 1;
                Some((2 * met.len() + 100 * groups + 10_000) as i64)
            }
            Self::RolledUpAround => {
                let groups = i64::from(!met.is_empty()) + 1;
                Some(2 * met.len() as i64 + 100 * groups + 10_000)
            }
            Self::Walked(from, to) => {
                let mut walked: Vec<Row> = met.iter().map(|row| (*row).clone()).collect();
                let width = all.first().map_or(0, |(values, _)| values.len());
                let step = join(&walked, all, Kind::Inner, equal((from, to)), (width, width));
                walked.extend(step);
                let walked: Vec<&Row> = walked.iter().collect();
                return (Some(walked.len() as i64), lineage(&walked));
            }
            Self::FirstTwo(key) => {
                let groups = grouped(met.iter().copied(), &[key]).into_values();
                let two: Vec<Vec<&Row>> = groups.take(2).collect();
                let first = two.iter().filter_map(|rows| rows.iter().min());
                let first: Vec<&Row> = first.copied().collect();
                return (Fold::Sum(0).evaluate(&first), lineage(&two.concat()));
            }
            Self::Equals(c) => {
                let met: Vec<Row> = met.iter().map(|row| (*row).clone()).collect();
                let tested = tested(all, &met, equal((c, c))).into_iter();
                let equals: Vec<Row> = tested.filter(|(_, is)| *is).map(|(row, _)| row).collect();
                let equals: Vec<&Row> = equals.iter().collect();
                return (Some(equals.len() as i64), lineage(&equals));
            }
        };
        (value, lineage(met))
    }
}

impl Match {
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

impl Third {
    fn is_of(&self, left: &[Value], right: &[Value], row: &[Value]) -> bool {
        let (least, value) = (right[self.least.0], row[self.least.1]);
        let is_least = least
            .zip(value)
            .is_some_and(|(least, value)| least <= value);
        is_least && equal(self.equal)(left, row)
    }
}

impl Pairs {
    /// The rows of the right side that a row asks for, each made of that of the left side, too.
    fn asked(&self, tables: &Tables) -> impl Fn(&[Value]) -> Vec<Row> {
        let width = self.left.width();
        let (left, right) = (self.left.evaluate(tables), self.right.evaluate(tables));
        let pairs = join(
            &left,
            &right,
            Kind::Inner,
            equal(self.on),
            (width, self.right.width()),
        );
        let asked = Match {
            equal: Some((self.equal.0, width + self.equal.1)),
            less: self.less,
        };
        move |around| {
            let met = pairs.iter().filter(|(pair, _)| asked.is_met(around, pair));
            met.map(|(pair, from)| (pair[width..].to_vec(), from.clone()))
                .collect()
        }
    }
}

impl Ask {
    /// The row's answer, if it is kept, and the rows that it is found among.
    fn answer(self, row: &[Value], asked: Vec<Row>) -> Option<(Value, Vec<Row>)> {
        match self {
            Self::Exists(has) => (asked.is_empty() != has).then_some((None, asked)),
            Self::Marked(has) => Some((Some(i64::from(asked.is_empty() != has)), asked)),
            Self::Greatest(c) => {
                let greatest = Fold::Max(c).evaluate(&asked.iter().collect::<Vec<_>>());
                Some((greatest, asked))
            }
            Self::In(is, l, c) => {
                let (value, is_none) = (row[l], asked.is_empty());
                let has_null = asked.iter().any(|(values, _)| values[c].is_none());
                let found = asked
                    .into_iter()
                    .filter(|(values, _)| equal((l, c))(row, values));
                let found: Vec<Row> = found.collect();
                let is_kept = match is {
                    true => !found.is_empty(),
                    // Among unknown values anything may be; among none nothing is.
                    false => is_none || found.is_empty() && value.is_some() && !has_null,
                };
                is_kept.then_some((None, found))
            }
        }
    }
}

impl Sets {
    /// Of each set, whether each of so many keys is in it.
    pub fn sets_of(&self, keys: usize) -> Vec<Vec<bool>> {
        match self {
            Self::Rollup => {
                let kept = |kept| (0..keys).map(|key| key < kept).collect();
                (0..=keys).map(kept).collect()
            }
            Self::Cube => {
                let of = |set: usize| (0..keys).map(|key| set & (1 << key) != 0).collect();
                (0..1 << keys).map(of).collect()
            }
            Self::Listed(sets) => sets.clone(),
        }
    }
}

impl Naive {
    pub fn evaluate(&self, tables: &Tables) -> Vec<Row> {
        match self {
            Self::Scan(table) => {
                let rows = tables[table].iter();
                rows.map(|(id, values)| (values.clone(), BTreeSet::from([(*table, *id)])))
                    .collect()
            }
            Self::View => {
                let rows = Self::Scan("t").evaluate(tables).into_iter();
                rows.filter(|(values, _)| values[1].is_some_and(|b| b > 0))
                    .map(|(values, from)| (vec![values[1], values[0]], from))
                    .collect()
            }
            Self::Filter(input, scalar, number) => {
                let mut rows = input.evaluate(tables);
                rows.retain(|(values, _)| scalar.evaluate(values).is_some_and(|v| v > *number));
                rows
            }
            Self::Equal(input, scalar, number) => {
                let mut rows = input.evaluate(tables);
                rows.retain(|(values, _)| scalar.evaluate(values) == Some(*number));
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
                join(&left, &right, *kind, equal((*l, *r)), widths)
            }
            Self::JoinOn(left, right, kind, matching) => {
                let widths = (left.width(), right.width());
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let is_met = |left: &[Value], right: &[Value]| matching.is_met(left, right);
                join(&left, &right, *kind, is_met, widths)
            }
            Self::JoinIf(left, right, kind, matching, third) => {
                let widths = (left.width(), right.width());
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let rows = third.rows.evaluate(tables);
                let found = |left: &[Value], right: &[Value]| {
                    let found = rows
                        .iter()
                        .filter(|(other, _)| third.is_of(left, right, other));
                    let found: Vec<&Row> = found.collect();
                    let is_met = matching.is_met(left, right) && found.is_empty() != third.has;
                    is_met.then(|| lineage(&found))
                };
                join_found(&left, &right, *kind, found, widths)
            }
            Self::Asked(input, pairs, ask) => {
                let asked = pairs.asked(tables);
                let rows = input.evaluate(tables).into_iter();
                rows.filter_map(|(mut values, mut from)| {
                    let (answer, found) = ask.answer(&values, asked(&values))?;
                    from.extend(lineage(&found.iter().collect::<Vec<_>>()));
                    if ask.is_value() {
                        values.push(answer);
                    }
                    Some((values, from))
                })
                .collect()
            }
            Self::Twice(input, l, r) => {
                let rows = input.evaluate(tables);
                let widths = (input.width(), input.width());
                join(&rows, &rows, Kind::Inner, equal((*l, *r)), widths)
            }
            Self::In(left, right, is, columns) => {
                let right = right.evaluate(tables);
                let rows = left.evaluate(tables);
                let same = |left: &[Value], right: &[Value]| {
                    columns.iter().all(|pair| equal(*pair)(left, right))
                };
                // An unknown value may be any.
                let may_be = |left: &[Value], right: &[Value]| {
                    columns.iter().all(|(l, r)| {
                        left[*l].is_none() || right[*r].is_none() || left[*l] == right[*r]
                    })
                };
                let found = tested(&rows, &right, same).into_iter();
                let found = found.filter(|((values, _), is_met)| match is {
                    true => *is_met,
                    false => !right.iter().any(|(other, _)| may_be(values, other)),
                });
                found.map(|(row, _)| row).collect()
            }
            Self::Looked(left, right, look, matching, _) => {
                let right = right.evaluate(tables);
                let rows = left.evaluate(tables).into_iter();
                rows.map(|(mut values, mut from)| {
                    let met = right
                        .iter()
                        .filter(|(other, _)| matching.is_met(&values, other));
                    let met: Vec<&Row> = met.collect();
                    let (value, made_of) = look.evaluate(&met, &right);
                    values.push(value);
                    from.extend(made_of);
                    (values, from)
                })
                .collect()
            }
            Self::Marked(left, right, has, matching) => {
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let found = matching.test(&left, &right).into_iter();
                let marked = found.map(|((mut values, from), is_met)| {
                    values.push(Some(i64::from(is_met == *has)));
                    (values, from)
                });
                marked.collect()
            }
            Self::Using(left, right, kind, (l, r), least) => {
                let widths = (left.width(), right.width());
                let (left, right) = (left.evaluate(tables), right.evaluate(tables));
                let joined = join(&left, &right, *kind, equal((*l, *r)), widths).into_iter();
                let keyed = joined.map(|(mut values, from)| {
                    // Equal where both rows are there, NULL where one is not.
                    values.insert(0, values[*l].or(values[widths.0 + r]));
                    (values, from)
                });
                keyed
                    .filter(|(values, _)| values[0].is_none_or(|key| key >= *least))
                    .collect()
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
            Self::Unnest(input, one, two, _) => {
                let rows = input.evaluate(tables).into_iter();
                rows.flat_map(|(values, from)| {
                    two.map(|other| (vec![values[*one], values[other]], from.clone()))
                })
                .collect()
            }
            Self::Listed(input, two, _, ask) => {
                let rows = input.evaluate(tables).into_iter();
                rows.filter_map(|(values, from)| {
                    let list = two.map(|column| values[column]);
                    Some((ask.evaluate(values, list)?, from))
                })
                .collect()
            }
            Self::Limit(input, count) => {
                let mut rows = distinct(input.evaluate(tables));
                rows.truncate(*count);
                rows
            }
            Self::FirstWithTies(input, column, count) => {
                let mut rows = input.evaluate(tables);
                // NULL is greater than all.
                let key = |row: &Row| (row.0[*column].is_none(), row.0[*column]);
                rows.sort_by_key(key);
                if let Some(last) = rows.get(count - 1).map(key) {
                    rows.retain(|row| key(row) <= last);
                }
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
            Self::GroupingSets(input, keys, sets, folds) => {
                let rows = input.evaluate(tables);
                let sets = sets.sets_of(keys.len()).into_iter().flat_map(|set| {
                    let kept = keys.iter().zip(&set).filter(|(_, is_in)| **is_in);
                    let kept: Vec<usize> = kept.map(|(key, _)| *key).collect();
                    let groups = aggregate(&rows, &kept, folds).into_iter();
                    groups.map(move |(mut values, from)| {
                        // Keys that this set is not grouped by are NULL.
                        for (position, is_in) in set.iter().enumerate() {
                            if !is_in {
                                values.insert(position, None);
                            }
                        }
                        (values, from)
                    })
                });
                sets.collect()
            }
            Self::UnionAll(left, right) => union_all(left, right, tables),
            Self::Union(left, right) => distinct(union_all(left, right, tables)),
            Self::Reached(input, other, c, (from, to), steps, step) => {
                let others = other.evaluate(tables);
                let rows = input.evaluate(tables).into_iter();
                let mut last: Vec<Row> = rows
                    .map(|(values, from)| (vec![values[*c], values[*c]], from))
                    .collect();
                let mut reached = last.clone();
                let steps = match step {
                    Step::Among => 1,
                    _ => *steps,
                };
                for _ in 0..steps {
                    last = step.from(&last, (&others, other.width()), (*from, *to));
                    reached.extend_from_slice(&last);
                }
                reached
            }
            Self::Distinct(input) => distinct(input.evaluate(tables)),
        }
    }
}

impl AskList {
    /// What becomes of a row with such a list, if anything does.
    fn evaluate(self, mut row: Vec<Value>, list: [Value; 2]) -> Option<Vec<Value>> {
        let mut known = list.iter().flatten();
        let is_kept = match self {
            Self::Greatest => {
                row.push(known.max().copied());
                true
            }
            Self::Place(column) => {
                let value = row[column];
                let place = list
                    .iter()
                    .position(|other| value.is_some() && *other == value);
                row.push(place.map(|place| place as i64 + 1));
                true
            }
            Self::In(true, column) => row[column].is_some_and(|value| known.any(|v| *v == value)),
            Self::In(false, column) => row[column].is_some_and(|value| {
                list.iter()
                    .all(|other| other.is_some_and(|other| other != value))
            }),
            Self::Exists(has, number) => known.any(|value| *value > number) == has,
        };
        is_kept.then_some(row)
    }
}

impl Step {
    /// What is reached from `last`, whose first column says where it is, along two columns of `others`.
    fn from(
        self,
        last: &[Row],
        (others, width): (&[Row], usize),
        (from, to): (usize, usize),
    ) -> Vec<Row> {
        if let Self::Among = self {
            let tested = tested(others, last, equal((from, 0))).into_iter();
            let among = tested.filter(|(_, has)| *has).map(|(row, _)| row);
            return among
                .map(|(values, made_of)| (vec![values[to], values[from]], made_of))
                .collect();
        }
        if matches!(self, Self::First | Self::Value) {
            let next = last.iter().filter_map(|(values, made_of)| {
                let met = others
                    .iter()
                    .filter(|(other, _)| equal((0, from))(values, other));
                let met: Vec<Row> = met.cloned().collect();
                // A scalar subquery is made of all rows that it takes the first of.
                let of_all = lineage(&met.iter().collect::<Vec<_>>());
                let (first, found) = match (distinct(met).into_iter().next(), self) {
                    (Some((first, _)), Self::Value) => (first[to], of_all),
                    (Some((first, of_first)), _) => (first[to], of_first),
                    (None, Self::Value) => (None, of_all),
                    (None, _) => return None,
                };
                Some((vec![first, values[1]], made_of | &found))
            });
            return next.collect();
        }
        let last = match self {
            Self::Met => {
                let met = join(last, last, Kind::Inner, equal((1, 1)), (2, 2)).into_iter();
                met.map(|(values, made_of)| (vec![values[0], values[2]], made_of))
                    .collect()
            }
            Self::Greatest => {
                let all: Vec<&Row> = last.iter().collect();
                let (greatest, of_all) = (Fold::Max(1).evaluate(&all), lineage(&all));
                let kept = last
                    .iter()
                    .filter(|(values, _)| greatest.is_some() && values[1] == greatest);
                kept.map(|(values, made_of)| (values.clone(), made_of | &of_all))
                    .collect()
            }
            _ => last.to_vec(),
        };
        let pairs = join(&last, others, Kind::Inner, equal((0, from)), (2, width));
        let pairs: Vec<Row> = pairs
            .into_iter()
            .map(|(values, made_of)| (vec![values[2 + to], values[1]], made_of))
            .collect();
        match self {
            Self::Pairs | Self::Among | Self::First | Self::Value | Self::Met | Self::Greatest => {
                pairs
            }
            Self::Distinct => distinct(pairs),
            Self::Grouped => aggregate(&pairs, &[0], &[Fold::Max(1)]),
            Self::Framed => {
                let frames = grouped(&pairs, &[0]).into_iter();
                let framed = frames.flat_map(|(key, rows)| {
                    let sum = Fold::Sum(1).evaluate(&rows);
                    let row = (vec![key[0], sum], lineage(&rows));
                    vec![row; rows.len()]
                });
                framed.collect()
            }
        }
    }
}

fn union_all(left: &Naive, right: &Naive, tables: &Tables) -> Vec<Row> {
    let mut rows = left.evaluate(tables);
    rows.extend(right.evaluate(tables));
    rows
}
