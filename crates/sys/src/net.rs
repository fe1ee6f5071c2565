//! Sockets: accepting connections, and sending with and without zero copy.

use crate::Errno;
use crate::fault::{Call, counted, gate};
use crate::io::last_errno;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType};

mod zerocopy;
pub use zerocopy::ZerocopySends;

/// `accept4(2)`: returns a non-blocking connection, closed on exec, and the peer's address; EAGAIN if none is waiting.
/// After EMFILE, ENFILE, ENOBUFS or ENOMEM the connection stays in the queue; after ECONNABORTED it is removed. The
/// call counts as set-up, so the tally does not include it.
pub fn accept(listener: impl AsFd) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
    gate(Call::Accept, 0)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::acceptfrom_with(listener, flags)
}

/// `send(2)` with MSG_NOSIGNAL: if the peer has closed, returns EPIPE and does not raise SIGPIPE.
pub fn send(fd: impl AsFd, from: &[u8]) -> Result<usize, Errno> {
    counted(Call::Write, from.len(), |len| rustix::net::send(fd, &from[..len], SendFlags::NOSIGNAL))
}

/// `send(2)` with MSG_NOSIGNAL and MSG_MORE: a packet that is not full waits for the next send, but at most 200 ms.
pub fn send_more(fd: impl AsFd, from: &[u8]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
    counted(Call::Write, from.len(), |len| rustix::net::send(fd, &from[..len], flags))
}

/// `recv(2)` with MSG_DONTWAIT: returns EAGAIN instead of waiting, with and without O_NONBLOCK and SO_RCVTIMEO. Returns 0
/// at the end.
pub fn recv_now(fd: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    counted(Call::Read, into.len(), |len| {
        rustix::net::recv(fd, &mut into[..len], RecvFlags::DONTWAIT).map(|(count, _)| count)
    })
}

/// `TCP_NOTSENT_LOWAT` (tcp(7)): limits the bytes that are written and not yet sent to about `bytes`. Without it, the
/// kernel buffers megabytes for a peer that reads nothing.
pub fn limit_unsent(fd: impl AsFd, bytes: u32) -> Result<(), Errno> {
    let len = size_of_val(&bytes) as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the option is read from `bytes`, and `len` is its length.
    let answer = unsafe {
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
        libc::setsockopt(fd, level, name, (&raw const bytes).cast(), len)
    };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `SIOCOUTQ` (tcp(7), unix(7)): returns the number of bytes in the send buffer that the peer has not acknowledged. For a
/// Unix socket, the memory of the bytes that the peer has not read.
pub fn unread(fd: impl AsFd) -> Result<u32, Errno> {
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int.
    let getter = unsafe { Getter::<{ libc::TIOCOUTQ as Opcode }, libc::c_int>::new() };
    // SAFETY: the getter above owns the int that the call writes.
    let count = unsafe { ioctl(fd, getter) }?;
    Ok(count.cast_unsigned())
}

/// `SO_ZEROCOPY` (socket(7)): allows [`send_zerocopy`] on this socket. EOPNOTSUPP for address families without it.
pub fn enable_zerocopy(fd: impl AsFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the option is read from `on`, and `len` is its length.
    let answer = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, (&raw const on).cast(), len)
    };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

/// `send(2)` with MSG_ZEROCOPY. The kernel keeps the pages of `from`, and may read them *after* this function returns.
/// It reports on the error queue when it no longer needs them. Until then, a change to the memory may be sent.
/// [`ZerocopySends`] keeps the memory borrowed for that time. Use this function only if other code does so. Memory
/// safety does not depend on it, because the kernel holds the pages.
///
/// ENOBUFS: too many sends are outstanding (net.core.optmem_max), or more bytes are pinned than the user's memory-lock
/// limit allows. A send larger than that limit never succeeds. Without [`enable_zerocopy`], the kernel ignores the flag
/// and copies the bytes.
pub fn send_zerocopy(fd: impl AsFd, from: &[u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    counted(Call::SendZerocopy, from.len(), |len| {
        // SAFETY: len <= from.len(), and the kernel only reads.
        let sent = unsafe { libc::send(fd.as_fd().as_raw_fd(), from.as_ptr().cast(), len, flags) };
        usize::try_from(sent).map_err(|_| last_errno())
    })
}

/// `socketpair(2)`: creates two connected blocking unix sockets, closed on exec. `packets` selects SEQPACKET instead of
/// STREAM.
pub fn unix_pair(packets: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let kind = if packets { SocketType::SEQPACKET } else { SocketType::STREAM };
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// `SO_SNDBUF` (socket(7)): requests a send buffer of this size. The kernel doubles the size, and silently limits it to
/// `net.core.wmem_max`.
pub fn set_send_buffer(fd: impl AsFd, wanted: usize) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_send_buffer_size(fd, wanted)
}

/// `TCP_CONGESTION` (tcp(7)): sets the congestion control of this connection by name. ENOENT if the kernel does not
/// have it, EPERM if it is not in tcp_allowed_congestion_control.
pub fn congestion(fd: impl AsFd, name: &str) -> Result<(), Errno> {
    rustix::net::sockopt::set_tcp_congestion(fd, name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_closed_peer_is_an_errno_and_no_signal() {
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(send(&near, b"hello"), Ok(5));
        drop(far);
        assert_eq!(send(&near, b"hello"), Err(Errno::PIPE));
    }

    #[test]
    fn a_receive_now_never_waits() {
        let (near, far) = unix_pair(false).unwrap();
        let mut buffer = [0; 3];
        assert_eq!(recv_now(&far, &mut buffer), Err(Errno::AGAIN));
        send(&near, b"hello").unwrap();
        assert_eq!((recv_now(&far, &mut buffer), &buffer), (Ok(3), b"hel"));
        drop(near);
        assert_eq!(recv_now(&far, &mut buffer), Ok(2));
        assert_eq!(recv_now(&far, &mut buffer), Ok(0));
    }

    #[test]
    fn what_the_peer_reads_leaves_the_send_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (unix, far) = UnixStream::pair().unwrap();
        let peers: [(std::os::fd::BorrowedFd<'_>, OwnedFd); 2] =
            [(tcp.as_fd(), listener.accept().unwrap().0.into()), (unix.as_fd(), far.into())];
        for (near, far) in peers {
            rustix::io::ioctl_fionbio(near, true).unwrap();
            while send(near, &[0; 1 << 12]).is_ok() {}
            let before = unread(near).unwrap();
            assert!(before > 0);
            while unread(near).unwrap() >= before {
                crate::io::read(&far, &mut [0; 1 << 12]).unwrap();
            }
        }
    }

    #[test]
    fn a_unix_pair_is_joined_and_packets_stay_apart() {
        for (packets, expected) in [(false, 4), (true, 2)] {
            let (near, far) = unix_pair(packets).unwrap();
            set_send_buffer(&near, 1 << 16).unwrap();
            send(&near, b"ab").unwrap();
            send(&near, b"cd").unwrap();
            assert_eq!(crate::io::read(&far, &mut [0; 8]), Ok(expected));
        }
    }

    #[test]
    fn congestion_control_is_set_by_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(congestion(&stream, "reno"), Ok(()));
        assert_eq!(congestion(&stream, "no such thing"), Err(Errno::NOENT));
    }

    #[test]
    fn a_connection_is_accepted_once_without_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(accept(&listener).map(|_| ()), Err(Errno::AGAIN));
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (taken, who) = accept(&listener).unwrap();
        let who = std::net::SocketAddr::try_from(who.unwrap()).unwrap();
        assert_eq!(who, stream.local_addr().unwrap());
        assert_eq!(crate::io::read(&taken, &mut [0; 1]), Err(Errno::AGAIN));
        assert_eq!(accept(&listener).map(|_| ()), Err(Errno::AGAIN));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn one_that_was_not_taken_is_still_there() {
        use crate::fault::{Effect, Rule, Script};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let rule = Rule::once(Call::Accept, 1, Effect::Errno(Errno::MFILE));
        let outcome = Script::new(vec![rule]).run(|| {
            assert_eq!(accept(&listener).map(|_| ()), Err(Errno::MFILE));
            accept(&listener).unwrap();
        });
        assert_eq!((outcome.fired, outcome.calls[Call::Accept]), (1, 2));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn faults_reach_every_send() {
        use crate::fault::{Effect, Rule, Script};
        let (near, _far) = UnixStream::pair().unwrap();
        let script = Script::new(vec![
            Rule::always(Call::Write, Effect::Short(2)),
            Rule::always(Call::SendZerocopy, Effect::Errno(Errno::NOBUFS)),
        ]);
        let outcome = script.run(|| {
            assert_eq!(send(&near, b"hello"), Ok(2));
            assert_eq!(send_zerocopy(&near, b"hello"), Err(Errno::NOBUFS));
        });
        assert_eq!(outcome.fired, 2);
    }
}
