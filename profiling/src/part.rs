//! A part of the persisted log: one segment per table, for the queries of one or more flushes.
//!
//! On disk a part is one file per table, `<sys>/<table>/<queries>.<flushes>.parquet`, both as
//! `first-last`. When parts are merged, the result names the flushes it contains: after a crash
//! in between, files whose flushes are contained in another file's are leftovers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::array::RecordBatch;

use crate::query_ids::QueryIds;
use crate::query_log::QueryLog;
use crate::segment::{Segment, SegmentError, Target};
use crate::segment_writer::QueryEnd;
use crate::tables::Table;

/// A part of the persisted log.
#[derive(Debug)]
pub(crate) struct Part {
    span: Span,
    newest: SystemTime,
    segments: BTreeMap<Table, Segment>,
}

/// Which queries and which flushes a part contains, each as first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    flushes: (u64, u64),
    queries: (i64, i64),
}

impl Span {
    fn file_name(&self) -> String {
        let ((q0, q1), (f0, f1)) = (self.queries, self.flushes);
        format!("{q0}-{q1}.{f0}-{f1}.parquet")
    }

    fn parse(file_name: &str) -> Option<Span> {
        let mut pieces = file_name.strip_suffix(".parquet")?.split('.');
        let (queries, flushes) = (pieces.next()?, pieces.next()?);
        let (q0, q1) = queries.split_once('-')?;
        let (f0, f1) = flushes.split_once('-')?;
        pieces.next().is_none().then_some(Span {
            queries: (q0.parse().ok()?, q1.parse().ok()?),
            flushes: (f0.parse().ok()?, f1.parse().ok()?),
        })
    }

    fn contains(&self, other: &Span) -> bool {
        self.flushes.0 <= other.flushes.0 && other.flushes.1 <= self.flushes.1
    }
}

/// The parts that an earlier process left, and what was wrong with them.
pub(crate) struct Found {
    /// From the oldest to the newest.
    pub(crate) parts: Vec<Arc<Part>>,
    pub(crate) warnings: Vec<String>,
    /// Number of the next flush.
    pub(crate) next_flush: u64,
}

impl Part {
    /// Lists the parts in a directory. Leftovers of interrupted writes are removed, whatever
    /// does not look like a segment is left alone.
    pub(crate) fn find(directory: &Path) -> Found {
        let mut warnings = Vec::new();
        let mut parts: BTreeMap<Span, Part> = BTreeMap::new();
        for table in Table::ALL {
            let mut spans: Vec<(Span, PathBuf, u64, SystemTime)> = Vec::new();
            for (path, bytes, modified) in files(&directory.join(table.name()), &mut warnings) {
                let name = path.file_name().and_then(|name| name.to_str());
                match name.map(|name| (Span::parse(name), name.ends_with(".tmp"))) {
                    Some((Some(span), _)) => spans.push((span, path, bytes, modified)),
                    Some((None, true)) => remove(&path, &mut warnings),
                    _ => {}
                }
            }
            // Of spans with the same first flush the widest comes first.
            spans.sort_by_key(|(span, ..)| (span.flushes.0, std::cmp::Reverse(span.flushes.1)));
            let mut widest: Option<Span> = None;
            for (span, path, bytes, modified) in spans {
                if widest.is_some_and(|widest| widest != span && widest.contains(&span)) {
                    remove(&path, &mut warnings);
                    continue;
                }
                widest = Some(span);
                let part = parts.entry(span).or_insert_with(|| Part {
                    span,
                    newest: modified,
                    segments: BTreeMap::new(),
                });
                part.newest = part.newest.max(modified);
                let segment = Segment::found(table, path, bytes);
                part.segments.insert(table, segment);
            }
        }
        let last = parts.keys().map(|span| span.flushes.1).max();
        Found {
            parts: parts.into_values().map(Arc::new).collect(),
            warnings,
            next_flush: last.map_or(0, |last| last + 1),
        }
    }

    /// Writes the logs of some queries, of which there must be at least one, as a new part:
    /// into a directory, or into memory.
    pub(crate) fn write(
        directory: Option<&Path>,
        flush: u64,
        logs: &[Arc<QueryLog>],
        now: SystemTime,
    ) -> Result<Part, SegmentError> {
        let mut logs = logs.to_vec();
        logs.sort_by_key(|log| log.query_id());
        let first = logs.first().map_or(0, |log| log.query_id());
        let last = logs.last().map_or(0, |log| log.query_id());
        let mut part = Part {
            span: Span {
                flushes: (flush, flush),
                queries: (first, last),
            },
            newest: now,
            segments: BTreeMap::new(),
        };
        match part.fill(directory, &logs) {
            Ok(()) => Ok(part),
            Err(error) => {
                part.doom();
                Err(error)
            }
        }
    }

    /// Writes rows of one query, as they are in files, as a new part.
    pub(crate) fn of_query(
        directory: Option<&Path>,
        flush: u64,
        query_id: i64,
        tables: Vec<(Table, Vec<RecordBatch>)>,
        now: SystemTime,
    ) -> Result<Part, SegmentError> {
        let mut part = Part {
            span: Span {
                flushes: (flush, flush),
                queries: (query_id, query_id),
            },
            newest: now,
            segments: BTreeMap::new(),
        };
        for (table, batches) in tables {
            let rows = batches.iter().map(RecordBatch::num_rows);
            if rows.sum::<usize>() == 0 {
                continue;
            }
            let batches = batches.into_iter().map(|batch| (batch, QueryEnd::Yes));
            if let Err(error) = part.add(directory, table, batches) {
                part.doom();
                return Err(error);
            }
        }
        Ok(part)
    }

    fn fill(
        &mut self,
        directory: Option<&Path>,
        logs: &[Arc<QueryLog>],
    ) -> Result<(), SegmentError> {
        let mut written = vec![0.0; logs.len()];
        // `profiler_overhead` is the last table: it says what the others took.
        for table in Table::ALL {
            let rows: Vec<usize> = logs.iter().map(|log| log.rows(table)).collect();
            let total: usize = rows.iter().sum();
            if total == 0 {
                continue;
            }
            if table == Table::ProfilerOverhead {
                for (log, bytes) in logs.iter().zip(&written) {
                    log.set_bytes_written(*bytes as i64);
                }
            }
            let stored = logs.iter().flat_map(|log| {
                let batches = log.stored_batches(table);
                (0..batches).map(move |batch| {
                    let end = if batch + 1 == batches {
                        QueryEnd::Yes
                    } else {
                        QueryEnd::No
                    };
                    (log.stored(table, batch), end)
                })
            });
            self.add(directory, table, stored)?;
            let bytes = self.segments.get(&table).map_or(0, Segment::bytes) as f64;
            for (written, rows) in written.iter_mut().zip(&rows) {
                *written += bytes * *rows as f64 / total as f64;
            }
        }
        Ok(())
    }

    /// Writes the rows of several parts, from the oldest to the newest, as one; chunks are copied
    /// as they are. What cannot be read is left out and reported to `warn`.
    pub(crate) fn merge(
        directory: Option<&Path>,
        parts: &[Arc<Part>],
        warn: &dyn Fn(&SegmentError),
    ) -> Result<Part, SegmentError> {
        let mut merged = Part {
            span: Span {
                flushes: (
                    parts
                        .iter()
                        .map(|part| part.span.flushes.0)
                        .min()
                        .unwrap_or(0),
                    parts
                        .iter()
                        .map(|part| part.span.flushes.1)
                        .max()
                        .unwrap_or(0),
                ),
                queries: (
                    parts
                        .iter()
                        .map(|part| part.span.queries.0)
                        .min()
                        .unwrap_or(0),
                    parts
                        .iter()
                        .map(|part| part.span.queries.1)
                        .max()
                        .unwrap_or(0),
                ),
            },
            newest: parts
                .iter()
                .map(|part| part.newest)
                .max()
                .unwrap_or(SystemTime::UNIX_EPOCH),
            segments: BTreeMap::new(),
        };
        for table in Table::ALL {
            let mut batches = parts
                .iter()
                .filter_map(|part| part.segments.get(&table))
                .flat_map(|segment| {
                    let groups = segment.row_groups(&QueryIds::ALL).inspect_err(warn);
                    groups
                        .unwrap_or_default()
                        .into_iter()
                        .flat_map(|(group, _)| {
                            let stored = segment.read_stored(group, None).inspect_err(warn);
                            stored.into_iter().flatten()
                        })
                })
                .filter_map(|batch| batch.inspect_err(warn).ok())
                .map(|batch| (batch, QueryEnd::Yes))
                .peekable();
            if batches.peek().is_some()
                && let Err(error) = merged.add(directory, table, batches)
            {
                merged.doom();
                return Err(error);
            }
        }
        Ok(merged)
    }

    fn add(
        &mut self,
        directory: Option<&Path>,
        table: Table,
        batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
    ) -> Result<(), SegmentError> {
        let segment = match directory {
            None => Segment::write(table, Target::Memory, batches)?,
            Some(directory) => {
                let directory = directory.join(table.name());
                std::fs::create_dir_all(&directory).map_err(|source| SegmentError::Io {
                    path: directory.clone(),
                    source,
                })?;
                let path = directory.join(self.span.file_name());
                Segment::write(table, Target::Disk(&path), batches)?
            }
        };
        self.segments.insert(table, segment);
        Ok(())
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(Segment::bytes).sum()
    }

    /// When the newest of its events was written.
    pub(crate) fn newest(&self) -> SystemTime {
        self.newest
    }

    /// The segment with rows of a table, if it may have rows of these queries.
    pub(crate) fn segment(&self, table: Table, ids: &QueryIds) -> Option<&Segment> {
        let (first, last) = self.span.queries;
        self.segments
            .get(&table)
            .filter(|_| ids.overlaps(first, last))
    }

    /// Removes the files as soon as nobody reads them.
    pub(crate) fn doom(&self) {
        self.segments.values().for_each(Segment::doom);
    }
}

/// The files of a directory with size and time of their last change; none if it is missing.
fn files(directory: &Path, warnings: &mut Vec<String>) -> Vec<(PathBuf, u64, SystemTime)> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warnings.push(format!("{}: {error}", directory.display()));
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.and_then(|entry| {
            let metadata = entry.metadata()?;
            Ok((entry.path(), metadata.len(), metadata.modified()?))
        });
        match file {
            Ok(file) => files.push(file),
            Err(error) => warnings.push(format!("{}: {error}", directory.display())),
        }
    }
    files
}

fn remove(path: &Path, warnings: &mut Vec<String>) {
    if let Err(error) = std::fs::remove_file(path) {
        warnings.push(format!("cannot remove {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_says_which_queries_and_flushes_it_has() {
        let span = Span {
            flushes: (3, 9),
            queries: (17, 4000),
        };
        assert_eq!(Span::parse(&span.file_name()), Some(span));
        for name in [
            "17-4000.3-9.tmp",
            "notes.txt",
            "1-2.parquet",
            "1-2.3-4.5.parquet",
        ] {
            assert_eq!(Span::parse(name), None, "{name}");
        }
    }
}
