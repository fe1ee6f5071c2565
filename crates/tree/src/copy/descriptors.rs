//! Repeats attempts that fail because the process or the machine has no free descriptor.

use std::thread;
use thalweg_core::cadence::{ATTEMPTS, RETRY_PAUSE};

use crate::error::Attempt;

/// Calls `attempt` until it no longer fails for lack of descriptors. Before each retry, `release` closes descriptors
/// that can be opened again. A pause then lets other workers and other programs close some of theirs.
pub(crate) fn retry_for_descriptors<S, T>(
    state: &mut S,
    mut attempt: impl FnMut(&mut S) -> Attempt<T>,
    release: impl Fn(&mut S),
) -> Attempt<T> {
    for _ in 0..ATTEMPTS {
        match attempt(state) {
            Err(failure) if failure.is_for_descriptors() => {
                release(state);
                thread::sleep(RETRY_PAUSE);
            }
            answer => return answer,
        }
    }
    attempt(state)
}
