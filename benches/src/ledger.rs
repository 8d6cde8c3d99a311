//! Where memory is: the allocator of the experiments, which can keep a ledger of large blocks.
//!
//! Off, it is mimalloc and one load of a flag. On, each block of [`LARGE`] bytes and more is noted
//! with the place in the program that asked for it, and [`Ledger::watch`] keeps what there was when
//! it was most.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement, and so is glibc's backtrace"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mimalloc::MiMalloc;

/// Smaller blocks are only counted: there are too many of them.
const LARGE: usize = 16 * 1024;

/// How far up the stack a place is told from others.
const DEPTH: usize = 24;

/// How many frames are printed of a place.
const SHOWN: usize = 12;

/// How often it is looked how much there is.
const LOOK: Duration = Duration::from_millis(100);

/// Blocks are noted in so many parts, each with a lock of its own.
const PARTS: usize = 16;

/// mimalloc, with a ledger.
#[derive(Debug)]
pub struct Ledger {
    is_on: AtomicBool,
    small: AtomicIsize,
    large: AtomicIsize,
    blocks: [Mutex<Option<HashMap<usize, Block>>>; PARTS],
    places: Mutex<Option<HashMap<[usize; DEPTH], Place>>>,
    most: Mutex<Option<Most>>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: usize,
    place: usize,
}

/// Who asked for memory.
#[derive(Debug)]
struct Place {
    number: usize,
    frames: Backtrace,
}

/// What there was when it was most.
#[derive(Debug, Default)]
struct Most {
    small: isize,
    large: isize,
    /// Bytes and blocks by place.
    places: HashMap<usize, (usize, usize)>,
}

thread_local! {
    /// Set while the ledger itself allocates.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    /// Of glibc: return addresses of the calls that are under way.
    fn backtrace(buffer: *mut usize, size: i32) -> i32;
}

impl Ledger {
    /// Off.
    pub const fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            small: AtomicIsize::new(0),
            large: AtomicIsize::new(0),
            blocks: [const { Mutex::new(None) }; PARTS],
            places: Mutex::new(None),
            most: Mutex::new(None),
        }
    }

    /// Begins to note, and to look how much there is.
    pub fn watch(&'static self) {
        self.is_on.store(true, Ordering::SeqCst);
        thread::spawn(move || {
            INSIDE.with(|inside| inside.set(true));
            loop {
                thread::sleep(LOOK);
                self.look();
            }
        });
    }

    /// Forgets what was most.
    pub fn forget(&self) {
        *lock(&self.most) = None;
    }

    fn look(&self) {
        let small = self.small.load(Ordering::Relaxed);
        let large = self.large.load(Ordering::Relaxed);
        let mut most = lock(&self.most);
        let known = most.as_ref().map_or(0, |most| most.small + most.large);
        if small + large <= known {
            return;
        }
        let mut now = Most {
            small,
            large,
            ..Most::default()
        };
        for part in &self.blocks {
            for block in lock(part).iter().flat_map(HashMap::values) {
                let (bytes, blocks) = now.places.entry(block.place).or_default();
                *bytes += block.bytes;
                *blocks += 1;
            }
        }
        *most = Some(now);
    }

    /// What there was when it was most: the `count` places with most memory.
    pub fn report(&self, count: usize) -> String {
        INSIDE.with(|inside| inside.set(true));
        let mut text = String::new();
        if let Some(most) = &*lock(&self.most) {
            let mega = |bytes: isize| bytes as f64 / 1e6;
            let _ = writeln!(
                text,
                "{:.1} MB in large blocks, {:.1} MB in small ones",
                mega(most.large),
                mega(most.small)
            );
            let mut places: Vec<_> = most.places.iter().collect();
            places.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
            let known = lock(&self.places);
            for (number, (bytes, blocks)) in places.into_iter().take(count) {
                let _ = writeln!(text, "{:.1} MB in {blocks} blocks", mega(*bytes as isize));
                let place = known.iter().flat_map(HashMap::values);
                for place in place.filter(|place| place.number == *number) {
                    for frame in shown(&place.frames) {
                        let _ = writeln!(text, "    {frame}");
                    }
                }
            }
        }
        INSIDE.with(|inside| inside.set(false));
        text
    }

    fn add(&self, block: *mut u8, bytes: usize) {
        if bytes < LARGE {
            self.small.fetch_add(bytes as isize, Ordering::Relaxed);
            return;
        }
        self.large.fetch_add(bytes as isize, Ordering::Relaxed);
        self.inside(|| {
            let mut frames = [0; DEPTH];
            // SAFETY: the buffer has room for as many addresses as are asked for.
            unsafe { backtrace(frames.as_mut_ptr(), DEPTH as i32) };
            let place = {
                let mut places = lock(&self.places);
                let places = places.get_or_insert_default();
                let number = places.len();
                let place = places.entry(frames).or_insert_with(|| Place {
                    number,
                    frames: Backtrace::force_capture(),
                });
                place.number
            };
            let mut part = lock(self.part(block));
            let noted = Block { bytes, place };
            part.get_or_insert_default().insert(block as usize, noted);
        });
    }

    fn remove(&self, block: *mut u8, bytes: usize) {
        if bytes < LARGE {
            self.small.fetch_sub(bytes as isize, Ordering::Relaxed);
            return;
        }
        self.large.fetch_sub(bytes as isize, Ordering::Relaxed);
        self.inside(|| {
            if let Some(part) = lock(self.part(block)).as_mut() {
                part.remove(&(block as usize));
            }
        });
    }

    fn part(&self, block: *mut u8) -> &Mutex<Option<HashMap<usize, Block>>> {
        &self.blocks[(block as usize >> 12) % PARTS]
    }

    /// Does something that may allocate, which is not noted.
    fn inside(&self, does: impl FnOnce()) {
        // A thread that ends has no flag any more.
        let _ = INSIDE.try_with(|inside| {
            if !inside.replace(true) {
                does();
                inside.set(false);
            }
        });
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the functions of a stack, without those of the allocator and of the runtime.
fn shown(frames: &Backtrace) -> Vec<String> {
    let text = frames.to_string();
    let names = text.lines().filter_map(|line| line.trim().split_once(": "));
    let names = names.filter(|(number, _)| number.chars().all(|digit| digit.is_ascii_digit()));
    let plain = [
        "std::",
        "core::",
        "alloc::",
        "<alloc::",
        "<core::",
        "__",
        "tokio::",
        "skewer_benches::",
    ];
    names
        .map(|(_, name)| name.to_owned())
        .filter(|name| !plain.iter().any(|plain| name.starts_with(plain)))
        .take(SHOWN)
        .collect()
}

// SAFETY: every call is passed on to mimalloc as it came.
unsafe impl GlobalAlloc for Ledger {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        let block = unsafe { MiMalloc.alloc(layout) };
        if self.is_on() {
            self.add(block, layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        let block = unsafe { MiMalloc.alloc_zeroed(layout) };
        if self.is_on() {
            self.add(block, layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.is_on() {
            self.remove(block, layout.size());
        }
        // SAFETY: as promised by the caller.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.is_on() {
            self.remove(block, layout.size());
        }
        // SAFETY: as promised by the caller.
        let moved = unsafe { MiMalloc.realloc(block, layout, size) };
        if self.is_on() {
            self.add(moved, size);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_large_block_is_noted_with_its_place_until_it_is_freed() {
        static LEDGER: Ledger = Ledger::new();
        LEDGER.is_on.store(true, Ordering::SeqCst);
        let layout = Layout::from_size_align(1 << 20, 16).unwrap();
        // SAFETY: the size is not 0, and the block is freed once, with its layout.
        let block = black_box(unsafe { LEDGER.alloc(layout) });
        LEDGER.look();
        let report = LEDGER.report(1);
        assert!(report.contains("1.0 MB in 1 blocks"), "{report}");
        LEDGER.forget();
        // SAFETY: see above.
        unsafe { LEDGER.dealloc(block, layout) };
        LEDGER.look();
        assert_eq!(LEDGER.report(1), "");
    }
}
