//! Unix SEQPACKET sockets that carry messages with file descriptors, and the identity of the peer.
//!
//! Only [`connect`] blocks. All other functions return EAGAIN, and the caller polls with its own timeout. A message
//! that does not fit is reported, never truncated silently.

use crate::Errno;
use crate::fault::{Call, gate};
use crate::io::last_errno;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::Mode;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// The maximum number of descriptors in one message of this module. The kernel's own limit is 253.
pub const MOST_FDS: usize = 8;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));
/// Space for the control messages of a received message: descriptors and credentials.
const RECEIVED_SPACE: usize = SPACE + rustix::cmsg_space!(ScmCredentials(1));
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The process at the other end of a unix socket, as the kernel recorded it when the two were connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id in this process's pid namespace; 0 if the process is not visible there.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// A received message.
#[derive(Debug)]
pub struct ReceivedDatagram {
    /// Length in bytes. 0 means that the other end is closed, because this module never sends empty messages.
    pub len: usize,
    /// The descriptors received with it, closed on exec.
    pub fds: Vec<OwnedFd>,
    /// The process that sent it. `None` if the sender is not visible in this process's pid namespace, or if the message
    /// was sent before either end called [`pass_credentials`].
    pub sender: Option<Credentials>,
    /// `true` if bytes or descriptors did not fit and are lost.
    pub truncated: bool,
}

/// `socketpair(2)`: creates two connected sockets in this process.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// The number of connections that may wait at a listener. The kernel accepts one more than that.
pub const BACKLOG: i32 = 64;

/// Creates a listening socket bound to `path`. The socket file has the mode `mode`, less the umask, from the start.
/// EADDRINUSE if the name exists in any form; ENAMETOOLONG beyond 107 bytes. Makes four calls.
pub fn listen(path: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket()?;
    // bind creates the file with the mode of the socket (unix_bind_bsd in net/unix/af_unix.c).
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Checks that a socket can have this path: ENAMETOOLONG beyond 107 bytes.
pub fn check_path(path: &Path) -> Result<(), Errno> {
    SocketAddrUnix::new(path).map(drop)
}

/// `accept4(2)`: accepts a connection; EAGAIN if none is waiting.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    gate(Call::Accept, 0)?;
    rustix::net::accept_with(listener, FLAGS)
}

/// Connects to `path`. If the listener's queue is full, waits at most `timeout` and then returns EAGAIN; `None` means
/// no limit. ECONNREFUSED if no process listens, ENOENT if the name does not exist. Makes four calls.
pub fn connect(path: &Path, timeout: Option<Duration>) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // The kernel treats a send timeout of zero as "none", and rustix rejects it.
    let timeout = timeout.map(|timeout| timeout.max(Duration::from_micros(1)));
    set_socket_timeout(&socket, Timeout::Send, timeout)?;
    rustix::net::connect(&socket, &address)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Returns `true` if the socket file at `path` belongs to an existing socket. Tries to connect a datagram socket. A
/// SEQPACKET listener refuses it with EPROTOTYPE, and the listening process does not notice the attempt.
pub fn is_bound(path: &Path) -> Result<bool, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let asking = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None)?;
    match rustix::net::connect(&asking, &address) {
        Ok(()) | Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// `sendmsg(2)` with SCM_RIGHTS: sends one message completely or not at all. Never raises SIGPIPE.
///
/// EINVAL for an empty message or more than [`MOST_FDS`] descriptors. EMSGSIZE if the message is larger than the
/// socket's buffer. EPIPE if the other end is closed. EAGAIN if its queue is full.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    if message.is_empty() || fds.len() > MOST_FDS {
        return Err(Errno::INVAL);
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(message)], &mut control, flags).map(|_| ())
}

/// `recvmsg(2)`: receives one message and its descriptors. EAGAIN if none is waiting. ECONNRESET, once, if the other
/// end closed before it read all messages from here. Messages that it sent before closing can still be received.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<ReceivedDatagram, Errno> {
    /// Aligned like a `cmsghdr`.
    #[repr(align(8))]
    struct Space([u8; RECEIVED_SPACE]);
    let mut space = Space([0; RECEIVED_SPACE]);
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: a msghdr of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = space.0.as_mut_ptr().cast();
    message.msg_controllen = RECEIVED_SPACE as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the pointers in the message lead to exclusive memory of the given lengths. libc is used, because rustix's
    // type for credentials cannot represent pid 0. The kernel reports pid 0 for a sender that is not visible.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(got).map_err(|_| last_errno())?;
    let truncated = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let control = &space.0[..RECEIVED_SPACE.min(message.msg_controllen as usize)];
    let (fds, sender) = came_along(control);
    Ok(ReceivedDatagram { len, fds, sender, truncated })
}

/// Returns the descriptors and the sender in the control messages of a message that was just received.
fn came_along(mut control: &[u8]) -> (Vec<OwnedFd>, Option<Credentials>) {
    /// Size of struct cmsghdr: length including the body, level, type.
    const HEAD: usize = size_of::<libc::cmsghdr>();
    const LENGTH: usize = size_of::<usize>();
    let word = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    let (mut fds, mut sender) = (Vec::new(), None);
    while let Some((head, behind)) = control.split_at_checked(HEAD) {
        let len = usize::from_ne_bytes(head[..LENGTH].try_into().expect("a length"));
        let body = &behind[..len.saturating_sub(HEAD).min(behind.len())];
        let words = body.chunks_exact(4).map(word);
        match (word(&head[LENGTH..LENGTH + 4]), word(&head[LENGTH + 4..LENGTH + 8])) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                // SAFETY: descriptors that the kernel has just created for us; no other code knows them.
                fds.extend(words.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                let words: Vec<_> = words.map(i32::cast_unsigned).collect();
                if let [pid, uid, gid] = words[..] {
                    sender = Some(Credentials { pid, uid, gid }).filter(|known| known.pid != 0);
                }
            }
            _ => {}
        }
        control = control.get(len.max(HEAD).next_multiple_of(LENGTH)..).unwrap_or_default();
    }
    (fds, sender)
}

/// `SO_PASSCRED` (unix(7)): from now on, each message sent or received here carries the id of the sending process, as
/// recorded by the kernel.
pub fn pass_credentials(socket: impl AsFd) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_passcred(socket, true)
}

/// Returns a pidfd of the process that sent a message. Another process may have got the pid in the meantime. To exclude
/// that, receive a later message of the same sender, and check that [`has_ended`] returns `false` for the pidfd.
pub fn pidfd_of(sender: Credentials) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(sender.pid.cast_signed()).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// `SO_PEERCRED` (unix(7)): returns the peer's identity at the time when the two were connected. For the connecting
/// end, the peer is the process that called listen. For a pair, it is the process that created the pair.
pub fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let mut told = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let into = (&raw mut told).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of `told`. libc is used, because rustix's type cannot
    // represent pid 0, which a peer in another pid namespace has.
    let answer = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len)
    };
    if answer != 0 {
        return Err(last_errno());
    }
    Ok(Credentials { pid: told.pid.max(0) as u32, uid: told.uid, gid: told.gid })
}

/// Returns a pidfd of the peer. `SO_PEERPIDFD` (Linux 6.5) always returns the right process. On older kernels,
/// `pidfd_open(2)` is used, which may return another process that has got the pid since. ESRCH if the peer has ended.
pub fn pidfd(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let raw = socket.as_fd().as_raw_fd();
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let into = (&raw mut fd).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of `fd`.
    let answer =
        unsafe { libc::getsockopt(raw, libc::SOL_SOCKET, libc::SO_PEERPIDFD, into, &raw mut len) };
    if answer == 0 && fd >= 0 {
        // SAFETY: a descriptor that the kernel has just created for us; no other code knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match last_errno() {
        Errno::NOPROTOOPT => pidfd_of(credentials(socket)?),
        errno => Err(errno),
    }
}

/// Returns `true` if the process of a pidfd has ended. A zombie has ended; a stopped process has not.
pub fn has_ended(pidfd: impl AsFd) -> Result<bool, Errno> {
    crate::io::wait_readable(pidfd, Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::event::{PollFd, PollFlags};

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (near, far) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        crate::io::write(&file, b"inside").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receive(&far, &mut buffer).err(), Some(Errno::AGAIN));
        send(&near, b"hello", &[file.as_fd()]).unwrap();
        let got = receive(&far, &mut buffer).unwrap();
        assert_eq!((got.len, got.fds.len(), got.truncated), (5, 1, false));
        assert_eq!(crate::io::pread(&got.fds[0], &mut buffer, 0), Ok(6));
        let flags = rustix::io::fcntl_getfd(&got.fds[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_message_that_does_not_fit_is_reported() {
        let (near, far) = pair().unwrap();
        send(&near, b"hello", &[]).unwrap();
        assert!(receive(&far, &mut [0; 4]).unwrap().truncated);
        assert_eq!(send(&near, b"", &[]).err(), Some(Errno::INVAL));
        let many = [near.as_fd(); MOST_FDS + 1];
        assert_eq!(send(&near, b"x", &many).err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_closed_end_is_an_errno_or_a_zero_and_no_signal() {
        let (near, far) = pair().unwrap();
        send(&near, b"unread", &[]).unwrap();
        send(&far, b"last words", &[]).unwrap();
        drop(far);
        // A process that another test started may keep its copy of `far` for a moment.
        let mut hang_up = [PollFd::new(&near, PollFlags::empty())];
        let limit = rustix::event::Timespec { tv_sec: 100, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut hang_up, Some(&limit)), Ok(1));
        let mut buffer = [0; 16];
        assert_eq!(receive(&near, &mut buffer).err(), Some(Errno::CONNRESET));
        assert_eq!(receive(&near, &mut buffer).unwrap().len, 10);
        assert_eq!(receive(&near, &mut buffer).unwrap().len, 0);
        assert_eq!(send(&near, b"x", &[]).err(), Some(Errno::PIPE));
    }

    #[test]
    fn a_message_names_its_sender_also_through_an_inherited_end() {
        for asks in [true, false] {
            let (near, far) = pair().unwrap();
            pass_credentials(if asks { &near } else { &far }).unwrap();
            let file = tempfile::tempfile().unwrap();
            // SAFETY: the child makes one call and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let sent = send(&far, b"from the child", &[file.as_fd()]).is_ok();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!sent)) };
            }
            assert_eq!(crate::io::wait_readable(&near, None), Ok(true));
            pass_credentials(&near).unwrap();
            let got = receive(&near, &mut [0; 16]).unwrap();
            assert_eq!((got.len, got.fds.len(), got.truncated), (14, 1, false));
            assert_eq!(got.sender.unwrap().pid, child.cast_unsigned());
            assert_eq!(credentials(&near).unwrap().pid, std::process::id());
            let mut status = 0;
            // SAFETY: `status` is written by the kernel.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        let (near, far) = pair().unwrap();
        send(&far, b"unasked", &[]).unwrap();
        assert_eq!(receive(&near, &mut [0; 16]).unwrap().sender, None);
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (near, _far) = pair().unwrap();
        let told = credentials(&near).unwrap();
        assert_eq!(told.pid, std::process::id());
        assert_eq!(told.uid, rustix::process::geteuid().as_raw());
        if let Ok(pidfd) = pidfd(&near) {
            assert_eq!(has_ended(&pidfd), Ok(false));
        }
    }
}
