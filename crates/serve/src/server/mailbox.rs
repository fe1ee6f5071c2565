//! Mailbox of a worker, in which other threads note the connections that can continue.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use thalweg_sys::io;

/// The connections of a worker that can continue.
#[derive(Debug)]
pub struct Mailbox {
    tokens: Mutex<Vec<u64>>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// Creates the mailbox of a worker. `wake`: the eventfd on which the worker waits.
    pub fn new(wake: Arc<OwnedFd>) -> Self {
        Self { tokens: Mutex::default(), wake }
    }

    /// Takes the tokens of the connections that can continue.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a connection and wakes the worker.
    pub fn notify(&self, token: u64) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        wake(&self.wake);
    }
}

/// Wakes the thread that waits for this eventfd.
pub fn wake(fd: &OwnedFd) {
    // The write cannot fail with `EAGAIN`: the counter is far below the maximum of an eventfd.
    let _ = io::write(fd, &1_u64.to_ne_bytes());
}
