//! SIGPIPE kept from the caller: where the library says that a peer died, no signal says it too. (Rust
//! programs ignore it from their start; C programs do not, and it ends them.)

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Runs `body` with SIGPIPE blocked in this thread, and takes the one back that it may have raised. It
/// goes to the thread whose write(2) found nobody, so no other thread can get it.
pub(crate) fn without<R>(body: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::new();
    body()
}

struct Blocked {
    sigpipe: libc::sigset_t,
    /// The thread's mask before; `None` if there is nothing to do: it was blocked already, and what
    /// comes of it is the caller's.
    before: Option<libc::sigset_t>,
}

impl Blocked {
    fn new() -> Self {
        let mut sigpipe = MaybeUninit::uninit();
        // SAFETY: sigemptyset fills the set that it is given.
        unsafe { libc::sigemptyset(sigpipe.as_mut_ptr()) };
        // SAFETY: filled.
        let mut sigpipe = unsafe { sigpipe.assume_init() };
        // SAFETY: a set, and a signal that there is.
        unsafe { libc::sigaddset(&raw mut sigpipe, libc::SIGPIPE) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: two sets, the second to be filled.
        let answer = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const sigpipe, before.as_mut_ptr())
        };
        // SAFETY: filled, where the call did not fail.
        let before = (answer == 0).then(|| unsafe { before.assume_init() });
        // SAFETY: a set, and a signal that there is.
        let is_free = |set: &libc::sigset_t| unsafe { libc::sigismember(set, libc::SIGPIPE) } == 0;
        Self { sigpipe, before: before.filter(is_free) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a set, no place for the details, and a time.
        while unsafe { libc::sigtimedwait(&raw const self.sigpipe, null_mut(), &raw const now) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        // SAFETY: the set that the thread had, and no place for the one it has.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    }
}
