//! The allocator, and for how long it keeps memory that queries have freed.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// Queries allocate from many threads at once, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc's header: `libmimalloc-sys` names only some options.
const PURGE_DELAY: mi_option_t = 15;

/// Milliseconds. Somebody who types queries leaves pauses between them; mimalloc's second would
/// make the first query after each pause fault all of its memory in again.
const DELAY: std::ffi::c_long = 10_000;

/// Keeps freed memory for ten seconds before the system gets it back, unless the environment
/// variable `MIMALLOC_PURGE_DELAY` says otherwise. To be called before threads are started.
#[expect(unsafe_code, reason = "mimalloc has options only in its C interface")]
pub fn keep_freed_memory() {
    // SAFETY: the function stores a number in a table of mimalloc's, which checks the index. It
    // is not synchronised, and no other thread runs yet. What was set by the environment stays.
    unsafe { mi_option_set_default(PURGE_DELAY, DELAY) };
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
        keep_freed_memory();
        match std::env::var_os("MIMALLOC_PURGE_DELAY") {
            // mimalloc's default: the option is the one it should be.
            None => assert_eq!((before, delay()), (1_000, DELAY)),
            Some(_) => assert_eq!(delay(), before),
        }
    }
}
