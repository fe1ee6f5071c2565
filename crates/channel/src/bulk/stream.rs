//! Common code of the mechanisms that use a pipe or a socket. No call blocks for long, because an open pipe or socket
//! does not prove that the peer lives: a forked child of the peer may hold it open.
//!
//! The receiver does not rely on O_NONBLOCK or SO_RCVTIMEO of the descriptor that the peer passed. The flag belongs to
//! the open file description and the timeout to the socket, and the peer can change both through a duplicate. The sender
//! passes no duplicate of its own end, so it can rely on them.

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thalweg_core::{Info, Tuning, Unfit};
use thalweg_sys::Errno;

use crate::bulk::control::{BulkControl, Note, Say};
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::shared::liveness::Gone;
use crate::shared::stop::WaitStop;

/// The properties in which the mechanisms with a pipe or socket differ.
pub struct StreamMechanism {
    pub(crate) info: &'static Info,
    /// Tries the calls in this process alone.
    pub(crate) probe: fn() -> Result<(), Unfit>,
    /// Creates a pipe or socket pair. Returns the end to keep and the end for the peer.
    pub(crate) make: fn(&Tuning) -> Result<(OwnedFd, OwnedFd), Unfit>,
    /// Checks the end that the peer sent, and prepares it for use.
    pub(crate) take: fn(OwnedFd) -> Result<StreamSource, Unfit>,
    pub(crate) write: Write,
    /// `true` if the receiver reads pages that still belong to the sender.
    pub(crate) shares_pages: bool,
}

/// The end of a stream that the receiver reads.
pub(crate) struct StreamSource {
    pub fd: OwnedFd,
    pub read: Read,
}

/// Writes to the stream. Returns EAGAIN instead of blocking for long.
type Write = fn(BorrowedFd<'_>, &[u8]) -> Result<usize, Errno>;
/// Reads from the stream. Returns EAGAIN instead of blocking, whatever the peer does to a duplicate of the descriptor.
type Read = fn(BorrowedFd<'_>, &mut [u8]) -> Result<usize, Errno>;

struct StreamSender {
    fd: Arc<OwnedFd>,
    piece: usize,
    call: &'static str,
    write: Write,
}

struct StreamReceiver {
    fd: Arc<OwnedFd>,
    piece: usize,
    call: &'static str,
    read: Read,
    shares_pages: bool,
}

impl StreamMechanism {
    /// Returns the maximum number of bytes per call.
    fn piece(&self, tuning: &Tuning) -> usize {
        self.info.length(tuning, "piece").unwrap_or(usize::MAX)
    }
}

impl Mechanism for StreamMechanism {
    fn info(&self) -> &'static Info {
        self.info
    }

    fn probe(&self) -> Result<(), Unfit> {
        (self.probe)()
    }

    fn offer(&self, tuning: &Tuning, _: &TransferEnds) -> OfferResult {
        let (fd, theirs) = (self.make)(tuning)?;
        let (call, write) = (self.info.calls[0], self.write);
        let sender = StreamSender { fd: Arc::new(fd), piece: self.piece(tuning), call, write };
        Ok((Box::new(sender), Parcel::of(&[], vec![theirs])))
    }

    fn accept(&self, tuning: &Tuning, mut parcel: Parcel, _: &TransferEnds) -> AcceptResult {
        let StreamSource { fd, read } = (self.take)(parcel.fd()?)?;
        let fd = Arc::new(fd);
        let call = self.info.calls[self.info.calls.len() - 1];
        let (piece, shares_pages) = (self.piece(tuning), self.shares_pages);
        let receiver = StreamReceiver { fd, piece, call, read, shares_pages };
        Ok((Box::new(receiver), Parcel::default()))
    }
}

impl Outgoing for StreamSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        control.watch_with(&self.fd);
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match (self.write)(self.fd.as_fd(), &rest[..rest.len().min(self.piece)]) {
                Ok(0) => return Err(WaitStop::refused(self.call, Errno::INVAL)),
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => control.wanted()?,
                Err(Errno::AGAIN) => match control.check() {
                    Ok(()) => control.await_ready(self.fd.as_fd(), PollFlags::OUT)?,
                    Err(WaitStop::Gone(_)) => return Err(deserted(control)),
                    Err(stop) => return Err(stop),
                },
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(deserted(control)),
                Err(errno) => return Err(WaitStop::refused(self.call, errno)),
            }
        }
        control.expect(Say::Done).map(drop)
    }
}

/// Returns the reason why the receiver closed its end: it is gone, or it has refused and sent a note.
pub(crate) fn deserted(control: &mut BulkControl) -> WaitStop {
    match control.expect(Say::Done) {
        Err(stop) => stop,
        Ok(_) => WaitStop::corrupt("the peer confirmed the buffer before it had all of it"),
    }
}

impl StreamReceiver {
    fn fill(&self, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        let (mut filled, mut ended) = (0, None);
        while filled < into.len() {
            let most = self.piece.min(into.len() - filled);
            let answer = (self.read)(self.fd.as_fd(), &mut into[filled..filled + most]);
            let broken = |stop| Broken { delivered: filled as u64, stop };
            match (answer, ended.take()) {
                (Ok(0) | Err(Errno::CONNRESET), _) => {
                    return Err(broken(WaitStop::Gone(Gone::Died)));
                }
                (Ok(count), _) => filled += count,
                (Err(Errno::INTR), _) => control.wanted().map_err(broken)?,
                (Err(Errno::AGAIN), Some(stop)) => return Err(broken(stop)),
                (Err(Errno::AGAIN), None) => match control.check() {
                    Ok(()) => {
                        control.await_ready(self.fd.as_fd(), PollFlags::IN).map_err(broken)?;
                    }
                    // The peer may have written data before it died, so read once more.
                    Err(stop) => ended = Some(stop),
                },
                (Err(errno), _) => return Err(broken(WaitStop::refused(self.call, errno))),
            }
        }
        Ok(())
    }
}

impl Incoming for StreamReceiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        control.watch_with(&self.fd);
        let filled = self.fill(into, control);
        if !self.shares_pages {
            return filled;
        }
        // If the sender has given up, it may have changed its pages before they were read. Then the number of valid
        // bytes is unknown.
        filled.map_err(|broken| broken.stop)?;
        control.check_peer().map_err(Broken::from)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
