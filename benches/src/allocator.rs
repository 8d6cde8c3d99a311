//! The allocator of the experiments, which gives nothing back to the system.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

use crate::ledger::Ledger;

/// The shell's, with a ledger.
#[global_allocator]
pub static ALLOCATOR: Ledger = Ledger::new();

/// `mi_option_purge_delay` of mimalloc's header: `libmimalloc-sys` names only some options.
const PURGE_DELAY: mi_option_t = 15;

/// Never purge.
const NEVER: std::ffi::c_long = -1;

/// Keeps freed memory, unless the environment variable `MIMALLOC_PURGE_DELAY` says otherwise:
/// page faults after a pause would hit every variant alike and drown their differences. To be
/// called before threads are started.
#[expect(unsafe_code, reason = "mimalloc has options only in its C interface")]
pub fn keep_freed_memory() {
    // SAFETY: the function stores a number in a table of mimalloc's, which checks the index. It
    // is not synchronised, and no other thread runs yet. What was set by the environment stays.
    unsafe { mi_option_set_default(PURGE_DELAY, NEVER) };
}
