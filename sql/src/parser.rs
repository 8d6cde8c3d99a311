//! One statement's text → [`Statement`].

use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{self, DescribeAlias, ObjectType, SchemaName};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::deep::guarded;
use crate::error::SyntaxError;
use crate::explain_profile::ExplainProfile;
use crate::quarantine::QUARANTINE;
use crate::source_location::{offset, text_from};
use crate::statement::{ObjectKind, Statement};
use crate::{copy, explain_profile, export_profile, quarantine, rebalance, settings, streams};
use skewer_compat::statement::depth::DEEPEST;
use skewer_compat::statement::describe_in_from as described;
use skewer_compat::statement::desugar::desugar_statement;
use skewer_compat::statement::dialect::BoundedDialect;

/// How often the parser may call itself: a table in parentheses is one of our levels and two of its own.
const RECURSION: usize = 2 * DEEPEST;

/// Parses exactly one statement; a semicolon may follow it.
///
/// ```
/// use skewer_sql::{Statement, parse};
///
/// assert!(matches!(parse("SELECT 1;"), Ok(Statement::Query(_))));
/// assert!(matches!(parse("SET profile.level = 'calls'"), Ok(Statement::Set { .. })));
/// let error = parse("SELEC 1").unwrap_err();
/// assert_eq!((error.line, error.column), (1, 1));
/// ```
pub fn parse(sql: &str) -> Result<Statement, SyntaxError> {
    guarded(sql, || {
        let dialect = BoundedDialect::for_text_of(sql.len());
        let parsed = parse_bounded(sql, &dialect);
        match dialect.is_exhausted() {
            true => Err(SyntaxError::at_location(
                sql,
                Location { line: 0, column: 0 },
                "there is a mistake within calls that are within each other",
            )),
            false => parsed,
        }
    })?
}

/// Whether a parser can read the text without reading parts of it again and again.
pub fn is_readable(sql: &str) -> bool {
    let read = || {
        let dialect = BoundedDialect::for_text_of(sql.len());
        // Whether it is a statement the caller's parser says.
        let parsed = parser_of(sql, &dialect).and_then(|mut parser| {
            let parsed = parser.parse_statement();
            parsed.map_err(|error| SyntaxError::from_datafusion(sql, error))
        });
        drop(parsed);
        !dialect.is_exhausted()
    };
    guarded(sql, read).unwrap_or(false)
}

fn parse_bounded(sql: &str, dialect: &BoundedDialect) -> Result<Statement, SyntaxError> {
    let mut parser = parser_of(sql, dialect)?;
    while parser.parser.consume_token(&Token::SemiColon) {}
    let first = parser.parser.peek_token();
    if first.token == Token::EOF {
        return Err(SyntaxError::at_location(
            sql,
            first.span.start,
            "there is no statement",
        ));
    }
    let statement = parse_statement(sql, &mut parser, dialect)?;
    must_end(sql, &mut parser)?;
    Ok(statement)
}

fn parser_of<'a>(sql: &str, dialect: &'a BoundedDialect) -> Result<DFParser<'a>, SyntaxError> {
    let parser = match described::may_describe(sql) {
        false => DFParserBuilder::new(sql),
        true => {
            let tokens = Tokenizer::new(dialect, sql)
                .tokenize_with_location()
                .map_err(|e| SyntaxError::from_parser(sql, e.into()))?;
            DFParserBuilder::new(described::mark(tokens))
        }
    };
    parser
        .with_dialect(dialect)
        .with_recursion_limit(RECURSION)
        .build()
        .map_err(|e| SyntaxError::from_datafusion(sql, e))
}

/// Nothing but semicolons may follow.
fn must_end(sql: &str, parser: &mut DFParser<'_>) -> Result<(), SyntaxError> {
    while parser.parser.consume_token(&Token::SemiColon) {}
    let rest = parser.parser.peek_token();
    if rest.token != Token::EOF {
        let message = format!("Expected: end of statement, found: {rest}");
        return Err(SyntaxError::at_location(sql, rest.span.start, message));
    }
    Ok(())
}

fn parse_statement(
    sql: &str,
    parser: &mut DFParser<'_>,
    dialect: &BoundedDialect,
) -> Result<Statement, SyntaxError> {
    let ours = |e: ParserError| SyntaxError::from_parser(sql, e);
    let first = parser.parser.peek_token();
    let keyword = match &first.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    match keyword {
        Keyword::COPY => {
            parser.parser.next_token();
            copy::parse_copy(parser).map_err(ours)
        }
        Keyword::SET => {
            parser.parser.next_token();
            settings::parse_set(parser).map_err(ours)
        }
        Keyword::RESET => {
            parser.parser.next_token();
            let name = settings::parse_name_or_all(parser).map_err(ours)?;
            Ok(Statement::Reset { name })
        }
        Keyword::SHOW => {
            parser.parser.next_token();
            parse_show(parser).map_err(ours)
        }
        Keyword::EXPLAIN if word_at(parser, 1) == "PROFILE" => {
            parser.parser.next_token();
            parser.parser.next_token();
            let mut explain = explain_profile::parse_options(parser).map_err(ours)?;
            parse_profiled(sql, parser, &mut explain, dialect)?;
            Ok(Statement::ExplainProfile(explain))
        }
        Keyword::CREATE if word_at(parser, 1) == QUARANTINE => {
            parser.parser.next_token();
            parser.parser.next_token();
            quarantine::parse_create(sql, parser).map_err(ours)
        }
        Keyword::DROP if word_at(parser, 1) == QUARANTINE => {
            parser.parser.next_token();
            parser.parser.next_token();
            quarantine::parse_drop(parser).map_err(ours)
        }
        Keyword::CREATE if word_at(parser, 1) == "STREAM" => {
            parser.parser.next_token();
            parser.parser.next_token();
            streams::parse_create_stream(parser).map_err(ours)
        }
        Keyword::CREATE if word_at(parser, 1) == "CONTINUOUS" && word_at(parser, 2) == "QUERY" => {
            for _ in 0..3 {
                parser.parser.next_token();
            }
            streams::parse_create_query(parser).map_err(ours)
        }
        Keyword::DROP if matches!(word_at(parser, 1).as_str(), "STREAM" | "CONTINUOUS") => {
            parser.parser.next_token();
            streams::parse_drop(parser).map_err(ours)
        }
        _ if word_at(parser, 0) == "REFRESH" => {
            parser.parser.next_token();
            streams::parse_refresh(parser).map_err(ours)
        }
        _ if word_at(parser, 0) == "REBALANCE" => {
            parser.parser.next_token();
            rebalance::parse(parser).map_err(ours)
        }
        _ if word_at(parser, 0) == "EXPORT" => {
            parser.parser.next_token();
            export_profile::parse_export(parser).map_err(ours)
        }
        _ if word_at(parser, 0) == "IMPORT" => {
            parser.parser.next_token();
            export_profile::parse_import(parser).map_err(ours)
        }
        _ => {
            let mut statement = parser
                .parse_statement()
                .map_err(|e| SyntaxError::from_datafusion(sql, e))?;
            desugar_statement(&mut statement).map_err(ours)?;
            classify(statement)
                .map_err(|message| SyntaxError::at_location(sql, first.span.start, message))
        }
    }
}

/// What EXPLAIN PROFILE is to run, and the rows to leave out of it.
fn parse_profiled(
    sql: &str,
    parser: &mut DFParser<'_>,
    explain: &mut ExplainProfile,
    dialect: &BoundedDialect,
) -> Result<(), SyntaxError> {
    let ours = |e: ParserError| SyntaxError::from_parser(sql, e);
    let start = parser.parser.peek_token().span.start;
    let Some(clauses) = explain_profile::find_without(sql, start) else {
        explain.sql = text_from(sql, start);
        *explain.statement = parse_runnable(sql, parser, dialect)?;
        return Ok(());
    };
    // Of the clauses sqlparser would make a table's alias: it gets the text before them.
    let before = &sql[..offset(sql, clauses)];
    let mut inner = parser_of(before, dialect)?;
    skip_to(&mut inner, start);
    explain.sql = text_from(before, start);
    *explain.statement = parse_runnable(before, &mut inner, dialect)?;
    must_end(before, &mut inner)?;
    skip_to(parser, clauses);
    explain.without = explain_profile::parse_without(sql, parser).map_err(ours)?;
    Ok(())
}

fn parse_runnable(
    sql: &str,
    parser: &mut DFParser<'_>,
    dialect: &BoundedDialect,
) -> Result<Statement, SyntaxError> {
    let ours = |e: ParserError| SyntaxError::from_parser(sql, e);
    match word_at(parser, 0).as_str() {
        "QUERY" => explain_profile::parse_recorded(parser).map_err(ours),
        "DIFF" => explain_profile::parse_diff(parser).map_err(ours),
        _ => parse_statement(sql, parser, dialect),
    }
}

/// Passes over the tokens before a place.
fn skip_to(parser: &mut DFParser<'_>, place: Location) {
    let is_before = |token: &TokenWithSpan| {
        let start = token.span.start;
        token.token != Token::EOF && (start.line, start.column) < (place.line, place.column)
    };
    while is_before(&parser.parser.peek_token()) {
        parser.parser.next_token();
    }
}

/// The upper-cased word that is `n` tokens ahead, or nothing.
fn word_at(parser: &DFParser<'_>, n: usize) -> String {
    match parser.parser.peek_nth_token(n).token {
        Token::Word(word) => word.value.to_uppercase(),
        _ => String::new(),
    }
}

/// What follows SHOW.
fn parse_show(parser: &mut DFParser<'_>) -> Result<Statement, ParserError> {
    match word_at(parser, 0).as_str() {
        "TABLES" => {
            parser.parser.next_token();
            let mut schema = None;
            let mut like = None;
            if parser
                .parser
                .parse_one_of_keywords(&[Keyword::FROM, Keyword::IN])
                .is_some()
            {
                schema = Some(settings::parse_name(parser)?);
            }
            if parser.parser.parse_keyword(Keyword::LIKE) {
                like = Some(parser.parser.parse_literal_string()?);
            }
            Ok(Statement::ShowTables { schema, like })
        }
        "PROFILE" if parser.parser.peek_nth_token(1).token != Token::Period => {
            parser.parser.next_token();
            explain_profile::parse_show(parser)
        }
        "SCHEMAS" => {
            parser.parser.next_token();
            Ok(Statement::ShowSchemas)
        }
        "COLUMNS" => {
            parser.parser.next_token();
            parser
                .parser
                .expect_one_of_keywords(&[Keyword::FROM, Keyword::IN])?;
            Ok(Statement::Describe(parser.parser.parse_object_name(false)?))
        }
        "CREATE" => {
            parser.parser.next_token();
            let kind = match streams::parse_kind(parser) {
                Some(kind) => kind,
                None => match parser
                    .parser
                    .expect_one_of_keywords(&[Keyword::TABLE, Keyword::VIEW])?
                {
                    Keyword::VIEW => ObjectKind::View,
                    _ => ObjectKind::Table,
                },
            };
            Ok(Statement::ShowCreate {
                kind,
                name: parser.parser.parse_object_name(false)?,
            })
        }
        "FUNCTIONS" => {
            let filter = {
                parser.parser.next_token();
                if parser.parser.parse_keyword(Keyword::LIKE) {
                    Some(ast::ShowStatementFilter::Like(
                        parser.parser.parse_literal_string()?,
                    ))
                } else {
                    None
                }
            };
            let statement = ast::Statement::ShowFunctions { filter };
            Ok(Statement::Other(Box::new(DFStatement::Statement(
                Box::new(statement),
            ))))
        }
        _ => Ok(Statement::Show {
            name: settings::parse_name_or_all(parser)?,
        }),
    }
}

/// Gives what sqlparser found its place among our statements.
fn classify(statement: DFStatement) -> Result<Statement, String> {
    let statement = match statement {
        DFStatement::Statement(statement) => *statement,
        DFStatement::CreateExternalTable(table) => {
            return Ok(Statement::CreateExternalTable(Box::new(table)));
        }
        explain @ DFStatement::Explain(_) => return Ok(Statement::Explain(Box::new(explain))),
        other => return Ok(Statement::Other(Box::new(other))),
    };
    Ok(match statement {
        ast::Statement::Query(query) => Statement::Query(query),
        ast::Statement::ExplainTable {
            describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
            table_name,
            ..
        } => Statement::Describe(table_name),
        ast::Statement::Explain {
            describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
            statement,
            ..
        } => match *statement {
            ast::Statement::Query(query) => Statement::DescribeQuery(query),
            _ => return Err("only tables and queries can be described".to_owned()),
        },
        explain @ ast::Statement::Explain { .. } => {
            Statement::Explain(Box::new(DFStatement::Statement(Box::new(explain))))
        }
        ast::Statement::CreateTable(table) => Statement::CreateTable(Box::new(table)),
        ast::Statement::CreateView(view) => Statement::CreateView(Box::new(view)),
        ast::Statement::CreateSchema {
            schema_name,
            if_not_exists,
            ..
        } => match schema_name {
            SchemaName::Simple(name) => Statement::CreateSchema {
                name,
                if_not_exists,
            },
            _ => return Err("CREATE SCHEMA takes a name and nothing else".to_owned()),
        },
        ast::Statement::Drop {
            object_type: object_type @ (ObjectType::Table | ObjectType::View | ObjectType::Schema),
            if_exists,
            names,
            cascade,
            ..
        } => Statement::Drop {
            kind: match object_type {
                ObjectType::View => ObjectKind::View,
                ObjectType::Schema => ObjectKind::Schema,
                _ => ObjectKind::Table,
            },
            if_exists,
            names,
            cascade,
        },
        ast::Statement::CreateIndex(index) => Statement::CreateIndex(Box::new(index)),
        ast::Statement::Drop {
            object_type: ObjectType::Index,
            ..
        } => Statement::DropIndex,
        ast::Statement::AlterTable(alter) => Statement::AlterTable(Box::new(alter)),
        ast::Statement::Truncate(truncate) => Statement::Truncate {
            if_exists: truncate.if_exists,
            names: truncate.table_names.into_iter().map(|t| t.name).collect(),
        },
        ast::Statement::Insert(insert) => Statement::Insert(Box::new(insert)),
        ast::Statement::Delete(delete) => Statement::Delete(Box::new(delete)),
        ast::Statement::Update(update) => Statement::Update(Box::new(update)),
        ast::Statement::Prepare {
            name,
            data_types,
            statement,
        } => Statement::Prepare {
            name: name.value.to_lowercase(),
            types: data_types,
            statement: Box::new(classify(DFStatement::Statement(statement))?),
        },
        ast::Statement::Execute {
            name: Some(name),
            parameters,
            using,
            ..
        } => Statement::Execute {
            name: name.to_string().to_lowercase(),
            parameters: parameters
                .into_iter()
                .chain(using.into_iter().map(|u| u.expr))
                .collect(),
        },
        ast::Statement::Deallocate { name, .. } => Statement::Deallocate {
            name: (!name.value.eq_ignore_ascii_case("all")).then(|| name.value.to_lowercase()),
        },
        other => Statement::Other(Box::new(DFStatement::Statement(Box::new(other)))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProfileFormat;

    #[test]
    fn explain_profile_takes_options_in_any_order() {
        let sql = "EXPLAIN PROFILE (FORMAT json, LEVEL calls, SAMPLE 0.1, AS SQL) SELECT 1";
        let Ok(Statement::ExplainProfile(explain)) = parse(sql) else {
            panic!("{sql}");
        };
        assert_eq!(explain.level.as_deref(), Some("calls"));
        assert_eq!(explain.sample, Some(0.1));
        assert_eq!(explain.format, ProfileFormat::Json);
        assert!(explain.as_sql);
        assert_eq!(explain.sql, "SELECT 1");
        assert!(matches!(*explain.statement, Statement::Query(_)));
    }

    #[test]
    fn explain_profile_of_a_parenthesised_query_has_no_options() {
        for sql in [
            "EXPLAIN PROFILE (SELECT 1) UNION ALL (SELECT 2)",
            "explain profile INSERT INTO t SELECT 1",
            "EXPLAIN PROFILE CREATE TABLE t AS SELECT 1",
        ] {
            assert!(
                matches!(parse(sql), Ok(Statement::ExplainProfile(_))),
                "{sql}"
            );
        }
    }

    #[test]
    fn explain_profile_takes_the_id_of_a_query() {
        for (sql, expected) in [
            ("EXPLAIN PROFILE QUERY 12", 12),
            (
                "explain profile (level calls) query 9223372036854775807;",
                i64::MAX,
            ),
        ] {
            let Ok(Statement::ExplainProfile(explain)) = parse(sql) else {
                panic!("{sql}");
            };
            assert!(
                matches!(*explain.statement, Statement::Recorded { query_id } if query_id == expected),
                "{sql}"
            );
        }
        for sql in [
            "EXPLAIN PROFILE QUERY",
            "EXPLAIN PROFILE QUERY -1",
            "EXPLAIN PROFILE QUERY 1.5",
            "EXPLAIN PROFILE QUERY SELECT 1",
            "EXPLAIN PROFILE QUERY 99999999999999999999",
        ] {
            let error = parse(sql).unwrap_err();
            assert!(
                error.message.contains("the id of a query"),
                "{sql}: {error}"
            );
        }
        assert!(parse("EXPLAIN PROFILE QUERY 1 2").is_err());
        assert!(parse("QUERY 1").is_err());
    }

    #[test]
    fn explain_profile_leaves_out_the_rows_of_a_predicate() {
        for (sql, run, clauses) in [
            (
                "EXPLAIN PROFILE SELECT a FROM t WITHOUT (length(b) > 1000);",
                "SELECT a FROM t",
                vec![(None, "length(b) > 1000")],
            ),
            (
                "explain profile (level counters) QUERY 12\nwithout main.t (a = ')') WITHOUT u ( b IS NULL )",
                "QUERY 12",
                vec![(Some("main.t"), "a = ')'"), (Some("u"), "b IS NULL")],
            ),
            (
                "EXPLAIN PROFILE SELECT * FROM 'é.parquet' WITHOUT 'é.parquet' (a IN (1, 2))",
                "SELECT * FROM 'é.parquet'",
                vec![(Some("'é.parquet'"), "a IN (1, 2)")],
            ),
            (
                "EXPLAIN PROFILE SELECT a::TIMESTAMP WITHOUT TIME ZONE FROM t",
                "SELECT a::TIMESTAMP WITHOUT TIME ZONE FROM t",
                vec![],
            ),
        ] {
            let Ok(Statement::ExplainProfile(explain)) = parse(sql) else {
                panic!("{sql}: {:?}", parse(sql));
            };
            assert_eq!(explain.sql, run);
            let found: Vec<_> = explain
                .without
                .iter()
                .map(|w| (w.table.as_ref().map(ToString::to_string), w.text.as_str()))
                .collect();
            let expected: Vec<_> = clauses
                .into_iter()
                .map(|(table, text)| (table.map(str::to_owned), text))
                .collect();
            assert_eq!(found, expected, "{sql}");
        }
        for (sql, line, column) in [
            ("EXPLAIN PROFILE SELECT 1 FROM t WITHOUT (a >)", 1, 45),
            ("EXPLAIN PROFILE SELECT 1 FROM t\nWITHOUT (a = 1", 2, 15),
            (
                "EXPLAIN PROFILE SELECT 1 FROM t WITHOUT (a = 1) LIMIT 1",
                1,
                49,
            ),
        ] {
            let error = parse(sql).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{error}");
        }
    }

    #[test]
    fn profiles_are_compared_shown_exported_and_imported() {
        let Ok(Statement::ExplainProfile(explain)) =
            parse("EXPLAIN PROFILE (FORMAT json) DIFF 3, 14;")
        else {
            panic!()
        };
        assert!(matches!(
            *explain.statement,
            Statement::Diff {
                before: 3,
                after: 14
            }
        ));
        assert!(matches!(
            parse("SHOW PROFILE"),
            Ok(Statement::ShowProfile { query_id: None, .. })
        ));
        assert!(matches!(
            parse("SHOW PROFILE (FORMAT json) 7"),
            Ok(Statement::ShowProfile {
                query_id: Some(7),
                format: ProfileFormat::Json,
                ..
            })
        ));
        assert!(matches!(
            parse("EXPORT PROFILE 7 TO 'a'"),
            Ok(Statement::ExportProfile {
                query_id: 7,
                format: crate::ExportFormat::Parquet,
                ..
            })
        ));
        assert!(matches!(
            parse("export profile 7 to 'a.json' (format perfetto);"),
            Ok(Statement::ExportProfile {
                format: crate::ExportFormat::Perfetto,
                ..
            })
        ));
        assert!(matches!(
            parse("EXPORT PROFILE 7 TO 'a.html' (FORMAT html)"),
            Ok(Statement::ExportProfile {
                format: crate::ExportFormat::Html,
                ..
            })
        ));
        assert!(matches!(
            parse("IMPORT PROFILE FROM 'a'"),
            Ok(Statement::ImportProfile { path }) if path == "a"
        ));
        for (sql, expected) in [
            ("EXPLAIN PROFILE DIFF 3", "Expected: ,"),
            ("SHOW PROFILE (LEVEL calls) 7", "FORMAT or AS SQL"),
            ("EXPORT PROFILE x TO 'a'", "the id of a query"),
            (
                "EXPORT PROFILE 1 TO 'a' (FORMAT csv)",
                "parquet, perfetto or html",
            ),
            ("EXPORT TABLE t", "Expected: PROFILE"),
        ] {
            let error = parse(sql).unwrap_err();
            assert!(error.message.contains(expected), "{sql}: {error}");
        }
    }

    #[test]
    fn table_functions_of_schema_sys_may_be_named_with_it() {
        let Ok(Statement::Query(query)) = parse("SELECT * FROM sys.blame(7) AS b, sys.queries")
        else {
            panic!()
        };
        let expected = "SELECT * FROM blame(7) AS b, sys.queries";
        assert_eq!(query.to_string(), expected);
    }

    #[test]
    fn a_bad_profile_option_says_which_there_are() {
        let error = parse("EXPLAIN PROFILE (LEVLE calls) SELECT 1").unwrap_err();
        assert!(error.message.contains("LEVEL"), "{error}");
        assert_eq!(error.column, 18);
    }

    #[test]
    fn a_profile_option_that_is_given_twice_is_named() {
        for (sql, option, column) in [
            (
                "EXPLAIN PROFILE (LEVEL calls, LEVEL records) SELECT 1",
                "LEVEL",
                31,
            ),
            (
                "EXPLAIN PROFILE (SAMPLE 1, FORMAT json, sample 1) SELECT 1",
                "SAMPLE",
                41,
            ),
            ("EXPLAIN PROFILE (AS SQL, AS SQL) SELECT 1", "AS SQL", 26),
        ] {
            let error = parse(sql).unwrap_err();
            assert_eq!(error.message, format!("option {option} is given twice"));
            assert_eq!((error.line, error.column), (1, column), "{error}");
        }
    }

    #[test]
    fn copy_understands_the_ways_options_are_written() {
        for sql in [
            "COPY t FROM 'a.csv' (FORMAT csv, HEADER false, DELIMITER ';')",
            "COPY t FROM 'a.csv' WITH (FORMAT 'csv', HEADER = false, DELIMITER ';');",
            "COPY t FROM 'a.csv' STORED AS CSV OPTIONS ('format.header' 'false', 'format.delimiter' ';')",
        ] {
            let Ok(Statement::CopyFrom(copy)) = parse(sql) else {
                panic!("{sql}: {:?}", parse(sql));
            };
            assert_eq!(copy.options.format.as_deref(), Some("csv"), "{sql}");
            assert_eq!(
                copy.options.others,
                [
                    ("header".to_owned(), "false".to_owned()),
                    ("delimiter".to_owned(), ";".to_owned())
                ],
                "{sql}"
            );
        }
        assert!(matches!(
            parse("COPY (SELECT 1) TO 'x.parquet'"),
            Ok(Statement::CopyTo(_))
        ));
        assert!(matches!(
            parse("COPY s.t (a, b) FROM 'x.parquet'"),
            Ok(Statement::CopyFrom(_))
        ));
    }

    #[test]
    fn settings_are_lower_cased_and_their_values_are_not() {
        let Ok(Statement::Set { name, value }) = parse("SET Profile.Retention_Bytes TO 1GB") else {
            panic!()
        };
        assert_eq!(
            (name.as_str(), value.as_str()),
            ("profile.retention_bytes", "1GB")
        );
        let Ok(Statement::Set { value, .. }) = parse("SET x.y = -1.5") else {
            panic!()
        };
        assert_eq!(value, "-1.5");
        assert!(matches!(
            parse("SHOW profile.level"),
            Ok(Statement::Show { name: Some(n) }) if n == "profile.level"
        ));
        assert!(matches!(
            parse("RESET ALL"),
            Ok(Statement::Reset { name: None })
        ));
    }

    #[test]
    fn every_statement_finds_its_kind() {
        type Is = fn(&Statement) -> bool;
        let cases: [(&str, Is); 16] = [
            ("FROM t", |s| matches!(s, Statement::Query(_))),
            ("CREATE TABLE t (a INT NOT NULL)", |s| {
                matches!(s, Statement::CreateTable(_))
            }),
            ("CREATE OR REPLACE TABLE t AS SELECT 1", |s| {
                matches!(s, Statement::CreateTable(_))
            }),
            ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'x'", |s| {
                matches!(s, Statement::CreateExternalTable(_))
            }),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", |s| {
                matches!(s, Statement::CreateView(_))
            }),
            ("CREATE SCHEMA IF NOT EXISTS s", |s| {
                matches!(s, Statement::CreateSchema { .. })
            }),
            ("DROP VIEW IF EXISTS v", |s| {
                matches!(s, Statement::Drop { .. })
            }),
            ("ALTER TABLE t RENAME TO u", |s| {
                matches!(s, Statement::AlterTable(_))
            }),
            ("TRUNCATE t", |s| matches!(s, Statement::Truncate { .. })),
            ("DESCRIBE t", |s| matches!(s, Statement::Describe(_))),
            ("DESC SELECT 1", |s| {
                matches!(s, Statement::DescribeQuery(_))
            }),
            ("SHOW CREATE VIEW sys.x", |s| {
                matches!(s, Statement::ShowCreate { .. })
            }),
            ("PREPARE p AS SELECT $1", |s| {
                matches!(s, Statement::Prepare { .. })
            }),
            ("EXECUTE p(1, 'x')", |s| {
                matches!(s, Statement::Execute { .. })
            }),
            ("EXPLAIN ANALYZE SELECT 1", |s| {
                matches!(s, Statement::Explain(_))
            }),
            ("SHOW TABLES FROM s LIKE 'a%'", |s| {
                matches!(s, Statement::ShowTables { .. })
            }),
        ];
        for (sql, is) in cases {
            let statement = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            assert!(is(&statement), "{sql}: {statement:?}");
        }
    }
}
