//! How a query is recorded, as it travels to the workers that run its tasks.

use std::fmt;
use std::num::{ParseFloatError, ParseIntError};
use std::str::FromStr;
use std::sync::Arc;

use http::header::ToStrError;
use http::{HeaderMap, HeaderName, HeaderValue};
use skewer_profiling::{Level, LevelError, Recorder, RecorderLimits};

/// The header with which plans and requests for their rows travel.
static HEADER: HeaderName = HeaderName::from_static("skewer-profile");

/// The header with when the execution of the query began. Masters of older versions do not send it.
static BEGAN: HeaderName = HeaderName::from_static("skewer-began");

/// How a query is recorded: all that a worker needs to know to record its part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryProfile {
    /// The query's number in schema `sys`.
    pub query_id: i64,
    /// How much is recorded.
    pub level: Level,
    /// Share of base records that are traced, 0 to 1.
    pub sample_rate: f64,
    /// What the events may take, on each worker.
    pub limits: RecorderLimits,
    /// When the execution of the query began, in nanoseconds since 1970 by the master's clock, if that is known.
    pub began_ns: Option<i64>,
}

/// Why a worker does not know how to record a query.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what is wrong with the header")]
pub enum ProfileError {
    #[error("a plan came without saying how to record it")]
    Missing,
    #[error("how to record a query is not text: {0}")]
    NoText(#[from] ToStrError),
    #[error("five values tell how to record a query, but this is '{0}'")]
    Values(String),
    #[error("how to record a query: {0}")]
    Integer(#[from] ParseIntError),
    #[error("how to record a query: {0}")]
    Float(#[from] ParseFloatError),
    #[error("a sample rate of {0} is not between 0 and 1")]
    SampleRate(f64),
    #[error("a share of {0} of the time is not above 0")]
    TimeShare(f64),
    #[error("how to record a query: {0}")]
    Level(#[from] LevelError),
}

/// Stands for no limit.
const UNLIMITED: &str = "-";

impl QueryProfile {
    /// How `recorder` records.
    pub fn of_recorder(recorder: &Recorder) -> Self {
        Self {
            query_id: recorder.query_id(),
            level: recorder.level(),
            sample_rate: recorder.sample_rate(),
            limits: recorder.limits(),
            began_ns: (recorder.level() > Level::Off).then(|| recorder.timeline_start().wall_ns()),
        }
    }

    /// The headers that say so.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        // Numbers and the name of a level are visible ASCII: there is nothing that could fail.
        if let Ok(value) = HeaderValue::from_str(&self.to_string()) {
            headers.insert(HEADER.clone(), value);
        }
        if let Some(began_ns) = self.began_ns {
            headers.insert(BEGAN.clone(), HeaderValue::from(began_ns));
        }
        headers
    }

    /// What the headers among `headers` say.
    ///
    /// # Errors
    /// If it is not there, or says what no peer of this version does.
    pub fn of_headers(headers: &HeaderMap) -> Result<Self, ProfileError> {
        let value = headers.get(&HEADER).ok_or(ProfileError::Missing)?;
        let profile: Self = value.to_str()?.parse()?;
        let began_ns = match headers.get(&BEGAN) {
            Some(began) => Some(began.to_str()?.parse()?),
            None => None,
        };
        Ok(Self {
            began_ns,
            ..profile
        })
    }

    /// A recorder for the part of the query that worker `worker_id` runs.
    pub fn recorder(&self, worker_id: i64) -> Arc<Recorder> {
        let recorder = Recorder::on_worker(
            worker_id,
            self.query_id,
            self.level,
            self.sample_rate,
            self.limits,
        );
        if let Some(began_ns) = self.began_ns {
            recorder.began_at(began_ns);
        }
        recorder
    }
}

/// Query, level, sample rate, bytes, of them those of records, and share of the time, with spaces
/// between them.
impl fmt::Display for QueryProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            query_id,
            level,
            sample_rate,
            limits,
            began_ns: _,
        } = self;
        let (bytes, spill) = (limits.memory_bytes, limits.spill_bytes);
        write!(f, "{query_id} {level} {sample_rate} {bytes} {spill} ")?;
        match limits.time_share {
            Some(share) => write!(f, "{share}"),
            None => f.write_str(UNLIMITED),
        }
    }
}

impl FromStr for QueryProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let values: Vec<&str> = text.split(' ').collect();
        let [
            query_id,
            level,
            sample_rate,
            memory_bytes,
            spill_bytes,
            time_share,
        ] = values[..]
        else {
            return Err(ProfileError::Values(text.to_owned()));
        };
        let sample_rate: f64 = sample_rate.parse()?;
        if !(0.0..=1.0).contains(&sample_rate) {
            return Err(ProfileError::SampleRate(sample_rate));
        }
        let time_share: Option<f64> = match time_share {
            UNLIMITED => None,
            share => Some(share.parse()?),
        };
        if let Some(share) = time_share.filter(|share| share.is_nan() || *share <= 0.0) {
            return Err(ProfileError::TimeShare(share));
        }
        Ok(Self {
            query_id: query_id.parse()?,
            level: level.parse()?,
            sample_rate,
            limits: RecorderLimits {
                memory_bytes: memory_bytes.parse()?,
                spill_bytes: spill_bytes.parse()?,
                time_share,
            },
            began_ns: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_header_says_is_what_was_meant() {
        for (level, sample_rate) in [
            (Level::Off, 1.0),
            (Level::Counters, 0.0),
            (Level::Calls, 0.1 + 0.2),
            (Level::Records, f64::MIN_POSITIVE),
        ] {
            let profile = QueryProfile {
                query_id: i64::MAX,
                level,
                sample_rate,
                limits: RecorderLimits {
                    memory_bytes: usize::MAX,
                    spill_bytes: 64 << 20,
                    time_share: (sample_rate < 1.0).then_some(0.05),
                },
                began_ns: (level > Level::Off).then_some(1_700_000_000_000_000_000),
            };
            let read = QueryProfile::of_headers(&profile.headers()).unwrap();
            assert_eq!(read, profile);
        }
    }

    #[test]
    fn what_is_not_said_or_makes_no_sense_is_an_error() {
        let missing = QueryProfile::of_headers(&HeaderMap::new());
        assert!(matches!(missing, Err(ProfileError::Missing)));
        for text in [
            "",
            "7 records 1 9 9",
            "7 records 1 9 9 - 9",
            "seven records 1 9 9 -",
            "7 everything 1 9 9 -",
            "7 records 1.5 9 9 -",
            "7 records NaN 9 9 -",
            "7 records 1 -9 9 -",
            "7 records 1 9 9 0",
            "7 records 1 9 9 NaN",
        ] {
            assert!(text.parse::<QueryProfile>().is_err(), "{text}");
        }
    }
}
