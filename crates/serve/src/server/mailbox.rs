//! How other threads tell a worker that some of its connections can go on.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use thalweg_sys::io;

/// Where a worker is told of what was read in.
#[derive(Debug)]
pub struct Mailbox {
    tokens: Mutex<Vec<u64>>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// Of the worker that is woken by this.
    pub fn new(wake: Arc<OwnedFd>) -> Self {
        Self { tokens: Mutex::default(), wake }
    }

    /// The connections that can go on.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the worker for one.
    pub fn tell(&self, token: u64) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        wake(&self.wake);
    }
}

/// Wakes whoever waits for this eventfd.
pub fn wake(fd: &OwnedFd) {
    // It holds more than is ever written here.
    let _ = io::write(fd, &1_u64.to_ne_bytes());
}
