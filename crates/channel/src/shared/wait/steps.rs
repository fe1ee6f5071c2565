//! The steps of publishing, going to sleep and waking, generic over the atomics. The ring and bulk transfer run them on
//! the words in shared memory. The tests run them under loom, which tries every order.
//!
//! Two words matter. The publisher writes a cursor (or any other word that the peer waits for), and the sleeper writes
//! its word `waiting`. Each side writes its own word, executes a full fence, and reads the other word. At least one of
//! them then sees the other's write: the sleeper sees the published value, or the publisher sees that the other side
//! sleeps.

use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Value of the low bits of `waiting`: its owner is awake.
pub(crate) const AWAKE: u32 = 0;
/// Value of the low bits of `waiting`: its owner sleeps, or is about to sleep, on the peer's `wake` word.
pub(crate) const ON_FUTEX: u32 = 1;
/// Value of the low bits of `waiting`: its owner polls the link, and a message there wakes it.
pub(crate) const ON_LINK: u32 = 2;
const HOW: u32 = 3;
/// The other bits of `waiting` count the owner's sleeps, so that the peer wakes it only once per sleep.
const ONE_SLEEP: u32 = 4;

/// A 32-bit word shared by two processes.
pub(crate) trait WaitWord {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
}

/// A 64-bit position that its owner advances.
pub(crate) trait Cursor {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);

    /// Advances the cursor without waking the peer. Only for steps that the peer does not wait for. The next
    /// [`publish`] wakes it.
    #[inline]
    fn publish_quietly(&self, to: u64) {
        // PAIRS WITH: `seen` (Acquire). A side that sees the new cursor also sees the bytes before it.
        self.store(to, Release);
    }
}

impl WaitWord for AtomicU32 {
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

/// Advances the owner's cursor. A side that sees the new value also sees everything written before. Returns the peer's
/// `waiting` word, for [`Sleeper::due`].
#[inline]
pub(crate) fn publish<C: Cursor>(own: &C, to: u64, others_waiting: &impl WaitWord) -> u32 {
    own.publish_quietly(to);
    announce::<C>(others_waiting)
}

/// Second half of publishing, after a store to any word that the peer may wait for. Returns the peer's `waiting` word.
#[inline]
pub(crate) fn announce<C: Cursor>(others_waiting: &impl WaitWord) -> u32 {
    // PAIRS WITH: the fence in `announce_sleep`.
    C::fence(SeqCst);
    others_waiting.load(Relaxed)
}

/// Returns the peer's cursor. Everything that the peer wrote before it stored this value is then visible.
#[inline]
pub(crate) fn seen(others: &impl Cursor) -> u64 {
    others.load(Acquire)
}

/// Records which sleep of the peer this side has already ended.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    ended: u32,
}

impl Sleeper {
    /// Returns the method by which to wake the peer, or [`AWAKE`] if no wake-up is needed. Ends each sleep only once.
    /// That is enough: a side reads the `wake` word before it announces its sleep, so one change of the word and one
    /// system call end the sleep at any stage.
    #[inline]
    pub(crate) fn due(&mut self, waiting: u32, own_wake: &impl WaitWord) -> u32 {
        if is_awake(waiting) || waiting == self.ended {
            return AWAKE;
        }
        self.ended = waiting;
        // Only this side writes the word, so a separate load and store are enough. PAIRS WITH: `announce_sleep`
        // (Acquire).
        own_wake.store(own_wake.load(Relaxed).wrapping_add(1), Release);
        waiting & HOW
    }
}

/// First half of going to sleep: announces the sleep. Returns the value of the peer's `wake` word on which to sleep.
/// The caller must check the published words once more before it sleeps.
pub(crate) fn announce_sleep<C: Cursor>(
    own_waiting: &impl WaitWord,
    how: u32,
    others_wake: &impl WaitWord,
) -> u32 {
    // Read `wake` before the announcement. A wake-up after the announcement then changes the value, and the futex call
    // returns at once.
    let value = others_wake.load(Acquire);
    let sleeps = (own_waiting.load(Relaxed) & !HOW).wrapping_add(ONE_SLEEP);
    own_waiting.store(sleeps | how, Relaxed);
    // PAIRS WITH: the fence in `announce`.
    C::fence(SeqCst);
    value
}

/// Returns how many sleeps the owner of `waiting` has begun between two values of that word.
pub(crate) fn sleeps_between(before: u32, waiting: u32) -> u32 {
    (waiting & !HOW).wrapping_sub(before & !HOW) / ONE_SLEEP
}

/// Returns `true` if the value of `waiting` shows that its owner is awake.
pub(crate) fn is_awake(waiting: u32) -> bool {
    waiting & HOW == AWAKE
}

/// Ends the owner's sleep, or withdraws its announcement.
pub(crate) fn wake_up(own_waiting: &impl WaitWord) {
    own_waiting.store((own_waiting.load(Relaxed) & !HOW) | AWAKE, Relaxed);
}

/// Closes the owner's end. A side that sees the end closed also sees everything published before. Returns the peer's
/// `waiting` word, as [`publish`] does.
pub(crate) fn close<C: Cursor>(own_closed: &impl WaitWord, others_waiting: &impl WaitWord) -> u32 {
    own_closed.store(1, Release);
    announce::<C>(others_waiting)
}

#[cfg(test)]
mod tests;
