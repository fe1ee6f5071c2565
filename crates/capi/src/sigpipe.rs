//! Prevents SIGPIPE in the caller. The library reports a dead peer by a status, so the signal must not kill the
//! program. A Rust program ignores SIGPIPE from its start, but a C program does not.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Runs `body` with SIGPIPE blocked in this thread, and consumes a SIGPIPE that `body` raises. No other thread can get
/// the signal, because the kernel sends it to the thread that called write(2).
pub(crate) fn without<R>(body: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::new();
    body()
}

struct Blocked {
    sigpipe: libc::sigset_t,
    /// The previous signal mask of the thread. `None` if it could not be changed.
    before: Option<libc::sigset_t>,
    /// `true` if SIGPIPE was already pending, which is possible if the caller had blocked it. The signal then belongs
    /// to the caller, and stays pending.
    was_pending: bool,
}

impl Blocked {
    fn new() -> Self {
        let mut sigpipe = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set at this address.
        unsafe { libc::sigemptyset(sigpipe.as_mut_ptr()) };
        // SAFETY: The set was initialised above.
        let mut sigpipe = unsafe { sigpipe.assume_init() };
        // SAFETY: The set is valid, and the signal exists.
        unsafe { libc::sigaddset(&raw mut sigpipe, libc::SIGPIPE) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: Both addresses are valid; the call initialises the second set.
        let answer = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const sigpipe, before.as_mut_ptr())
        };
        // SAFETY: The call has initialised the set if it did not fail.
        let before = (answer == 0).then(|| unsafe { before.assume_init() });
        let was_pending = before.as_ref().is_some_and(has_sigpipe) && is_pending();
        Self { sigpipe, before, was_pending }
    }
}

fn has_sigpipe(set: &libc::sigset_t) -> bool {
    // SAFETY: The set is valid, and the signal exists.
    unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 }
}

/// Returns `true` if SIGPIPE is pending for this thread or for the process.
fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: The address is valid; the call initialises the set.
    let answer = unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: The call has initialised the set if it did not fail.
    let pending = (answer == 0).then(|| unsafe { pending.assume_init() });
    pending.as_ref().is_some_and(has_sigpipe)
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let consume = || {
            // SAFETY: The set and the time are valid, and null is allowed for the details.
            unsafe { libc::sigtimedwait(&raw const self.sigpipe, null_mut(), &raw const now) }
        };
        while !self.was_pending
            && consume() < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: `before` is the thread's previous mask, and null is allowed for the current one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    }
}
