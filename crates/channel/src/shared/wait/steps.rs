//! The steps of publishing, going to sleep and waking, over any kind of atomics: the ring and bulk
//! transfer run them over the words in shared memory, the tests under loom, which tries every order.
//!
//! Two words decide: a cursor (or any other word that is waited for), which the publisher writes, and
//! `waiting`, which the sleeper writes. Each side writes its own, passes a full fence, and reads the
//! other's: at least one of them then sees what the other wrote, so either the sleeper finds the news
//! or the publisher finds the sleeper.

use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Low bits of the word `waiting`: the owner is awake.
pub(crate) const AWAKE: u32 = 0;
/// The owner sleeps, or is about to, on the other's `wake` word.
pub(crate) const ON_FUTEX: u32 = 1;
/// The owner polls the link and wants a message there.
pub(crate) const ON_LINK: u32 = 2;
const HOW: u32 = 3;
/// The other bits count the owner's sleeps, so that each is ended by one call only.
const ONE_SLEEP: u32 = 4;

/// A 32-bit word shared by two processes.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
}

/// A position in bytes.
pub(crate) trait Cursor {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);

    /// Moves it and wakes nothing: for a step that the other side does not wait for before the next
    /// [`publish`].
    #[inline]
    fn publish_quietly(&self, to: u64) {
        // PAIRS WITH: `seen` (Acquire): the bytes are visible before the cursor.
        self.store(to, Release);
    }
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

impl Cursor for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// Moves the owner's cursor: everything written before it is visible to a side that sees it. Returns
/// the other side's `waiting`, for [`Sleeper::due`].
#[inline]
pub(crate) fn publish<C: Cursor>(own: &C, to: u64, others_waiting: &impl Word) -> u32 {
    own.publish_quietly(to);
    announce::<C>(others_waiting)
}

/// The second half of publishing, after a store to any word that the other side may wait for.
#[inline]
pub(crate) fn announce<C: Cursor>(others_waiting: &impl Word) -> u32 {
    // PAIRS WITH: the fence in `announce_sleep`.
    C::fence(SeqCst);
    others_waiting.load(Relaxed)
}

/// The other side's cursor, and with it everything written before it was moved there.
#[inline]
pub(crate) fn seen(others: &impl Cursor) -> u64 {
    others.load(Acquire)
}

/// What a publisher remembers of the other side's sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    ended: u32,
}

impl Sleeper {
    /// How the other side is to be woken, [`AWAKE`] if not at all. A sleep is ended once: a side
    /// that says that it sleeps has read the `wake` word before, so one change of that word, and one
    /// call after it, end the sleep wherever it is. Further calls would have no effect.
    #[inline]
    pub(crate) fn due(&mut self, waiting: u32, own_wake: &impl Word) -> u32 {
        if is_awake(waiting) || waiting == self.ended {
            return AWAKE;
        }
        self.ended = waiting;
        // Only the owner writes it, so this is no race. PAIRS WITH: `announce_sleep` (Acquire).
        own_wake.store(own_wake.load(Relaxed).wrapping_add(1), Release);
        waiting & HOW
    }
}

/// First half of going to sleep: says so, and returns the value of the other's `wake` word to
/// sleep on. The caller looks once more for news before it sleeps.
pub(crate) fn announce_sleep<C: Cursor>(
    own_waiting: &impl Word,
    how: u32,
    others_wake: &impl Word,
) -> u32 {
    // Read first: a wake-up after this moment changes the word, and the sleep does not begin.
    let value = others_wake.load(Acquire);
    let sleeps = (own_waiting.load(Relaxed) & !HOW).wrapping_add(ONE_SLEEP);
    own_waiting.store(sleeps | how, Relaxed);
    // PAIRS WITH: the fence in `announce`.
    C::fence(SeqCst);
    value
}

/// How many sleeps the owner of the word `waiting` has begun from one value of it to another.
pub(crate) fn sleeps_between(before: u32, waiting: u32) -> u32 {
    (waiting & !HOW).wrapping_sub(before & !HOW) / ONE_SLEEP
}

/// Whether a value of the word `waiting` says that its owner is awake.
pub(crate) fn is_awake(waiting: u32) -> bool {
    waiting & HOW == AWAKE
}

/// The end of a sleep, or of the wish for one.
pub(crate) fn wake_up(own_waiting: &impl Word) {
    own_waiting.store((own_waiting.load(Relaxed) & !HOW) | AWAKE, Relaxed);
}

/// Closes the owner's end: everything it published is visible to a side that sees it closed. The
/// answer is as for [`publish`].
pub(crate) fn close<C: Cursor>(own_closed: &impl Word, others_waiting: &impl Word) -> u32 {
    own_closed.store(1, Release);
    announce::<C>(others_waiting)
}

#[cfg(test)]
mod models;
