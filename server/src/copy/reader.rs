//! Bytes of COPY FROM STDIN to rows of texts. Knows no socket: bytes are pushed in as they come,
//! cut anywhere.

use super::statement::Options;
use crate::error::SqlError;

/// A row's fields and the line on which it begins, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) line: u64,
    pub(crate) fields: Vec<Option<String>>,
}

/// Reads rows in text format or CSV.
#[derive(Debug)]
pub(crate) struct Reader {
    options: Options,
    columns: usize,
    /// Bytes of the row that is not whole yet; `quoted` is about its end.
    pending: Vec<u8>,
    quoted: bool,
    escaped: bool,
    /// Line on which the pending row begins, and lines that end within it.
    line: u64,
    inner_lines: u64,
    skip_header: bool,
    ended: bool,
}

impl Reader {
    pub(crate) fn new(options: Options, columns: usize) -> Self {
        Self {
            skip_header: options.header,
            options,
            columns,
            pending: Vec::new(),
            quoted: false,
            escaped: false,
            line: 1,
            inner_lines: 0,
            ended: false,
        }
    }

    /// Takes more bytes; gives the rows that they complete.
    ///
    /// # Errors
    /// 22P04 with the line of a row that is malformed.
    pub(crate) fn push(&mut self, bytes: &[u8], rows: &mut Vec<Row>) -> Result<(), SqlError> {
        for byte in bytes {
            if self.ends_row(*byte) {
                self.take_row(rows)?;
            } else {
                self.pending.push(*byte);
            }
        }
        Ok(())
    }

    /// The end of the data: the last row may have no line break.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn finish(&mut self, rows: &mut Vec<Row>) -> Result<(), SqlError> {
        if self.quoted && !self.ended {
            return Err(self.malformed("a quoted field has no end"));
        }
        if !self.pending.is_empty() {
            self.take_row(rows)?;
        }
        Ok(())
    }

    /// Whether `byte` is the line break after a row.
    fn ends_row(&mut self, byte: u8) -> bool {
        if self.options.csv {
            // A doubled quote opens and closes, which comes to the same.
            let escapes = self.options.escape != self.options.quote;
            if std::mem::take(&mut self.escaped) {
                return false;
            }
            if escapes && self.quoted && byte == self.options.escape {
                self.escaped = true;
            } else if byte == self.options.quote {
                self.quoted = !self.quoted;
            }
        } else if std::mem::take(&mut self.escaped) {
            // A line break after a backslash belongs to the field.
            self.inner_lines += u64::from(byte == b'\n');
            return false;
        } else {
            self.escaped = byte == b'\\';
        }
        let breaks = byte == b'\n';
        if breaks && self.quoted {
            self.inner_lines += 1;
        }
        breaks && !self.quoted
    }

    fn take_row(&mut self, rows: &mut Vec<Row>) -> Result<(), SqlError> {
        let mut bytes = std::mem::take(&mut self.pending);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        let line = self.line;
        // The end's marker, of clients older than this protocol.
        self.ended |= bytes == b"\\.";
        if !self.ended && !std::mem::take(&mut self.skip_header) {
            let fields = if self.options.csv {
                self.csv(&bytes)?
            } else {
                self.text(&bytes)?
            };
            if fields.len() != self.columns {
                let (found, wanted) = (fields.len(), self.columns);
                return Err(self.malformed(&format!("{found} fields for {wanted} columns")));
            }
            rows.push(Row { line, fields });
        }
        self.escaped = false;
        self.line += 1 + std::mem::take(&mut self.inner_lines);
        Ok(())
    }

    fn malformed(&self, what: &str) -> SqlError {
        SqlError::new("22P04", format!("line {}: {what}", self.line))
    }

    fn string(&self, bytes: Vec<u8>) -> Result<String, SqlError> {
        String::from_utf8(bytes).map_err(|_| SqlError {
            code: "22021",
            ..self.malformed("this is not UTF-8")
        })
    }

    fn csv(&self, bytes: &[u8]) -> Result<Vec<Option<String>>, SqlError> {
        let Options {
            delimiter,
            quote,
            escape,
            ref null,
            ..
        } = self.options;
        let mut fields = Vec::with_capacity(self.columns);
        let mut field = Vec::new();
        let (mut quoted, mut was_quoted) = (false, false);
        let mut finish = |field: &mut Vec<u8>, was_quoted: &mut bool| {
            let text = self.string(std::mem::take(field))?;
            let is_null = !std::mem::take(was_quoted) && text == *null;
            fields.push((!is_null).then_some(text));
            Ok::<_, SqlError>(())
        };
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let next = bytes.get(at + 1);
            at += 1;
            match *byte {
                byte if quoted
                    && byte == escape
                    && next.is_some_and(|next| *next == quote || *next == escape) =>
                {
                    field.extend(next);
                    at += 1;
                }
                byte if byte == quote => {
                    quoted = !quoted;
                    was_quoted = true;
                }
                byte if byte == delimiter && !quoted => finish(&mut field, &mut was_quoted)?,
                byte => field.push(byte),
            }
        }
        finish(&mut field, &mut was_quoted)?;
        Ok(fields)
    }

    fn text(&self, bytes: &[u8]) -> Result<Vec<Option<String>>, SqlError> {
        let mut fields = Vec::with_capacity(self.columns);
        let mut start = 0;
        let mut at = 0;
        loop {
            match bytes.get(at) {
                Some(b'\\') => at += 2,
                Some(byte) if *byte != self.options.delimiter => at += 1,
                end => {
                    let raw = bytes.get(start..at.min(bytes.len())).unwrap_or_default();
                    fields.push(match raw == self.options.null.as_bytes() {
                        true => None,
                        false => Some(self.string(unescaped(raw))?),
                    });
                    if end.is_none() {
                        return Ok(fields);
                    }
                    at += 1;
                    start = at;
                }
            }
        }
    }
}

/// `\t`, `\n`, `\\`, `\x41`, `\101` … as what they stand for.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let (b'\\', Some((escape, after))) = (first, after.split_first()) else {
            bytes.push(*first);
            continue;
        };
        rest = after;
        let number = |most: usize, radix: u32, digits: &[u8]| {
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            let count = digits.iter().take(most).take_while(is_digit).count();
            let text = std::str::from_utf8(&digits[..count]).unwrap_or_default();
            let value = u32::from_str_radix(text, radix).ok();
            value.map(|value| (value.to_le_bytes()[0], count))
        };
        bytes.push(match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'x' => match number(2, 16, after) {
                Some((value, digits)) => {
                    rest = &after[digits..];
                    value
                }
                None => b'x',
            },
            b'0'..=b'7' => match number(2, 8, after) {
                Some((value, digits)) => {
                    rest = &after[digits..];
                    let high = (escape - b'0') << (3 * digits);
                    high.wrapping_add(value)
                }
                None => escape - b'0',
            },
            other => *other,
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &Options, columns: usize, text: &str) -> Result<Vec<Row>, SqlError> {
        // However the bytes are cut, the rows are the same.
        let whole = read_in(options, columns, text, text.len().max(1));
        for size in [1, 2, 3] {
            assert_eq!(read_in(options, columns, text, size), whole);
        }
        whole
    }

    fn read_in(
        options: &Options,
        columns: usize,
        text: &str,
        size: usize,
    ) -> Result<Vec<Row>, SqlError> {
        let mut reader = Reader::new(options.clone(), columns);
        let mut rows = Vec::new();
        for bytes in text.as_bytes().chunks(size) {
            reader.push(bytes, &mut rows)?;
        }
        reader.finish(&mut rows)?;
        Ok(rows)
    }

    fn row(line: u64, fields: &[Option<&str>]) -> Row {
        let fields = fields
            .iter()
            .map(|field| field.map(str::to_owned))
            .collect();
        Row { line, fields }
    }

    #[test]
    fn csv_has_quotes_line_breaks_and_nulls() {
        let rows = read(&Options::csv(), 2, "1,\"a \"\"b\"\"\nc\"\r\n,\"\"\n3,x").unwrap();
        let expected = [
            row(1, &[Some("1"), Some("a \"b\"\nc")]),
            row(3, &[None, Some("")]),
            row(4, &[Some("3"), Some("x")]),
        ];
        assert_eq!(rows, expected);
        let header = Options {
            header: true,
            ..Options::csv()
        };
        assert_eq!(read(&header, 1, "a\n1\n").unwrap(), [row(2, &[Some("1")])]);
        let escape = Options {
            escape: b'\\',
            ..Options::csv()
        };
        assert_eq!(
            read(&escape, 1, "\"a\\\"b\"\n").unwrap(),
            [row(1, &[Some("a\"b")])]
        );
    }

    #[test]
    fn text_has_escapes_and_nulls() {
        let rows = read(
            &Options::text(),
            3,
            "1\t\\N\ta\\tb\\\\\n\\x41\\101\t\tx\\\ny\n\\.\n",
        )
        .unwrap();
        let expected = [
            row(1, &[Some("1"), None, Some("a\tb\\")]),
            row(2, &[Some("AA"), Some(""), Some("x\ny")]),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn malformed_rows_name_their_line() {
        let error = read(&Options::csv(), 2, "1,2\n\"a\nb\",2\n3\n").unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            ("22P04", "line 4: 1 fields for 2 columns")
        );
        let error = read(&Options::csv(), 1, "1\n\"a\n").unwrap_err();
        assert_eq!(error.message, "line 2: a quoted field has no end");
    }
}
