//! What queries do with rows, whatever they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{Base, Fold, Kind, Row, Value};

impl Kind {
    fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full)
    }

    fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }
}

/// Whether a column of one row and one of another are equal.
pub fn equal((l, r): (usize, usize)) -> impl Fn(&[Value], &[Value]) -> bool {
    move |left, right| left[l].is_some() && left[l] == right[r]
}

pub fn join(
    left: &[Row],
    right: &[Row],
    kind: Kind,
    is_met: impl Fn(&[Value], &[Value]) -> bool,
    widths: (usize, usize),
) -> Vec<Row> {
    let found = |left: &[Value], right: &[Value]| is_met(left, right).then(BTreeSet::new);
    join_found(left, right, kind, found, widths)
}

/// The rows that go together, of which `found` says what they are made of besides.
pub fn join_found(
    left: &[Row],
    right: &[Row],
    kind: Kind,
    found: impl Fn(&[Value], &[Value]) -> Option<BTreeSet<Base>>,
    (left_width, right_width): (usize, usize),
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut right_met = vec![false; right.len()];
    for (values, from) in left {
        let mut met = false;
        for ((more, also), right_met) in right.iter().zip(&mut right_met) {
            if let Some(mut made_of) = found(values, more) {
                (met, *right_met) = (true, true);
                let values = values.iter().chain(more).copied().collect();
                made_of.extend(from.union(also));
                rows.push((values, made_of));
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
pub fn grouped<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    keys: &[usize],
) -> BTreeMap<Vec<Value>, Vec<&'a Row>> {
    let mut groups: BTreeMap<Vec<Value>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = keys.iter().map(|c| row.0[*c]).collect();
        groups.entry(key).or_default().push(row);
    }
    groups
}

pub fn aggregate(rows: &[Row], keys: &[usize], folds: &[Fold]) -> Vec<Row> {
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
pub fn tested(
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

pub fn lineage(rows: &[&Row]) -> BTreeSet<Base> {
    let all = rows.iter().flat_map(|(_, from)| from.iter().copied());
    all.collect()
}

/// Equal rows become one, of all of their lineages; in order.
pub fn distinct(rows: Vec<Row>) -> Vec<Row> {
    let mut groups: BTreeMap<Vec<Value>, BTreeSet<Base>> = BTreeMap::new();
    for (values, from) in rows {
        groups.entry(values).or_default().extend(from);
    }
    groups.into_iter().collect()
}
