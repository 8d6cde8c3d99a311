//! The case studies' input files, the same for the same seed and size.

pub mod documents;
pub mod movies;
pub mod taxi;
pub mod weather;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes buffered between writes: files are about 100 MB.
const BUFFER: usize = 1 << 20;

/// Creates `path` and hands a buffered writer to `write`; returns the file's bytes.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(BUFFER, File::create(path)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(seed: u64) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        movies::generate(&at("movies.txt"), 20, seed).unwrap();
        taxi::generate_trips(&at("trips.csv"), 100, seed).unwrap();
        taxi::generate_boroughs(&at("boroughs.csv"), seed).unwrap();
        weather::generate(&at("weather.csv"), 1000, seed).unwrap();
        documents::generate(&at("documents.txt"), 10, seed).unwrap();
        [
            "movies.txt",
            "trips.csv",
            "boroughs.csv",
            "weather.csv",
            "documents.txt",
        ]
        .iter()
        .map(|name| std::fs::read(at(name)).unwrap())
        .collect()
    }

    #[test]
    fn the_seed_decides_every_byte() {
        assert_eq!(files(7), files(7));
        assert_ne!(files(7), files(8));
    }
}
