//! Passes over whole files, before they are read, to learn what is in them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::FilesError;

/// A part of a file that one thread reads has at least so many bytes.
pub(crate) const PART: u64 = 4 << 20;

/// How a pass is run.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    cancelled: Arc<AtomicBool>,
    threads: usize,
}

/// Ends a pass when the statement ends that waits for it.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a pass beside the threads that run queries.
///
/// # Errors
/// Those of the pass.
pub(crate) async fn run<T: Send + 'static>(
    threads: usize,
    pass: impl FnOnce(&Pass) -> Result<T, FilesError> + Send + 'static,
) -> Result<T, FilesError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _guard = CancelOnDrop(Arc::clone(&cancelled));
    let how = Pass { cancelled, threads };
    match tokio::task::spawn_blocking(move || pass(&how)).await {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Err(FilesError::Cancelled),
        Err(error) => Err(FilesError::Internal(error.to_string())),
    }
}

impl Pass {
    /// # Errors
    /// [`FilesError::Cancelled`] if nobody waits any more.
    pub(crate) fn go_on(&self) -> Result<(), FilesError> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(FilesError::Cancelled),
            false => Ok(()),
        }
    }

    /// The results of `work` for each part, in their order, by several threads.
    ///
    /// # Errors
    /// Of the parts that failed the first one's.
    pub(crate) fn parts<T: Send>(
        &self,
        parts: &[Range<u64>],
        work: impl Fn(usize, Range<u64>) -> Result<T, FilesError> + Sync,
    ) -> Result<Vec<T>, FilesError> {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(usize::MAX);
        let results = Mutex::new(Vec::with_capacity(parts.len()));
        let run = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(number) else {
                    return;
                };
                // A part before a failed one may fail as well, and says so then.
                if number > failed.load(Ordering::Relaxed) {
                    return;
                }
                let result = self.go_on().and_then(|()| work(number, part.clone()));
                if result.is_err() {
                    failed.fetch_min(number, Ordering::Relaxed);
                }
                results.lock().push((number, result));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(parts.len()) {
                scope.spawn(run);
            }
            run();
        });
        let mut results = results.into_inner();
        results.sort_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// The parts of a file of `size` bytes that begin at 0 and at `starts`.
pub(crate) fn ranges(starts: &[u64], size: u64) -> Vec<Range<u64>> {
    let begins = std::iter::once(0).chain(starts.iter().copied());
    let ends = starts.iter().copied().chain([size]);
    begins.zip(ends).map(|(begin, end)| begin..end).collect()
}

/// A part of a file, from its beginning.
pub(crate) fn open_part(path: &Path, part: &Range<u64>) -> Result<io::Take<File>, FilesError> {
    let open = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(part.start))?;
        Ok(file.take(part.end - part.start))
    };
    open().map_err(|error| failed(path, error))
}

/// On which line of a file a byte is, from 1.
pub(crate) fn line_at(path: &Path, offset: u64) -> u64 {
    let Ok(mut part) = open_part(path, &(0..offset)) else {
        return 1;
    };
    let mut buffer = vec![0; 256 << 10];
    let mut line = 1;
    while let Ok(read @ 1..) = part.read(&mut buffer) {
        line += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
    }
    line
}

pub(crate) fn failed(path: &Path, error: io::Error) -> FilesError {
    FilesError::Io {
        path: path.to_owned(),
        error,
    }
}

pub(crate) fn at_line(path: &Path, line: Option<u64>, message: impl Into<String>) -> FilesError {
    FilesError::File {
        path: path.display().to_string(),
        line,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{CsvDialect, csv_file, json_file};

    #[tokio::test]
    async fn a_pass_ends_when_nobody_waits_for_it() {
        let (ended, has_ended) = std::sync::mpsc::channel();
        let pass = run(1, move |pass| {
            while pass.go_on().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = ended.send(());
            Ok(())
        });
        assert!(
            tokio::time::timeout(Duration::from_millis(5), pass)
                .await
                .is_err()
        );
        has_ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn passes_over_files_can_be_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "{}\n".repeat(2 << 20)).unwrap();
        let how = |cancelled| Pass {
            cancelled: Arc::new(AtomicBool::new(cancelled)),
            threads: 2,
        };
        let dialect = CsvDialect::default();
        let starts = csv_file::record_starts(&path, &dialect, &how(false)).unwrap();
        assert_eq!(
            starts,
            json_file::record_starts(&path, &how(false)).unwrap()
        );
        assert_eq!(starts.len(), 1);
        let cancelled = how(true);
        let is_cancelled = |error: Option<FilesError>| matches!(error, Some(FilesError::Cancelled));
        assert!(is_cancelled(
            csv_file::record_starts(&path, &dialect, &cancelled).err()
        ));
        assert!(is_cancelled(
            csv_file::shape(&path, &dialect, &starts, &cancelled).err()
        ));
        assert!(is_cancelled(
            json_file::record_starts(&path, &cancelled).err()
        ));
        assert!(is_cancelled(
            json_file::keys(&path, false, &starts, &cancelled).err()
        ));
    }

    #[test]
    fn the_first_part_that_fails_says_why() {
        let how = Pass {
            cancelled: Arc::default(),
            threads: 4,
        };
        let parts: Vec<_> = (0..100).map(|n| n..n + 1).collect();
        let doubled = how.parts(&parts, |number, part| Ok(number as u64 + part.start));
        assert_eq!(
            doubled.unwrap(),
            (0..100).map(|n| 2 * n).collect::<Vec<_>>()
        );
        let failed = how.parts(&parts, |number, _| match number {
            7.. => Err(at_line(Path::new(""), None, number.to_string())),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "7");
    }
}
