//! `id|text`, a line per document; a few documents are machine output that somebody pasted.

use std::io::{self, Write};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::write_file;

/// With these, the file has 26 MB.
pub const DEFAULT_DOCUMENTS: u64 = 10_000;
/// One document of so many is an outlier.
const DOCUMENTS_PER_OUTLIER: u64 = 2_000;
/// There are at least so many outliers.
const LEAST_OUTLIERS: u64 = 3;
/// Words of an outlier. Other documents have at most [`MOST_WORDS`].
const OUTLIER_WORDS: u64 = 300_000;
/// The median of words.
const MEDIAN_WORDS: f64 = 240.0;
/// The most words of a document that is no outlier.
const MOST_WORDS: f64 = 3_000.0;
/// Words of the language.
const VOCABULARY: usize = 4_000;
/// What words are made of.
const SYLLABLES: [&str; 16] = [
    "an", "be", "co", "de", "er", "fo", "ga", "hi", "in", "ka", "lo", "mi", "no", "or", "re", "ta",
];

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentFile {
    /// Size of the file.
    pub bytes: u64,
    /// The ids of the outliers, ascending.
    pub outliers: Vec<u64>,
}

/// Writes `documents` documents with the ids 1, 2, ….
pub fn generate(path: &Path, documents: u64, seed: u64) -> io::Result<DocumentFile> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let words: Vec<String> = (0..VOCABULARY).map(word).collect();
    let outliers = outliers(documents, &mut rng);
    let bytes = write_file(path, |out| {
        for id in 1..=documents {
            write!(out, "{id}|")?;
            match outliers.binary_search(&id) {
                Ok(_) => write_output(out, &mut rng)?,
                Err(_) => write_prose(out, &words, &mut rng)?,
            }
            writeln!(out)?;
        }
        Ok(())
    })?;
    Ok(DocumentFile { bytes, outliers })
}

/// The ids of the outliers, each in a part of its own of all ids.
fn outliers(documents: u64, rng: &mut ChaCha8Rng) -> Vec<u64> {
    let many = (documents / DOCUMENTS_PER_OUTLIER).max(LEAST_OUTLIERS);
    let part = documents / many;
    let ids = (0..many).map(|place| place * part + rng.random_range(1..=part));
    ids.collect()
}

/// Word `number` of the language.
fn word(number: usize) -> String {
    let mut word = String::new();
    let mut rest = number + SYLLABLES.len();
    while rest > 0 {
        word.push_str(SYLLABLES[rest % SYLLABLES.len()]);
        rest /= SYLLABLES.len();
    }
    word
}

/// Sentences. The number of words has a log-normal distribution, as lengths of texts have.
fn write_prose(out: &mut dyn Write, words: &[String], rng: &mut ChaCha8Rng) -> io::Result<()> {
    // The sum of twelve uniform numbers minus six is nearly normal.
    let normal = (0..12).map(|_| rng.random_range(0.0..1.0_f64)).sum::<f64>() - 6.0;
    let length = (MEDIAN_WORDS * (0.7 * normal).exp()).clamp(8.0, MOST_WORDS) as u64;
    for place in 0..length {
        // A small number is likelier, as a frequent word is.
        let rank = rng.random_range(0.0..1.0_f64).powi(3) * words.len() as f64;
        let word = &words[rank as usize % words.len()];
        let separator = match place {
            0 => "",
            _ if rng.random_range(0..12) == 0 => ". ",
            _ => " ",
        };
        write!(out, "{separator}{word}")?;
    }
    Ok(())
}

/// A dump of numbers: every word occurs once.
fn write_output(out: &mut dyn Write, rng: &mut ChaCha8Rng) -> io::Result<()> {
    for place in 0..OUTLIER_WORDS {
        let separator = if place == 0 { "" } else { " " };
        write!(out, "{separator}0x{:08x}", rng.random_range(0..u32::MAX))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_are_longer_than_all_other_documents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("documents.txt");
        let file = generate(&path, 60, 1).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.len() as u64, file.bytes);
        let lines: Vec<_> = text.lines().map(|line| line.split_once('|')).collect();
        assert_eq!(lines.len(), 60);
        for (number, line) in lines.into_iter().enumerate() {
            let (id, text) = line.unwrap();
            let id: u64 = id.parse().unwrap();
            assert_eq!(id, number as u64 + 1);
            let words = text.split(' ').count() as f64;
            assert_eq!(words > MOST_WORDS, file.outliers.contains(&id), "{id}");
        }
    }
}
