//! The end of a command whose orderly end does not come.
//!
//! A call on a file whose server or disk does not answer cannot be interrupted, only killed. What is
//! unfinished then has a temporary name, or none, as after any kill.

use std::{thread, time::Duration};
use thalweg_sys::signal;

use crate::output::text::complain;

/// How long an interrupted command may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(100);

/// Notices interrupts from now on, and ends the process if it does not end itself soon after one.
pub fn catch_interrupts() {
    // These fail for no signal that exists. Whoever asks how far it is must not end it: before the
    // first thread is started, since any of them could be given the signal.
    let _ = signal::hold_status_requests();
    let _ = signal::catch_interrupts();
    // Without a thread to spare, a second Ctrl-C has to do it.
    if thread::Builder::new().name("patience".to_owned()).spawn(wait).is_ok() {
        let _ = signal::leave_interrupts_to_others();
    }
}

fn wait() {
    let signal = loop {
        match signal::which() {
            Some(signal) => break signal,
            None => thread::sleep(LOOK),
        }
    };
    thread::sleep(PATIENCE);
    complain("stopped while a call did not come back; what is unfinished keeps its temporary name");
    std::process::exit(128 | signal);
}
