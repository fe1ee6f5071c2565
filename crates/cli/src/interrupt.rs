//! Interrupts: SIGINT and similar signals cancel a command, and end a command that cannot be cancelled.
//!
//! A signal cannot interrupt a system call that waits for an unresponsive server or disk. Only the end of the process
//! stops such a call. Unfinished files then have a temporary name or no name, as after a kill.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, cadence::CANCEL_CHECK};
use thalweg_sys::signal;

use crate::{
    exit::{CommandFailure, Exit},
    output::text::complain,
};

/// Time that an interrupted command has to end before the process exits.
const EXIT_DELAY: Duration = Duration::from_secs(3);
/// Running time of a usually short command after which its interrupts are caught.
const BRIEF: Duration = Duration::from_millis(50);

/// `true` while interrupts are not caught yet. The first [`check`] after the time `DUE` starts to catch them.
static POSTPONED: AtomicBool = AtomicBool::new(false);
static DUE: OnceLock<Instant> = OnceLock::new();

/// Catches interrupts from now on. If the process has not ended [`EXIT_DELAY`] after an interrupt, this module ends it.
pub fn catch() {
    // These calls fail only for invalid signal numbers. SIGUSR1 requests the status and must not end the process. It
    // is blocked before the first thread starts, because the kernel may deliver it to any thread.
    let _ = signal::hold_status_requests();
    let _ = signal::catch_interrupts();
    // If no thread can be created, a second Ctrl-C ends the process.
    if thread::Builder::new().name("interrupt".to_owned()).spawn(wait).is_ok() {
        let _ = signal::leave_interrupts_to_others();
    }
}

/// Catches interrupts like [`catch`], but only from the first [`check`] after [`BRIEF`]. Until then the kernel ends the
/// process at an interrupt, even in a blocked system call. Use it for work of one thread that takes less time than
/// starting another thread. A kill may leave partial files behind, so a later command must remove them.
pub fn catch_if_it_lasts() {
    let _ = signal::hold_status_requests();
    DUE.get_or_init(|| Instant::now() + BRIEF);
    POSTPONED.store(true, Ordering::Relaxed);
}

/// Returns `true` while interrupts are not caught yet, although [`catch_if_it_lasts`] was called.
pub fn is_postponed() -> bool {
    POSTPONED.load(Ordering::Relaxed)
}

/// Returns an error after an interrupt. Jobs call this between their steps.
pub fn check() -> Result<(), Cancelled> {
    let is_due = || DUE.get().is_some_and(|due| Instant::now() >= *due);
    if POSTPONED.load(Ordering::Relaxed) && is_due() && POSTPONED.swap(false, Ordering::Relaxed) {
        catch();
    }
    if is_interrupted() { Err(Cancelled) } else { Ok(()) }
}

/// Returns `true` after an interrupt.
pub fn is_interrupted() -> bool {
    signal::interrupted()
}

/// Returns the failure of an interrupted command; `state` describes what it leaves behind.
pub fn failure(state: &str) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("interrupted; {state}"))
}

fn wait() {
    let signal = loop {
        match signal::which() {
            Some(signal) => break signal,
            None => thread::sleep(CANCEL_CHECK),
        }
    };
    thread::sleep(EXIT_DELAY);
    complain(
        "interrupted during a system call that does not return; unfinished files keep their temporary names",
    );
    std::process::exit(128 | signal);
}
