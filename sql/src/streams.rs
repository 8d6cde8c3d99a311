//! `CREATE STREAM`, `CREATE CONTINUOUS QUERY`, `DROP` of both and `REFRESH`.

use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ColumnDef, Expr, Ident, ObjectName, Query, Value,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;
use skewer_compat::statement::desugar::desugar;

use crate::copy::{CopyOptions, parse_list};
use crate::statement::{ObjectKind, Statement};

/// CREATE STREAM.
#[derive(Debug, Clone)]
pub struct CreateStream {
    /// The name of the stream.
    pub name: ObjectName,
    /// Whether an existing stream is fine.
    pub if_not_exists: bool,
    /// Its columns.
    pub columns: Vec<ColumnDef>,
    /// What tells how late rows may come.
    pub watermark: Option<Watermark>,
    /// Where its rows come from.
    pub source: StreamSource,
}

/// `WATERMARK FOR column AS column - INTERVAL '…'`.
#[derive(Debug, Clone)]
pub struct Watermark {
    /// The column with the time of the event.
    pub column: Ident,
    /// Nanoseconds by which the watermark is behind the latest time.
    pub delay_ns: i64,
}

/// Where the rows of a stream come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamSource {
    /// `INSERT`: from statements.
    Insert,
    /// `DIRECTORY 'path'`: from new files in a directory.
    Directory(String, CopyOptions),
    /// `STDIN`: from lines of the standard input.
    Stdin(CopyOptions),
    /// `SOCKET 'host:port'`: from lines of TCP connections to this address.
    Socket(String, CopyOptions),
}

/// CREATE CONTINUOUS QUERY.
#[derive(Debug, Clone)]
pub struct CreateContinuousQuery {
    /// The name of the query.
    pub name: ObjectName,
    /// Whether an existing query is fine.
    pub if_not_exists: bool,
    /// The table that gets the results.
    pub target: ObjectName,
    /// When a micro-batch begins.
    pub every: Every,
    /// Nanoseconds that a micro-batch may take from the time at which it is due.
    pub deadline_ns: Option<i64>,
    /// The level at which micro-batches are recorded.
    pub level: Option<String>,
    /// What is done about skew that earlier micro-batches have shown.
    pub remedies: Option<String>,
    /// The query.
    pub query: Box<Query>,
}

/// When a micro-batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// So many nanoseconds after the one before, if rows wait.
    Interval(i64),
    /// When so many rows wait.
    Rows(u64),
}

/// `EVERY` by default: one second.
const EVERY: Every = Every::Interval(1_000_000_000);

/// What follows CREATE STREAM.
pub(crate) fn parse_create_stream(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let if_not_exists = parse_if_not_exists(parser);
    let name = parser.parser.parse_object_name(false)?;
    let (mut columns, mut watermark) = (Vec::new(), None);
    parser.parser.expect_token(&Token::LParen)?;
    loop {
        if word(parser, 0) == "WATERMARK" && word(parser, 1) == "FOR" {
            let found = parser.parser.peek_token();
            let parsed = parse_watermark(parser)?;
            if watermark.replace(parsed).is_some() {
                return parser.parser.expected("only one WATERMARK", found);
            }
        } else {
            columns.push(parser.parser.parse_column_def()?);
        }
        if parser.parser.consume_token(&Token::RParen) {
            break;
        }
        parser.parser.expect_token(&Token::Comma)?;
    }
    parser.parser.expect_keyword(Keyword::FROM)?;
    Ok(Statement::CreateStream(Box::new(CreateStream {
        name,
        if_not_exists,
        columns,
        watermark,
        source: parse_source(parser)?,
    })))
}

fn parse_watermark(parser: &mut DFParser<'_>) -> Result<Watermark, ParserError> {
    parser.parser.next_token();
    parser.parser.next_token();
    let column = parser.parser.parse_identifier()?;
    parser.parser.expect_keyword(Keyword::AS)?;
    let found = parser.parser.peek_token();
    let delay_ns = match parser.parser.parse_expr()? {
        Expr::Identifier(same) if same == column => Some(0),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Minus,
            right,
        } if *left == Expr::Identifier(column.clone()) => interval_ns(&right),
        _ => None,
    };
    match delay_ns.filter(|delay| *delay >= 0) {
        Some(delay_ns) => Ok(Watermark { column, delay_ns }),
        None => {
            let expected = format!("{column}, or {column} - INTERVAL '5 seconds'");
            parser.parser.expected(&expected, found)
        }
    }
}

fn parse_source(parser: &mut DFParser<'_>) -> Result<StreamSource, ParserError> {
    let token = parser.parser.next_token();
    let source = match &token.token {
        Token::Word(word) => word.value.to_uppercase(),
        _ => String::new(),
    };
    match source.as_str() {
        "INSERT" => Ok(StreamSource::Insert),
        "DIRECTORY" => {
            let path = parser.parser.parse_literal_string()?;
            Ok(StreamSource::Directory(path, parse_options(parser)?))
        }
        "STDIN" => Ok(StreamSource::Stdin(parse_options(parser)?)),
        "SOCKET" => {
            let address = parser.parser.parse_literal_string()?;
            Ok(StreamSource::Socket(address, parse_options(parser)?))
        }
        _ => parser.parser.expected(
            "INSERT, DIRECTORY 'path', STDIN or SOCKET 'host:port'",
            token,
        ),
    }
}

fn parse_options(parser: &mut DFParser<'_>) -> Result<CopyOptions, ParserError> {
    let mut options = CopyOptions::default();
    if parser.parser.peek_token().token == Token::LParen {
        parse_list(parser, &mut options)?;
    }
    Ok(options)
}

/// What follows CREATE CONTINUOUS QUERY.
pub(crate) fn parse_create_query(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let if_not_exists = parse_if_not_exists(parser);
    let name = parser.parser.parse_object_name(false)?;
    parser.parser.expect_keyword(Keyword::INTO)?;
    let target = parser.parser.parse_object_name(false)?;
    let (mut every, mut deadline_ns, mut level, mut remedies) = (None, None, None, None);
    loop {
        let token = parser.parser.next_token();
        let clause = match &token.token {
            Token::Word(word) => word.value.to_uppercase(),
            _ => String::new(),
        };
        match clause.as_str() {
            "AS" => break,
            "EVERY" if every.is_none() => every = Some(parse_every(parser)?),
            "DEADLINE" if deadline_ns.is_none() => deadline_ns = Some(parse_interval(parser)?),
            "PROFILE" if level.is_none() => {
                level = Some(parser.parser.parse_identifier()?.value.to_lowercase());
            }
            "REMEDIES" if remedies.is_none() => {
                remedies = Some(parser.parser.parse_identifier()?.value.to_lowercase());
            }
            _ => {
                let expected =
                    "EVERY, DEADLINE, PROFILE, REMEDIES (each at most once) or AS and a query";
                return parser.parser.expected(expected, token);
            }
        }
    }
    let mut query = parser.parser.parse_query()?;
    desugar(query.as_mut())?;
    Ok(Statement::CreateContinuousQuery(Box::new(
        CreateContinuousQuery {
            name,
            if_not_exists,
            target,
            every: every.unwrap_or(EVERY),
            deadline_ns,
            level,
            remedies,
            query,
        },
    )))
}

fn parse_every(parser: &mut DFParser<'_>) -> Result<Every, ParserError> {
    let token = parser.parser.peek_token();
    let Token::Number(number, _) = &token.token else {
        return Ok(Every::Interval(parse_interval(parser)?));
    };
    let rows = number.parse().ok().filter(|rows| *rows > 0);
    let Some(rows) = rows else {
        return parser
            .parser
            .expected("a whole number of rows above 0", token);
    };
    parser.parser.next_token();
    parser
        .parser
        .expect_one_of_keywords(&[Keyword::ROW, Keyword::ROWS])?;
    Ok(Every::Rows(rows))
}

/// A length of time above 0.
fn parse_interval(parser: &mut DFParser<'_>) -> Result<i64, ParserError> {
    let found = parser.parser.peek_token();
    let length = interval_ns(&parser.parser.parse_expr()?);
    match length.filter(|length| *length > 0) {
        Some(length) => Ok(length),
        None => parser
            .parser
            .expected("an interval such as INTERVAL '1 second'", found),
    }
}

/// The nanoseconds of `INTERVAL '…'`; `None` for other expressions, and for months, whose length
/// differs.
pub fn interval_ns(expr: &Expr) -> Option<i64> {
    let Expr::Interval(interval) = expr else {
        return None;
    };
    let Expr::Value(value) = &*interval.value else {
        return None;
    };
    let mut text = match &value.value {
        Value::SingleQuotedString(text) | Value::Number(text, _) => text.clone(),
        _ => return None,
    };
    if let Some(field) = &interval.leading_field {
        text = format!("{text} {field}");
    }
    let parsed = parse_interval_month_day_nano(&text).ok()?;
    let days = i64::from(parsed.days).checked_mul(86_400_000_000_000)?;
    (parsed.months == 0).then(|| parsed.nanoseconds.checked_add(days))?
}

/// What follows REFRESH.
pub(crate) fn parse_refresh(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let token = parser.parser.peek_token();
    let Some(kind) = parse_kind(parser) else {
        return parser.parser.expected("CONTINUOUS QUERY or STREAM", token);
    };
    let name = parser.parser.parse_object_name(false)?;
    Ok(Statement::Refresh { kind, name })
}

/// What follows DROP, if it is of streams or continuous queries.
pub(crate) fn parse_drop(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let token = parser.parser.peek_token();
    let Some(kind) = parse_kind(parser) else {
        return parser.parser.expected("CONTINUOUS QUERY or STREAM", token);
    };
    let if_exists = parser
        .parser
        .parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let names = parser
        .parser
        .parse_comma_separated(|parser| parser.parse_object_name(false))?;
    Ok(Statement::Drop {
        kind,
        if_exists,
        names,
        cascade: false,
    })
}

/// `STREAM` or `CONTINUOUS QUERY`.
pub(crate) fn parse_kind(parser: &mut DFParser<'_>) -> Option<ObjectKind> {
    match (word(parser, 0).as_str(), word(parser, 1).as_str()) {
        ("STREAM", _) => {
            parser.parser.next_token();
            Some(ObjectKind::Stream)
        }
        ("CONTINUOUS", "QUERY") => {
            parser.parser.next_token();
            parser.parser.next_token();
            Some(ObjectKind::ContinuousQuery)
        }
        _ => None,
    }
}

fn parse_if_not_exists(parser: &mut DFParser<'_>) -> bool {
    parser
        .parser
        .parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS])
}

fn word(parser: &DFParser<'_>, n: usize) -> String {
    match parser.parser.peek_nth_token(n).token {
        Token::Word(word) => word.value.to_uppercase(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn mistakes_say_what_is_expected() {
        for (sql, expected) in [
            ("CREATE STREAM s (a INT)", "FROM"),
            ("CREATE STREAM s (a INT) FROM KAFKA", "INSERT, DIRECTORY"),
            (
                "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 month') FROM INSERT",
                "ts, or ts - INTERVAL '5 seconds'",
            ),
            (
                "CREATE CONTINUOUS QUERY q INTO t EVERY 0 ROWS AS SELECT 1",
                "above 0",
            ),
            (
                "CREATE CONTINUOUS QUERY q INTO t EVERY 1 ROW EVERY 2 ROWS AS SELECT 1",
                "each at most once",
            ),
            (
                "CREATE CONTINUOUS QUERY q INTO t REMEDIES auto REMEDIES off AS SELECT 1",
                "each at most once",
            ),
            ("REFRESH t", "CONTINUOUS QUERY or STREAM"),
        ] {
            let error = parse(sql).unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
