//! Keeps SIGPIPE from the caller: the library reports a dead peer by a status, so the signal must not
//! report it as well. (Rust programs ignore SIGPIPE from the start; C programs do not, and it kills
//! them.)

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Runs `body` with SIGPIPE blocked in this thread, and consumes a SIGPIPE that it raises. The kernel
/// sends the signal to the thread that called write(2), so no other thread can get it.
pub(crate) fn without<R>(body: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::new();
    body()
}

struct Blocked {
    sigpipe: libc::sigset_t,
    /// The thread's previous signal mask. `None` if SIGPIPE was already blocked: then a pending signal
    /// is left to the caller.
    before: Option<libc::sigset_t>,
}

impl Blocked {
    fn new() -> Self {
        let mut sigpipe = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe { libc::sigemptyset(sigpipe.as_mut_ptr()) };
        // SAFETY: Initialised above.
        let mut sigpipe = unsafe { sigpipe.assume_init() };
        // SAFETY: A valid set and an existing signal.
        unsafe { libc::sigaddset(&raw mut sigpipe, libc::SIGPIPE) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: Two valid sets; the call writes the second.
        let answer = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const sigpipe, before.as_mut_ptr())
        };
        // SAFETY: Initialised if the call did not fail.
        let before = (answer == 0).then(|| unsafe { before.assume_init() });
        // SAFETY: A valid set and an existing signal.
        let is_free = |set: &libc::sigset_t| unsafe { libc::sigismember(set, libc::SIGPIPE) } == 0;
        Self { sigpipe, before: before.filter(is_free) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: A valid set, null for the details, and a valid time.
        while unsafe { libc::sigtimedwait(&raw const self.sigpipe, null_mut(), &raw const now) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: The thread's previous mask, and null for the current one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    }
}
