//! The allocator, in what pages it has memory, and for how long it keeps what queries have freed.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// Queries allocate from many threads at once, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc's header: `libmimalloc-sys` names only some options.
const PURGE_DELAY: mi_option_t = 15;

/// For how long freed memory is kept before the system gets it back, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeDelay(std::ffi::c_long);

impl PurgeDelay {
    /// Somebody who types queries leaves pauses between them; mimalloc's second would make the
    /// first query after each pause fault all of its memory in again.
    pub const INTERACTIVE: Self = Self(10_000);

    /// A worker's memory turns over many times a second while it sends rows. What it has freed is
    /// of use to the machine's other processes, and a slow consumer would let it keep as much
    /// again as it holds.
    pub const WORKER: Self = Self(10);

    /// Sets it for this process, unless the environment variable `MIMALLOC_PURGE_DELAY` does. To
    /// be called before threads are started.
    #[expect(unsafe_code, reason = "mimalloc has options only in its C interface")]
    pub fn set(self) {
        // SAFETY: the function stores a number in a table of mimalloc's, which checks the index.
        // It is not synchronised, and no other thread runs yet. What was set by the environment
        // stays.
        unsafe { mi_option_set_default(PURGE_DELAY, self.0) };
    }
}

/// Has the system give this process pages of 4 KiB only, unless the environment variable
/// `MIMALLOC_ALLOW_THP` says what mimalloc is to do. To be called before threads are started.
///
/// mimalloc asks for huge pages. One of 2 MiB is there as a whole if a byte of it is used: a worker
/// that sends rows, whose blocks come and go all over its memory, has a third less without them,
/// and is slower by what it takes to fault pages in.
pub fn small_pages() {
    #[cfg(target_os = "linux")]
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        const YES: libc::c_ulong = 1;
        const NONE: libc::c_ulong = 0;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: it takes numbers alone. Where the system cannot do it, all is as without it.
        let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, YES, NONE, NONE, NONE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "mimalloc has options only in its C interface")]
    fn the_delay_is_set() {
        // SAFETY: as above; no other test touches options.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        let before = delay();
        PurgeDelay::WORKER.set();
        match std::env::var_os("MIMALLOC_PURGE_DELAY") {
            // mimalloc's default: the option is the one it should be.
            None => assert_eq!((before, delay()), (1_000, PurgeDelay::WORKER.0)),
            Some(_) => assert_eq!(delay(), before),
        }
    }
}
