//! `EXPLAIN PROFILE [(LEVEL …, SAMPLE …, FORMAT text|json|graphviz, AS SQL)] <statement>`, where the
//! statement can also be `QUERY n`: what query n was.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statement::Statement;

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
    let token = parser.parser.next_token();
    let query_id = match &token.token {
        Token::Number(digits, _) => digits.parse().ok(),
        _ => None,
    };
    match query_id {
        Some(query_id) => Ok(Statement::Recorded { query_id }),
        None => parser
            .parser
            .expected("the id of a query, as in sys.queries", token),
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
