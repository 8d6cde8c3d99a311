//! What kind of statement a text begins with, as far as showing its result depends on it.

use skewer_sql::lex::{self, Kind};

/// The first word of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
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

impl StatementKind {
    /// Of the statement `sql`.
    pub fn of_sql(sql: &str) -> StatementKind {
        let mut words = lex::tokens(sql)
            .filter(|token| !matches!(token.kind, Kind::Space | Kind::Comment))
            .map(|token| token.text.to_ascii_lowercase());
        let first = words.next();
        match first.as_deref() {
            Some("explain") => StatementKind::Explain,
            // The report on a query, but not the setting profile.level.
            Some("show")
                if words.next().as_deref() == Some("profile")
                    && words.next().as_deref() != Some(".") =>
            {
                StatementKind::Explain
            }
            Some("insert") => StatementKind::Insert,
            Some("update") => StatementKind::Update,
            Some("delete") => StatementKind::Delete,
            Some("copy") => StatementKind::Copy,
            Some(
                "create" | "drop" | "alter" | "truncate" | "refresh" | "set" | "reset" | "prepare"
                | "deallocate" | "use",
            ) => StatementKind::Define,
            _ => StatementKind::Query,
        }
    }

    /// Whether the statement answers with a count at most.
    pub fn is_change(self) -> bool {
        !matches!(self, StatementKind::Query | StatementKind::Explain)
    }

    /// Whether tables and columns may be others afterwards.
    pub fn changes_names(self) -> bool {
        matches!(self, StatementKind::Define | StatementKind::Explain)
    }

    /// What happened to the rows that it counts.
    pub fn past(self) -> Option<&'static str> {
        match self {
            StatementKind::Insert => Some("inserted"),
            StatementKind::Update => Some("updated"),
            StatementKind::Delete => Some("deleted"),
            StatementKind::Copy => Some("copied"),
            StatementKind::Define => Some("written"),
            StatementKind::Query | StatementKind::Explain => None,
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
            "CREATE QUARANTINE q ON t WHERE (a > 1)",
            "DROP QUARANTINE q",
            "ALTER TABLE t ADD COLUMN b INT",
            "TRUNCATE t",
            "REBALANCE",
            "CREATE STREAM s (a INT) FROM INSERT",
            "CREATE CONTINUOUS QUERY q INTO t AS SELECT a FROM s",
            "REFRESH CONTINUOUS QUERY q",
            "REFRESH STREAM s",
            "DROP CONTINUOUS QUERY q",
            "DROP STREAM s",
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
            let kind = StatementKind::of_sql(sql);
            let expected = match statement.traits().returns {
                Returns::Rows | Returns::OfPrepared => kind == StatementKind::Query,
                Returns::Report => kind == StatementKind::Explain,
                Returns::Count | Returns::Nothing => kind.is_change(),
            };
            assert!(expected, "{sql}: {kind:?}, {:?}", statement.traits());
        }
    }

    #[test]
    fn comments_do_not_hide_the_verb() {
        assert_eq!(
            StatementKind::of_sql("-- note\n /* x */ Insert INTO t VALUES (1)"),
            StatementKind::Insert
        );
        assert_eq!(
            StatementKind::of_sql("WITH a AS (SELECT 1) SELECT * FROM a"),
            StatementKind::Query
        );
        assert_eq!(StatementKind::of_sql(""), StatementKind::Query);
        assert_eq!(
            StatementKind::of_sql("SHOW PROFILE 7"),
            StatementKind::Explain
        );
        assert_eq!(
            StatementKind::of_sql("SHOW profile.level"),
            StatementKind::Query
        );
    }
}
