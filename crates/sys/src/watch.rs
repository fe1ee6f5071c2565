//! Tells those who poll of a death that the kernel has marked (see [`crate::robust`]). Its sockets, and
//! a descriptor of the process, tell of it only when its memory has been given back, which takes the
//! longer the more it had; the mark comes before. A thread of our own sleeps on the marks and hangs the
//! sockets up: who polls them, or waits in a call on them, is woken.

use crate::Errno;
use crate::futex::{self, MOST_WORDS, OWNER_DIED};
use crate::helper;
use crate::per_process::PerProcess;
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// After a sleep that failed, for want of memory: the next try.
const RETRY: Duration = Duration::from_millis(10);

/// One word, and what is hung up once it is marked.
#[derive(Debug)]
struct Entry {
    id: u64,
    word: NonNull<AtomicU32>,
    sockets: Vec<Weak<OwnedFd>>,
    is_hung_up: bool,
}

// SAFETY: the word is an atomic, mapped until the entry is taken out under the lock.
unsafe impl Send for Entry {}

/// A thread that sleeps on words, all of them and its own.
#[derive(Debug, Default)]
struct Watcher {
    /// Counts the changes of the list; the thread sleeps on it too.
    bell: AtomicU32,
    list: Mutex<List>,
    has_heard: Condvar,
}

#[derive(Debug, Default)]
struct List {
    entries: Vec<Entry>,
    /// The count of changes up to which the thread has seen them.
    heard: u32,
}

static WATCHERS: PerProcess<Mutex<Vec<&'static Watcher>>> = PerProcess::new();

/// A word that is watched, until this is dropped by the process that asked.
#[derive(Debug)]
pub struct Watched {
    watcher: &'static Watcher,
    id: u64,
    process: u32,
}

/// Hangs up the sockets once the kernel has marked `word`: those that are still open, and nothing else
/// that is among them.
/// ENOSYS or EPERM where [`futex::wait_any`] is not to be had, EAGAIN if no thread is.
///
/// # Safety
///
/// `word` must stay mapped for reading until [`Watched`] is dropped.
pub unsafe fn watch(
    word: NonNull<AtomicU32>,
    sockets: Vec<Weak<OwnedFd>>,
) -> Result<Watched, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let here = WATCHERS.here();
    let mut watchers = here.value.lock().unwrap_or_else(PoisonError::into_inner);
    let has_room = |watcher: &&&Watcher| watcher.lock().entries.len() < MOST_WORDS - 1;
    let watcher = if let Some(watcher) = watchers.iter().find(has_room) {
        *watcher
    } else {
        let watcher = Watcher::start()?;
        watchers.push(watcher);
        watcher
    };
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut list = watcher.lock();
    list.entries.push(Entry { id, word, sockets, is_hung_up: false });
    watcher.ring();
    Ok(Watched { watcher, id, process: here.process })
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut list = self.watcher.lock();
        list.entries.retain(|entry| entry.id != self.id);
        let change = self.watcher.ring();
        // Until the thread sleeps on the word no more: it may be unmapped then.
        while list.heard.wrapping_sub(change).cast_signed() < 0 {
            list = self.watcher.has_heard.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Watcher {
    fn start() -> Result<&'static Self, Errno> {
        futex::wait_any([(&AtomicU32::new(0), 1)], None)?;
        let watcher: &'static Self = Box::leak(Box::default());
        helper::start("thalweg-watch", || watcher.run())?;
        Ok(watcher)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look at the list again, which was changed under the lock; the number of the change.
    fn ring(&self) -> u32 {
        let change = self.bell.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // It fails for bad addresses only.
        let _ = futex::wake_all(&self.bell);
        change
    }

    fn run(&self) {
        loop {
            let mut list = self.lock();
            // Under the lock, like every change of it: the list is as of this change.
            list.heard = self.bell.load(Ordering::Relaxed);
            self.has_heard.notify_all();
            let mut words = vec![(&self.bell, list.heard)];
            for entry in &mut list.entries {
                // SAFETY: the entry is in the list, so its word is mapped; who takes it out waits, before
                // it is unmapped, until this thread is here again.
                let word = unsafe { entry.word.as_ref() };
                match word.load(Ordering::Acquire) {
                    life if life & OWNER_DIED != 0 => entry.hang_up(word),
                    // An owner that has closed its end; the socket tells of that.
                    0 => {}
                    life => words.push((word, life)),
                }
            }
            drop(list);
            if futex::wait_any_of(&words).is_err() {
                std::thread::sleep(RETRY);
            }
        }
    }
}

impl Entry {
    fn hang_up(&mut self, word: &AtomicU32) {
        if std::mem::replace(&mut self.is_hung_up, true) {
            return;
        }
        // The kernel wakes one sleeper only, which was this thread: others come first.
        let _ = futex::wake_all(word);
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            // ENOTCONN where the other side is gone already, ENOTSOCK for what is none.
            let _ = shutdown(&*socket, Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{io, peer};
    use std::sync::Arc;

    /// Not a promise of speed: whoever still waits after this long hangs.
    const GUARD: Duration = Duration::from_secs(60);

    fn words(number: usize) -> &'static [AtomicU32] {
        Box::leak((0..number).map(|_| AtomicU32::new(7)).collect::<Box<[_]>>())
    }

    fn watched(word: &'static AtomicU32) -> Option<(Watched, Arc<OwnedFd>, OwnedFd)> {
        let (near, far) = peer::pair().unwrap();
        let near = Arc::new(near);
        // SAFETY: leaked.
        let watched = unsafe { watch(NonNull::from(word), vec![Arc::downgrade(&near)]) };
        match watched {
            Ok(watched) => Some((watched, near, far)),
            // Older than 5.16, or not allowed: there is nothing to test.
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    fn die(word: &AtomicU32) {
        word.fetch_or(OWNER_DIED, Ordering::Release);
        futex::wake_one(word).unwrap();
    }

    #[test]
    fn a_marked_word_hangs_up_its_own_socket_alone() {
        // More than one thread can sleep on.
        let words = words(MOST_WORDS + 2);
        let Some(mut all) = words.iter().map(watched).collect::<Option<Vec<_>>>() else { return };
        for dead in [0, 5, MOST_WORDS, MOST_WORDS + 1] {
            die(&words[dead]);
            assert_eq!(io::wait_readable(&*all[dead].1, Some(GUARD)), Ok(true), "{dead}");
        }
        let is_open = |at: usize| io::wait_readable(&*all[at].1, Some(Duration::ZERO)) == Ok(false);
        assert!(is_open(1) && is_open(MOST_WORDS - 1));
        // One that nobody watches any more is left alone, and the others are still watched.
        let (gone, near, _far) = all.remove(1);
        drop(gone);
        die(&words[1]);
        die(&words[2]);
        assert_eq!(io::wait_readable(&*all[1].1, Some(GUARD)), Ok(true));
        assert_eq!(io::wait_readable(&*near, Some(Duration::ZERO)), Ok(false));
    }

    #[test]
    fn who_was_dead_before_is_told_and_another_sleeper_is_woken() {
        let word = &words(1)[0];
        let Some((_watched, near, _far)) = watched(word) else { return };
        let sleeper = std::thread::spawn(|| {
            while word.load(Ordering::Acquire) & OWNER_DIED == 0 {
                futex::wait_any([(word, 7)], None).unwrap();
            }
        });
        die(word);
        assert_eq!(io::wait_readable(&*near, Some(GUARD)), Ok(true));
        sleeper.join().unwrap();
        let (_again, near, _far) = watched(word).unwrap();
        assert_eq!(io::wait_readable(&*near, Some(GUARD)), Ok(true));
    }
}
