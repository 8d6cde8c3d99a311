//! How many rows relations had in queries that have ended.

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
