//! Interrupts: Ctrl-C and its like cancel what a command does, and end a command that cannot be
//! cancelled.
//!
//! A call on a file whose server or disk does not answer cannot be interrupted, only killed. What is
//! unfinished then has a temporary name, or none, as after any kill.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::signal;

use crate::{
    exit::{Exit, Failure},
    output::text::complain,
};

/// How long an interrupted command may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// How often to look whether one came.
const LOOK: Duration = Duration::from_millis(100);
/// How long a command may run that is over sooner as a rule, before its interrupts are caught.
const BRIEF: Duration = Duration::from_millis(50);

/// Whether they are not caught yet, and when they are to be.
static WAITS: AtomicBool = AtomicBool::new(false);
static DUE: OnceLock<Instant> = OnceLock::new();

/// Notices interrupts from now on, and ends the process if it does not end itself soon after one.
pub fn catch() {
    // These fail for no signal that exists. A request for the status (SIGUSR1) must not end the process:
    // it is held before the first thread is started, since any thread could be given the signal.
    let _ = signal::hold_status_requests();
    let _ = signal::catch_interrupts();
    // Without a thread to spare, a second Ctrl-C has to do it.
    if thread::Builder::new().name("interrupt".to_owned()).spawn(wait).is_ok() {
        let _ = signal::leave_interrupts_to_others();
    }
}

/// The same, but not before the first [`check`] after a moment; until then the kernel ends the process at an interrupt,
/// even in a call that does not come back. For what one thread does in less time than it takes to start another one, and
/// what a kill would leave of it, a later command clears away.
pub fn catch_if_it_lasts() {
    let _ = signal::hold_status_requests();
    DUE.get_or_init(|| Instant::now() + BRIEF);
    WAITS.store(true, Ordering::Relaxed);
}

/// What a job asks between its steps.
pub fn check() -> Result<(), Cancelled> {
    let is_due = || DUE.get().is_some_and(|due| Instant::now() >= *due);
    if WAITS.load(Ordering::Relaxed) && is_due() && WAITS.swap(false, Ordering::Relaxed) {
        catch();
    }
    if is_interrupted() { Err(Cancelled) } else { Ok(()) }
}

/// Whether an interrupt came.
pub fn is_interrupted() -> bool {
    signal::interrupted()
}

/// The end of a command that was interrupted; `state` says what it leaves behind.
pub fn failure(state: &str) -> Failure {
    Failure::new(Exit::Failed, format!("interrupted; {state}"))
}

fn wait() {
    let signal = loop {
        match signal::which() {
            Some(signal) => break signal,
            None => thread::sleep(LOOK),
        }
    };
    thread::sleep(GRACE);
    complain("stopped while a call did not come back; what is unfinished keeps its temporary name");
    std::process::exit(128 | signal);
}
