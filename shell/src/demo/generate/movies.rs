//! `movie:uid_rating,uid_rating,…`, a line per movie; one movie has most of all ratings.

use std::io::{self, Write};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::write_file;

/// PerfDebug's input has 2,103 lines in 98 MB.
pub const DEFAULT_LINES: u64 = 2_103;
/// With these means, [`DEFAULT_LINES`] lines are 98 MB.
const MEAN_RATINGS: u64 = 1_860;
/// The hot movie has this many times the ratings of all the others together.
const HOT_FACTOR: f64 = 1.5;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovieFile {
    /// Size of the file.
    pub bytes: u64,
    /// The number of the movie with most of the ratings.
    pub hot_movie: u64,
}

/// Writes `lines` movies.
pub fn generate(path: &Path, lines: u64, seed: u64) -> io::Result<MovieFile> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Neither among the first nor among the last, where one would look by chance.
    let hot_line = rng.random_range(lines / 4..lines - lines / 4);
    let mut hot_movie = 0;
    let bytes = write_file(path, |out| {
        let mut movie = 0;
        for line in 0..lines {
            movie += rng.random_range(1..20);
            let ratings = if line == hot_line {
                hot_movie = movie;
                (HOT_FACTOR * (MEAN_RATINGS * lines) as f64) as u64
            } else {
                rng.random_range(MEAN_RATINGS / 4..=MEAN_RATINGS * 7 / 4)
            };
            write_movie(out, movie, ratings, &mut rng)?;
        }
        Ok(())
    })?;
    Ok(MovieFile { bytes, hot_movie })
}

fn write_movie(
    out: &mut dyn Write,
    movie: u64,
    ratings: u64,
    rng: &mut ChaCha8Rng,
) -> io::Result<()> {
    write!(out, "{movie}")?;
    for i in 0..ratings {
        let separator = if i == 0 { ':' } else { ',' };
        let user = rng.random_range(1_000_000..3_000_000);
        // Two thirds of people give three stars or more.
        let stars = 1 + rng.random_range(0..5).max(rng.random_range(0..4));
        write!(out, "{separator}{user}_{stars}")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_longer_than_all_others_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("movies.txt");
        let file = generate(&path, 30, 1).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.len() as u64, file.bytes);
        assert_eq!(text.lines().count(), 30);
        let longest = text.lines().max_by_key(|line| line.len()).unwrap();
        assert!(longest.starts_with(&format!("{}:", file.hot_movie)));
        assert!(longest.len() * 2 > text.len());
        for entry in longest.split_once(':').unwrap().1.split(',') {
            let (user, stars) = entry.split_once('_').unwrap();
            assert!(user.parse::<u64>().is_ok() && (1..=5).contains(&stars.parse().unwrap()));
        }
    }
}
