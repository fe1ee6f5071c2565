//! Waiting for a server: not for ever, and not after an interrupt.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use thalweg_core::Cancelled;
use thalweg_sys::{Errno, io};

use super::Error;

/// How often an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Who waits, and how long.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// The longest time in which nothing comes.
    pub most: Duration,
    /// Whether to go on.
    pub look: &'a (dyn Fn() -> Result<(), Cancelled> + Sync),
}

impl Patience<'_> {
    /// Waits until something can be read, or written.
    pub fn wait(&self, fd: BorrowedFd<'_>, to_read: bool, host: &str) -> Result<(), Error> {
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
                    return Err(Error::Stalled { host: host.to_owned(), waited: self.most });
                }
                Err(errno) => {
                    let (host, why) = (host.to_owned(), std::io::Error::from(errno).to_string());
                    return Err(Error::Network { doing: "wait for", host, why });
                }
            }
        }
    }

    /// Does nothing for so long.
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
