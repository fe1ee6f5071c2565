//! Messages that a consumer keeps while it receives others, and gives back in any order, from any
//! thread. A consumer that never holds one pays nothing for it: its tail is its own until then.

use crate::error::{Error, Result};
use crate::shared::end::End;
use crate::shared::holds::Holds;
use crate::shared::memory::Memory;
use crate::shared::publisher::Publisher;
use crate::shared::wait::steps;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thalweg_sys::fork::Mark;

/// One message of a ring, where it lies, without a lifetime: its bytes stay, and stay as they are,
/// until it is dropped, also when its consumer is dropped, when the producer dies, and at the end of
/// the channel. Dropping it gives its room back to the producer, from whatever thread.
///
/// A ring holds as many as it has room for, each in at least 64 bytes. While one is held, its room and
/// all behind it stay taken: a producer whose ring is full waits, or does as [`crate::Slow`] says.
/// What is held when the consumer is dropped, and what came after the oldest of it, does not count as
/// delivered to the producer.
#[derive(Debug)]
pub struct Held {
    holding: Arc<Holding>,
    at: u64,
    bytes: Bytes,
    /// Bytes before the payload proper.
    skip: usize,
}

#[derive(Debug)]
pub(super) enum Bytes {
    InPlace(usize),
    /// The producer is not trusted.
    Copied(Box<[u8]>),
}

impl Held {
    /// The same without its first bytes, of which it has as many.
    pub(crate) fn skip(mut self, bytes: usize) -> Self {
        self.skip += bytes;
        self
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.bytes {
            // SAFETY: `open_frame` found the length within the committed bytes, and the mapping is
            // kept by `holding`. A trusted producer does not write there before the tail has passed,
            // which stands at this message, or before it, until it is dropped.
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

/// What a consumer and the messages that it holds have in common.
#[derive(Debug)]
struct Holding {
    /// Keeps the producer's bytes mapped.
    peer: Memory,
    mark: Mark,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    holds: Holds,
    /// Gone with the consumer: after its goodbye nobody is told of more room.
    publisher: Option<Publisher>,
    /// The tail, and the word `waiting` of the producer after it was told that.
    asked: Option<(u64, u32)>,
}

impl Holding {
    /// The book; `None` in a forked child, where its lock may be held for ever, and whose parent's
    /// messages these are.
    fn book(&self) -> Option<MutexGuard<'_, Book>> {
        self.mark.is_here().then(|| self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// PAIRS WITH: the lock orders what one thread read of its message before the store of the tail
    /// that another makes; that store is a release.
    fn change(&self, change: impl FnOnce(&mut Holds) -> Option<u64>) {
        let Some(mut book) = self.book() else { return };
        let moved = change(&mut book.holds);
        if let (Some(tail), Some(publisher)) = (moved, &mut book.publisher) {
            publisher.publish(tail);
        }
    }
}

/// A consumer's part of it; nothing until it holds a message for the first time. From then on the
/// tail is moved here, under a lock, since any thread may give back the oldest.
#[derive(Debug, Default)]
pub(super) struct Keeper(Option<Arc<Holding>>);

impl Keeper {
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Everything before `to` was read, up to the `head` that the producer told.
    #[cold]
    #[inline(never)]
    pub(super) fn pass(&self, to: u64, head: u64) -> Result<()> {
        let Some(holding) = &self.0 else { return Ok(()) };
        holding.change(|holds| holds.pass(to));
        let Some(book) = holding.book() else { return Ok(()) };
        // Of a head from before, the tail of now asks less than it kept to.
        let most = book.holds.tail().saturating_add(holding.peer.geometry.capacity);
        if head <= most {
            return Ok(());
        }
        Err(Error::corrupt(format!("head {head}: above {most}, over messages that are held")))
    }

    /// Keeps the message at `at`, of so many bytes, or of these, if they were copied.
    pub(super) fn hold(&mut self, end: &mut End, tail: u64, at: u64, bytes: Bytes) -> Held {
        let holding = self.0.get_or_insert_with(|| {
            let book =
                Book { holds: Holds::new(tail), publisher: Some(end.publisher()), asked: None };
            let book = Mutex::new(book);
            Arc::new(Holding { peer: end.peer.share(), mark: Mark::here(), book })
        });
        holding.change(|holds| {
            holds.hold(at);
            None
        });
        Held { holding: holding.clone(), at, bytes, skip: 0 }
    }

    /// Whether the producer waits for what is held. Wakes it, so that it looks; the answer is had in a
    /// later call.
    pub(super) fn holds_up(&self) -> bool {
        let Some(holding) = &self.0 else { return false };
        let Some(mut book) = holding.book() else { return false };
        let tail = book.holds.tail();
        let waiting = holding.peer.words().waiting.0.load(Ordering::Relaxed);
        if book.holds.len() == 0 || steps::is_awake(waiting) {
            return false;
        }
        if let Some(publisher) = &mut book.publisher {
            // Nothing new, but it wakes. PAIRS WITH: the fence in `announce_sleep`: what it committed
            // before the sleep that we saw is seen by who looks at its head after this.
            publisher.publish(tail);
        }
        match book.asked {
            // It may begin one sleep before it sees the tail, not two.
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

impl Drop for Keeper {
    /// Before the end closes: from now on no other thread writes our words.
    fn drop(&mut self) {
        let book = self.0.as_ref().and_then(|holding| holding.book());
        let publisher = book.and_then(|mut book| book.publisher.take());
        drop(publisher);
    }
}

#[cfg(test)]
mod tests;
