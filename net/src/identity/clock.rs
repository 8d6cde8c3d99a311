//! The time that certificates and tokens are judged by.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Where the time comes from.
pub trait Clock: Debug + Send + Sync {
    /// The time of day.
    fn now(&self) -> SystemTime;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A clock as rustls asks it.
#[derive(Debug)]
pub(crate) struct TlsClock(pub(crate) Arc<dyn Clock>);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.now().duration_since(UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}

/// Seconds since 1970; 0 before that.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
