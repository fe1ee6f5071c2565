//! Waits for a server with a time limit, and notices cancellation.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use thalweg_core::{
    Cancelled,
    cadence::{CANCEL_CHECK, Deadline},
};
use thalweg_sys::{Errno, io};

use super::FetchError;

/// A check that returns an error if the caller has cancelled the fetch.
pub type CancelCheck<'a> = dyn Fn() -> Result<(), Cancelled> + Sync + 'a;

/// The time limit of every wait for a server, and the check for cancellation.
#[derive(Clone, Copy)]
pub struct NetDeadline<'a> {
    /// Longest time without a byte from the server.
    pub limit: Duration,
    /// Called at least once per [`CANCEL_CHECK`](thalweg_core::cadence::CANCEL_CHECK).
    pub check: &'a CancelCheck<'a>,
}

impl NetDeadline<'_> {
    /// Waits until `fd` is readable or writable.
    pub fn wait(&self, fd: BorrowedFd<'_>, to_read: bool, host: &str) -> Result<(), FetchError> {
        let deadline = Deadline::after(self.limit);
        loop {
            let limit = Some(deadline.until_check());
            let ready =
                if to_read { io::wait_readable(fd, limit) } else { io::wait_writable(fd, limit) };
            (self.check)()?;
            match ready {
                Ok(true) => return Ok(()),
                Ok(false) | Err(Errno::INTR) if !deadline.passed() => {}
                Ok(false) | Err(Errno::INTR) => return Err(self.stalled(host)),
                Err(errno) => {
                    let (host, why) = (host.to_owned(), std::io::Error::from(errno).to_string());
                    return Err(FetchError::Network { doing: "wait for", host, why });
                }
            }
        }
    }

    /// Runs `call`, which blocks and has a time limit of its own, in another thread. If the caller cancels, returns at
    /// once; the call then ends later, without effect. Runs it in this thread if no other thread can be started.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        host: &str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FetchError> {
        (self.check)()?;
        let call = Arc::new(Mutex::new(Some(call)));
        let take =
            |call: &Mutex<Option<_>>| call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (sender, receiver) = mpsc::channel();
        let own = Arc::clone(&call);
        let begun = thread::Builder::new().spawn(move || {
            if let Some(call) = take(&own) {
                // The receiver is gone if the caller has cancelled.
                let _ = sender.send(call());
            }
        });
        if begun.is_err()
            && let Some(call) = take(&call)
        {
            return Ok(call());
        }
        loop {
            match receiver.recv_timeout(CANCEL_CHECK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => (self.check)()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the thread of the connection ended early".to_owned();
                    return Err(FetchError::Network {
                        doing: "connect to",
                        host: host.to_owned(),
                        why,
                    });
                }
            }
        }
    }

    /// Returns the error of a server that sent nothing within the limit.
    pub fn stalled(&self, host: &str) -> FetchError {
        FetchError::Stalled { host: host.to_owned(), waited: self.limit }
    }
}

/// Sleeps for `pause`; returns early if the caller cancels.
pub fn sleep(pause: Duration, check: &CancelCheck<'_>) -> Result<(), Cancelled> {
    let deadline = Deadline::after(pause);
    loop {
        check()?;
        if deadline.passed() {
            return Ok(());
        }
        thread::sleep(deadline.until_check());
    }
}
