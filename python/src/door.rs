//! Admits peers that connect to a listener. Each handshake has its own thread, so that a silent peer blocks no other.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;
use thalweg_channel::{Error, Link, Listener, Options};
use thalweg_sys::{Errno, io};

/// Largest number of simultaneous handshakes; further peers wait in the kernel's queue.
const MOST: usize = 64;

/// Performs a handshake over a link, with a deadline.
pub type Meet<T> = fn(Link, &Options, Instant) -> Result<T, Error>;

pub struct HandshakeDoor<T> {
    listener: Listener,
    options: Options,
    meet: Meet<T>,
    tell: Sender<Result<T, Error>>,
    told: Receiver<Result<T, Error>>,
    /// Handshakes in progress.
    meeting: usize,
    arrived: Vec<T>,
}

impl<T: Send + 'static> HandshakeDoor<T> {
    pub fn new(listener: Listener, options: Options, meet: Meet<T>) -> Self {
        let (tell, told) = channel();
        Self { listener, options, meet, tell, told, meeting: 0, arrived: Vec::new() }
    }

    /// Returns the peers that have been admitted since the last call.
    pub fn arrivals(&mut self) -> Result<Vec<T>, Error> {
        while self.meeting < MOST {
            match self.listener.accept_until(Some(Instant::now())) {
                Ok(link) => self.begin(link)?,
                Err(Error::Timeout) => break,
                // The peer belongs to another user, and the listener has closed its connection.
                Err(Error::NotPermitted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        while let Ok(met) = self.told.try_recv() {
            self.end(met);
        }
        Ok(std::mem::take(&mut self.arrived))
    }

    /// Returns a descriptor that is readable when a peer connects.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns `true` while a handshake is in progress.
    pub fn is_meeting(&self) -> bool {
        self.meeting > 0
    }

    /// Waits for the end of a handshake if one is in progress, otherwise until a peer connects, but not beyond `until`.
    pub fn wait(&mut self, until: Instant) -> Result<(), Error> {
        let left = until.saturating_duration_since(Instant::now());
        if self.is_meeting() {
            match self.told.recv_timeout(left) {
                Ok(met) => self.end(met),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            return Ok(());
        }
        match io::wait_readable(&self.listener, Some(left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    fn begin(&mut self, link: Link) -> Result<(), Error> {
        let (tell, meet, options) = (self.tell.clone(), self.meet, self.options);
        let until = Instant::now() + Listener::PATIENCE;
        let begun = thread::Builder::new().name("thalweg-meet".to_owned()).spawn(move || {
            // `send` fails if the door has been closed. Then this statement drops the new end.
            let _ = tell.send(meet(link, &options, until));
        });
        begun.map_err(|error| Error::System {
            call: "clone",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?;
        self.meeting += 1;
        Ok(())
    }

    /// Records the result of a handshake. Ignores errors, because a peer that left or sent nothing may connect again.
    fn end(&mut self, met: Result<T, Error>) {
        self.meeting -= 1;
        self.arrived.extend(met.ok());
    }
}
