//! Statements for tests, parsed and desugared.

use datafusion::sql::parser::{DFParserBuilder, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use super::describe_in_from::{mark, may_describe};
use super::desugar::desugar_statement;
use super::dialect::BoundedDialect;

/// Parses one statement as Skewer does.
pub(crate) fn parse(sql: &str) -> Result<Statement, String> {
    let dialect = BoundedDialect::for_text_of(sql.len());
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| error.to_string())?;
    let parser = if may_describe(sql) {
        DFParserBuilder::new(mark(tokens))
    } else {
        DFParserBuilder::new(tokens)
    };
    let parser = parser.with_dialect(&dialect).build();
    let mut parser = parser.map_err(|error| error.to_string())?;
    let statement = parser.parse_statement();
    let mut statement = statement.map_err(|error| error.to_string())?;
    desugar_statement(&mut statement).map_err(|error| error.to_string())?;
    match statement {
        DFStatement::Statement(statement) => Ok(*statement),
        other => Err(format!("not a plain statement: {other}")),
    }
}

/// Parses a query.
pub(crate) fn query(sql: &str) -> Box<Query> {
    match parse(sql) {
        Ok(Statement::Query(query)) => query,
        other => panic!("{sql}: {other:?}"),
    }
}
