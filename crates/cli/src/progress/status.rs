//! Prints one progress line on standard error for each SIGUSR1, as `dd` does. This is useful without a terminal.

use indicatif::ProgressBar;
use std::thread;
use thalweg_sys::signal;

use super::SharedState;
use crate::output::text::complain;

/// Starts answering SIGUSR1. If no thread can be created, the signal stays blocked and has no effect.
pub(super) fn answer(state: SharedState, bar: Option<ProgressBar>) {
    let wait = move || {
        // This can fail only for an invalid signal number.
        while signal::wait_for_status_request().is_ok() {
            let line = {
                let mut state = state.get();
                state.asked_for = true;
                if state.over {
                    return;
                }
                state.sentence()
            };
            match &bar {
                Some(bar) => bar.suspend(|| complain(&line)),
                None => complain(&line),
            }
        }
    };
    drop(thread::Builder::new().name("status".to_owned()).spawn(wait));
}
