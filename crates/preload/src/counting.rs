//! Calls and bytes by class of size, in a file shared by every process of the program. Words are only
//! ever added to, atomically: threads and forked children need no lock.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::layout::{self, LEN, MAGIC, MAGIC_AT};
use crate::raw::{Access, File};

/// The mapped file; null while nothing is counted.
static FILE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Maps a file of counts, whose path ends with a zero byte. `false` if it is none.
pub fn open(path: &[u8]) -> bool {
    let Some(file) = File::open(path, Access::ReadWrite) else { return false };
    // A shorter file would kill the program at the first access past its end.
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

/// Whether anything is counted.
pub fn is_open() -> bool {
    !FILE.load(Ordering::Relaxed).is_null()
}

/// Adds to a word, if anything is counted.
pub fn add(word: usize, amount: u64) {
    let words = FILE.load(Ordering::Acquire);
    if words.is_null() || word >= LEN / size_of::<u64>() {
        return;
    }
    let word = words.wrapping_add(word);
    // SAFETY: inside the mapped LEN bytes, was checked above; never unmapped.
    let word = unsafe { &*word };
    // Relaxed: sums, read when the processes have ended.
    word.fetch_add(amount, Ordering::Relaxed);
}

/// Counts a call.
#[inline]
pub fn count(kind: usize, size: usize) {
    let word = layout::word(kind, layout::class(size));
    add(word, 1);
    add(word + 1, size as u64);
}
