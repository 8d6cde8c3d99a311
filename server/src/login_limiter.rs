//! How often an address may fail to log in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many failures cost nothing: people mistype.
const FREE: u32 = 5;
/// How long the address waits after the next one. Each further failure doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// After so long without a failure an address begins anew.
const FORGOTTEN: Duration = Duration::from_secs(10 * 60);
/// So many addresses are kept; the one that failed longest ago goes first.
const ADDRESSES: usize = 10_000;

/// Counts failed logins by address, over all ports that share it.
#[derive(Debug, Default)]
pub struct LoginLimiter(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    fn wait(&self) -> Duration {
        match self.count.checked_sub(FREE) {
            None | Some(0) => Duration::ZERO,
            Some(more) => LONGEST_WAIT.min(FIRST_WAIT.saturating_mul(1 << (more - 1).min(16))),
        }
    }
}

impl LoginLimiter {
    /// Whether an address may try now.
    ///
    /// # Errors
    /// How long it has to wait.
    pub fn may_try(&self, address: IpAddr) -> Result<(), Duration> {
        self.may_try_at(address, Instant::now())
    }

    /// An attempt has failed.
    pub fn failed(&self, address: IpAddr) {
        self.failed_at(address, Instant::now());
    }

    /// An attempt has succeeded: the address begins anew.
    pub fn succeeded(&self, address: IpAddr) {
        self.0.lock().remove(&address);
    }

    fn may_try_at(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let Some(failures) = self.0.lock().get(&address).copied() else {
            return Ok(());
        };
        let passed = now.duration_since(failures.last);
        match failures.wait().checked_sub(passed) {
            Some(left) if !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    fn failed_at(&self, address: IpAddr, now: Instant) {
        let mut addresses = self.0.lock();
        addresses.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&address) {
            let oldest = addresses.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                addresses.remove(&oldest);
            }
        }
        let failures = addresses.entry(address).or_insert(Failures {
            count: 0,
            last: now,
        });
        failures.count += 1;
        failures.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_often_waits_longer_each_time() {
        let limiter = LoginLimiter::default();
        let (ada, eve) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let start = Instant::now();
        for _ in 0..FREE {
            assert_eq!(limiter.may_try_at(eve, start), Ok(()));
            limiter.failed_at(eve, start);
        }
        assert_eq!(limiter.may_try_at(eve, start), Ok(()));
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            limiter.failed_at(eve, start);
            assert_eq!(
                limiter.may_try_at(eve, start),
                Err(Duration::from_secs(wait))
            );
        }
        assert_eq!(limiter.may_try_at(ada, start), Ok(()));
        assert_eq!(limiter.may_try_at(eve, start + LONGEST_WAIT), Ok(()));
        limiter.succeeded(eve);
        limiter.failed_at(eve, start);
        assert_eq!(limiter.may_try_at(eve, start), Ok(()));
    }

    #[test]
    fn addresses_are_forgotten_and_never_too_many() {
        let limiter = LoginLimiter::default();
        let start = Instant::now();
        for number in 0..ADDRESSES as u32 + 10 {
            limiter.failed_at(IpAddr::from(number.to_be_bytes()), start);
        }
        assert_eq!(limiter.0.lock().len(), ADDRESSES);
        limiter.failed_at(IpAddr::from([1, 1, 1, 1]), start + FORGOTTEN);
        assert_eq!(limiter.0.lock().len(), 1);
    }
}
