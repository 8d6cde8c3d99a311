//! `CREATE QUARANTINE [IF NOT EXISTS] [name] ON t WHERE (predicate) [INTO view]` and
//! `DROP QUARANTINE [IF EXISTS] [name] [ON t]`.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast::{self, ObjectName};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use crate::statement::Statement;
use skewer_compat::statement::desugar::desugar;

/// The word after CREATE and DROP.
pub(crate) const QUARANTINE: &str = "QUARANTINE";

/// CREATE QUARANTINE.
#[derive(Debug, Clone)]
pub struct CreateQuarantine {
    /// Whether an existing one is fine.
    pub if_not_exists: bool,
    /// Its name; `None` to have one made of the table's.
    pub name: Option<ObjectName>,
    /// The table whose rows it hides.
    pub table: ObjectName,
    /// Which rows.
    pub predicate: Box<ast::Expr>,
    /// The view that shows these rows.
    pub view: Option<ObjectName>,
    /// The whole statement, for errors that show the place.
    pub source: String,
    /// Where the predicate begins.
    pub predicate_at: Location,
}

/// What follows CREATE QUARANTINE in the statement `sql`.
pub(crate) fn parse_create(sql: &str, parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let parser = &mut parser.parser;
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parse_name(parser)?;
    if if_not_exists && name.is_none() {
        let found = parser.peek_token();
        return parser.expected("a name, as IF NOT EXISTS asks for one", found);
    }
    parser.expect_keyword(Keyword::ON)?;
    let table = parser.parse_object_name(false)?;
    parser.expect_keyword(Keyword::WHERE)?;
    parser.expect_token(&Token::LParen)?;
    let predicate_at = parser.peek_token().span.start;
    let mut predicate = parser.parse_expr()?;
    desugar(&mut predicate)?;
    parser.expect_token(&Token::RParen)?;
    let view = match parser.parse_keyword(Keyword::INTO) {
        true => Some(parser.parse_object_name(false)?),
        false => None,
    };
    Ok(Statement::CreateQuarantine(Box::new(CreateQuarantine {
        if_not_exists,
        name,
        table,
        predicate: Box::new(predicate),
        view,
        source: sql.to_owned(),
        predicate_at,
    })))
}

/// The name before ON, if there is one.
fn parse_name(parser: &mut Parser<'_>) -> Result<Option<ObjectName>, ParserError> {
    match parser.peek_token().token {
        Token::Word(word) if word.keyword == Keyword::ON && word.quote_style.is_none() => Ok(None),
        _ => parser.parse_object_name(false).map(Some),
    }
}

/// What follows DROP QUARANTINE.
pub(crate) fn parse_drop(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let parser = &mut parser.parser;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parse_name(parser)?;
    let table = match parser.parse_keyword(Keyword::ON) {
        true => Some(parser.parse_object_name(false)?),
        false => None,
    };
    Ok(Statement::DropQuarantine {
        if_exists,
        name,
        table,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    #[test]
    fn a_quarantine_has_a_table_and_a_predicate() {
        for (sql, expected) in [
            (
                "CREATE QUARANTINE ON docs WHERE (length(text) > 100)",
                (None, "docs", "length(text) > 100", None),
            ),
            (
                "create quarantine slow on a.docs where (x IS NULL OR y = ')') into b;",
                (Some("slow"), "a.docs", "x IS NULL OR y = ')'", Some("b")),
            ),
            (
                "CREATE QUARANTINE IF NOT EXISTS \"ON\" ON docs WHERE (_row_id IN (1, 2))",
                (Some("\"ON\""), "docs", "_row_id IN (1, 2)", None),
            ),
        ] {
            let Ok(Statement::CreateQuarantine(found)) = parse(sql) else {
                panic!("{sql}: {:?}", parse(sql));
            };
            let name = found.name.as_ref().map(ToString::to_string);
            let view = found.view.as_ref().map(ToString::to_string);
            let table = found.table.to_string();
            let predicate = found.predicate.to_string();
            let found = (name.as_deref(), &*table, &*predicate, view.as_deref());
            assert_eq!(found, expected, "{sql}");
        }
        for (wrong, expected) in [
            ("CREATE QUARANTINE q ON t WHERE a > 1", "Expected: ("),
            ("CREATE QUARANTINE q ON t", "Expected: WHERE"),
            ("CREATE QUARANTINE q WHERE (a > 1)", "Expected: ON"),
            ("CREATE QUARANTINE IF NOT EXISTS ON t WHERE (a)", "a name"),
            (
                "CREATE QUARANTINE q ON t WHERE (a) INTO v w",
                "end of statement",
            ),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.message.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_quarantine_is_dropped_by_its_name_or_its_table() {
        for (sql, expected) in [
            ("DROP QUARANTINE q", (false, Some("q"), None)),
            (
                "DROP QUARANTINE IF EXISTS q ON s.t;",
                (true, Some("q"), Some("s.t")),
            ),
            ("DROP QUARANTINE ON t", (false, None, Some("t"))),
        ] {
            let Ok(Statement::DropQuarantine {
                if_exists,
                name,
                table,
            }) = parse(sql)
            else {
                panic!("{sql}: {:?}", parse(sql));
            };
            let name = name.map(|name| name.to_string());
            let table = table.map(|table| table.to_string());
            assert_eq!(
                (if_exists, name.as_deref(), table.as_deref()),
                expected,
                "{sql}"
            );
        }
        assert!(parse("DROP QUARANTINE").is_err());
        assert!(parse("DROP QUARANTINE a, b").is_err());
    }
}
