//! A link: a Unix SEQPACKET socket between two processes. It carries small messages and file descriptors, to set up
//! channels. The payload of a channel moves through shared memory or other mechanisms.

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

/// Rule for the user of the process at the other end.
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

/// The process at the other end. Until a channel is open, this is the process that the kernel recorded when the two
/// ends were connected (`SO_PEERCRED`). For the connecting side that is the listening process, and for [`Link::pair`]
/// the process that created the pair. Another process may have inherited or received an end since then. Therefore
/// opening a channel takes the peer from the handshake messages, to which the kernel attaches the sender's credentials.
#[derive(Debug)]
pub struct Peer {
    /// Process id; 0 if the process is in a pid namespace that is not visible to this process.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Descriptor that identifies the process permanently, whereas a pid may be reused. `None` if the kernel provides
    /// no pidfd (seccomp, a foreign pid namespace, Linux before 5.3). Also `None` before a channel is open, if this end
    /// may have been inherited from another process.
    pub pidfd: Option<OwnedFd>,
}

impl Peer {
    fn of(socket: &OwnedFd) -> Result<Self> {
        let told = peer::credentials(socket).map_err(Error::system("getsockopt(SO_PEERCRED)"))?;
        Ok(Self { pid: told.pid, uid: told.uid, gid: told.gid, pidfd: None })
    }
}

/// An end of a link. Dropping it closes it, and the peer notices this. A child made by `fork` has this end too, and
/// should drop it: otherwise each message goes to the process that reads first.
#[derive(Debug)]
pub struct Link {
    socket: Arc<OwnedFd>,
    peer: Peer,
    /// `true` if the peer was taken from a message to which the kernel attached credentials.
    is_signed: bool,
}

impl Link {
    /// Maximum number of descriptors per message.
    pub const MOST_FDS: usize = peer::MOST_FDS;

    /// Returns two connected ends in this process; one is usually passed to a child. Both report this process as their
    /// peer, because it created them.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (near, far) = peer::pair()?;
        let ends = (Self::over(near, Admit::Anyone), Self::over(far, Admit::Anyone));
        match ends {
            (Ok(near), Ok(far)) => Ok((near, far)),
            (Err(error), _) | (_, Err(error)) => Err(std::io::Error::other(error)),
        }
    }

    /// Connects to a process of this user that listens at `address`. Waits while the listener's queue is full. Returns
    /// [`Error::Meeting`] with ENOENT or ECONNREFUSED if no process listens there.
    pub fn connect(address: &Address) -> Result<Self> {
        Self::connect_with(address, Admit::SameUser, None)
    }

    /// Like [`Link::connect`], but admits other users, and waits until `deadline` at most; `None` waits without limit.
    pub fn connect_with(
        address: &Address,
        admit: Admit,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        // Do not retry after ECONNREFUSED: a socket file gets its final name only when its listener already listens.
        let socket = peer::connect(address.path(), left(deadline));
        let socket = socket.map_err(|errno| match errno {
            Errno::AGAIN => Error::Timeout,
            errno => Error::at("connect", address.path())(errno),
        })?;
        Self::joined(socket, admit)
    }

    /// Creates a link from a socket that was just connected or accepted. Also opens a pidfd for the process that
    /// `SO_PEERCRED` reports, because that process was at the other end a moment ago.
    pub(super) fn joined(socket: OwnedFd, admit: Admit) -> Result<Self> {
        let mut link = Self::over(socket, admit)?;
        link.watch_first_peer();
        Ok(link)
    }

    /// Opens a pidfd for the process that the kernel recorded when the ends were connected.
    fn watch_first_peer(&mut self) {
        self.peer.pidfd = peer::pidfd(&*self.socket).ok();
    }

    /// Creates a link from a connected SEQPACKET socket that was inherited or received as a descriptor.
    /// Returns [`Error::System`] with ENOTCONN or EINVAL for any other descriptor.
    pub fn over(socket: OwnedFd, admit: Admit) -> Result<Self> {
        let kind = rustix::net::sockopt::socket_type(&socket);
        let kind = kind.map_err(Error::system("getsockopt(SO_TYPE)"))?;
        if kind != rustix::net::SocketType::SEQPACKET {
            return Err(Error::System { call: "SOCK_SEQPACKET", errno: Errno::INVAL });
        }
        // Request credentials before the first message. If this fails, the peer is the process that `SO_PEERCRED`
        // reports.
        let _ = peer::pass_credentials(&socket);
        let peer = Peer::of(&socket)?;
        let wanted = match admit {
            Admit::SameUser => rustix::process::geteuid().as_raw(),
            Admit::User(uid) => uid,
            Admit::Anyone => peer.uid,
        };
        if peer.uid != wanted {
            let why = format!(
                "process {} belongs to user {}; only user {wanted} is admitted",
                peer.pid, peer.uid
            );
            return Err(Error::NotPermitted { why });
        }
        Ok(Self { socket: Arc::new(socket), peer, is_signed: false })
    }

    /// Sends one message of at least one byte, completely or not at all. It may carry at most [`Link::MOST_FDS`]
    /// descriptors. Waits while the peer's queue is full.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_until(message, fds, None)
    }

    /// Like [`Link::send`], but waits until `deadline` at most; `None` waits without limit.
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

    /// Receives one message. Returns its length and its descriptors, which are close-on-exec. Returns [`Error::Closed`]
    /// if the peer has closed its end or died. Returns [`Error::Corrupt`] if the message is larger than `into` or has
    /// too many descriptors; the message is then lost.
    pub fn receive(&self, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
        self.receive_until(into, None)
    }

    /// Like [`Link::receive`], but waits until `deadline` at most; `None` waits without limit.
    pub fn receive_until(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(usize, Vec<OwnedFd>)> {
        self.receive_signed(into, deadline).map(|got| (got.len, got.fds))
    }

    /// Like [`Link::receive_until`], but also returns the credentials of the sender.
    pub(crate) fn receive_signed(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<peer::ReceivedDatagram> {
        loop {
            match peer::receive(&*self.socket, into) {
                Ok(got) if got.truncated => {
                    let what = format!(
                        "the message has more than {} bytes or {} descriptors, or this process has too many open \
                         files (RLIMIT_NOFILE)",
                        into.len(),
                        Self::MOST_FDS
                    );
                    return Err(Error::Corrupt { what });
                }
                Ok(got) if got.len == 0 => return Err(Error::Closed { delivered: 0 }),
                Ok(got) => return Ok(got),
                // The kernel reports ECONNRESET once, before messages that can still be received; see `peer::receive`.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => wait(io::wait_readable(&*self.socket, left(deadline)))?,
                Err(errno) => return Err(Error::System { call: "recvmsg", errno }),
            }
        }
    }

    /// Records the process that sent a handshake message as the peer. Returns [`Error::NotPermitted`] if an earlier
    /// message came from another process.
    pub(crate) fn learn(&mut self, sender: Option<Credentials>) -> Result<()> {
        let Some(sender) = sender else {
            // The peer sent the message before this side requested credentials. Use the process that `SO_PEERCRED`
            // reports instead.
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

    /// Returns the process at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns `true` if the peer lives and its end is open. A stopped process counts as alive. Without a pidfd, checks
    /// only if the link is open, although a child of a dead peer may keep it open.
    pub fn peer_is_alive(&self) -> bool {
        !self.peer_has_ended() && !self.is_hung_up()
    }

    /// Returns `true` if the peer is known to have ended. Always `false` without a pidfd.
    pub fn peer_has_ended(&self) -> bool {
        self.peer.pidfd.as_ref().is_some_and(|fd| peer::has_ended(fd) == Ok(true))
    }

    /// Waits for a message, or until the peer is gone. A signal also ends the wait.
    pub(crate) fn await_news(&self, timeout: Option<Duration>) -> Result<()> {
        match self.poll(PollFlags::IN, timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    /// Waits for room for a message, or until the peer is gone. A signal also ends the wait.
    pub(crate) fn await_room(&self, timeout: Option<Duration>) -> Result<()> {
        match self.poll(PollFlags::OUT, timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System { call: "poll", errno }),
        }
    }

    /// Waits for `events` on another descriptor, or until the peer is gone. A signal also ends the wait.
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

    /// Waits until the peer's last thread has ended, but at most for `timeout`. Without a pidfd, waits until the link
    /// is closed at the other end.
    pub(crate) fn await_end(&self, timeout: Duration) {
        let limit = Timespec::try_from(timeout).ok();
        let watched = match &self.peer.pidfd {
            Some(process) => PollFd::new(process, PollFlags::IN),
            None => PollFd::new(&*self.socket, PollFlags::empty()),
        };
        let _ = poll(&mut [watched], limit.as_ref());
    }

    /// Returns the socket, for callers that shut it down when the peer is dead. Returns `None` without a pidfd: then a
    /// link that closes is the only evidence that the peer's last thread has ended, so this process must not close it.
    pub(crate) fn to_hang_up(&self) -> Option<Weak<OwnedFd>> {
        self.peer.pidfd.as_ref().map(|_| Arc::downgrade(&self.socket))
    }

    /// Returns the socket, for callers that may send after the owner of this end has dropped it.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }

    /// Shuts the link down for both sides. Messages in flight still arrive, and the peer sees that none follow. Must
    /// not be called in a forked child, because the parent uses this end too.
    pub(crate) fn hang_up(&self) {
        // An error is ignored, because it means that the peer has already hung up.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Returns `true` if a receive call would return at once, with a message or because the link is closed.
    pub(crate) fn has_message(&self) -> bool {
        io::wait_readable(&*self.socket, Some(Duration::ZERO)) == Ok(true)
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let mut watched = [PollFd::new(&*self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Polls the socket and, if there is a pidfd, also the peer's process.
    fn poll(
        &self,
        socket: PollFlags,
        timeout: Option<Duration>,
    ) -> std::result::Result<usize, Errno> {
        // A timeout that does not fit into a `timespec` means no limit.
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

/// Returns the time left until a deadline; `None` means no limit.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Converts the result of a poll: no event is [`Error::Timeout`], and EINTR is ignored.
fn wait(polled: std::result::Result<bool, Errno>) -> Result<()> {
    match polled {
        Ok(true) | Err(Errno::INTR) => Ok(()),
        Ok(false) => Err(Error::Timeout),
        Err(errno) => Err(Error::System { call: "poll", errno }),
    }
}

#[cfg(test)]
mod tests;
