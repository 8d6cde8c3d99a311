//! What a client's statement asks for: of the engine, of the connection, or of COPY's protocol.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use skewer_sql::traits::CommandTag;

use crate::catalog::rewrite;
use crate::copy::CopyStatement;
use crate::cursor::{Declare, Fetch, name_of};
use crate::error::SqlError;
use crate::settings;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// For the engine: its text, which may differ from the client's, and how its end is told.
    Sql { text: String, tag: CommandTag },
    /// BEGIN and START TRANSACTION.
    Begin,
    /// COMMIT and END.
    Commit,
    /// ROLLBACK and ABORT.
    Rollback,
    /// SET of something that PostgreSQL has and the engine has not.
    Set { name: String, value: String },
    /// SHOW of such a thing.
    Show { name: String },
    /// DECLARE of a cursor.
    Declare(Box<Declare>),
    /// FETCH and MOVE.
    Fetch(Fetch),
    /// CLOSE of one cursor, or of all.
    CloseCursor { name: Option<String> },
    /// DEALLOCATE of one name or all.
    Deallocate { name: Option<String> },
    /// COPY … FROM STDIN or TO STDOUT.
    Copy(Box<CopyStatement>),
    /// Accepted, and there is nothing to do.
    Nothing { tag: &'static str },
}

impl Command {
    /// Reads one statement.
    ///
    /// # Errors
    /// Syntax errors, with their place in `sql`; what PostgreSQL has and Skewer has not.
    pub(crate) fn parse(sql: &str) -> Result<Self, SqlError> {
        // The threads of connections have small stacks.
        let read = skewer_sql::deep::guarded(sql, || Self::read(sql));
        read.map_err(|error| SqlError::of_engine(&error.into(), sql))?
    }

    fn read(sql: &str) -> Result<Self, SqlError> {
        let words = Words::of_sql(sql);
        match words.first_two() {
            ("BEGIN", _) | ("START", "TRANSACTION") => Ok(Self::Begin),
            ("COMMIT" | "END", second) if second != "PREPARED" => Ok(Self::Commit),
            ("ROLLBACK" | "ABORT", "TO") | ("ROLLBACK", "WORK" | "TRANSACTION")
                if words.has("TO") =>
            {
                Err(savepoints())
            }
            ("ROLLBACK" | "ABORT", _) => Ok(Self::Rollback),
            ("SAVEPOINT" | "RELEASE", _) => Err(savepoints()),
            ("DEALLOCATE", _) => Ok(Self::deallocate(&words)),
            ("DISCARD", _) => Ok(Self::Nothing { tag: "DISCARD ALL" }),
            ("UNLISTEN", _) => Ok(Self::Nothing { tag: "UNLISTEN" }),
            ("DECLARE", _) => Ok(Self::Declare(Box::new(Declare::parse(sql)?))),
            ("FETCH", _) => Ok(Self::Fetch(Fetch::parse("FETCH", &words.0)?)),
            ("MOVE", _) => Ok(Self::Fetch(Fetch::parse("MOVE", &words.0)?)),
            ("CLOSE", _) => match words.0.as_slice() {
                [_, Token::Word(word)] if word.value.eq_ignore_ascii_case("all") => {
                    Ok(Self::CloseCursor { name: None })
                }
                [_, name] => Ok(Self::CloseCursor {
                    name: name_of(name),
                }),
                _ => Err(SqlError::new(
                    "42601",
                    "syntax error: CLOSE cursor, or CLOSE ALL",
                )),
            },
            ("COPY", _) if words.has("STDIN") || words.has("STDOUT") => {
                Ok(Self::Copy(Box::new(CopyStatement::parse(sql)?)))
            }
            ("SET", _) => match settings::parse_set(&words.0)? {
                Some((name, value)) => Ok(Self::Set { name, value }),
                None => Self::sql(sql),
            },
            ("SHOW", _) => match settings::parse_show(&words.0) {
                Some(name) => Ok(Self::Show { name }),
                None => Self::sql(sql),
            },
            _ if words.0.iter().any(rewrite::is_postgresql) => {
                let text = rewrite::rewrite(sql);
                match Self::sql(&text) {
                    Err(error) => Err(SqlError {
                        position: None,
                        ..error
                    }),
                    command => command,
                }
            }
            _ => Self::sql(sql),
        }
    }

    fn sql(sql: &str) -> Result<Self, SqlError> {
        let statement = skewer_sql::parse(sql).map_err(|e| SqlError::of_engine(&e.into(), sql))?;
        Ok(Self::Sql {
            text: sql.to_owned(),
            tag: statement.traits().tag,
        })
    }

    fn deallocate(words: &Words) -> Self {
        let name = words.0.iter().skip(1).find_map(|token| match token {
            Token::Word(word)
                if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("prepare") =>
            {
                None
            }
            other => name_of(other),
        });
        Self::Deallocate {
            name: name.filter(|name| name != "all"),
        }
    }

    /// Whether it can be carried out in a block whose earlier statement has failed.
    pub(crate) fn ends_block(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback)
    }
}

fn savepoints() -> SqlError {
    SqlError::unsupported("savepoints; each statement is a transaction of its own")
}

/// A statement's tokens without space and comments; none if it has unfinished strings.
struct Words(Vec<Token>);

impl Words {
    fn of_sql(sql: &str) -> Self {
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
        let mut tokens = tokens.unwrap_or_default();
        tokens.retain(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon));
        Self(tokens)
    }

    /// Upper-cased; empty where there is no word.
    fn first_two(&self) -> (&'static str, &'static str) {
        let word = |n: usize| match self.0.get(n) {
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                let upper = word.value.to_uppercase();
                LEADING.iter().find(|known| **known == upper).copied()
            }
            _ => None,
        };
        (word(0).unwrap_or(""), word(1).unwrap_or(""))
    }

    fn has(&self, wanted: &str) -> bool {
        self.0.iter().any(|token| {
            matches!(token, Token::Word(word)
                if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
        })
    }
}

/// The words that [`Command::parse`] looks for at a statement's beginning.
const LEADING: [&str; 24] = [
    "ABORT",
    "BEGIN",
    "CLOSE",
    "COMMIT",
    "COPY",
    "DEALLOCATE",
    "DECLARE",
    "DISCARD",
    "END",
    "FETCH",
    "MOVE",
    "PREPARED",
    "PROFILE",
    "RELEASE",
    "ROLLBACK",
    "SAVEPOINT",
    "SET",
    "SHOW",
    "START",
    "TO",
    "TRANSACTION",
    "UNLISTEN",
    "WORK",
    "LISTEN",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart() {
        let parse = |sql| Command::parse(sql).unwrap();
        assert_eq!(parse("/* x */ begin"), Command::Begin);
        assert_eq!(
            parse("START TRANSACTION ISOLATION LEVEL READ COMMITTED"),
            Command::Begin
        );
        assert_eq!(parse("END;"), Command::Commit);
        assert_eq!(parse("rollback work"), Command::Rollback);
        assert_eq!(parse("DEALLOCATE ALL"), Command::Deallocate { name: None });
        let named = Command::Deallocate {
            name: Some("S_1".to_owned()),
        };
        assert_eq!(parse("DEALLOCATE PREPARE \"S_1\""), named);
        let set = Command::Set {
            name: "application_name".to_owned(),
            value: "x".to_owned(),
        };
        assert_eq!(parse("SET application_name = 'x'"), set);
        for show in ["show profile 12;", "SHOW PROFILE"] {
            assert!(matches!(parse(show), Command::Sql { .. }), "{show}");
        }
        assert!(matches!(parse("SHOW profile.level"), Command::Sql { .. }));
        assert!(matches!(
            parse("SET profile.level = 'calls'"),
            Command::Sql {
                tag: CommandTag::Done("SET", _),
                ..
            }
        ));
        assert!(matches!(
            parse("COPY t FROM STDIN (FORMAT csv)"),
            Command::Copy(_)
        ));
        assert!(matches!(
            parse("INSERT INTO t VALUES (1)"),
            Command::Sql {
                tag: CommandTag::RowsCounted("INSERT 0", _),
                ..
            }
        ));
    }

    #[test]
    fn savepoints_are_refused() {
        for sql in [
            "SAVEPOINT a",
            "ROLLBACK TO SAVEPOINT a",
            "ROLLBACK TO a",
            "RELEASE a",
        ] {
            assert_eq!(Command::parse(sql).unwrap_err().code, "0A000", "{sql}");
        }
    }

    #[test]
    fn syntax_errors_have_their_place() {
        let error = Command::parse("SELECT *\nFORM t").unwrap_err();
        assert_eq!((error.code, error.position), ("42601", Some(10)));
    }
}
