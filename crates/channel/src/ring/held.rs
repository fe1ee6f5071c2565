//! Messages that a consumer keeps while it receives others. They can be given back in any order, from any thread. A
//! consumer that never holds a message pays nothing for this: it publishes its tail without a lock until it first holds
//! one.

use crate::error::{Error, Result};
use crate::shared::end::ChannelEnd;
use crate::shared::holds::Holds;
use crate::shared::memory::SideMemory;
use crate::shared::publisher::Publisher;
use crate::shared::wait::steps;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thalweg_sys::fork::ForkMark;

/// A message of a ring, read in place and without a lifetime. Its bytes stay unchanged until it is dropped, even if its
/// consumer is dropped, the producer dies or the channel ends. Dropping it, on any thread, gives its room back to the
/// producer.
///
/// The number of held messages is limited only by the room in the ring, and each takes at least 64 bytes. While a
/// message is held, its room and the room of all later messages stay occupied. If the ring is full, the producer waits
/// or acts according to [`crate::Slow`]. If the consumer is dropped, the oldest held message and all later ones do not
/// count as delivered.
#[derive(Debug)]
pub struct Held {
    holding: Arc<HoldState>,
    at: u64,
    bytes: Bytes,
    /// Number of bytes at the start that are hidden from the reader.
    skip: usize,
}

#[derive(Debug)]
pub(super) enum Bytes {
    InPlace(usize),
    /// Copy of a message from an untrusted producer.
    Copied(Box<[u8]>),
}

impl Held {
    /// Hides the next `bytes` bytes at the start. The message must be at least that long.
    pub(crate) fn skip(mut self, bytes: usize) -> Self {
        self.skip += bytes;
        self
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.bytes {
            // SAFETY: `open_frame` found the length to be within the committed bytes, and `holding` keeps the mapping
            // alive. A trusted producer writes there only after the tail has passed the message. That does not happen
            // before this message is dropped.
            Bytes::InPlace(len) => unsafe { self.holding.peer.payload(self.at, *len) },
            Bytes::Copied(bytes) => bytes,
        };
        &all[self.skip..]
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holding.change(|holds| holds.give_back(self.at));
    }
}

/// State shared by a consumer and its held messages.
#[derive(Debug)]
struct HoldState {
    /// The producer's memory. This handle keeps it mapped.
    peer: SideMemory,
    mark: ForkMark,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    holds: Holds,
    /// `None` after the consumer was dropped and closed its end: no more room is published then.
    publisher: Option<Publisher>,
    /// Set by `holds_up`: the published tail, and the producer's `waiting` word as read at that tail.
    asked: Option<(u64, u32)>,
}

impl HoldState {
    /// Locks `book`. Returns `None` in a forked child: a thread of the parent may have held the lock at the fork, and
    /// the messages belong to the parent.
    fn book(&self) -> Option<MutexGuard<'_, Book>> {
        self.mark.is_here().then(|| self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the set of held messages, and publishes the new tail with a release store. PAIRS WITH: the lock, which
    /// orders one thread's reads of its message before another thread's store of the tail.
    fn change(&self, change: impl FnOnce(&mut Holds) -> Option<u64>) {
        let Some(mut book) = self.book() else { return };
        let moved = change(&mut book.holds);
        if let (Some(tail), Some(publisher)) = (moved, &mut book.publisher) {
            publisher.publish(tail);
        }
    }
}

/// The consumer's reference to the shared state; `None` until it first holds a message. From then on, the tail is
/// published under a lock, because any thread may give back the oldest message.
#[derive(Debug, Default)]
pub(super) struct HoldKeeper(Option<Arc<HoldState>>);

impl HoldKeeper {
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Records that everything before `to` was read. `head` is the producer's head; fails if it is beyond the room that
    /// held messages leave.
    #[cold]
    #[inline(never)]
    pub(super) fn pass(&self, to: u64, head: u64) -> Result<()> {
        let Some(holding) = &self.0 else { return Ok(()) };
        holding.change(|holds| holds.pass(to));
        let Some(book) = holding.book() else { return Ok(()) };
        // The producer had to obey an older tail, if the tail has moved since `head` was read. The limit computed here
        // is then higher, so an honest producer never fails this check.
        let most = book.holds.tail().saturating_add(holding.peer.geometry.capacity);
        if head <= most {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "the producer's head {head} is beyond {most} and would overwrite held messages"
        )))
    }

    /// Holds the message at `at`.
    pub(super) fn hold(&mut self, end: &mut ChannelEnd, tail: u64, at: u64, bytes: Bytes) -> Held {
        let holding = self.0.get_or_insert_with(|| {
            let book =
                Book { holds: Holds::new(tail), publisher: Some(end.publisher()), asked: None };
            let book = Mutex::new(book);
            Arc::new(HoldState { peer: end.peer.share(), mark: ForkMark::here(), book })
        });
        holding.change(|holds| {
            holds.hold(at);
            None
        });
        Held { holding: holding.clone(), at, bytes, skip: 0 }
    }

    /// Returns `true` if the producer waits for room that held messages occupy. Also wakes the producer so that it
    /// checks for room again; the outcome of that check is visible only to a later call.
    pub(super) fn holds_up(&self) -> bool {
        let Some(holding) = &self.0 else { return false };
        let Some(mut book) = holding.book() else { return false };
        let tail = book.holds.tail();
        let waiting = holding.peer.words().waiting.0.load(Ordering::Relaxed);
        if book.holds.len() == 0 || steps::is_awake(waiting) {
            return false;
        }
        if let Some(publisher) = &mut book.publisher {
            // The tail is unchanged, so this only wakes the producer. PAIRS WITH: the fence in `announce_sleep`. If
            // this process saw the producer sleep, a later load of the producer's head shows everything committed
            // before that sleep.
            publisher.publish(tail);
        }
        match book.asked {
            // The producer may begin one more sleep after the wake-up without having seen the tail. Before it begins a
            // second one, it has seen the tail and found no room.
            Some((at, before)) if at == tail => {
                let is_held_up = steps::sleeps_between(before, waiting) >= 2;
                if is_held_up {
                    book.asked = None;
                }
                is_held_up
            }
            _ => {
                book.asked = Some((tail, waiting));
                false
            }
        }
    }

    pub(super) fn held(&self) -> usize {
        let book = self.0.as_ref().and_then(|holding| holding.book());
        book.map_or(0, |book| book.holds.len())
    }
}

impl Drop for HoldKeeper {
    /// Removes the publisher before the consumer closes its end. Threads that later drop held messages then publish no
    /// tail.
    fn drop(&mut self) {
        let book = self.0.as_ref().and_then(|holding| holding.book());
        let publisher = book.and_then(|mut book| book.publisher.take());
        drop(publisher);
    }
}

#[cfg(test)]
mod tests;
