//! How long recorded events are kept.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// How long recorded events are kept: until they are too many bytes or too old, whichever
/// comes first. The oldest go first, and of a query either everything is kept or nothing, but for one
/// that was written while it ran: what it recorded first may go first. In a cluster every process
/// keeps so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Bytes that all tables of schema `sys` may take together (`profile.retention_bytes`).
    pub bytes: u64,
    /// Age after which events are removed (`profile.retention_age`).
    pub age: Duration,
}

impl Default for Retention {
    /// 1 GiB and 7 days.
    fn default() -> Self {
        Retention {
            bytes: 1 << 30,
            age: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

impl Retention {
    /// How many of the parts of the log, of which `parts` gives (bytes, time of the newest
    /// event) from the oldest to the newest, are to be removed from the front.
    ///
    /// The newest part stays even if it alone is too large: somebody just asked for it.
    pub(crate) fn expired(&self, parts: &[(u64, SystemTime)], now: SystemTime) -> usize {
        let mut total: u64 = parts.iter().map(|(bytes, _)| bytes).sum();
        let mut expired = 0;
        for (index, (bytes, newest)) in parts.iter().enumerate() {
            let age = now.duration_since(*newest).unwrap_or(Duration::ZERO);
            let too_many = total > self.bytes && index + 1 < parts.len();
            if age <= self.age && !too_many {
                break;
            }
            total -= bytes;
            expired += 1;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(bytes: u64, seconds: u64) -> Retention {
        Retention {
            bytes,
            age: Duration::from_secs(seconds),
        }
    }

    fn time_at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_oldest_parts_go_until_the_rest_fits() {
        let parts = [(40, time_at(10)), (40, time_at(20)), (40, time_at(30))];
        assert_eq!(retention(120, 1000).expired(&parts, time_at(40)), 0);
        assert_eq!(retention(119, 1000).expired(&parts, time_at(40)), 1);
        assert_eq!(retention(40, 1000).expired(&parts, time_at(40)), 2);
    }

    #[test]
    fn old_parts_go_however_small() {
        let parts = [(1, time_at(10)), (1, time_at(20)), (1, time_at(30))];
        assert_eq!(retention(1000, 15).expired(&parts, time_at(36)), 2);
        assert_eq!(retention(1000, 15).expired(&parts, time_at(99)), 3);
    }

    #[test]
    fn the_newest_part_stays_however_large() {
        assert_eq!(
            retention(10, 1000).expired(&[(99, time_at(10))], time_at(20)),
            0
        );
        assert_eq!(
            retention(10, 1000).expired(&[(5, time_at(9)), (99, time_at(10))], time_at(20)),
            1
        );
    }

    #[test]
    fn a_clock_that_was_set_back_removes_nothing() {
        assert_eq!(
            retention(10, 15).expired(&[(1, time_at(100))], time_at(20)),
            0
        );
    }
}
