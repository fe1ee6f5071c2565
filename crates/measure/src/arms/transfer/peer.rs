//! The other end of a pipe or socket: a thread that feeds or drains the stream. The thread starts before any buffer is
//! allocated. Its CPU time belongs to this process, so a sample includes both sides.

use std::{
    io,
    os::fd::OwnedFd,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
};
use thalweg_core::{
    Kind, Unfit,
    cadence::CANCEL_CHECK,
    scratch::{self, Sockets},
};
use thalweg_sys::{Errno, io as calls};

use crate::{
    StopCheck,
    arms::content::{ByteContent, first_difference},
    schedule::SampleFailure,
};

/// Bytes per read or write: the usual read size of programs, and the capacity of a pipe.
const AT_ONCE: usize = 64 << 10;

/// The kind of stream between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Pipe,
    Unix,
    /// A connection over loopback.
    Tcp,
    /// A connection over loopback, with a reader that requests 1 MiB at a time.
    TcpLarge,
}

impl StreamKind {
    /// Returns a reading and a writing end.
    pub fn pair(self) -> io::Result<(OwnedFd, OwnedFd)> {
        match self {
            Self::Pipe => scratch::stream(Kind::Pipe, Sockets::Unix),
            Self::Unix => scratch::stream(Kind::Socket, Sockets::Unix),
            Self::Tcp | Self::TcpLarge => scratch::stream(Kind::Socket, Sockets::Tcp),
        }
    }

    /// Returns the read size.
    fn at_once(self) -> usize {
        if self == Self::TcpLarge { 1 << 20 } else { AT_ONCE }
    }
}

/// The end of the stream that is measured, and the thread at the other end.
pub struct StreamPeer {
    pub near: OwnedFd,
    orders: Sender<PeerOrder>,
    answers: Receiver<Result<(), String>>,
    pub kind: StreamKind,
}

/// A request for a number of transfers of the pattern's first bytes.
#[derive(Clone, Copy)]
struct PeerOrder {
    size: u64,
    transfers: u64,
    checking: bool,
}

impl StreamPeer {
    /// Creates an end to read from.
    pub fn feeding(kind: StreamKind) -> io::Result<Self> {
        let (near, far) = kind.pair()?;
        Self::start(kind, near, move |order| feed(&far, order))
    }

    /// Creates an end to write to.
    pub fn draining(kind: StreamKind) -> io::Result<Self> {
        let (far, near) = kind.pair()?;
        let mut buffer = vec![0; kind.at_once()];
        Self::start(kind, near, move |order| drain(&far, &mut buffer, order))
    }

    fn start(
        kind: StreamKind,
        near: OwnedFd,
        mut work: impl FnMut(PeerOrder) -> Result<(), String> + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel::<PeerOrder>();
        let (answer, answers) = channel();
        // Not joined: the thread exits when our end is closed, or with the process.
        thread::Builder::new().name("peer".to_owned()).spawn(move || {
            for order in inbox {
                let done = work(order);
                let failed = done.is_err();
                if answer.send(done).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(Self { near, orders, answers, kind })
    }

    /// Lets the thread start this number of transfers of this size.
    pub fn begin(&self, size: u64, transfers: u64, checking: bool) -> Result<(), SampleFailure> {
        let sent = self.orders.send(PeerOrder { size, transfers, checking });
        sent.map_err(|_| {
            Unfit::because("the thread at the other end of the stream has ended").into()
        })
    }

    /// Waits until the thread has finished its request.
    pub fn wait(&self, stop: &StopCheck<'_>) -> Result<(), SampleFailure> {
        loop {
            match self.answers.recv_timeout(CANCEL_CHECK) {
                Ok(done) => return Ok(done?),
                Err(RecvTimeoutError::Timeout) => stop()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Unfit::because(
                        "the thread at the other end of the stream has ended",
                    )
                    .into());
                }
            }
        }
    }
}

/// Writes the pattern. If SIGPIPE is not ignored, a reader that closes its end terminates the process.
fn feed(far: &OwnedFd, order: PeerOrder) -> Result<(), String> {
    for _ in 0..order.transfers {
        let mut at = 0;
        while at < order.size {
            let most = (order.size - at).min(AT_ONCE as u64) as usize;
            let put = write_all(far, ByteContent::Pattern.piece(at, most));
            put.map_err(|why| format!("cannot write data into the source: {why}"))?;
            at += most as u64;
        }
    }
    Ok(())
}

/// Reads everything, and compares it if requested.
fn drain(far: &OwnedFd, buffer: &mut [u8], order: PeerOrder) -> Result<(), String> {
    let total = order.size * order.transfers;
    if !order.checking {
        return take(far, buffer, total, |_, _| ());
    }
    match looked_at(far, buffer, ByteContent::Pattern, 0, total)? {
        None => Ok(()),
        Some(place) => Err(format!("delivered a wrong byte at {place}")),
    }
}

/// Writes all bytes.
pub fn write_all(into: &OwnedFd, mut bytes: &[u8]) -> Result<(), String> {
    while !bytes.is_empty() {
        match calls::write(into, bytes) {
            Ok(put) => bytes = &bytes[put..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("write: {errno}")),
        }
    }
    Ok(())
}

/// Reads `bytes` bytes in pieces of the buffer's size, and passes each piece with its position to `seen`.
pub fn take(
    from: &OwnedFd,
    buffer: &mut [u8],
    bytes: u64,
    mut seen: impl FnMut(u64, &[u8]),
) -> Result<(), String> {
    let mut taken = 0;
    while taken < bytes {
        let most = usize::try_from(bytes - taken).map_or(buffer.len(), |n| n.min(buffer.len()));
        match calls::read(from, &mut buffer[..most]) {
            Ok(0) => return Err(format!("the stream ended after {taken} of {bytes} bytes")),
            Ok(got) => {
                seen(taken, &buffer[..got]);
                taken += got as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("read after {taken} of {bytes} bytes: {errno}")),
        }
    }
    Ok(())
}

/// Reads `bytes` bytes, and returns the position of the first unexpected byte.
pub fn looked_at(
    from: &OwnedFd,
    buffer: &mut [u8],
    content: ByteContent,
    at: u64,
    bytes: u64,
) -> Result<Option<u64>, String> {
    let mut wrong = None;
    take(from, buffer, bytes, |place, arrived| {
        if wrong.is_none() {
            wrong = first_difference(content, at + place, arrived).map(|n| place + n as u64);
        }
    })?;
    Ok(wrong)
}
