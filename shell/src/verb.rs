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
    use super::*;

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
