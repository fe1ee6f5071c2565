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
    /// The previous signal mask of the thread. `None` if SIGPIPE was already blocked: a pending signal then belongs to
    /// the caller.
    before: Option<libc::sigset_t>,
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
        // SAFETY: The set is valid, and the signal exists.
        let is_free = |set: &libc::sigset_t| unsafe { libc::sigismember(set, libc::SIGPIPE) } == 0;
        Self { sigpipe, before: before.filter(is_free) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: The set and the time are valid, and null is allowed for the details.
        while unsafe { libc::sigtimedwait(&raw const self.sigpipe, null_mut(), &raw const now) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: `before` is the thread's previous mask, and null is allowed for the current one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    }
}
