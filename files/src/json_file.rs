//! What is in a JSON file: how its records follow each other, where they begin, and their keys.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::de::DeserializeSeed;

use crate::error::FilesError;
use crate::json_types::{Keys, Seen};
use crate::passes::{PART, Pass, at_line, failed, line_at, open_part, ranges};

/// After so many records a pass looks whether anybody waits for it.
const STRIDE: u64 = 1024;

/// So much of a file is looked through at once for the beginning of a record.
const WINDOW: usize = 256 << 10;

/// Whether the first character of a file that is not space opens an array.
pub(crate) fn is_array(path: &Path) -> Result<bool, FilesError> {
    let file = File::open(path).map_err(|e| failed(path, e))?;
    for byte in BufReader::new(file).bytes() {
        match byte.map_err(|e| failed(path, e))? {
            byte if byte.is_ascii_whitespace() => {}
            byte => return Ok(byte == b'['),
        }
    }
    Ok(false)
}

/// Where parts of at least [`PART`] bytes begin, but for the first: at records.
///
/// A line break between `}` and `{` is between two records: in an array there would be a comma, in
/// an object a key, and texts have no line breaks in JSON.
pub(crate) fn record_starts(path: &Path, pass: &Pass) -> Result<Vec<u64>, FilesError> {
    let file = File::open(path).map_err(|e| failed(path, e))?;
    let size = file.metadata().map_err(|e| failed(path, e))?.len();
    let mut starts: Vec<u64> = Vec::new();
    let mut at = PART;
    let mut window = vec![0; WINDOW];
    while at < size {
        pass.go_on()?;
        let read = file.read_at(&mut window, at).map_err(|e| failed(path, e))?;
        if read == 0 {
            break;
        }
        at = match first_start(&window[..read]) {
            Some(start) => {
                starts.push(at + start as u64);
                at + start as u64 + PART
            }
            // A break at the edge of a window is in the middle of the next one.
            None if read < WINDOW => at + read as u64,
            None => at + (read / 2) as u64,
        };
    }
    Ok(starts)
}

/// The end of the first line break between `}` and `{`.
fn first_start(window: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', window).find_map(|place| {
        let is_space = |byte: &&u8| byte.is_ascii_whitespace();
        let before = window[..place].iter().rev().find(|b| !is_space(b));
        let after = window[place..].iter().find(|b| !is_space(b));
        (before == Some(&b'}') && after == Some(&b'{')).then_some(place + 1)
    })
}

/// Reads all records of a file, whose parts begin at 0 and at `starts`; gives their keys, or
/// `None` if it has no records.
///
/// # Errors
/// What is no JSON object, with its line.
pub(crate) fn keys(
    path: &Path,
    array: bool,
    starts: &[u64],
    pass: &Pass,
) -> Result<Option<Keys>, FilesError> {
    let size = std::fs::metadata(path).map_err(|e| failed(path, e))?.len();
    let parts = pass.parts(&ranges(starts, size), |_, part| match array {
        true => array_seen(path, pass),
        false => part_seen(path, part, pass),
    })?;
    let mut all = Seen::default();
    for part in parts {
        all.merge(part);
    }
    let Some(keys) = all.into_keys() else {
        return Ok(None);
    };
    if keys.too_many() {
        return Err(at_line(
            path,
            None,
            "its records have thousands of different keys; name the columns in CREATE EXTERNAL \
             TABLE",
        ));
    }
    Ok(Some(keys))
}

fn part_seen(path: &Path, part: Range<u64>, pass: &Pass) -> Result<Seen, FilesError> {
    let mut text = Vec::new();
    open_part(path, &part)?
        .read_to_end(&mut text)
        .map_err(|e| failed(path, e))?;
    let mut deserializer = serde_json::Deserializer::from_slice(&text);
    seen(&mut deserializer, pass).map_err(|wrong| {
        let before = line_at(path, part.start) - 1;
        match wrong_line(&text[..]) {
            Some((line, message)) if !wrong.cancelled => {
                at_line(path, Some(before + line), message)
            }
            _ => {
                let line = wrong.line;
                wrong.into_error(path, before + line)
            }
        }
    })
}

fn array_seen(path: &Path, pass: &Pass) -> Result<Seen, FilesError> {
    let file = File::open(path).map_err(|e| failed(path, e))?;
    let mut items = ArrayItems::new(BufReader::with_capacity(WINDOW, file));
    let result = seen(&mut serde_json::Deserializer::from_reader(&mut items), pass);
    result.map_err(|wrong| {
        let line = wrong.line;
        wrong.into_error(path, line)
    })
}

/// Why the records of a part cannot be read.
struct Wrong {
    line: u64,
    message: String,
    cancelled: bool,
}

impl Wrong {
    fn into_error(self, path: &Path, line: u64) -> FilesError {
        match self.cancelled {
            true => FilesError::Cancelled,
            false => at_line(path, Some(line), self.message),
        }
    }
}

impl From<serde_json::Error> for Wrong {
    fn from(error: serde_json::Error) -> Self {
        Self {
            line: error.line() as u64,
            message: message(&error),
            cancelled: false,
        }
    }
}

/// What the records are that follow each other in a text.
fn seen<'de, R: serde_json::de::Read<'de>>(
    records: &mut serde_json::Deserializer<R>,
    pass: &Pass,
) -> Result<Seen, Wrong> {
    let mut all = Seen::default();
    for number in 0u64.. {
        if number.is_multiple_of(STRIDE) && pass.go_on().is_err() {
            return Err(Wrong {
                line: 1,
                message: String::new(),
                cancelled: true,
            });
        }
        // At the end of the text there is nothing but space.
        if records.end().is_ok() {
            break;
        }
        Record(&mut all).deserialize(&mut *records)?;
    }
    Ok(all)
}

/// A record: an object.
struct Record<'a>(&'a mut Seen);

impl<'de> DeserializeSeed<'de> for Record<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Refuses what is no object.
        deserializer.deserialize_map(RecordVisitor(self.0))
    }
}

struct RecordVisitor<'a>(&'a mut Seen);

impl<'de> serde::de::Visitor<'de> for RecordVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        self.0.visit_map(entries)
    }
}

/// The first line that is no JSON object, and why, of a text with one record a line. `None` if its
/// first line is not one either: then records have several lines.
pub(crate) fn wrong_line(mut text: impl BufRead) -> Option<(u64, String)> {
    let mut line = Vec::new();
    let mut is_first = true;
    for number in 1.. {
        line.clear();
        if text.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut seen = Seen::default();
        let mut record = serde_json::Deserializer::from_slice(line.trim_ascii_end());
        let result = Record(&mut seen)
            .deserialize(&mut record)
            .and_then(|()| record.end());
        if let Err(error) = result {
            let goes_on = is_first && !line.trim_ascii_end().ends_with(b"}");
            return (!goes_on).then(|| (number, message(&error)));
        }
        is_first = false;
    }
    None
}

/// What a parser complains of, with its column and without its line, which is not the file's.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(message) => format!("{message}, at column {}", error.column()),
        None => text,
    }
}

/// The items of a JSON array, with spaces in place of the brackets around them and the commas
/// between them. Lines stay where they are.
#[derive(Debug)]
pub(crate) struct ArrayItems<R> {
    inner: R,
    depth: u64,
    in_text: bool,
    escaped: bool,
}

impl<R: BufRead> ArrayItems<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            depth: 0,
            in_text: false,
            escaped: false,
        }
    }

    fn next(&mut self, byte: u8) -> io::Result<u8> {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return Ok(byte);
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => {
                self.depth += 1;
                if self.depth == 1 {
                    return Ok(b' ');
                }
            }
            b']' | b'}' => {
                if self.depth == 0 {
                    let text = "there is something after the end of the array";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                self.depth -= 1;
                if self.depth == 0 {
                    return Ok(b' ');
                }
            }
            b',' if self.depth == 1 => return Ok(b' '),
            _ => {}
        }
        Ok(byte)
    }
}

impl<R: BufRead> Read for ArrayItems<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.inner.fill_buf()?;
        let length = available.len().min(out.len());
        out[..length].copy_from_slice(&available[..length]);
        self.inner.consume(length);
        if length == 0 && !out.is_empty() && self.depth > 0 {
            let text = "the array has no end";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        for byte in &mut out[..length] {
            *byte = self.next(*byte)?;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_after_a_line_break_between_braces() {
        assert_eq!(first_start(b"{\"a\":\n{}}\n{\"b\":1}"), Some(10));
        assert_eq!(first_start(b"[{}\n,{}]"), None);
        assert_eq!(first_start(b"{}\r\n\r\n {"), Some(4));
        assert_eq!(first_start(b"}\n"), None);
    }

    #[test]
    fn items_keep_their_commas_and_brackets() {
        let text = r#" [{"a":[1,2],"b":"],\"[,"},
 {"a":{}} ] "#;
        let mut items = String::new();
        let mut reader = ArrayItems::new(text.as_bytes());
        reader.read_to_string(&mut items).unwrap();
        assert_eq!(items, "  {\"a\":[1,2],\"b\":\"],\\\"[,\"} \n {\"a\":{}}   ");
        for wrong in ["[{}", "[{}]]"] {
            let mut reader = ArrayItems::new(wrong.as_bytes());
            assert!(
                reader.read_to_string(&mut String::new()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_wrong_line_is_found_where_records_are_lines() {
        let line = |text: &str| wrong_line(text.as_bytes()).map(|(line, _)| line);
        assert_eq!(line("{}\n\n{\"a\":\n{}\n"), Some(3));
        assert_eq!(line("{}\n7\n"), Some(2));
        assert_eq!(line("{\n\"a\":1}\n{\"b\"}"), None);
        assert_eq!(line("{nope}\n{}"), Some(1));
    }
}
