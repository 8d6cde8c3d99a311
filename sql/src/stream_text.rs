//! Streams and continuous queries as text, which reads as the same statement again.

use std::fmt;

use crate::quote::literal;
use crate::streams::{CreateContinuousQuery, CreateStream, Every, StreamSource, Watermark};

/// `INTERVAL '…'` of so many nanoseconds.
pub fn interval_text(nanoseconds: i64) -> String {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let mut text = format!("{seconds} seconds");
    if seconds == 1 {
        text.pop();
    }
    if rest != 0 {
        text = format!("{text} {rest} nanoseconds");
    }
    format!("INTERVAL '{text}'")
}

impl fmt::Display for CreateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        write!(f, "CREATE STREAM {} ({}", self.name, columns.join(", "))?;
        if let Some(Watermark { column, delay_ns }) = &self.watermark {
            write!(f, ", WATERMARK FOR {column} AS {column}")?;
            if *delay_ns > 0 {
                write!(f, " - {}", interval_text(*delay_ns))?;
            }
        }
        let (source, options) = match &self.source {
            StreamSource::Insert => return f.write_str(") FROM INSERT"),
            StreamSource::Directory(path, options) => {
                (format!("DIRECTORY {}", literal(path)), options)
            }
            StreamSource::Stdin(options) => ("STDIN".to_owned(), options),
            StreamSource::Socket(address, options) => {
                (format!("SOCKET {}", literal(address)), options)
            }
        };
        write!(f, ") FROM {source}")?;
        let format = options.format.iter().map(|format| ("format", format));
        let others = options
            .others
            .iter()
            .map(|(name, value)| (name.as_str(), value));
        let options: Vec<String> = format
            .chain(others)
            .map(|(name, value)| format!("{name} {}", literal(value)))
            .collect();
        match options.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", options.join(", ")),
        }
    }
}

impl fmt::Display for CreateContinuousQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE CONTINUOUS QUERY {} INTO {}",
            self.name, self.target
        )?;
        match self.every {
            Every::Interval(length) => write!(f, " EVERY {}", interval_text(length))?,
            Every::Rows(1) => f.write_str(" EVERY 1 ROW")?,
            Every::Rows(rows) => write!(f, " EVERY {rows} ROWS")?,
        }
        if let Some(deadline) = self.deadline_ns {
            write!(f, " DEADLINE {}", interval_text(deadline))?;
        }
        if let Some(level) = &self.level {
            write!(f, " PROFILE {level}")?;
        }
        if let Some(remedies) = &self.remedies {
            write!(f, " REMEDIES {remedies}")?;
        }
        write!(f, " AS {}", self.query)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    /// The text of a statement, as the catalog keeps it.
    fn kept(sql: &str) -> String {
        match parse(sql) {
            Ok(Statement::CreateStream(stream)) => stream.to_string(),
            Ok(Statement::CreateContinuousQuery(query)) => query.to_string(),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn what_is_kept_reads_as_the_same_statement() {
        for (sql, expected) in [
            (
                "create stream s (a INT) from insert",
                "CREATE STREAM s (a INT) FROM INSERT",
            ),
            (
                "CREATE STREAM IF NOT EXISTS s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 day 500 milliseconds') \
                 FROM DIRECTORY 'it''s' (FORMAT csv, DELIMITER ';')",
                "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '86400 seconds 500000000 nanoseconds') \
                 FROM DIRECTORY 'it''s' (format 'csv', delimiter ';')",
            ),
            (
                "CREATE STREAM s (WATERMARK FOR ts AS ts, ts TIMESTAMP) FROM SOCKET '127.0.0.1:0' (FORMAT json)",
                "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM SOCKET '127.0.0.1:0' (format 'json')",
            ),
            (
                "CREATE CONTINUOUS QUERY q INTO t AS SELECT a FROM s",
                "CREATE CONTINUOUS QUERY q INTO t EVERY INTERVAL '1 second' AS SELECT a FROM s",
            ),
            (
                "CREATE CONTINUOUS QUERY q INTO t PROFILE Records REMEDIES Auto DEADLINE INTERVAL '2' SECOND EVERY 5 ROWS \
                 AS SELECT 1",
                "CREATE CONTINUOUS QUERY q INTO t EVERY 5 ROWS DEADLINE INTERVAL '2 seconds' PROFILE records \
                 REMEDIES auto AS SELECT 1",
            ),
        ] {
            assert_eq!(kept(sql), expected);
            assert_eq!(kept(expected), expected);
        }
    }
}
