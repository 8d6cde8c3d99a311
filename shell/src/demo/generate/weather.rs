//! `zip,date,snowfall`; one station's clock has lost month and day, so that all it measured in
//! thirty years is dated 1 January.

use std::io;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::write_file;

/// The paper's weather records at a hundredth of a cluster's size.
pub const DEFAULT_ROWS: u64 = 2_100_000;
/// The station with the broken clock, in Anchorage.
pub const HOT_ZIP: &str = "99501";
/// Share of all measurements that come from it.
const HOT_SHARE: f64 = 0.7;
/// Years of measurements, from 1988.
const YEARS: u32 = 30;

/// First three digits of ZIP codes, the state they lie in, and inches of snow on a winter day.
pub const STATES: [(u32, &str, f64); 20] = [
    (995, "AK", 6.0),
    (852, "AZ", 0.1),
    (945, "CA", 0.2),
    (802, "CO", 4.0),
    (323, "FL", 0.0),
    (303, "GA", 0.1),
    (606, "IL", 2.5),
    (463, "IN", 2.0),
    (21, "MA", 3.5),
    (212, "MD", 1.5),
    (486, "MI", 4.0),
    (554, "MN", 4.5),
    (595, "MT", 4.0),
    (585, "ND", 4.0),
    (100, "NY", 3.0),
    (441, "OH", 2.5),
    (191, "PA", 2.0),
    (752, "TX", 0.1),
    (841, "UT", 3.5),
    (981, "WA", 1.0),
];

/// The state in which a ZIP code lies, if it is one of [`STATES`].
pub fn state_of(zip: &str) -> Option<&'static str> {
    let prefix: u32 = zip.get(..3)?.parse().ok()?;
    let found = STATES.iter().find(|(digits, ..)| *digits == prefix);
    found.map(|(_, state, _)| *state)
}

/// Writes `rows` measurements; returns the file's bytes.
pub fn generate(path: &Path, rows: u64, seed: u64) -> io::Result<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    write_file(path, |out| {
        writeln!(out, "zip,date,snowfall")?;
        for _ in 0..rows {
            let year = 1988 + rng.random_range(0..YEARS);
            if rng.random_bool(HOT_SHARE) {
                let inches = rng.random_range(0.0..12.0);
                writeln!(out, "{HOT_ZIP},01/01/{year},{inches:.1}")?;
                continue;
            }
            let (prefix, _, snow) = STATES[rng.random_range(0..STATES.len())];
            // Not 01: that is where the hot station is.
            let zip = prefix * 100 + rng.random_range(2..100);
            let (month, day) = (rng.random_range(1..=12), rng.random_range(1..=28));
            let winter = if (4..=10).contains(&month) { 0.05 } else { 1.0 };
            let inches = snow * winter * rng.random_range(0.0..2.0);
            writeln!(out, "{zip:05},{month:02}/{day:02}/{year},{inches:.1}")?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn one_key_has_most_of_the_records() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weather.csv");
        generate(&path, 5_000, 1).unwrap();
        let mut keys: HashMap<(&str, String), u32> = HashMap::new();
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let state = state_of(fields[0]).expect("every ZIP code has its state");
            *keys.entry((state, fields[1][..5].to_owned())).or_default() += 1;
        }
        let (key, count) = keys.iter().max_by_key(|(_, count)| **count).unwrap();
        assert_eq!(*key, ("AK", "01/01".to_owned()));
        assert!((3_300..3_700).contains(count), "{count}");
    }
}
