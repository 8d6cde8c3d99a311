//! `EXPLAIN PROFILE [(LEVEL …, SAMPLE …, FORMAT text|json|graphviz, AS SQL)] <statement>
//! [WITHOUT [table] (predicate)]…`, where the statement can also be `QUERY n`, what query n was, or
//! `DIFF a, b`, which compares two queries; `SHOW PROFILE [(…)] [n]`.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::source_location::{offset, text_from};
use crate::statement::Statement;
use skewer_compat::statement::desugar::desugar;

/// How the report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProfileFormat {
    /// For a person, within 100 columns.
    #[default]
    Text,
    /// For a program.
    Json,
    /// The plan as a graph for `dot`.
    Graphviz,
}

/// An EXPLAIN PROFILE statement.
#[derive(Debug, Clone)]
pub struct ExplainProfile {
    /// The level to record at, as written; `None` means `records`.
    pub level: Option<String>,
    /// The share of base records to trace, in (0, 1]; `None` means the session's.
    pub sample: Option<f64>,
    /// How to write the report.
    pub format: ProfileFormat,
    /// Whether to print the SQL behind each section instead of its result.
    pub as_sql: bool,
    /// The text of what to run.
    pub sql: String,
    /// What to run.
    pub statement: Box<Statement>,
    /// The rows that are left out: those that fulfil any of these.
    pub without: Vec<Without>,
}

/// `WITHOUT [table] (predicate)`: the query runs without the rows that fulfil the predicate.
#[derive(Debug, Clone)]
pub struct Without {
    /// The table whose rows are meant, if it is named.
    pub table: Option<ast::ObjectName>,
    /// Over columns of that table.
    pub predicate: Box<ast::Expr>,
    /// The predicate as written.
    pub text: String,
    /// The clause as written.
    pub clause: String,
    /// The whole statement, for errors that show the place.
    pub source: String,
    /// Where the table's name is, or the predicate begins.
    pub place: Location,
    /// Where the predicate begins.
    pub predicate_at: Location,
}

/// What follows EXPLAIN PROFILE, up to the statement.
pub(crate) fn parse_options(parser: &mut DFParser<'_>) -> Result<ExplainProfile, ParserError> {
    let mut options = ExplainProfile {
        level: None,
        sample: None,
        format: ProfileFormat::Text,
        as_sql: false,
        sql: String::new(),
        statement: Box::new(Statement::Show { name: None }),
        without: Vec::new(),
    };
    if parser.parser.peek_token().token != Token::LParen || starts_query(parser) {
        return Ok(options);
    }
    parser.parser.next_token();
    let mut given: Vec<String> = Vec::new();
    loop {
        let token = parser.parser.next_token();
        let option = match &token.token {
            Token::Word(word) => word.value.to_lowercase(),
            _ => return expected_option(parser, token),
        };
        if given.contains(&option) {
            return Err(given_twice(&option, &token));
        }
        match option.as_str() {
            "level" => {
                let _ = parser.parser.consume_token(&Token::Eq);
                options.level = Some(word_or_string(parser, "a level")?);
            }
            "sample" => {
                let _ = parser.parser.consume_token(&Token::Eq);
                options.sample = Some(sample(parser)?);
            }
            "format" => {
                let _ = parser.parser.consume_token(&Token::Eq);
                let at = parser.parser.peek_token();
                options.format = match word_or_string(parser, "a format")?.to_lowercase().as_str() {
                    "text" => ProfileFormat::Text,
                    "json" => ProfileFormat::Json,
                    "graphviz" | "dot" => ProfileFormat::Graphviz,
                    _ => return parser.parser.expected("text, json or graphviz", at),
                };
            }
            "as" => {
                let at = parser.parser.peek_token();
                if !parser.parser.parse_keyword(Keyword::SQL) {
                    return parser.parser.expected("SQL", at);
                }
                options.as_sql = true;
            }
            _ => return expected_option(parser, token),
        }
        given.push(option);
        if parser.parser.consume_token(&Token::RParen) {
            return Ok(options);
        }
        if !parser.parser.consume_token(&Token::Comma) {
            let found = parser.parser.peek_token();
            return parser.parser.expected(", or )", found);
        }
    }
}

/// `QUERY n`.
pub(crate) fn parse_recorded(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    parser.parser.next_token();
    let query_id = query_id(parser)?;
    Ok(Statement::Recorded { query_id })
}

/// `DIFF a, b`.
pub(crate) fn parse_diff(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    parser.parser.next_token();
    let before = query_id(parser)?;
    parser.parser.expect_token(&Token::Comma)?;
    let after = query_id(parser)?;
    Ok(Statement::Diff { before, after })
}

/// What follows SHOW PROFILE.
pub(crate) fn parse_show(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let at = parser.parser.peek_token();
    let options = parse_options(parser)?;
    if options.level.is_some() || options.sample.is_some() {
        let expected = "FORMAT or AS SQL (LEVEL and SAMPLE are of statements that run a query)";
        return parser.parser.expected(expected, at);
    }
    let query_id = match parser.parser.peek_token().token {
        Token::EOF | Token::SemiColon => None,
        _ => Some(query_id(parser)?),
    };
    Ok(Statement::ShowProfile {
        query_id,
        format: options.format,
        as_sql: options.as_sql,
    })
}

pub(crate) fn query_id(parser: &mut DFParser<'_>) -> Result<i64, ParserError> {
    let token = parser.parser.next_token();
    let query_id = match &token.token {
        Token::Number(digits, _) => digits.parse().ok(),
        _ => None,
    };
    match query_id {
        Some(query_id) => Ok(query_id),
        None => parser
            .parser
            .expected("the id of a query, as in sys.queries", token),
    }
}

/// Where the first WITHOUT clause of a statement begins that itself begins at `start`.
pub(crate) fn find_without(sql: &str, start: Location) -> Option<Location> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    let mut tokens = tokens.ok()?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            _ if before(token.span.start, start) => {}
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word)
                if depth == 0
                    && word.quote_style.is_none()
                    && word.keyword == Keyword::WITHOUT
                    && opens_clause(&tokens[index + 1..]) =>
            {
                return Some(token.span.start);
            }
            _ => {}
        }
    }
    None
}

fn before(one: Location, other: Location) -> bool {
    (one.line, one.column) < (other.line, other.column)
}

/// Whether what follows WITHOUT is `(`, or a table's name and `(`: not `TIME ZONE`.
fn opens_clause(tokens: &[TokenWithSpan]) -> bool {
    let mut tokens = tokens.iter().map(|token| &token.token);
    let mut named = false;
    loop {
        match tokens.next() {
            Some(Token::LParen) => return true,
            Some(Token::Word(_) | Token::SingleQuotedString(_)) if !named => named = true,
            Some(Token::Period) if named => named = false,
            _ => return false,
        }
    }
}

/// The WITHOUT clauses of the statement `sql`, of which the parser has reached the first.
pub(crate) fn parse_without(
    sql: &str,
    parser: &mut DFParser<'_>,
) -> Result<Vec<Without>, ParserError> {
    let mut clauses = Vec::new();
    loop {
        let clause = parser.parser.peek_token().span.start;
        if !parser.parser.parse_keyword(Keyword::WITHOUT) {
            return Ok(clauses);
        }
        let first = parser.parser.peek_token();
        let table = match first.token {
            Token::LParen => None,
            _ => Some(parser.parser.parse_object_name(false)?),
        };
        parser.parser.expect_token(&Token::LParen)?;
        let predicate_at = parser.parser.peek_token().span.start;
        let mut predicate = parser.parser.parse_expr()?;
        desugar(&mut predicate)?;
        let end = parser.parser.peek_token();
        parser.parser.expect_token(&Token::RParen)?;
        let text = &sql[offset(sql, predicate_at)..offset(sql, end.span.start)];
        let whole = &sql[..offset(sql, end.span.start) + 1];
        clauses.push(Without {
            place: match table {
                Some(_) => first.span.start,
                None => predicate_at,
            },
            table,
            predicate: Box::new(predicate),
            text: text.trim_end().to_owned(),
            clause: text_from(whole, clause),
            source: sql.to_owned(),
            predicate_at,
        });
    }
}

/// `EXPLAIN PROFILE (SELECT …) UNION …` has a parenthesis that opens no options.
fn starts_query(parser: &DFParser<'_>) -> bool {
    match parser.parser.peek_nth_token(1).token {
        Token::LParen => true,
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE | Keyword::FROM
        ),
        _ => false,
    }
}

fn expected_option<T>(parser: &DFParser<'_>, found: TokenWithSpan) -> Result<T, ParserError> {
    parser
        .parser
        .expected("one of LEVEL, SAMPLE, FORMAT, AS SQL", found)
}

fn given_twice(option: &str, again: &TokenWithSpan) -> ParserError {
    let option = match option {
        "as" => "AS SQL".to_owned(),
        option => option.to_uppercase(),
    };
    ParserError::ParserError(format!(
        "option {option} is given twice{}",
        again.span.start
    ))
}

fn word_or_string(parser: &mut DFParser<'_>, what: &str) -> Result<String, ParserError> {
    let token = parser.parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::SingleQuotedString(text) => Ok(text),
        _ => parser.parser.expected(what, token),
    }
}

fn sample(parser: &mut DFParser<'_>) -> Result<f64, ParserError> {
    let token = parser.parser.next_token();
    let rate = match &token.token {
        Token::Number(text, _) | Token::SingleQuotedString(text) => text.parse().ok(),
        _ => None,
    };
    match rate {
        Some(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => parser
            .parser
            .expected("a share above 0 and at most 1", token),
    }
}
