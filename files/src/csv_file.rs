//! What is in a CSV file: where its records begin, its header, and the types of its columns.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::csv_types::Kinds;
use crate::dialect::CsvDialect;
use crate::error::FilesError;
use crate::passes::{PART, Pass, at_line, failed, line_at, open_part, ranges};

/// After so many records a pass looks whether anybody waits for it.
const STRIDE: u64 = 1024;

/// What the records of a CSV file have.
#[derive(Debug, Clone, Default)]
pub(crate) struct CsvShape {
    /// The names of its columns; none if the file has no records.
    pub(crate) header: Vec<String>,
    pub(crate) kinds: Vec<Kinds>,
    /// The bytes of the longest record.
    pub(crate) longest: usize,
}

/// Where parts of at least [`PART`] bytes begin, but for the first: at records. A line break in
/// quotes begins none.
///
/// A quote opens a field where one begins, and closes it unless it is doubled or escaped; elsewhere
/// it is a character as others are. The reader takes it so, too.
pub(crate) fn record_starts(
    path: &Path,
    dialect: &CsvDialect,
    pass: &Pass,
) -> Result<Vec<u64>, FilesError> {
    let error = |error: std::io::Error| failed(path, error);
    let mut file = File::open(path).map_err(error)?;
    let size = file.metadata().map_err(error)?.len();
    let mut starts = Vec::new();
    if size <= PART {
        return Ok(starts);
    }
    let (delimiter, quote) = (dialect.delimiter_of(path), dialect.quote);
    let escape = dialect.escape.unwrap_or(quote);
    let mut buffer = vec![0; 1 << 20];
    // The place of the buffer in the file, and the byte before it.
    let mut base = 0;
    let mut before = b'\n';
    let mut quoted = false;
    // What the last byte before the buffer was, if it decides about the first one in it.
    let mut after_quote = false;
    let mut after_escape = false;
    let mut wanted = PART;
    let mut begin = [0; 3];
    let has_mark = file.read(&mut begin).map_err(error)? == 3 && begin == *b"\xEF\xBB\xBF";
    base += if has_mark { 3 } else { 0 };
    file.seek(SeekFrom::Start(base)).map_err(error)?;
    loop {
        pass.go_on()?;
        let read = file.read(&mut buffer).map_err(error)?;
        let bytes = &buffer[..read];
        let Some(last) = bytes.last() else {
            return Ok(starts);
        };
        let mut at = 0;
        if std::mem::take(&mut after_escape) {
            at = 1;
        } else if std::mem::take(&mut after_quote) {
            match bytes[0] == quote {
                true => at = 1,
                false => quoted = false,
            }
        }
        while at < read {
            if quoted {
                let Some(place) = memchr::memchr2(quote, escape, &bytes[at..]) else {
                    break;
                };
                let is_quote = bytes[at + place] == quote;
                at += place + 1;
                match (is_quote, bytes.get(at)) {
                    (true, Some(next)) if *next == quote => at += 1,
                    (true, Some(_)) => quoted = false,
                    (true, None) => after_quote = true,
                    (false, Some(_)) => at += 1,
                    (false, None) => after_escape = true,
                }
                continue;
            }
            let place = memchr::memchr(quote, &bytes[at..]).map_or(read, |place| at + place);
            while base + place as u64 > wanted {
                let from = at.max(wanted.saturating_sub(base) as usize);
                let Some(end) = memchr::memchr(b'\n', &bytes[from..place]) else {
                    break;
                };
                let start = base + (from + end) as u64 + 1;
                if start < size {
                    starts.push(start);
                }
                wanted = start + PART;
            }
            if place < read {
                let previous = match place {
                    0 => before,
                    place => bytes[place - 1],
                };
                quoted = previous == delimiter || matches!(previous, b'\n' | b'\r');
            }
            at = place + 1;
        }
        before = *last;
        base += read as u64;
    }
}

/// Reads all records of a file, whose parts begin at 0 and at `starts`.
///
/// # Errors
/// A record that has not as many fields as the first, or that is not UTF-8, with its line.
pub(crate) fn shape(
    path: &Path,
    dialect: &CsvDialect,
    starts: &[u64],
    pass: &Pass,
) -> Result<CsvShape, FilesError> {
    let size = std::fs::metadata(path).map_err(|e| failed(path, e))?.len();
    let parts = ranges(starts, size);
    let header = first_record(path, dialect)?;
    let width = header.len();
    let shapes = pass.parts(&parts, |_, part| {
        part_shape(path, dialect, part, width, pass)
    })?;
    let mut all = CsvShape {
        header: match dialect.header {
            true => names(header),
            false => (1..=width).map(|n| format!("column_{n}")).collect(),
        },
        kinds: vec![Kinds::default(); width],
        longest: 0,
    };
    for (kinds, longest) in shapes {
        for (kind, other) in all.kinds.iter_mut().zip(kinds) {
            kind.merge(other);
        }
        all.longest = all.longest.max(longest);
    }
    Ok(all)
}

fn part_shape(
    path: &Path,
    dialect: &CsvDialect,
    part: Range<u64>,
    width: usize,
    pass: &Pass,
) -> Result<(Vec<Kinds>, usize), FilesError> {
    let mut kinds = vec![Kinds::default(); width];
    let mut longest = 0;
    let mut records = dialect.records(path, open_part(path, &part)?);
    let mut record = csv::ByteRecord::new();
    let mut header = dialect.header && part.start == 0;
    let null = dialect.null.as_deref().map(str::as_bytes);
    let wrong = |record: &csv::ByteRecord, message: String| {
        let line = record.position().map_or(1, csv::Position::line);
        let before = line_at(path, part.start) - 1;
        at_line(path, Some(before + line), message)
    };
    let mut number = 0u64;
    while records
        .read_byte_record(&mut record)
        .map_err(|e| at_line(path, None, e.to_string()))?
    {
        number += 1;
        if number.is_multiple_of(STRIDE) {
            pass.go_on()?;
        }
        if record.len() != width {
            let found = record.len();
            return Err(wrong(
                &record,
                format!("the row has {found} fields in place of {width}"),
            ));
        }
        if std::str::from_utf8(record.as_slice()).is_err() {
            return Err(wrong(&record, "it is not UTF-8".to_owned()));
        }
        longest = longest.max(record.as_slice().len());
        if std::mem::take(&mut header) {
            continue;
        }
        for (kind, value) in kinds.iter_mut().zip(&record) {
            if null != Some(value) {
                kind.add(value);
            }
        }
    }
    Ok((kinds, longest))
}

/// The fields of the first record; none if there is none.
pub(crate) fn first_record(path: &Path, dialect: &CsvDialect) -> Result<Vec<String>, FilesError> {
    let mut records = dialect.records(path, open_part(path, &(0..u64::MAX))?);
    let mut record = csv::ByteRecord::new();
    let read = records.read_byte_record(&mut record);
    read.map_err(|e| at_line(path, None, e.to_string()))?;
    record
        .iter()
        .map(|field| match std::str::from_utf8(field) {
            Ok(field) => Ok(field.to_owned()),
            Err(_) => Err(at_line(path, Some(1), "it is not UTF-8")),
        })
        .collect()
}

/// The names of columns: one that another column before it has gets a number, one that is empty
/// is called after its place.
fn names(header: Vec<String>) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(header.len());
    for (place, name) in header.into_iter().enumerate() {
        let name = match name.is_empty() {
            true => format!("column_{}", place + 1),
            false => name,
        };
        let others = (1..).map(|n| format!("{name}_{n}"));
        let name = std::iter::once(name.clone())
            .chain(others)
            .find(|name| !taken.contains(name))
            .unwrap_or(name);
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes;

    /// Every part begins at a record, whatever is between them: parsing parts gives what parsing
    /// the file gives.
    #[tokio::test]
    async fn parts_begin_at_records() {
        let records = [
            "1,\"a\nb\",x\n",
            "2,\"c\"\"\nd\",5\" pipe\n",
            "3,e,\"f,\n\"\r\n",
            "4,\"\",\"\"\n",
            "\n",
            "5,\"g\"h\"\n",
        ];
        let escaped = ["6,\"i\\\"\nj\",k\n", "7,\"l\\\\\",m\n"];
        let folder = tempfile::tempdir().unwrap();
        for (name, escape) in [("plain.csv", None), ("escaped.csv", Some(b'\\'))] {
            let path = folder.path().join(name);
            let mut text = "\u{feff}\"i\nd\",s,t\n".to_owned();
            let mut number = 1usize;
            while text.len() < 4 * PART as usize {
                // Any order, so that edges of buffers come at any place of a record.
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let which = number >> 40;
                text.push_str(match escape {
                    Some(_) if which.is_multiple_of(3) => escaped[which % escaped.len()],
                    _ => records[which % records.len()],
                });
            }
            std::fs::write(&path, &text).unwrap();
            let dialect = CsvDialect {
                escape,
                ..CsvDialect::default()
            };
            let (dialect, parts) = passes::run(2, move |pass| {
                let starts = record_starts(&path, &dialect, pass)?;
                assert!(starts.len() >= 2, "{starts:?}");
                let parts = ranges(&starts, std::fs::metadata(&path).unwrap().len());
                let parts = parts.iter().map(|part| {
                    let mut text = Vec::new();
                    open_part(&path, part)?.read_to_end(&mut text).unwrap();
                    Ok(text)
                });
                Ok((dialect, parts.collect::<Result<Vec<_>, FilesError>>()?))
            })
            .await
            .unwrap();
            let read = |text: &[u8]| -> Vec<csv::ByteRecord> {
                let records = dialect.records(Path::new(name), text);
                records.into_byte_records().map(Result::unwrap).collect()
            };
            let together: Vec<_> = parts.iter().flat_map(|part| read(part)).collect();
            assert!(together == read(text.as_bytes()), "{name}");
        }
    }
}
