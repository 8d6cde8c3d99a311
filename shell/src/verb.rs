//! What kind of statement a text begins with, as far as showing its result depends on it.

use crate::lex::{self, Kind};

/// The first word of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// EXPLAIN and SHOW PROFILE: text with lines of its own.
    Explain,
    Insert,
    Update,
    Delete,
    Copy,
    /// CREATE, DROP, ALTER, TRUNCATE, SET and the like: nothing to show.
    Define,
    /// Everything that gives rows.
    Query,
}

impl Verb {
    /// Of the statement `sql`.
    pub fn of(sql: &str) -> Verb {
        let tokens = lex::tokens(sql);
        let mut words = tokens
            .iter()
            .filter(|token| !matches!(token.kind, Kind::Space | Kind::Comment))
            .map(|token| token.text.to_ascii_lowercase());
        let first = words.next();
        match first.as_deref() {
            Some("explain") => Verb::Explain,
            // The report on a query, but not the setting profile.level.
            Some("show")
                if words.next().as_deref() == Some("profile")
                    && words.next().as_deref() != Some(".") =>
            {
                Verb::Explain
            }
            Some("insert") => Verb::Insert,
            Some("update") => Verb::Update,
            Some("delete") => Verb::Delete,
            Some("copy") => Verb::Copy,
            Some(
                "create" | "drop" | "alter" | "truncate" | "set" | "reset" | "prepare"
                | "deallocate" | "use",
            ) => Verb::Define,
            _ => Verb::Query,
        }
    }

    /// Whether the statement answers with a count at most.
    pub fn is_change(self) -> bool {
        !matches!(self, Verb::Query | Verb::Explain)
    }

    /// Whether tables and columns may be others afterwards.
    pub fn changes_names(self) -> bool {
        matches!(self, Verb::Define | Verb::Explain)
    }

    /// What happened to the rows that it counts.
    pub fn past(self) -> Option<&'static str> {
        match self {
            Verb::Insert => Some("inserted"),
            Verb::Update => Some("updated"),
            Verb::Delete => Some("deleted"),
            Verb::Copy => Some("copied"),
            Verb::Define => Some("written"),
            Verb::Query | Verb::Explain => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use skewer_sql::traits::Returns;

    use super::*;

    /// The shell knows only a statement's text; the engine parses it. Both must expect the same result.
    #[test]
    fn the_verb_agrees_with_the_traits_of_the_statement() {
        for sql in [
            "SELECT 1",
            "VALUES (1)",
            "FROM t",
            "EXPLAIN SELECT 1",
            "EXPLAIN PROFILE SELECT 1",
            "SHOW PROFILE",
            "EXPORT PROFILE 1 TO 'x'",
            "IMPORT PROFILE FROM 'x'",
            "CREATE TABLE t (a INT)",
            "CREATE TABLE t AS SELECT 1",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'x.csv'",
            "CREATE VIEW v AS SELECT 1",
            "CREATE SCHEMA s",
            "DROP TABLE t",
            "CREATE INDEX i ON t (a)",
            "DROP INDEX i",
            "ALTER TABLE t ADD COLUMN b INT",
            "TRUNCATE t",
            "REBALANCE",
            "INSERT INTO t VALUES (1)",
            "DELETE FROM t",
            "UPDATE t SET a = 1",
            "COPY t FROM 'x.csv'",
            "COPY t TO 'x.csv'",
            "SET x = 1",
            "RESET x",
            "SHOW x",
            "SHOW TABLES",
            "SHOW SCHEMAS",
            "SHOW CREATE TABLE t",
            "DESCRIBE t",
            "DESCRIBE SELECT 1",
            "PREPARE p AS SELECT 1",
            "EXECUTE p",
            "DEALLOCATE p",
            "SHOW FUNCTIONS",
        ] {
            let statement = skewer_sql::parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            let verb = Verb::of(sql);
            let expected = match statement.traits().returns {
                Returns::Rows | Returns::OfPrepared => verb == Verb::Query,
                Returns::Report => verb == Verb::Explain,
                Returns::Count | Returns::Nothing => verb.is_change(),
            };
            assert!(expected, "{sql}: {verb:?}, {:?}", statement.traits());
        }
    }

    #[test]
    fn comments_do_not_hide_the_verb() {
        assert_eq!(
            Verb::of("-- note\n /* x */ Insert INTO t VALUES (1)"),
            Verb::Insert
        );
        assert_eq!(
            Verb::of("WITH a AS (SELECT 1) SELECT * FROM a"),
            Verb::Query
        );
        assert_eq!(Verb::of(""), Verb::Query);
        assert_eq!(Verb::of("SHOW PROFILE 7"), Verb::Explain);
        assert_eq!(Verb::of("SHOW profile.level"), Verb::Query);
    }
}
