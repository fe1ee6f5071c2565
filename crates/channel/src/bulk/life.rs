//! A side's sign of life: a word in memory that it alone can write, on the kernel's list of what to
//! mark when this process ends (docs/decisions/005). The other side sleeps on it beside its news.

use super::page::{NAME, PAGE};
use super::talk::unfit;
use rustix::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use thalweg_core::Unfit;
use thalweg_sys::region::{Region, Sharing};
use thalweg_sys::robust::{self, Enlisted, Node};
use thalweg_sys::{Errno, futex, memfd};

/// Our own, for as long as this side of the transfer is open.
#[derive(Debug)]
pub(crate) struct Sign {
    /// Off the list before the memory goes.
    enlisted: Option<Enlisted>,
    region: Region,
}

impl Sign {
    /// Makes it, and the descriptor to hand over.
    pub fn make() -> Result<(Self, OwnedFd), Errno> {
        let fd = memfd::create(NAME, PAGE as u64)?;
        let region = Region::of_file(&fd, PAGE, Sharing::Write)?;
        memfd::seal_for_one_writer(&fd)?;
        let node = NonNull::new(region.as_ptr()).ok_or(Errno::FAULT)?.cast::<Node>();
        // SAFETY: mapped until after `enlisted` is gone, new, zeroed, on a page of its own, and
        // sealed against other writers.
        let enlisted = unsafe { robust::enlist(node) }?;
        Ok((Self { enlisted: Some(enlisted), region }, fd))
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        // In a child made by fork it stays on its parent's list, and the word as it was.
        self.enlisted = None;
        let word = word_of(&self.region);
        if word.load(Ordering::Acquire) == 0 {
            // It fails for no word that is mapped.
            let _ = futex::wake_one(word);
        }
    }
}

/// The peer's.
#[derive(Debug)]
pub(crate) struct PeersSign(Region);

impl PeersSign {
    /// Maps what the peer handed over; [`Unfit`] if it may shrink below us, or tells nothing.
    pub fn adopt(fd: impl AsFd) -> Result<Self, Unfit> {
        let facts = memfd::facts(&fd).map_err(|errno| unfit("F_GET_SEALS", errno))?;
        if !(facts.fixed_size && facts.ordinary && facts.len >= PAGE as u64) {
            return Err(Unfit::because("the peer's memory is not of a fixed size"));
        }
        let region = Region::of_file(&fd, PAGE, Sharing::Read);
        let sign = Self(region.map_err(|errno| unfit("mmap", errno))?);
        match sign.now() {
            Life::Over => Err(Unfit::because("the peer has no thread for it")),
            Life::Goes(..) => Ok(sign),
        }
    }

    /// What it says.
    pub fn now(&self) -> Life<'_> {
        let word = word_of(&self.0);
        match word.load(Ordering::Acquire) {
            value if value == 0 || value & futex::OWNER_DIED != 0 => Life::Over,
            value => Life::Goes(word, value),
        }
    }
}

/// What a sign of life says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Life<'s> {
    /// The word to sleep on, and its value.
    Goes(&'s AtomicU32, u32),
    /// The process has ended, or closed its side.
    Over,
}

fn word_of(region: &Region) -> &AtomicU32 {
    // SAFETY: the first word of a mapping of a page, aligned, and mapped as long as the region is
    // borrowed. Everybody uses atomics on it; through a read-only mapping it is only loaded.
    unsafe { AtomicU32::from_ptr(region.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_side_that_closes_wakes_who_sleeps_on_its_sign() {
        let (sign, fd) = Sign::make().unwrap();
        let theirs = PeersSign::adopt(&fd).unwrap();
        let Life::Goes(word, value) = theirs.now() else { panic!("{theirs:?}") };
        std::thread::scope(|scope| {
            scope.spawn(|| drop(sign));
            while matches!(theirs.now(), Life::Goes(..)) {
                match futex::wait_any([(word, value)], None) {
                    Ok(()) => {}
                    // Older than 5.16, or not allowed: only the word can be looked at.
                    Err(Errno::NOSYS | Errno::PERM) => std::thread::yield_now(),
                    Err(errno) => panic!("{errno}"),
                }
            }
        });
        assert!(PeersSign::adopt(&fd).is_err(), "a sign of nobody");
    }

    #[test]
    fn memory_that_may_shrink_is_no_sign() {
        let fd = memfd::create(NAME, PAGE as u64).unwrap();
        assert!(PeersSign::adopt(&fd).is_err());
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(PeersSign::adopt(&reader).is_err());
        let (_sign, fd) = Sign::make().unwrap();
        assert_eq!(Region::of_file(&fd, PAGE, Sharing::Write).err(), Some(Errno::PERM));
    }
}
