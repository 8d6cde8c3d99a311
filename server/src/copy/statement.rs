//! `COPY t [(columns)] FROM STDIN` and `COPY t | (query) TO STDOUT`, with options.

use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::SqlError;

/// What is copied and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyStatement {
    pub(crate) source: Source,
    pub(crate) options: Options,
}

/// From where to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// FROM STDIN: a table and columns, as written.
    Into { table: String, columns: Vec<String> },
    /// TO STDOUT: the query whose rows go out.
    Query(String),
}

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) csv: bool,
    pub(crate) header: bool,
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
    pub(crate) null: String,
}

impl Options {
    pub(crate) fn text() -> Self {
        Self {
            csv: false,
            header: false,
            delimiter: b'\t',
            quote: b'"',
            escape: b'"',
            null: "\\N".to_owned(),
        }
    }

    pub(crate) fn csv() -> Self {
        Self {
            csv: true,
            delimiter: b',',
            null: String::new(),
            ..Self::text()
        }
    }
}

impl CopyStatement {
    /// # Errors
    /// Syntax errors, and options that there are not.
    pub(crate) fn parse(sql: &str) -> Result<Self, SqlError> {
        let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql.trim_end_matches(';'));
        let syntax = |text: String| SqlError::new("42601", format!("syntax error: {text}"));
        let statement = statements.map_err(|error| syntax(error.to_string()))?.pop();
        let Some(Statement::Copy {
            source,
            to,
            target: CopyTarget::Stdin | CopyTarget::Stdout,
            options,
            legacy_options,
            ..
        }) = statement
        else {
            return Err(syntax(
                "this is not COPY FROM STDIN or TO STDOUT".to_owned(),
            ));
        };
        let source = match (source, to) {
            (CopySource::Query(query), true) => Source::Query(query.to_string()),
            (
                CopySource::Table {
                    table_name,
                    columns,
                },
                true,
            ) => {
                let columns = match columns.is_empty() {
                    true => "*".to_owned(),
                    false => columns
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(", "),
                };
                Source::Query(format!("SELECT {columns} FROM {table_name}"))
            }
            (
                CopySource::Table {
                    table_name,
                    columns,
                },
                false,
            ) => Source::Into {
                table: table_name.to_string(),
                columns: columns.iter().map(ToString::to_string).collect(),
            },
            (CopySource::Query(_), false) => {
                return Err(syntax("COPY FROM takes a table".to_owned()));
            }
        };
        Ok(Self {
            source,
            options: read_options(options, legacy_options)?,
        })
    }

    /// Whether rows come from the client.
    pub(crate) fn is_in(&self) -> bool {
        matches!(self.source, Source::Into { .. })
    }
}

fn read_options(
    options: Vec<CopyOption>,
    legacy: Vec<CopyLegacyOption>,
) -> Result<Options, SqlError> {
    let mut all: Vec<CopyOption> = Vec::new();
    for option in legacy {
        match option {
            CopyLegacyOption::Csv(csv) => {
                all.push(CopyOption::Format("csv".into()));
                for option in csv {
                    all.push(match option {
                        CopyLegacyCsvOption::Header => CopyOption::Header(true),
                        CopyLegacyCsvOption::Quote(quote) => CopyOption::Quote(quote),
                        CopyLegacyCsvOption::Escape(escape) => CopyOption::Escape(escape),
                        other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
                    });
                }
            }
            CopyLegacyOption::Delimiter(delimiter) => all.push(CopyOption::Delimiter(delimiter)),
            CopyLegacyOption::Null(null) => all.push(CopyOption::Null(null)),
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    all.extend(options);
    let format = all.iter().find_map(|option| match option {
        CopyOption::Format(name) => Some(name.value.to_lowercase()),
        _ => None,
    });
    let mut read = match format.as_deref() {
        None | Some("text") => Options::text(),
        Some("csv") => Options::csv(),
        Some(other) => {
            let what =
                format!("COPY with FORMAT {other} over a connection; there are text and csv");
            return Err(SqlError::unsupported(what));
        }
    };
    let mut escape = None;
    for option in all {
        match option {
            CopyOption::Format(_) | CopyOption::Freeze(_) => {}
            CopyOption::Header(header) => read.header = header,
            CopyOption::Delimiter(c) => read.delimiter = byte("DELIMITER", c)?,
            CopyOption::Null(null) => read.null = null,
            CopyOption::Quote(c) => read.quote = byte("QUOTE", c)?,
            CopyOption::Escape(c) => escape = Some(byte("ESCAPE", c)?),
            CopyOption::Encoding(name) if name.to_lowercase().replace('-', "") == "utf8" => {}
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    read.escape = escape.unwrap_or(read.quote);
    Ok(read)
}

fn byte(name: &str, c: char) -> Result<u8, SqlError> {
    match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(byte),
        _ => Err(SqlError::new(
            "22023",
            format!("{name} is one ASCII character"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_options_are_understood() {
        for sql in [
            "COPY t (a, \"B\") FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';')",
            "copy t (a, \"B\") from stdin with delimiter ';' csv header",
        ] {
            let copy = CopyStatement::parse(sql).unwrap();
            let columns = vec!["a".to_owned(), "\"B\"".to_owned()];
            assert_eq!(
                copy.source,
                Source::Into {
                    table: "t".to_owned(),
                    columns
                }
            );
            let expected = Options {
                header: true,
                delimiter: b';',
                ..Options::csv()
            };
            assert_eq!(copy.options, expected, "{sql}");
        }
        let copy = CopyStatement::parse("COPY (SELECT 1) TO STDOUT").unwrap();
        assert_eq!(copy.source, Source::Query("SELECT 1".to_owned()));
        assert_eq!(copy.options, Options::text());
    }

    #[test]
    fn formats_that_there_are_not_are_refused() {
        let error = CopyStatement::parse("COPY t TO STDOUT (FORMAT binary)").unwrap_err();
        assert_eq!(error.code, "0A000");
    }
}
