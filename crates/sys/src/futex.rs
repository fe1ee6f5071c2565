//! Futexes between processes: sleeping until a word in shared memory changes, and waking.
//!
//! The words may be in read-only mappings, because both operations only read them.

use crate::Errno;
use crate::fault::{Call, uncounted};
use rustix::thread::futex::{self, Flags, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The kernel sets this bit in a word on a thread's robust list when the thread ends.
pub const OWNER_DIED: u32 = futex::OWNER_DIED;
/// A word on a robust list must have this bit. Otherwise, the kernel wakes no waiter when the
/// thread ends.
pub const WAITERS: u32 = futex::WAITERS;

/// `futex_waitv(2)` (Linux 5.16): sleeps while every word has the given value. Returns after a wake
/// on any word, at once if a value differs, and also after a signal. Check the words again
/// afterwards. ETIMEDOUT after `timeout`; `None` means no limit. ENOSYS on older kernels, EPERM
/// from some seccomp filters.
pub fn wait_any<const N: usize>(
    words: [(&AtomicU32, u32); N],
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    wait_on(&words.map(|(word, value)| wait(word, value)), timeout)
}

/// The maximum number of words for [`wait_any_of`].
pub const MOST_WORDS: usize = 128;

/// Like [`wait_any`], for a variable number of words, at most [`MOST_WORDS`].
pub fn wait_any_of(words: &[(&AtomicU32, u32)]) -> Result<(), Errno> {
    let waits: Vec<_> = words.iter().map(|(word, value)| wait(word, *value)).collect();
    wait_on(&waits, None)
}

fn wait(word: &AtomicU32, value: u32) -> futex::Wait {
    let mut wait = futex::Wait::new();
    wait.val = u64::from(value);
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

#[inline]
fn wait_on(waits: &[futex::Wait], timeout: Option<Duration>) -> Result<(), Errno> {
    let until = timeout.and_then(deadline);
    let answer = uncounted(Call::FutexWaitv, || {
        futex::waitv(waits, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic)
    });
    match answer {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Returns `true` if this kernel and the seccomp filter of this process allow [`wait_any`].
pub fn can_wait_any() -> bool {
    let word = AtomicU32::new(0);
    // The value differs, so this does not sleep.
    wait_any([(&word, 1)], None).is_ok()
}

/// `FUTEX_WAKE`: wakes at most one waiter in any process. Returns the number woken.
pub fn wake_one(word: &AtomicU32) -> Result<usize, Errno> {
    futex::wake(word, Flags::empty(), 1)
}

/// `FUTEX_WAKE`: wakes all waiters. Returns the number woken.
pub fn wake_all(word: &AtomicU32) -> Result<usize, Errno> {
    futex::wake(word, Flags::empty(), i32::MAX.cast_unsigned())
}

/// Returns the time `ahead` from now on the monotonic clock; `None` if the clock cannot represent
/// it.
fn deadline(ahead: Duration) -> Option<Timespec> {
    let ahead = Timespec::try_from(ahead).ok()?;
    clock_gettime(ClockId::Monotonic).checked_add(ahead)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_sleeper_wakes_on_either_word_and_on_the_clock() {
        let words = [AtomicU32::new(5), AtomicU32::new(6)];
        let both = [(&words[0], 5), (&words[1], 6)];
        match wait_any(both, Some(Duration::from_millis(1))) {
            // ENOSYS before Linux 5.16, EPERM from a seccomp filter: there is nothing to test.
            Err(Errno::NOSYS | Errno::PERM) => return,
            answer => assert_eq!(answer, Err(Errno::TIMEDOUT)),
        }
        assert!(can_wait_any());
        assert_eq!(wait_any([(&words[0], 5), (&words[1], 7)], None), Ok(()));
        for word in &words {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let before = word.load(Ordering::Relaxed);
                    word.store(before + 1, Ordering::Release);
                    // If this wake comes before the other thread sleeps, that thread never sleeps,
                    // because the value has changed.
                    wake_one(word).unwrap();
                });
                assert_eq!(wait_any(both, None), Ok(()));
            });
            word.fetch_sub(1, Ordering::Relaxed);
        }
        assert_eq!(wait_any(both, Some(Duration::ZERO)), Err(Errno::TIMEDOUT));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_refusal_can_be_scripted() {
        use crate::fault::{Effect, Rule, Script};
        let rules = vec![Rule::always(Call::FutexWaitv, Effect::Errno(Errno::NOSYS))];
        assert!(!Script::new(rules).run(can_wait_any).value);
    }
}
