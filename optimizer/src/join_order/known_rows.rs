//! How many rows relations had in queries that have ended.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;

use super::relation::Relation;

/// Relations that are remembered, about 5 MB. Beyond that the older half is forgotten.
const RELATIONS: usize = 100_000;

/// How many rows of a relation a query returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Number of rows.
    pub rows: u64,
    /// Whether these are all rows of the relation. Otherwise something above asked for fewer: a limit, or the filter
    /// that a join gives to scans.
    pub is_all: bool,
    /// The query.
    pub query_id: i64,
}

/// Rows of relations, counted by queries. Shared by all queries of a database.
#[derive(Debug, Default)]
pub struct KnownRows(RwLock<Known>);

/// What the order of a plan's joins took from [`KnownRows`].
#[derive(Debug, Clone, PartialEq)]
pub enum FeedbackUsed {
    /// Nothing was known of tables of these versions.
    Nothing(Vec<u64>),
    /// These relations were asked for, and had been counted or not.
    Answers(Vec<(Relation, Option<Returned>)>),
}

impl FeedbackUsed {
    /// Whether `known` still says about the same, so that it would not change the plan.
    pub fn still_holds(&self, known: &KnownRows) -> bool {
        match self {
            Self::Nothing(versions) => !known.has_any_of(versions.iter().copied()),
            Self::Answers(answers) => {
                let known = known.0.read();
                answers.iter().all(
                    |(relation, before)| match (before, known.rows.get(relation)) {
                        (None, None) => true,
                        (Some(before), Some(now)) => before.says_about_the_same(now),
                        (None, Some(_)) | (Some(_), None) => false,
                    },
                )
            }
        }
    }
}

impl Returned {
    /// Some rows of a relation are other ones in each run, so these need only be nearly as many.
    fn says_about_the_same(&self, other: &Self) -> bool {
        let (fewer, more) = (self.rows.min(other.rows), self.rows.max(other.rows));
        match (self.is_all, other.is_all) {
            (true, true) => fewer == more,
            (false, false) => more - fewer <= more / 4,
            _ => false,
        }
    }
}

/// [`KnownRows`] of which one query asks, with what it was told.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    known: &'a KnownRows,
    answers: RefCell<HashMap<Relation, Option<Returned>>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(known: &'a KnownRows) -> Self {
        Self {
            known,
            answers: RefCell::default(),
        }
    }

    /// How many rows `relation` returned.
    pub(super) fn get(&self, relation: Relation) -> Option<Returned> {
        let mut answers = self.answers.borrow_mut();
        *answers
            .entry(relation)
            .or_insert_with(|| self.known.get(relation))
    }

    /// All that was asked.
    pub(super) fn answers(&self) -> FeedbackUsed {
        let answers = self.answers.borrow();
        let answers = answers
            .iter()
            .map(|(relation, answer)| (*relation, *answer));
        FeedbackUsed::Answers(answers.collect())
    }
}

#[derive(Debug, Default)]
struct Known {
    rows: HashMap<Relation, Returned>,
    /// The versions of tables that relations were made of.
    versions: HashSet<u64>,
}

impl KnownRows {
    /// How many rows `relation` returned.
    pub fn get(&self, relation: Relation) -> Option<Returned> {
        self.0.read().rows.get(&relation).copied()
    }

    /// Whether a query has counted relations of one of these versions of tables.
    pub(super) fn has_any_of(&self, mut versions: impl Iterator<Item = u64>) -> bool {
        let known = self.0.read();
        versions.any(|version| known.versions.contains(&version))
    }

    /// Remembers relations that were made of these `versions` of tables. All rows of a relation count more than some.
    pub fn remember(
        &self,
        versions: impl IntoIterator<Item = u64>,
        counted: impl IntoIterator<Item = (Relation, Returned)>,
    ) {
        let known = &mut *self.0.write();
        known.versions.extend(versions);
        for (relation, returned) in counted {
            let counts_more = known.rows.get(&relation).is_none_or(|before| {
                returned.is_all || !before.is_all && returned.rows > before.rows
            });
            if counts_more {
                known.rows.insert(relation, returned);
            }
        }
        if known.versions.len() > RELATIONS {
            *known = Known::default();
        }
        if known.rows.len() > RELATIONS {
            let queries = known.rows.values().map(|returned| returned.query_id);
            let mut queries: Vec<_> = queries.collect();
            let middle = queries.len() / 2;
            let (_, last_forgotten, _) = queries.select_nth_unstable(middle);
            let last_forgotten = *last_forgotten;
            let rows = &mut known.rows;
            rows.retain(|_, returned| returned.query_id > last_forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_keeps_its_order_while_the_answers_are_the_same() {
        let (asked, other) = (Relation(1), Relation(2));
        for (before, after, holds) in [
            (None, None, true),
            (None, Some((10, true)), false),
            (Some((10, true)), Some((10, true)), true),
            (Some((10, true)), Some((11, true)), false),
            (Some((10, false)), Some((10, true)), false),
            // At least so many rows, in each run others.
            (Some((90, false)), Some((100, false)), true),
            (Some((50, false)), Some((100, false)), false),
        ] {
            let known = KnownRows::default();
            let count = |relation, counted: Option<(u64, bool)>| {
                let counted = counted.map(|(rows, is_all)| (relation, returned(rows, is_all, 1)));
                known.remember([7], counted);
            };
            count(asked, before);
            let query = Asked::new(&known);
            query.get(asked);
            let used = query.answers();
            count(other, Some((5, true)));
            assert!(used.still_holds(&known), "another relation was counted");
            count(asked, after);
            assert_eq!(used.still_holds(&known), holds, "{before:?} {after:?}");
        }
        let known = KnownRows::default();
        let used = FeedbackUsed::Nothing(vec![7]);
        assert!(used.still_holds(&known));
        known.remember([8], []);
        assert!(used.still_holds(&known));
        known.remember([7], []);
        assert!(!used.still_holds(&known));
    }

    fn returned(rows: u64, is_all: bool, query_id: i64) -> Returned {
        Returned {
            rows,
            is_all,
            query_id,
        }
    }

    #[test]
    fn all_rows_count_more_than_some() {
        let known = KnownRows::default();
        let relation = Relation(1);
        for (counted, expected) in [
            (returned(10, false, 1), returned(10, false, 1)),
            (returned(5, false, 2), returned(10, false, 1)),
            (returned(20, false, 3), returned(20, false, 3)),
            (returned(15, true, 4), returned(15, true, 4)),
            (returned(99, false, 5), returned(15, true, 4)),
            (returned(15, true, 6), returned(15, true, 6)),
        ] {
            known.remember([], [(relation, counted)]);
            assert_eq!(known.get(relation), Some(expected));
        }
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let known = KnownRows::default();
        let all = (0..=RELATIONS as u64).map(|n| (Relation(n), returned(n, true, n as i64)));
        known.remember([], all);
        assert_eq!(known.get(Relation(0)), None);
        assert!(known.get(Relation(RELATIONS as u64)).is_some());
        assert!(known.0.read().rows.len() <= RELATIONS / 2 + 1);
    }
}
