//! Cursors of SQL: DECLARE, FETCH, MOVE, CLOSE. A cursor is a portal that SQL has named.
//!
//! They only go forward: a result is computed as it is fetched, and not kept.

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use pgwire::messages::response::TransactionStatus;

use skewer_sql::traits::CommandTag;

use crate::connection::{Connection, Failure};
use crate::encode::Format;
use crate::error::{SqlError, position};
use crate::execution::Cursor;
use crate::extended::{Portal, no_portal};
use crate::statement::Command;

/// DECLARE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declare {
    name: String,
    /// The query as the engine understands it.
    pub(crate) query: String,
    /// Whether it outlives its transaction.
    hold: bool,
    /// Whether FETCH gives binary values where the client does not say what it wants.
    binary: bool,
}

/// FETCH and MOVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) name: String,
    /// All if `None`.
    most: Option<u64>,
    /// `FETCH` shows the rows, `MOVE` passes over them.
    verb: &'static str,
}

impl Declare {
    /// Reads a statement that begins with DECLARE.
    ///
    /// # Errors
    /// What is no cursor of a query; cursors that go backward.
    pub(crate) fn parse(sql: &str) -> Result<Self, SqlError> {
        let invalid = || SqlError::new("42601", "syntax error: DECLARE name CURSOR FOR query");
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
        let mut tokens = tokens.map_err(|_| invalid())?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        let name = tokens.get(1).and_then(|token| name_of(&token.token));
        let mut declare = Self {
            name: name.ok_or_else(invalid)?,
            query: String::new(),
            hold: false,
            binary: false,
        };
        let mut options = tokens.iter().enumerate().skip(2);
        let (mut previous, mut is_cursor) = (String::new(), false);
        let first = loop {
            let (n, token) = options.next().ok_or_else(invalid)?;
            let word = keyword(&token.token).ok_or_else(invalid)?;
            match (previous.as_str(), word.as_str()) {
                (_, "FOR") if is_cursor => break tokens.get(n + 1).ok_or_else(invalid)?,
                (_, "CURSOR") => is_cursor = true,
                (_, "BINARY") => declare.binary = true,
                ("WITH", "HOLD") => declare.hold = true,
                ("NO", "SCROLL") => {}
                (_, "SCROLL") => return Err(backward()),
                (_, "ASENSITIVE" | "INSENSITIVE" | "NO" | "WITH" | "WITHOUT")
                | ("WITHOUT", "HOLD") => {}
                _ => return Err(invalid()),
            }
            previous = word;
        };
        let from = offset(sql, first).ok_or_else(invalid)?;
        declare.query = match Command::parse(&sql[from..]) {
            Ok(Command::Sql {
                text,
                tag: CommandTag::RowsReturned | CommandTag::Rows(_),
            }) => text,
            Ok(_) => {
                return Err(SqlError::new(
                    "42601",
                    "syntax error: a cursor is of a query",
                ));
            }
            Err(mut error) => {
                let before = sql[..from].chars().count();
                error.position = error.position.map(|position| position + before);
                return Err(error);
            }
        };
        Ok(declare)
    }
}

impl Fetch {
    /// Reads a statement that begins with `verb`.
    ///
    /// # Errors
    /// Directions other than forward.
    pub(crate) fn parse(verb: &'static str, tokens: &[Token]) -> Result<Self, SqlError> {
        let invalid = || {
            let text = format!("syntax error: {verb} [FORWARD] [count | ALL] FROM cursor");
            SqlError::new("42601", text)
        };
        let [_, directions @ .., name] = tokens else {
            return Err(invalid());
        };
        let mut most = Some(1);
        for token in directions {
            match (token, keyword(token).as_deref()) {
                (_, Some("FORWARD" | "NEXT" | "FROM" | "IN")) => {}
                (_, Some("ALL")) => most = None,
                (Token::Number(digits, _), _) => {
                    most = Some(digits.parse().map_err(|_| invalid())?);
                }
                (Token::Minus, _)
                | (_, Some("BACKWARD" | "PRIOR" | "FIRST" | "LAST" | "ABSOLUTE" | "RELATIVE")) => {
                    return Err(backward());
                }
                _ => return Err(invalid()),
            }
        }
        Ok(Self {
            name: name_of(name).ok_or_else(invalid)?,
            most,
            verb,
        })
    }
}

fn backward() -> SqlError {
    SqlError::new("55000", "cursors only go forward")
}

/// A name as SQL writes it.
pub(crate) fn name_of(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

fn keyword(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Where a token begins, in bytes.
fn offset(sql: &str, token: &TokenWithSpan) -> Option<usize> {
    let start = token.span.start;
    let characters = position(sql, start.line, start.column)?.checked_sub(1)?;
    sql.char_indices().nth(characters).map(|(at, _)| at)
}

impl Fetch {
    /// Whether the rows are sent.
    pub(crate) fn shows(&self) -> bool {
        self.verb == "FETCH"
    }
}

impl Connection {
    /// DECLARE, with the values of the query's parameters.
    pub(crate) async fn declare(
        &mut self,
        declare: &Declare,
        values: &[ScalarValue],
        sql: &str,
    ) -> Result<(), Failure> {
        let name = &declare.name;
        if self.transaction.status() == TransactionStatus::Idle && !declare.hold {
            let text = "a cursor ends with its transaction block, and there is none";
            let error = SqlError::new("25P01", text);
            return Err(error
                .hint("BEGIN first, or DECLARE … CURSOR WITH HOLD")
                .into());
        }
        if self.portals.contains_key(name) {
            return Err(SqlError::new("42P03", format!("there is a cursor {name} already")).into());
        }
        let stream = self.start(&declare.query, values, sql).await?;
        let format = match declare.binary {
            true => Format::Binary,
            false => Format::Text,
        };
        let portal = Portal::of_cursor(stream, format, declare.hold);
        self.portals.insert(name.clone(), portal);
        Ok(())
    }

    /// FETCH and MOVE; gives the tag. In the simple protocol `formats` are the cursor's own, and
    /// the columns are told.
    pub(crate) async fn fetch(
        &mut self,
        fetch: &Fetch,
        formats: Option<&[Format]>,
        sql: &str,
    ) -> Result<String, Failure> {
        let name = &fetch.name;
        // If this fails or is cancelled, the cursor is gone.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let shows = fetch.shows();
        if let (true, None, Some(columns)) = (shows, formats, portal.columns()) {
            let own = portal.formats().to_vec();
            self.describe_rows(&columns, &own).await?;
        }
        let rows = match portal.cursor() {
            Some(cursor) => {
                if let Some(formats) = formats.filter(|_| shows) {
                    cursor.turn_to(formats)?;
                }
                match (shows, fetch.most) {
                    (_, Some(0)) => 0,
                    (true, most) => self.send_rows(cursor, most, sql).await?.0,
                    (false, most) => skip(cursor, most, sql).await?,
                }
            }
            None => 0,
        };
        self.portals.insert(name.clone(), portal);
        Ok(format!("{} {rows}", fetch.verb))
    }

    /// CLOSE of one cursor, or of all.
    pub(crate) fn close_cursor(&mut self, name: Option<&str>) -> Result<(), SqlError> {
        match name {
            None => self.portals.clear(),
            Some(name) => drop(self.portals.remove(name).ok_or_else(|| no_portal(name))?),
        }
        Ok(())
    }

    /// At the end of a transaction: what has no hold goes.
    pub(crate) fn close_portals(&mut self) {
        self.portals.retain(|_, portal| portal.is_held());
    }
}

/// Passes over rows; how many they were.
async fn skip(cursor: &mut Cursor, most: Option<u64>, sql: &str) -> Result<u64, Failure> {
    let mut passed = 0;
    while most != Some(passed) && cursor.next_row(sql).await?.is_some() {
        passed += 1;
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_declared_in_several_ways() {
        let declare = |sql| Declare::parse(sql);
        let expected = Declare {
            name: "a".to_owned(),
            query: "SELECT 'ä', 1".to_owned(),
            hold: false,
            binary: false,
        };
        assert_eq!(
            declare("DECLARE A CURSOR FOR SELECT 'ä', 1"),
            Ok(expected.clone())
        );
        let held = declare("declare \"A\" BINARY NO SCROLL CURSOR WITH HOLD FOR\nSELECT 'ä', 1");
        let expected = Declare {
            name: "A".to_owned(),
            hold: true,
            binary: true,
            ..expected
        };
        assert_eq!(held, Ok(expected));
        for (sql, code) in [
            ("DECLARE a SCROLL CURSOR FOR SELECT 1", "55000"),
            ("DECLARE a CURSOR FOR DROP TABLE t", "42601"),
            ("DECLARE a CURSOR", "42601"),
            ("DECLARE", "42601"),
        ] {
            assert_eq!(declare(sql).unwrap_err().code, code, "{sql}");
        }
        let misspelt = declare("DECLARE a CURSOR FOR SELECT * FORM t").unwrap_err();
        assert_eq!(misspelt.position, Some(31));
    }

    #[test]
    fn cursors_are_fetched_from_forward() {
        let fetch = |sql: &str| {
            let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap();
            let tokens: Vec<_> = tokens
                .into_iter()
                .filter(|token| !matches!(token, Token::Whitespace(_)))
                .collect();
            Fetch::parse("FETCH", &tokens).map(|fetch| (fetch.name, fetch.most))
        };
        for (sql, most) in [
            ("FETCH a", Some(1)),
            ("FETCH NEXT FROM a", Some(1)),
            ("FETCH 7 IN a", Some(7)),
            ("FETCH FORWARD 100 FROM \"a\"", Some(100)),
            ("FETCH ALL FROM A", None),
        ] {
            assert_eq!(fetch(sql), Ok(("a".to_owned(), most)), "{sql}");
        }
        for (sql, code) in [
            ("FETCH BACKWARD 1 FROM a", "55000"),
            ("FETCH -1 FROM a", "55000"),
            ("FETCH", "42601"),
            ("FETCH 'x' FROM a", "42601"),
        ] {
            assert_eq!(fetch(sql).unwrap_err().code, code, "{sql}");
        }
    }
}
