//! Waits for a server with a time limit, and notices cancellation.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use thalweg_core::Cancelled;
use thalweg_sys::{Errno, io};

use super::FetchError;

/// Interval at which cancellation is checked.
const LOOK: Duration = Duration::from_millis(100);

/// A time limit and a check for cancellation.
#[derive(Clone, Copy)]
pub struct NetDeadline<'a> {
    /// Longest time without a byte from the server.
    pub most: Duration,
    /// Returns an error if the caller cancelled.
    pub look: &'a (dyn Fn() -> Result<(), Cancelled> + Sync),
}

impl NetDeadline<'_> {
    /// Waits until `fd` is readable or writable.
    pub fn wait(&self, fd: BorrowedFd<'_>, to_read: bool, host: &str) -> Result<(), FetchError> {
        let until = Instant::now() + self.most;
        loop {
            let ready = if to_read {
                io::wait_readable(fd, Some(LOOK))
            } else {
                io::wait_writable(fd, Some(LOOK))
            };
            (self.look)()?;
            match ready {
                Ok(true) => return Ok(()),
                Ok(false) | Err(Errno::INTR) if Instant::now() < until => {}
                Ok(false) | Err(Errno::INTR) => {
                    return Err(FetchError::Stalled { host: host.to_owned(), waited: self.most });
                }
                Err(errno) => {
                    let (host, why) = (host.to_owned(), std::io::Error::from(errno).to_string());
                    return Err(FetchError::Network { doing: "wait for", host, why });
                }
            }
        }
    }

    /// Sleeps for `pause`; returns early if the caller cancels.
    pub fn sleep(&self, pause: Duration) -> Result<(), Cancelled> {
        let until = Instant::now() + pause;
        loop {
            (self.look)()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}
