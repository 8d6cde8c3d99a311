//! `SET name = value`, `SHOW name`, `RESET name`.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::statement::Statement;

/// A dotted name, lower-cased: `profile.level`.
pub(crate) fn parse_name(parser: &mut DFParser<'_>) -> Result<String, ParserError> {
    let mut parts = Vec::new();
    loop {
        let token = parser.parser.next_token();
        match token.token {
            Token::Word(word) => parts.push(word.value.to_lowercase()),
            Token::SingleQuotedString(text) => parts.push(text.to_lowercase()),
            _ => return parser.parser.expected("the name of a setting", token),
        }
        if !parser.parser.consume_token(&Token::Period) {
            return Ok(parts.join("."));
        }
    }
}

/// What follows SET.
pub(crate) fn parse_set(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let _ = parser
        .parser
        .parse_one_of_keywords(&[Keyword::SESSION, Keyword::LOCAL]);
    let mut name = parse_name(parser)?;
    if name == "time" && parser.parser.parse_keyword(Keyword::ZONE) {
        name = "timezone".to_owned();
    } else if !parser.parser.consume_token(&Token::Eq) && !parser.parser.parse_keyword(Keyword::TO)
    {
        let found = parser.parser.peek_token();
        return parser.parser.expected("= or TO", found);
    }
    let mut value = String::new();
    loop {
        let token = parser.parser.peek_token();
        match token.token {
            Token::EOF | Token::SemiColon => break,
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => {
                value.push_str(&text);
            }
            other => value.push_str(&other.to_string()),
        }
        parser.parser.next_token();
    }
    if value.is_empty() {
        let found = parser.parser.peek_token();
        return parser.parser.expected("a value", found);
    }
    Ok(Statement::Set { name, value })
}

/// What follows RESET, or SHOW of a setting: a name, or ALL.
pub(crate) fn parse_name_or_all(parser: &mut DFParser<'_>) -> Result<Option<String>, ParserError> {
    if parser.parser.parse_keyword(Keyword::ALL) {
        return Ok(None);
    }
    let name = parse_name(parser)?;
    if name == "time" && parser.parser.parse_keyword(Keyword::ZONE) {
        return Ok(Some("timezone".to_owned()));
    }
    Ok(Some(name))
}
