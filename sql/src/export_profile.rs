//! `EXPORT PROFILE n TO 'path' [(FORMAT parquet | perfetto | html)]` and `IMPORT PROFILE FROM 'path'`.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::explain_profile::query_id;
use crate::statement::Statement;

/// How a profile is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// The rows of schema `sys`, a Parquet file for each table, in a directory.
    #[default]
    Parquet,
    /// Calls of operators over time, in one file of Chrome's trace format.
    Perfetto,
    /// The profiler's page, in one file that needs no server.
    Html,
}

/// What follows EXPORT.
pub(crate) fn parse_export(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    expect_profile(parser)?;
    let query_id = query_id(parser)?;
    parser.parser.expect_keyword(Keyword::TO)?;
    let path = parser.parser.parse_literal_string()?;
    let mut format = ExportFormat::Parquet;
    let _ = parser.parser.parse_keyword(Keyword::WITH);
    if parser.parser.consume_token(&Token::LParen) {
        parser.parser.expect_keyword(Keyword::FORMAT)?;
        let _ = parser.parser.consume_token(&Token::Eq);
        let token = parser.parser.next_token();
        let name = match &token.token {
            Token::Word(word) => word.value.to_lowercase(),
            Token::SingleQuotedString(text) => text.to_lowercase(),
            _ => String::new(),
        };
        format = match name.as_str() {
            "parquet" => ExportFormat::Parquet,
            "perfetto" | "chrome" => ExportFormat::Perfetto,
            "html" => ExportFormat::Html,
            _ => return parser.parser.expected("parquet, perfetto or html", token),
        };
        parser.parser.expect_token(&Token::RParen)?;
    }
    Ok(Statement::ExportProfile {
        query_id,
        path,
        format,
    })
}

/// What follows IMPORT.
pub(crate) fn parse_import(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    expect_profile(parser)?;
    parser.parser.expect_keyword(Keyword::FROM)?;
    let path = parser.parser.parse_literal_string()?;
    Ok(Statement::ImportProfile { path })
}

fn expect_profile(parser: &mut DFParser<'_>) -> Result<(), ParserError> {
    let token = parser.parser.next_token();
    match &token.token {
        Token::Word(word) if word.value.eq_ignore_ascii_case("profile") => Ok(()),
        _ => parser.parser.expected("PROFILE", token),
    }
}
