//! Words in shared memory that both sides may touch at any time, and a way to sleep until one
//! changes.
//!
//! Only atomics are ever made here: what another process may write is never behind a reference.

use rustix::fd::AsFd;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use thalweg_sys::{
    Errno, memfd,
    region::{Region, SealFlags, Sharing, is_sealed, seal},
};

/// What the memory of a bulk transfer is called in `/proc/PID/maps`.
pub(crate) const NAME: &str = "thalweg-bulk";

/// Bytes of a page of words.
pub(crate) const PAGE: usize = 4096;

/// A piece of shared memory whose words are atomics.
#[derive(Debug)]
pub(crate) struct Page(Region);

impl Page {
    /// Fresh memory of `len` bytes, sealed to keep its size, and the descriptor to hand over.
    pub fn create(len: usize) -> Result<(Self, rustix::fd::OwnedFd), Errno> {
        let fd = memfd::create(NAME, len as u64)?;
        seal(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let region = Region::of_file(&fd, len, Sharing::Write)?;
        Ok((Self(region), fd))
    }

    /// Memory that the other side made. EACCES if it could be shrunk below us, or if its pages would
    /// be ours to pay for.
    pub fn adopt(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        if !is_sealed(&fd, SealFlags::SHRINK, len as u64) || !memfd::is_whole(&fd) {
            return Err(Errno::ACCESS);
        }
        Region::of_file(&fd, len, Sharing::Write).map(Self)
    }

    /// Over memory that cannot shrink, writable and at least a page long.
    pub fn over(region: Region) -> Self {
        assert!(region.is_writable() && region.len() >= PAGE, "no room for words");
        Self(region)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Makes all of it resident, where the kernel can do that in one call.
    pub fn populate(&self) {
        // It only saves faults later.
        let _ = self.0.populate();
    }

    /// The word at byte `at`.
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.0.len(), "a word outside its page");
        // SAFETY: checked above to lie inside the mapping, which starts on a page.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: mapped, writable and aligned for as long as self is borrowed; everybody uses
        // atomics on it.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// The double word at byte `at`.
    pub fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.0.len(), "a word outside its page");
        // SAFETY: as above.
        let word = unsafe { self.0.as_ptr().add(at) };
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// The event whose two words are at byte `at`.
    pub fn event(&self, at: usize) -> Event<'_> {
        Event { count: self.u32(at), sleeper: self.u32(at + 4) }
    }
}

/// "Something changed", for one waiter: a count, and whether somebody sleeps on it.
#[derive(Clone, Copy)]
pub(crate) struct Event<'p> {
    count: &'p AtomicU32,
    sleeper: &'p AtomicU32,
}

impl Event<'_> {
    /// Tells that something changed; a system call only if somebody sleeps.
    pub fn notify(self) {
        // PAIRS WITH: `sleep_from` and `prepare`: the count changes before the sleeper is looked
        // for, and a sleeper shows itself after it has read the count.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleeper.swap(0, Ordering::SeqCst) != 0 {
            // It fails for no word that is mapped.
            let _ = futex::wake(self.count, futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    /// Announces a sleeper. What it waits for must be looked at after this and before
    /// [`sleep_from`](Self::sleep_from) with what this answers.
    pub fn prepare(self) -> u32 {
        let count = self.count.load(Ordering::SeqCst);
        self.sleeper.store(1, Ordering::SeqCst);
        count
    }

    /// Sleeps unless something changed since [`prepare`](Self::prepare), at most for `limit`.
    pub fn sleep_from(self, count: u32, limit: Duration) {
        let limit = futex::Timespec::try_from(limit).ok();
        // Woken, changed already, a signal, the time is over: the caller looks again in any case.
        let _ = futex::wait(self.count, futex::Flags::empty(), count, limit.as_ref());
    }

    /// The same, and another word that ends the sleep. ENOSYS, EPERM: not possible here.
    pub fn sleep_beside(
        self,
        count: u32,
        other: (&AtomicU32, u32),
        limit: Duration,
    ) -> Result<(), Errno> {
        thalweg_sys::futex::wait_any([(self.count, count), other], Some(limit))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sleeper_is_woken_and_a_change_before_the_sleep_is_not_missed() {
        let (page, fd) = Page::create(PAGE).unwrap();
        let other = Page::adopt(&fd, PAGE).unwrap();
        let event = page.event(128);
        let seen = event.prepare();
        other.event(128).notify();
        event.sleep_from(seen, Duration::from_secs(60));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while page.u32(512).load(Ordering::Acquire) == 0 {
                    let seen = event.prepare();
                    if page.u32(512).load(Ordering::Acquire) == 0 {
                        event.sleep_from(seen, Duration::from_secs(60));
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            other.u32(512).store(1, Ordering::Release);
            other.event(128).notify();
        });
    }

    #[test]
    fn memory_that_may_shrink_or_is_short_is_not_adopted() {
        let fd = memfd::create(NAME, PAGE as u64).unwrap();
        assert_eq!(Page::adopt(&fd, PAGE).unwrap_err(), Errno::ACCESS);
        let (_page, fd) = Page::create(PAGE).unwrap();
        assert_eq!(Page::adopt(&fd, 2 * PAGE).unwrap_err(), Errno::ACCESS);
    }
}
