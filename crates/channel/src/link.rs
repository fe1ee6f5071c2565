//! A link: two processes joined by a unix SEQPACKET socket that carries small messages and file
//! descriptors. It introduces them; the bytes themselves go through shared memory, by other rooms.

use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use thalweg_sys::{
    Errno, io,
    peer::{self, Credentials},
};

mod address;
mod listener;
mod place;
pub use address::Address;
pub use listener::Listener;

/// Which processes may be at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Admit {
    /// Only processes of our own effective user.
    #[default]
    SameUser,
    /// Only processes of this user id.
    User(u32),
    /// Any process that can reach the socket.
    Anyone,
}

/// The process at the other end. Until a channel is open, it is the one that the kernel knew when the two ends were joined: for the
/// side that connected the process that listens, for [`Link::pair`] the one that made the pair. An end may be inherited or handed
/// on, so opening a channel learns it from the messages of the other side, which the kernel signs.
#[derive(Debug)]
pub struct Peer {
    /// Process id; 0 if it lives in a pid namespace we do not see.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Names the process for good, where a pid may be used again. `None` where the kernel gives none (seccomp, a foreign pid
    /// namespace, Linux before 5.3), and before a channel is open on an end that may have been inherited.
    pub pidfd: Option<OwnedFd>,
}

impl Peer {
    fn of(socket: &OwnedFd) -> Result<Self> {
        let told = peer::credentials(socket).map_err(Error::system("getsockopt(SO_PEERCRED)"))?;
        Ok(Self { pid: told.pid, uid: told.uid, gid: told.gid, pidfd: None })
    }
}

/// One end of a link. Closed when dropped, which the other end sees. A child made by `fork` has
/// the same end: it should drop it, for a message goes to whichever of the two reads first.
#[derive(Debug)]
pub struct Link {
    socket: Arc<OwnedFd>,
    peer: Peer,
    /// The peer has said who it is, in a message that the kernel signed.
    is_signed: bool,
}

impl Link {
    /// The most descriptors one message may carry.
    pub const MOST_FDS: usize = peer::MOST_FDS;

    /// Two ends in this process; one is usually handed to a child. Both name this process as their
    /// peer, since it made them.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (near, far) = peer::pair()?;
        let ends = (Self::over(near, Admit::Anyone), Self::over(far, Admit::Anyone));
        match ends {
            (Ok(near), Ok(far)) => Ok((near, far)),
            (Err(error), _) | (_, Err(error)) => Err(std::io::Error::other(error)),
        }
    }

    /// Joins the process that listens at `address`, which must be of our own user, waiting while
    /// its queue is full. [`Error::Meeting`] with ENOENT or ECONNREFUSED if no process listens
    /// there.
    pub fn connect(address: &Address) -> Result<Self> {
        Self::connect_with(address, Admit::SameUser, None)
    }

    /// As [`Link::connect`], for peers of other users and with a deadline.
    pub fn connect_with(
        address: &Address,
        admit: Admit,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        // A listener gives its socket the name once it listens, so a refusal is final.
        let socket = peer::connect(address.path(), left(deadline));
        let socket = socket.map_err(|errno| match errno {
            Errno::AGAIN => Error::Timeout,
            errno => Error::at("connect", address.path())(errno),
        })?;
        Self::joined(socket, admit)
    }

    /// A link over a socket that was just connected or accepted: the process at the other end was there.
    pub(super) fn joined(socket: OwnedFd, admit: Admit) -> Result<Self> {
        let mut link = Self::over(socket, admit)?;
        link.watch_first_peer();
        Ok(link)
    }

    /// Watches the process that the kernel knew when the ends were joined.
    fn watch_first_peer(&mut self) {
        self.peer.pidfd = peer::pidfd(&*self.socket).ok();
    }

    /// A link over a connected SEQPACKET socket: one that was inherited, or received as a
    /// descriptor. ENOTCONN or EINVAL in [`Error::System`] if it is something else.
    pub fn over(socket: OwnedFd, admit: Admit) -> Result<Self> {
        let kind = rustix::net::sockopt::socket_type(&socket);
        let kind = kind.map_err(Error::system("getsockopt(SO_TYPE)"))?;
        if kind != rustix::net::SocketType::SEQPACKET {
            return Err(Error::System { call: "SOCK_SEQPACKET", errno: Errno::INVAL });
        }
        // Before anything is sent or received. Without it the peer is the one of `SO_PEERCRED`.
        let _ = peer::pass_credentials(&socket);
        let peer = Peer::of(&socket)?;
        let wanted = match admit {
            Admit::SameUser => rustix::process::geteuid().as_raw(),
            Admit::User(uid) => uid,
            Admit::Anyone => peer.uid,
        };
        if peer.uid != wanted {
            let why = format!(
                "process {} is of user {}, and only user {wanted} is admitted",
                peer.pid, peer.uid
            );
            return Err(Error::NotPermitted { why });
        }
        Ok(Self { socket: Arc::new(socket), peer, is_signed: false })
    }

    /// Sends one message of at least one byte, whole or not at all, with at most
    /// [`Link::MOST_FDS`] descriptors; waits while the other's queue is full.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_until(message, fds, None)
    }

    /// As [`Link::send`], for no longer than `deadline`; `None` is for ever.
    pub fn send_until(
        &self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<()> {
        loop {
            match peer::send(&*self.socket, message, fds) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(io::wait_writable(&*self.socket, left(deadline)))?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed { delivered: 0 }),
                Err(errno) => return Err(Error::System { call: "sendmsg", errno }),
            }
        }
    }

    /// Receives one message: its length and descriptors (closed on exec). [`Error::Closed`] when
    /// the other end is gone, however it went; [`Error::Corrupt`] for a message larger than `into`
    /// or with too many descriptors, which is lost.
    pub fn receive(&self, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
        self.receive_until(into, None)
    }

    /// As [`Link::receive`], for no longer than `deadline`; `None` is for ever.
    pub fn receive_until(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(usize, Vec<OwnedFd>)> {
        self.receive_signed(into, deadline).map(|got| (got.len, got.fds))
    }

    /// As [`Link::receive_until`], with the process that sent the message.
    pub(crate) fn receive_signed(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<peer::Received> {
        loop {
            match peer::receive(&*self.socket, into) {
                Ok(got) if got.truncated => {
                    let what = format!(
                        "a message over {} bytes or with over {} descriptors, or no room for \
                         them among our open files (RLIMIT_NOFILE)",
                        into.len(),
                        Self::MOST_FDS
                    );
                    return Err(Error::Corrupt { what });
                }
                Ok(got) if got.len == 0 => return Err(Error::Closed { delivered: 0 }),
                Ok(got) => return Ok(got),
                // Told once, ahead of messages that are still there: see `peer::receive`.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => wait(io::wait_readable(&*self.socket, left(deadline)))?,
                Err(errno) => return Err(Error::System { call: "recvmsg", errno }),
            }
        }
    }

    /// Takes the process that sent a message of the handshake for the peer. [`Error::NotPermitted`] if another process sent one
    /// before.
    pub(crate) fn learn(&mut self, sender: Option<Credentials>) -> Result<()> {
        let Some(sender) = sender else {
            // An older peer that sent this before our end asked: the first peer is the best there is.
            if self.peer.pidfd.is_none() {
                self.watch_first_peer();
            }
            return Ok(());
        };
        if self.is_signed && sender.pid != self.peer.pid {
            return Err(Error::not_permitted("two processes use the other end of the link"));
        }
        if !self.is_signed && (sender.pid != self.peer.pid || self.peer.pidfd.is_none()) {
            let Credentials { pid, uid, gid } = sender;
            self.peer = Peer { pid, uid, gid, pidfd: peer::pidfd_of(sender).ok() };
        }
        self.is_signed = true;
        Ok(())
    }

    /// The process at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the other process lives and its end is open. A stopped process lives. Without a
    /// pidfd only the end is looked at, and a child of the peer may be what keeps it open.
    pub fn peer_is_alive(&self) -> bool {
        !self.peer_has_ended() && !self.is_hung_up()
    }

    /// Whether the other process is known to have ended; without a pidfd it never is.
    pub fn peer_has_ended(&self) -> bool {
        self.peer.pidfd.as_ref().is_some_and(|fd| peer::has_ended(fd) == Ok(true))
    }

    /// Waits for a message or for the peer's end; a signal ends it too.
    pub(crate) fn await_news(&self, timeout: Option<Duration>) -> Result<()> {
        match self.poll(PollFlags::IN, timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    /// Waits for room for a message or for the peer's end; a signal ends it too.
    pub(crate) fn await_room(&self, timeout: Option<Duration>) -> Result<()> {
        match self.poll(PollFlags::OUT, timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    /// Waits for something of another descriptor, or for the peer's end; a signal ends it too.
    pub(crate) fn await_beside(
        &self,
        other: BorrowedFd<'_>,
        events: PollFlags,
        timeout: Duration,
    ) -> Result<()> {
        let limit = Timespec::try_from(timeout).ok();
        let other = PollFd::from_borrowed_fd(other, events);
        let socket = PollFd::new(&*self.socket, PollFlags::empty());
        let polled = match &self.peer.pidfd {
            Some(process) => {
                let process = PollFd::new(process, PollFlags::IN);
                poll(&mut [other, socket, process], limit.as_ref())
            }
            None => poll(&mut [other, socket], limit.as_ref()),
        };
        match polled {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    /// Waits for the end of the peer's last thread, for as long as told at most. Where there is no
    /// pidfd, that its end of the link closes tells of it.
    pub(crate) fn await_end(&self, timeout: Duration) {
        let limit = Timespec::try_from(timeout).ok();
        let watched = match &self.peer.pidfd {
            Some(process) => PollFd::new(process, PollFlags::IN),
            None => PollFd::new(&*self.socket, PollFlags::empty()),
        };
        let _ = poll(&mut [watched], limit.as_ref());
    }

    /// The socket, for who hangs it up when the peer is dead. `None` where its end alone tells that the
    /// peer's last thread has stopped.
    pub(crate) fn to_hang_up(&self) -> Option<Weak<OwnedFd>> {
        self.peer.pidfd.as_ref().map(|_| Arc::downgrade(&self.socket))
    }

    /// The socket, for who sends on it when this end's owner may be elsewhere.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }

    /// Ends the link for both sides: messages under way still arrive, and the other side sees that
    /// nothing follows. Not for a forked child, whose parent has the same end.
    pub(crate) fn hang_up(&self) {
        // It fails only where the other side has hung up before.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether something can be received without waiting; the end of the link is something.
    pub(crate) fn has_message(&self) -> bool {
        io::wait_readable(&*self.socket, Some(Duration::ZERO)) == Ok(true)
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let mut watched = [PollFd::new(&*self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Polls the socket, and the process where there is a pidfd.
    fn poll(
        &self,
        socket: PollFlags,
        timeout: Option<Duration>,
    ) -> std::result::Result<usize, Errno> {
        // Longer than the kernel can count is for ever.
        let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let socket = PollFd::new(&*self.socket, socket);
        match &self.peer.pidfd {
            Some(process) => {
                let process = PollFd::new(process, PollFlags::IN);
                poll(&mut [socket, process], limit.as_ref())
            }
            None => poll(&mut [socket], limit.as_ref()),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Time left until a deadline; `None` is for ever.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// What a poll that ended means: [`Error::Timeout`] at the deadline; a signal is no reason to stop.
fn wait(polled: std::result::Result<bool, Errno>) -> Result<()> {
    match polled {
        Ok(true) | Err(Errno::INTR) => Ok(()),
        Ok(false) => Err(Error::Timeout),
        Err(errno) => Err(Error::System { call: "poll", errno }),
    }
}

#[cfg(test)]
mod tests;
