//! Interrupts: Ctrl-C and its like cancel what a command does, and end a command that cannot be
//! cancelled.
//!
//! A call on a file whose server or disk does not answer cannot be interrupted, only killed. What is
//! unfinished then has a temporary name, or none, as after any kill.

use std::{thread, time::Duration};
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

/// What a job asks between its steps.
pub fn check() -> Result<(), Cancelled> {
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
