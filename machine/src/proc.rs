//! Files of `/proc`, parsed.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use procfs_core::{ExplicitSystemInfo, FromRead, FromReadSI};

/// Ticks of processor times in `/proc` per second: Linux has told programs 100, whatever the kernel uses
/// inside, for as long as the files have existed.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// Bytes of a page: of all 64-bit targets that Skewer is built for.
pub(crate) const PAGE_BYTES: u64 = 4096;

const SYSTEM: ExplicitSystemInfo = ExplicitSystemInfo {
    boot_time_secs: 0,
    ticks_per_second: TICKS_PER_SECOND,
    page_size: PAGE_BYTES,
    is_little_endian: cfg!(target_endian = "little"),
};

/// The content of a file; `None` if it cannot be read or understood.
pub(crate) fn read<T: FromRead>(path: impl AsRef<Path>) -> Option<T> {
    T::from_read(BufReader::new(File::open(path).ok()?)).ok()
}

/// The content of a file that counts in ticks.
pub(crate) fn read_ticks<T: FromReadSI>(path: impl AsRef<Path>) -> Option<T> {
    T::from_read(BufReader::new(File::open(path).ok()?), &SYSTEM).ok()
}
