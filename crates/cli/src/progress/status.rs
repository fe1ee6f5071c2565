//! One line on standard error whenever SIGUSR1 comes, as `dd` does: for a command that runs where
//! no terminal shows its progress.

use indicatif::ProgressBar;
use std::thread;
use thalweg_sys::signal;

use super::Shared;
use crate::output::text::complain;

/// Answers from now on. Without a thread to spare the signal waits, and harms nothing.
pub(super) fn answer(state: Shared, bar: Option<ProgressBar>) {
    let wait = move || {
        // It fails for no signal that exists.
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
