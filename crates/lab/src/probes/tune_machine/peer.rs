//! The other end of a pipe or a socket: a thread that feeds or drains it, started before any buffer
//! is made. Its processor time is the process's, so both sides are counted.

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
};
use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};
use thalweg_core::Unfit;
use thalweg_sys::{Errno, io as call};

use super::pair::EndKind;
use crate::{
    arms::content::{Content, first_difference},
    measure::schedule::Failure,
    probes::tune_copy::Stop,
};

/// What programs that read a stream ask for at a time, and what a pipe holds.
const AT_ONCE: usize = 64 << 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// The end of the stream that is measured, and the thread at the other.
pub(super) struct Peer {
    pub near: OwnedFd,
    orders: Sender<Order>,
    answers: Receiver<Result<(), String>>,
}

/// So many transfers of the pattern's first bytes.
#[derive(Clone, Copy)]
struct Order {
    size: u64,
    transfers: u64,
    checking: bool,
}

impl Peer {
    /// Something to read from.
    pub fn feeding(kind: &EndKind) -> io::Result<Self> {
        let (near, far) = stream(kind)?;
        Self::start(near, move |order| feed(&far, order))
    }

    /// Something to write to.
    pub fn draining(kind: &EndKind) -> io::Result<Self> {
        let (far, near) = stream(kind)?;
        let mut buffer = vec![0; AT_ONCE];
        Self::start(near, move |order| drain(&far, &mut buffer, order))
    }

    fn start(
        near: OwnedFd,
        mut work: impl FnMut(Order) -> Result<(), String> + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel::<Order>();
        let (answer, answers) = channel();
        // Not joined: it ends when our end is closed, or with the process.
        thread::Builder::new().name("peer".to_owned()).spawn(move || {
            for order in inbox {
                let done = work(order);
                let failed = done.is_err();
                if answer.send(done).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(Self { near, orders, answers })
    }

    /// Has it begin with so many transfers of so many bytes.
    pub fn begin(&self, size: u64, transfers: u64, checking: bool) -> Result<(), Failure> {
        let sent = self.orders.send(Order { size, transfers, checking });
        sent.map_err(|_| Failure::Unfit(Unfit::because("the other end of the stream is gone")))
    }

    /// Waits until it has done what it was told.
    pub fn wait(&self, stop: &Stop<'_>) -> Result<(), Failure> {
        loop {
            match self.answers.recv_timeout(BETWEEN_LOOKS) {
                Ok(done) => return done.map_err(|why| Failure::Unfit(Unfit::because(why))),
                Err(RecvTimeoutError::Timeout) if stop().is_ok() => {}
                Err(RecvTimeoutError::Timeout) => return Err(Failure::Cancelled),
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the other end of the stream is gone";
                    return Err(Failure::Unfit(Unfit::because(why)));
                }
            }
        }
    }
}

/// Writes the pattern. Where SIGPIPE is not ignored, a reader that leaves ends the process.
fn feed(far: &OwnedFd, order: Order) -> Result<(), String> {
    for _ in 0..order.transfers {
        let mut at = 0;
        while at < order.size {
            let most = (order.size - at).min(AT_ONCE as u64) as usize;
            match call::write(far, Content::Pattern.piece(at, most)) {
                Ok(put) => at += put as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(format!("feeding the source: {errno}")),
            }
        }
    }
    Ok(())
}

/// Reads everything; compares it if it is told to.
fn drain(far: &OwnedFd, buffer: &mut [u8], order: Order) -> Result<(), String> {
    let total = order.size * order.transfers;
    let mut at = 0;
    while at < total {
        let most = (total - at).min(buffer.len() as u64) as usize;
        match call::read(far, &mut buffer[..most]) {
            Ok(0) => return Err(format!("{at} of {total} bytes arrived")),
            Ok(got) => {
                let wrong = || first_difference(Content::Pattern, at, &buffer[..got]);
                if let Some(place) = order.checking.then(wrong).flatten() {
                    return Err(format!("delivered a wrong byte at {}", at + place as u64));
                }
                at += got as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("draining the sink: {errno}")),
        }
    }
    Ok(())
}

/// A stream's reading and writing end.
fn stream(kind: &EndKind) -> io::Result<(OwnedFd, OwnedFd)> {
    match kind {
        EndKind::Unix => {
            let (stream, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
            Ok(socketpair(AddressFamily::UNIX, stream, flags, None)?)
        }
        EndKind::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            // Whoever else connects in between is not our other side.
            loop {
                let (far, peer) = listener.accept()?;
                if peer == near.local_addr()? {
                    // As servers do: else the last bytes of a transfer wait for an acknowledgement
                    // that the other side delays.
                    near.set_nodelay(true)?;
                    far.set_nodelay(true)?;
                    return Ok((near.into(), far.into()));
                }
            }
        }
        _ => Ok(pipe_with(PipeFlags::CLOEXEC)?),
    }
}
