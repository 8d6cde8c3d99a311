//! `REBALANCE [TABLE a, b]`.

use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;

use crate::statement::Statement;

/// What follows REBALANCE.
pub(crate) fn parse(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    let mut names = Vec::new();
    if parser.parser.parse_keyword(Keyword::TABLE) {
        names = parser
            .parser
            .parse_comma_separated(|parser| parser.parse_object_name(false))?;
    }
    Ok(Statement::Rebalance { names })
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    #[test]
    fn it_takes_tables_or_nothing() {
        for (sql, expected) in [
            ("REBALANCE", &[][..]),
            ("rebalance table t", &["t"]),
            ("REBALANCE TABLE a.t, \"U\";", &["a.t", "\"U\""]),
        ] {
            let Ok(Statement::Rebalance { names }) = parse(sql) else {
                panic!("{sql}");
            };
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            assert_eq!(names, expected, "{sql}");
        }
        for wrong in ["REBALANCE t", "REBALANCE TABLE", "REBALANCE TABLE t u"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
