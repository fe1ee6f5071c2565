//! Counts calls and bytes per size class, in a file that all processes of the program share. All changes are atomic
//! additions, so threads and forked children need no lock.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::layout::{self, LEN, MAGIC, MAGIC_AT};
use crate::raw::{File, O_RDWR};

/// The mapped file. Null if nothing is counted.
static FILE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Maps a file of counts. The path must end with a zero byte. Returns `false` if the file is not valid.
pub fn open(path: &[u8]) -> bool {
    let Some(file) = File::open(path, O_RDWR) else { return false };
    // In a shorter file, an access past the end would kill the program with SIGBUS.
    if file.len() < LEN {
        return false;
    }
    let Some(words) = file.map_shared::<AtomicU64>(LEN) else { return false };
    let magic = words.wrapping_add(MAGIC_AT);
    // SAFETY: LEN bytes are mapped, aligned to a page, and never unmapped.
    let magic = unsafe { &*magic };
    if magic.load(Ordering::Relaxed) != MAGIC {
        return false;
    }
    // PAIRS WITH: the load in `add`.
    FILE.store(words, Ordering::Release);
    true
}

/// Returns `true` if calls are counted.
pub fn is_open() -> bool {
    !FILE.load(Ordering::Relaxed).is_null()
}

/// Adds to a word, if calls are counted.
pub fn add(word: usize, amount: u64) {
    let words = FILE.load(Ordering::Acquire);
    if words.is_null() || word >= LEN / size_of::<u64>() {
        return;
    }
    let word = words.wrapping_add(word);
    // SAFETY: checked above to lie inside the mapped LEN bytes; never unmapped.
    let word = unsafe { &*word };
    // Relaxed: the sums are read only after the processes have ended.
    word.fetch_add(amount, Ordering::Relaxed);
}

/// Counts a call.
#[inline]
pub fn count(kind: usize, size: usize) {
    let word = layout::word(kind, layout::class(size));
    add(word, 1);
    add(word + 1, size as u64);
}
