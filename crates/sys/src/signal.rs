//! Turns interrupts (SIGINT, SIGTERM, SIGHUP) into a flag, and sets the actions of SIGPIPE and SIGXFSZ.
//!
//! A signal may arrive after the flag was checked and before a call blocks. The call does not notice such a signal.
//! After the first interrupt, the process therefore gets SIGALRM every second, so that a blocking call returns EINTR
//! after at most a second. SIGALRM interrupts the thread that called [`catch_interrupts`], whichever thread received
//! the first signal. Other threads that block need a timeout.

use crate::Errno;
use libc::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// The first signal that interrupted the process; 0 if none has.
static WHICH: AtomicI32 = AtomicI32::new(0);

/// The number of interrupts so far.
static TIMES: AtomicU32 = AtomicU32::new(0);

/// The number of SIGHUPs since [`count_hangups`].
static HANGUPS: AtomicU32 = AtomicU32::new(0);

/// The thread to wake, by its kernel thread id.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Returns `true` if SIGINT, SIGTERM or SIGHUP arrived since [`catch_interrupts`].
#[inline]
pub fn interrupted() -> bool {
    WHICH.load(Ordering::Relaxed) != 0
}

/// Returns the number of SIGINT, SIGTERM and SIGHUP that arrived since [`catch_interrupts`]. From the second one on,
/// assume that the user wants to stop at once.
pub fn times() -> u32 {
    TIMES.load(Ordering::Relaxed)
}

/// Returns the first SIGINT, SIGTERM or SIGHUP that arrived.
pub fn which() -> Option<i32> {
    match WHICH.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP set the flag. Such a signal interrupts a blocking call of the calling thread with
/// EINTR, immediately and then every second until the process ends. For this purpose, SIGALRM is used and SA_RESTART is
/// not set. A later interrupt kills the process if it is SIGINT.
///
/// A SIGINT or SIGHUP that was ignored stays ignored, because shells protect background jobs in that way, and `nohup`
/// its command.
pub fn catch_interrupts() -> Result<(), Errno> {
    THREAD.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    handle(libc::SIGALRM, on_alarm as extern "C" fn(c_int) as usize)?;
    let on_interrupt = on_interrupt as extern "C" fn(c_int) as usize;
    handle(libc::SIGTERM, on_interrupt)?;
    for signal in [libc::SIGINT, libc::SIGHUP] {
        if handler_of(signal)? != libc::SIG_IGN {
            handle(signal, on_interrupt)?;
        }
    }
    Ok(())
}

/// Makes SIGHUP only increase a counter, even if it was ignored before.
pub fn count_hangups() -> Result<(), Errno> {
    handle(libc::SIGHUP, on_hangup as extern "C" fn(c_int) as usize)
}

/// Returns the number of SIGHUPs since [`count_hangups`].
pub fn hangups() -> u32 {
    HANGUPS.load(Ordering::Relaxed)
}

/// Blocks SIGINT, SIGTERM and SIGHUP in the calling thread and in threads that it starts. The other existing threads
/// handle them.
///
/// The kernel prefers the main thread unless the signal is blocked there, even if that thread cannot run a handler. For
/// example, it may sleep in a page fault that a FUSE server never serves. The signal would then have no effect.
pub fn leave_interrupts_to_others() -> Result<(), Errno> {
    block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
}

/// Blocks signals in the calling thread and in threads that it starts.
fn block(signals: &[c_int]) -> Result<(), Errno> {
    let set = set_of(signals);
    // SAFETY: the set is initialized; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for writes; the call initializes it to an empty set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialized above; the callers' signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: initialized above.
    unsafe { set.assume_init() }
}

/// Blocks SIGUSR1 in the calling thread and in threads that it starts. Users request the progress with this signal.
/// After this call, the signal no longer kills the process, and [`wait_for_status_request`] receives it.
pub fn hold_status_requests() -> Result<(), Errno> {
    block(&[libc::SIGUSR1])
}

/// Waits until SIGUSR1 arrives, and consumes it.
pub fn wait_for_status_request() -> Result<(), Errno> {
    let set = set_of(&[libc::SIGUSR1]);
    let mut signal = 0;
    // SAFETY: the set is initialized; the call writes one number to `signal`.
    match unsafe { libc::sigwait(&raw const set, &raw mut signal) } {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}

/// Makes SIGPIPE kill the process, as in other Unix tools. Rust's start-up code ignores it.
pub fn reset_sigpipe() -> Result<(), Errno> {
    handle(libc::SIGPIPE, libc::SIG_DFL)
}

/// Ignores SIGPIPE. A write to a closed pipe or socket then returns EPIPE, which the process can report.
pub fn ignore_sigpipe() -> Result<(), Errno> {
    handle(libc::SIGPIPE, libc::SIG_IGN)
}

/// Ignores SIGXFSZ. A write past RLIMIT_FSIZE then returns EFBIG, so the process can report the error and clean up.
pub fn ignore_sigxfsz() -> Result<(), Errno> {
    handle(libc::SIGXFSZ, libc::SIG_IGN)
}

extern "C" fn on_interrupt(signal: c_int) {
    TIMES.fetch_add(1, Ordering::Relaxed);
    let earlier = WHICH.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    if earlier.is_err() && signal == libc::SIGINT {
        let _ = handle(signal, libc::SIG_DFL);
        // SAFETY: async-signal-safe; delivered when this handler returns.
        unsafe { libc::raise(signal) };
        return;
    }
    wake();
}

extern "C" fn on_hangup(_: c_int) {
    HANGUPS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_alarm(_: c_int) {
    if interrupted() {
        wake();
    }
}

/// Interrupts the thread that called [`catch_interrupts`], now and after a second.
/// Async-signal-safe.
fn wake() {
    // SAFETY: async-signal-safe, takes a number, cannot fail.
    unsafe { libc::alarm(1) };
    let (process, thread) = (rustix::process::getpid(), THREAD.load(Ordering::Relaxed));
    if rustix::thread::gettid().as_raw_nonzero().get() == thread {
        return;
    }
    // SAFETY: the thread's own errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid as long as the thread lives, see above.
    let kept = unsafe { *errno };
    let (process, signal) = (process.as_raw_nonzero().get(), libc::SIGALRM);
    // SAFETY: takes numbers. For a thread that has ended it harmlessly returns ESRCH.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    // SAFETY: as above.
    unsafe { *errno = kept };
}

/// Sets a handler without SA_RESTART, so that blocking calls return EINTR. Async-signal-safe.
fn handle(signal: c_int, handler: usize) -> Result<(), Errno> {
    // SAFETY: zeroes are a valid sigaction: default, no flags, empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = handler;
    // SAFETY: `action` is initialized; handlers in this file are async-signal-safe.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(crate::io::last_errno()),
    }
}

fn handler_of(signal: c_int) -> Result<usize, Errno> {
    // SAFETY: zeroes are a valid sigaction.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    // SAFETY: the call only writes the current action to `action`.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } {
        0 => Ok(action.sa_sigaction),
        _ => Err(crate::io::last_errno()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const CHILD: &str = "THALWEG_SIGNAL_CHILD";

    fn raise(signal: c_int) {
        // SAFETY: takes a number.
        unsafe { libc::raise(signal) };
    }

    /// Runs as a separate process, started by the tests below, because signals concern the whole
    /// process.
    #[test]
    fn signal_child() {
        let Ok(what) = std::env::var(CHILD) else { return };
        if what == "pipe" {
            reset_sigpipe().unwrap();
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            drop(reader);
            let written = crate::io::write(&writer, b"x");
            panic!("still here: {written:?}");
        }
        if what == "deaf" {
            reset_sigpipe().unwrap();
            ignore_sigpipe().unwrap();
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            drop(reader);
            assert_eq!(crate::io::write(&writer, b"x"), Err(Errno::PIPE));
            return;
        }
        if what == "ignored" {
            for signal in [libc::SIGINT, libc::SIGHUP] {
                handle(signal, libc::SIG_IGN).unwrap();
            }
            catch_interrupts().unwrap();
            raise(libc::SIGINT);
            raise(libc::SIGHUP);
            assert!(!interrupted());
            return;
        }
        for signal in [libc::SIGINT, libc::SIGHUP] {
            handle(signal, libc::SIG_DFL).unwrap();
        }
        catch_interrupts().unwrap();
        if what == "hung up" {
            raise(libc::SIGHUP);
            assert_eq!((interrupted(), which()), (true, Some(libc::SIGHUP)));
            return;
        }
        if what == "elsewhere" {
            let (stop, ears) = std::sync::mpsc::channel::<()>();
            let other = std::thread::spawn(move || {
                let _ = ears.recv();
            });
            leave_interrupts_to_others().unwrap();
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            let pid = rustix::process::getpid();
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            // The other thread receives the signal, and wakes this one.
            assert_eq!(crate::io::read(&reader, &mut [0; 1]), Err(Errno::INTR));
            assert!(interrupted());
            drop(stop);
            other.join().unwrap();
            return;
        }
        assert_eq!((interrupted(), which()), (false, None));
        raise(libc::SIGTERM);
        assert_eq!((interrupted(), which()), (true, Some(libc::SIGTERM)));
        raise(libc::SIGTERM);
        if what == "twice" {
            raise(libc::SIGINT);
            panic!("still here");
        }
        // No further signals arrive from outside, so only SIGALRM can end these calls.
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        for _ in 0..2 {
            assert_eq!(crate::io::read(&reader, &mut [0; 1]), Err(Errno::INTR));
        }
    }

    fn child(what: &str) -> std::process::ExitStatus {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signal::tests::signal_child"])
            .env(CHILD, what)
            .status()
            .unwrap()
    }

    #[test]
    fn an_interrupt_sets_the_flag_and_ends_blocking_calls() {
        assert!(child("once").success());
    }

    #[test]
    fn an_interrupt_left_to_another_thread_still_wakes_the_first() {
        assert!(child("elsewhere").success());
    }

    #[test]
    fn a_second_interrupt_kills() {
        assert_eq!(child("twice").signal(), Some(libc::SIGINT));
    }

    #[test]
    fn a_terminal_that_goes_away_is_an_interrupt() {
        assert!(child("hung up").success());
    }

    #[test]
    fn an_ignored_interrupt_stays_ignored() {
        assert!(child("ignored").success());
    }

    #[test]
    fn a_broken_pipe_that_is_ignored_is_an_error() {
        assert!(child("deaf").success());
    }

    #[test]
    fn a_broken_pipe_kills_after_the_reset() {
        assert_eq!(child("pipe").signal(), Some(libc::SIGPIPE));
    }
}
