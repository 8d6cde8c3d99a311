//! Hits of web sites, in the shape of ClickBench's table: generated, the same rows on every run.
//!
//! ClickBench (github.com/ClickHouse/ClickBench) has 105 columns, most of which no query reads. This table
//! has the columns that its queries read, under other names, and [`FILLERS`] more. Users, sites and addresses
//! follow a power law; one row in eight has a search phrase.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::error::ArrowError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::data::Batches;

/// The queries: 43, as ClickBench has. Each orders its rows in one way only.
pub const QUERIES: &str = include_str!("hits.sql");

/// Rows at scale factor 1.
const ROWS: f64 = 1_000_000.0;

/// Rows of a generated batch.
const BATCH: usize = 8192;

/// The seed of the generator.
const SEED: u64 = 43;

/// Columns of small numbers that no query names.
const FILLERS: usize = 32;

/// Days since 1970 of 2026-07-01, the first day of the hits.
const FIRST_DAY: i32 = 20_635;

/// Days with hits.
const DAYS: i32 = 31;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Words of addresses, titles and phrases.
const WORDS: [&str; 48] = [
    "amber", "anchor", "autumn", "basket", "beacon", "bicycle", "blanket", "bridge", "candle",
    "canvas", "cedar", "compass", "copper", "cotton", "dolphin", "engine", "feather", "forest",
    "garden", "glacier", "hammer", "harbour", "island", "jacket", "kettle", "lantern", "lemon",
    "marble", "meadow", "mirror", "needle", "ocean", "orchard", "pepper", "pillow", "planet",
    "pocket", "ribbon", "river", "saddle", "shadow", "silver", "spring", "summit", "thunder",
    "timber", "velvet", "window",
];

const PHONES: [&str; 6] = ["iPhone", "Pixel", "Galaxy", "Nord", "Xperia", "Fold"];

const DOMAINS: [&str; 5] = ["com", "org", "net", "io", "example"];

/// The rows of the table `hits` at a scale factor: a million at 1.
pub fn hits(scale: f64) -> Batches {
    let rows = ((ROWS * scale) as usize).max(1);
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let starts = (0..rows).step_by(BATCH);
    Box::new(starts.map(move |start| {
        let mut columns = Columns::default();
        for row in start..rows.min(start + BATCH) {
            columns.push(Hit::new(&mut random, row, rows));
        }
        columns.into_batch(&mut random)
    }))
}

/// A number below `most`, small ones more often: `exponent` says how much.
fn skewed(random: &mut ChaCha8Rng, most: u64, exponent: i32) -> u64 {
    ((random.random::<f64>().powi(exponent) * most as f64) as u64).min(most - 1)
}

/// The same number for the same text or number in every run (FNV-1a).
fn hash(bytes: &[u8]) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // Remainders are to be of numbers that are not negative, whatever a system makes of others.
    (hash >> 1).cast_signed()
}

fn word(number: u64) -> &'static str {
    WORDS[number as usize % WORDS.len()]
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// One row.
struct Hit {
    watch: i64,
    user: i64,
    site: i32,
    address: i32,
    microseconds: i64,
    url: String,
    title: String,
    referer: String,
    phrase: String,
    phone_model: &'static str,
    /// Small numbers in the order of [`SMALL`].
    small: [i16; SMALL.len()],
}

/// Columns of small numbers.
const SMALL: [&str; 13] = [
    "region_id",
    "adv_engine_id",
    "search_engine_id",
    "traffic_source_id",
    "resolution_width",
    "resolution_height",
    "window_width",
    "window_height",
    "phone",
    "is_refresh",
    "is_link",
    "is_download",
    "does_not_count",
];

impl Hit {
    fn new(random: &mut ChaCha8Rng, row: usize, rows: usize) -> Self {
        let user = skewed(random, (rows as u64 / 6).max(10), 3);
        let site = skewed(random, (rows as u64 / 200).max(20), 4);
        // Hits come about in the order of time.
        let month = i64::from(DAYS) * DAY_SECONDS;
        let around = row as i64 * month / rows as i64;
        let seconds = (around + random.random_range(0..7_200)).min(month - 1);
        let page = skewed(random, 4_000, 2);
        let path = format!("{}/{}-{page}", word(site / 3 + page % 5), word(page));
        let host = format!(
            "{}{site}.{}",
            word(site * 7),
            DOMAINS[site as usize % DOMAINS.len()]
        );
        let url = match random.random_range(0..40_u32) {
            0 => String::new(),
            1..=4 => format!(
                "https://www.{host}/{path}?id={}",
                random.random_range(0..10_000_u32)
            ),
            _ => format!("https://{host}/{path}"),
        };
        let referer = match random.random_range(0..3_u32) {
            0 => String::new(),
            1 => format!("https://{host}/{}", word(page * 3)),
            _ => {
                let from = skewed(random, 2_000, 3);
                format!("http://www.{}{from}.com/find?q={}", word(from), word(page))
            }
        };
        let phrase = match random.random_range(0..8_u32) {
            0 => {
                let about = skewed(random, (rows as u64 / 20).max(50), 2);
                format!("{} {} {}", word(about), word(about / 48), about / 96)
            }
            _ => String::new(),
        };
        let phone = skewed(random, 7, 4) as usize;
        let widths = [1366, 1920, 1536, 1440, 2560, 360, 390, 412];
        let width = widths[skewed(random, 8, 2) as usize];
        let mut flag = |one_in: u32| i16::from(random.random_range(0..one_in) == 0);
        let flags = [flag(8), flag(12), flag(150), flag(10)];
        let small = [
            skewed(random, 5_000, 3) as i16,
            if random.random_range(0..25_u32) == 0 {
                1 + skewed(random, 18, 2) as i16
            } else {
                0
            },
            if phrase.is_empty() {
                0
            } else {
                1 + skewed(random, 30, 3) as i16
            },
            random.random_range(-1..=9),
            width,
            width / 16 * 9,
            width - random.random_range(0..60_i16),
            width / 16 * 9 - random.random_range(80..140_i16),
            phone as i16,
            flags[0],
            flags[1],
            flags[2],
            flags[3],
        ];
        Self {
            watch: hash(&row.to_le_bytes()),
            user: hash(&user.to_le_bytes()) >> 8,
            site: site as i32,
            address: (hash(&(user * 31 + page % 3).to_le_bytes()) >> 33) as i32,
            microseconds: (i64::from(FIRST_DAY) * DAY_SECONDS + seconds) * 1_000_000,
            title: format!(
                "{} {} – {}",
                capital(word(page)),
                word(site),
                capital(word(page * 5))
            ),
            url,
            referer,
            phrase,
            phone_model: phone.checked_sub(1).map_or("", |phone| PHONES[phone]),
            small,
        }
    }
}

/// The columns of a batch.
#[derive(Default)]
struct Columns {
    watch: Vec<i64>,
    user: Vec<i64>,
    site: Vec<i32>,
    address: Vec<i32>,
    microseconds: Vec<i64>,
    url: Vec<String>,
    title: Vec<String>,
    referer: Vec<String>,
    phrase: Vec<String>,
    phone_model: Vec<&'static str>,
    small: [Vec<i16>; SMALL.len()],
}

impl Columns {
    fn push(&mut self, hit: Hit) {
        self.watch.push(hit.watch);
        self.user.push(hit.user);
        self.site.push(hit.site);
        self.address.push(hit.address);
        self.microseconds.push(hit.microseconds);
        self.url.push(hit.url);
        self.title.push(hit.title);
        self.referer.push(hit.referer);
        self.phrase.push(hit.phrase);
        self.phone_model.push(hit.phone_model);
        for (column, value) in self.small.iter_mut().zip(hit.small) {
            column.push(value);
        }
    }

    fn into_batch(self, random: &mut ChaCha8Rng) -> Result<RecordBatch, ArrowError> {
        let rows = self.watch.len();
        let days = self
            .microseconds
            .iter()
            .map(|time| (time / 1_000_000 / DAY_SECONDS) as i32);
        let hashes = |texts: &[String]| -> ArrayRef {
            let hashes = texts.iter().map(|text| hash(text.as_bytes()));
            Arc::new(Int64Array::from_iter_values(hashes))
        };
        let texts =
            |texts: Vec<String>| -> ArrayRef { Arc::new(StringViewArray::from_iter_values(texts)) };
        let mut columns: Vec<(String, ArrayRef)> = vec![
            (
                "event_date".to_owned(),
                Arc::new(Date32Array::from_iter_values(days)),
            ),
            ("url_hash".to_owned(), hashes(&self.url)),
            ("referer_hash".to_owned(), hashes(&self.referer)),
            (
                "watch_id".to_owned(),
                Arc::new(Int64Array::from(self.watch)),
            ),
            ("user_id".to_owned(), Arc::new(Int64Array::from(self.user))),
            (
                "counter_id".to_owned(),
                Arc::new(Int32Array::from(self.site)),
            ),
            (
                "client_ip".to_owned(),
                Arc::new(Int32Array::from(self.address)),
            ),
            (
                "event_time".to_owned(),
                Arc::new(TimestampMicrosecondArray::from(self.microseconds)),
            ),
            ("url".to_owned(), texts(self.url)),
            ("title".to_owned(), texts(self.title)),
            ("referer".to_owned(), texts(self.referer)),
            ("search_phrase".to_owned(), texts(self.phrase)),
            (
                "phone_model".to_owned(),
                Arc::new(StringViewArray::from_iter_values(self.phone_model)),
            ),
        ];
        for (name, values) in SMALL.iter().zip(self.small) {
            columns.push(((*name).to_owned(), Arc::new(Int16Array::from(values))));
        }
        for filler in 0..FILLERS {
            let most = 1 << (1 + filler % 14);
            let values = (0..rows).map(|_| random.random_range(0..most));
            let values = Int16Array::from_iter_values(values.collect::<Vec<i16>>());
            columns.push((format!("parameter_{filler}"), Arc::new(values)));
        }
        RecordBatch::try_from_iter(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_queries_as_clickbench_has() {
        assert_eq!(skewer::split(QUERIES).len(), 43);
    }

    #[test]
    fn every_run_generates_the_same_rows() {
        let rows = || -> Vec<_> { hits(0.01).map(Result::unwrap).collect() };
        let one = rows();
        assert_eq!(one, rows());
        assert_eq!(one.iter().map(RecordBatch::num_rows).sum::<usize>(), 10_000);
        assert_eq!(one[0].num_columns(), 13 + SMALL.len() + FILLERS);
    }
}
