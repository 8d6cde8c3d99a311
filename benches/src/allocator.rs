//! The allocator of the experiments, and for how long it keeps memory that is free.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

use crate::ledger::Ledger;

/// The shell's, with a ledger.
#[global_allocator]
pub static ALLOCATOR: Ledger = Ledger::new();

/// `mi_option_purge_delay` of mimalloc's header: `libmimalloc-sys` names only some options.
const PURGE_DELAY: mi_option_t = 15;

/// Never purge.
const NEVER: std::ffi::c_long = -1;

/// Milliseconds after which the product's shell gives freed memory back.
const SHELL: std::ffi::c_long = 10_000;

/// Milliseconds after which the product's workers give freed memory back.
const WORKER: std::ffi::c_long = 10;

/// Keeps freed memory, unless the environment variable `MIMALLOC_PURGE_DELAY` says otherwise:
/// page faults after a pause would hit every variant alike and drown their differences. To be
/// called before threads are started.
pub fn keep_freed_memory() {
    set_purge_delay(NEVER);
}

/// Gives freed memory back as soon as the product's shell does, unless the environment variable
/// `MIMALLOC_PURGE_DELAY` says otherwise. To be called before threads are started.
pub fn give_back_as_the_shell_does() {
    set_purge_delay(SHELL);
}

/// Gives freed memory back as soon as the product's workers do, and has small pages as they have,
/// unless the environment variables `MIMALLOC_PURGE_DELAY` and `MIMALLOC_ALLOW_THP` say otherwise.
/// To be called before threads are started.
pub fn give_back_as_workers_do() {
    set_purge_delay(WORKER);
    #[cfg(target_os = "linux")]
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        const YES: libc::c_ulong = 1;
        const NONE: libc::c_ulong = 0;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: it takes numbers alone. Where the system cannot do it, all is as without it.
        let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, YES, NONE, NONE, NONE) };
    }
}

#[expect(unsafe_code, reason = "mimalloc has options only in its C interface")]
fn set_purge_delay(milliseconds: std::ffi::c_long) {
    // SAFETY: the function stores a number in a table of mimalloc's, which checks the index. It
    // is not synchronised, and no other thread runs yet. What was set by the environment stays.
    unsafe { mi_option_set_default(PURGE_DELAY, milliseconds) };
}
