//! Wakes pollers as soon as the kernel has marked the death of a process (see [`crate::robust`]). The process's sockets
//! and a pidfd report the death later, when the kernel has freed the memory of the process. The more memory it had, the
//! later they report. A helper thread sleeps on the marked words. When a word is marked, the thread shuts the sockets
//! down, which wakes threads that poll them or wait in a call on them.

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

/// The pause before the next attempt after a sleep failed for lack of memory.
const RETRY: Duration = Duration::from_millis(10);

/// A watched word, and the sockets to shut down once the word is marked.
#[derive(Debug)]
struct WatchEntry {
    id: u64,
    word: NonNull<AtomicU32>,
    sockets: Vec<Weak<OwnedFd>>,
    is_hung_up: bool,
}

// SAFETY: the word is an atomic, mapped until the entry is removed under the lock.
unsafe impl Send for WatchEntry {}

/// A thread that sleeps on the words of all entries, and on a word of its own.
#[derive(Debug, Default)]
struct WatchThread {
    /// Number of changes of the list. The thread also sleeps on this word, so that a change wakes it.
    bell: AtomicU32,
    list: Mutex<WatchList>,
    has_heard: Condvar,
}

#[derive(Debug, Default)]
struct WatchList {
    entries: Vec<WatchEntry>,
    /// The number of changes that the thread has seen.
    heard: u32,
}

static WATCHERS: PerProcess<Mutex<Vec<&'static WatchThread>>> = PerProcess::new();

/// A watched word. The watch ends when this value is dropped in the process that created it.
#[derive(Debug)]
pub struct WatchedWord {
    watcher: &'static WatchThread,
    id: u64,
    process: u32,
}

/// Shuts down the sockets once the kernel has marked `word`. Skips sockets that were closed by then, and descriptors
/// that are not sockets. ENOSYS or EPERM if [`futex::wait_any`] is not available, EAGAIN if no thread can be started.
///
/// # Safety
///
/// `word` must stay mapped for reading until [`WatchedWord`] is dropped.
pub unsafe fn watch(
    word: NonNull<AtomicU32>,
    sockets: Vec<Weak<OwnedFd>>,
) -> Result<WatchedWord, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let here = WATCHERS.here();
    let mut watchers = here.value.lock().unwrap_or_else(PoisonError::into_inner);
    let has_room = |watcher: &&&WatchThread| watcher.lock().entries.len() < MOST_WORDS - 1;
    let watcher = if let Some(watcher) = watchers.iter().find(has_room) {
        *watcher
    } else {
        let watcher = WatchThread::start()?;
        watchers.push(watcher);
        watcher
    };
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut list = watcher.lock();
    list.entries.push(WatchEntry { id, word, sockets, is_hung_up: false });
    watcher.ring();
    Ok(WatchedWord { watcher, id, process: here.process })
}

impl Drop for WatchedWord {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut list = self.watcher.lock();
        list.entries.retain(|entry| entry.id != self.id);
        let change = self.watcher.ring();
        // The caller may unmap the word afterwards, so wait until the thread no longer sleeps on it.
        while list.heard.wrapping_sub(change).cast_signed() < 0 {
            list = self.watcher.has_heard.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl WatchThread {
    fn start() -> Result<&'static Self, Errno> {
        futex::wait_any([(&AtomicU32::new(0), 1)], None)?;
        let watcher: &'static Self = Box::leak(Box::default());
        helper::start("thalweg-watch", || watcher.run())?;
        Ok(watcher)
    }

    fn lock(&self) -> MutexGuard<'_, WatchList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread read the list again after a change under the lock. Returns the number of the change.
    fn ring(&self) -> u32 {
        let change = self.bell.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // This fails only for an invalid address.
        let _ = futex::wake_all(&self.bell);
        change
    }

    fn run(&self) {
        loop {
            let mut list = self.lock();
            // Every change of the list is made under the lock. The list therefore includes all changes that this number
            // counts.
            list.heard = self.bell.load(Ordering::Relaxed);
            self.has_heard.notify_all();
            let mut words = vec![(&self.bell, list.heard)];
            for entry in &mut list.entries {
                // SAFETY: the entry is in the list, so its word is mapped. A thread that removes an entry does not
                // unmap the word before this thread has come here again.
                let word = unsafe { entry.word.as_ref() };
                match word.load(Ordering::Acquire) {
                    life if life & OWNER_DIED != 0 => entry.hang_up(word),
                    // The owner has closed its end. The socket itself reports that.
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

impl WatchEntry {
    fn hang_up(&mut self, word: &AtomicU32) {
        if std::mem::replace(&mut self.is_hung_up, true) {
            return;
        }
        // The kernel woke only one waiter of the word: this thread. This thread must wake the others before it shuts
        // the sockets down.
        let _ = futex::wake_all(word);
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            // ENOTCONN if the other side is gone already, ENOTSOCK if it is not a socket.
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

    /// A generous limit, not a measure of speed. A thread that still waits after this time hangs.
    const GUARD: Duration = Duration::from_secs(60);

    fn words(number: usize) -> &'static [AtomicU32] {
        Box::leak((0..number).map(|_| AtomicU32::new(7)).collect::<Box<[_]>>())
    }

    fn watched(word: &'static AtomicU32) -> Option<(WatchedWord, Arc<OwnedFd>, OwnedFd)> {
        let (near, far) = peer::pair().unwrap();
        let near = Arc::new(near);
        // SAFETY: leaked.
        let watched = unsafe { watch(NonNull::from(word), vec![Arc::downgrade(&near)]) };
        match watched {
            Ok(watched) => Some((watched, near, far)),
            // ENOSYS before Linux 5.16, EPERM from a seccomp filter: there is nothing to test.
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
        // There are more words than one thread can sleep on.
        let words = words(MOST_WORDS + 2);
        let Some(mut all) = words.iter().map(watched).collect::<Option<Vec<_>>>() else { return };
        for dead in [0, 5, MOST_WORDS, MOST_WORDS + 1] {
            die(&words[dead]);
            assert_eq!(io::wait_readable(&*all[dead].1, Some(GUARD)), Ok(true), "{dead}");
        }
        let is_open = |at: usize| io::wait_readable(&*all[at].1, Some(Duration::ZERO)) == Ok(false);
        assert!(is_open(1) && is_open(MOST_WORDS - 1));
        // A word that is no longer watched is not accessed, and the others are still watched.
        let (gone, near, _far) = all.remove(1);
        drop(gone);
        die(&words[1]);
        die(&words[2]);
        assert_eq!(io::wait_readable(&*all[1].1, Some(GUARD)), Ok(true));
        assert_eq!(io::wait_readable(&*near, Some(Duration::ZERO)), Ok(false));
    }

    #[test]
    fn an_earlier_death_is_reported_and_another_sleeper_is_woken() {
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
