//! `COPY t [(columns)] FROM 'file'` and `COPY t | (query) TO 'file'`, with options.
//!
//! Options are written `(FORMAT csv, HEADER false)` as in PostgreSQL and DuckDB, with or without
//! `WITH` before; DataFusion's `STORED AS csv OPTIONS ('format.delimiter' ';')` is understood too.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{IsOptional, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::statement::Statement;
use skewer_compat::statement::desugar::desugar;

/// COPY … FROM.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// The table to append to.
    pub table: ObjectName,
    /// The columns that the file has, in its order; empty means the table's.
    pub columns: Vec<Ident>,
    /// A file, a directory or a pattern.
    pub path: String,
    /// How the file is written.
    pub options: CopyOptions,
}

/// COPY … TO.
#[derive(Debug, Clone)]
pub struct CopyTo {
    /// What to write.
    pub source: CopySource,
    /// The file.
    pub path: String,
    /// How to write it.
    pub options: CopyOptions,
}

/// What COPY … TO writes.
#[derive(Debug, Clone)]
pub enum CopySource {
    /// A table or view, or some of its columns.
    Table(ObjectName, Vec<Ident>),
    /// A query's result.
    Query(Box<Query>),
}

/// Options as written: names lower-cased, values without quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// `parquet`, `csv`, `json` …; `None` means by the file's extension.
    pub format: Option<String>,
    /// The others, in their order. An option without value has the value `true`.
    pub others: Vec<(String, String)>,
}

/// What follows COPY.
pub(crate) fn parse_copy(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    if parser.parser.consume_token(&Token::LParen) {
        let mut query = parser.parser.parse_query()?;
        desugar(query.as_mut())?;
        parser.parser.expect_token(&Token::RParen)?;
        parser.parser.expect_keyword(Keyword::TO)?;
        let path = parser.parser.parse_literal_string()?;
        return Ok(Statement::CopyTo(CopyTo {
            source: CopySource::Query(query),
            path,
            options: parse_options(parser)?,
        }));
    }
    let table = parser.parser.parse_object_name(false)?;
    let columns = parser
        .parser
        .parse_parenthesized_column_list(IsOptional::Optional, false)?;
    match parser
        .parser
        .expect_one_of_keywords(&[Keyword::FROM, Keyword::TO])?
    {
        Keyword::FROM => Ok(Statement::CopyFrom(CopyFrom {
            table,
            columns,
            path: parser.parser.parse_literal_string()?,
            options: parse_options(parser)?,
        })),
        _ => Ok(Statement::CopyTo(CopyTo {
            source: CopySource::Table(table, columns),
            path: parser.parser.parse_literal_string()?,
            options: parse_options(parser)?,
        })),
    }
}

fn parse_options(parser: &mut DFParser<'_>) -> Result<CopyOptions, ParserError> {
    let mut options = CopyOptions::default();
    loop {
        let token = parser.parser.peek_token();
        match &token.token {
            Token::EOF | Token::SemiColon => return Ok(options),
            Token::LParen => parse_list(parser, &mut options)?,
            Token::Word(word) if matches!(word.keyword, Keyword::WITH | Keyword::OPTIONS) => {
                parser.parser.next_token();
                if parser.parser.peek_token().token != Token::LParen {
                    parse_option(parser, &mut options)?;
                }
            }
            Token::Word(word) if word.keyword == Keyword::STORED => {
                parser.parser.next_token();
                parser.parser.expect_keyword(Keyword::AS)?;
                options.format = Some(parse_value(parser)?.to_lowercase());
            }
            Token::Word(_) => parse_option(parser, &mut options)?,
            _ => {
                return parser
                    .parser
                    .expected("options or the end of the statement", token);
            }
        }
    }
}

pub(crate) fn parse_list(
    parser: &mut DFParser<'_>,
    options: &mut CopyOptions,
) -> Result<(), ParserError> {
    parser.parser.expect_token(&Token::LParen)?;
    loop {
        parse_option(parser, options)?;
        if parser.parser.consume_token(&Token::RParen) {
            return Ok(());
        }
        parser.parser.expect_token(&Token::Comma)?;
    }
}

fn parse_option(parser: &mut DFParser<'_>, options: &mut CopyOptions) -> Result<(), ParserError> {
    let name = crate::settings::parse_name(parser)?;
    let name = name.strip_prefix("format.").unwrap_or(&name).to_owned();
    let _ = parser.parser.consume_token(&Token::Eq);
    let _ = parser.parser.parse_keyword(Keyword::AS);
    let value = match parser.parser.peek_token().token {
        Token::Comma | Token::RParen | Token::EOF | Token::SemiColon => "true".to_owned(),
        _ => parse_value(parser)?,
    };
    if name == "format" {
        options.format = Some(value.to_lowercase());
    } else {
        options.others.push((name, value));
    }
    Ok(())
}

fn parse_value(parser: &mut DFParser<'_>) -> Result<String, ParserError> {
    let token = parser.parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::SingleQuotedString(text)
        | Token::DoubleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::Number(text, _) => Ok(text),
        _ => parser.parser.expected("a value", token),
    }
}
