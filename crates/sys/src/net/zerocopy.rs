//! Zero-copy sends. Their memory stays borrowed until the kernel has released it.
//!
//! The kernel numbers the zero-copy sends of a socket, and reports ranges of completed numbers on
//! its error queue (Documentation/networking/msg_zerocopy.rst).

use super::{enable_zerocopy, send_zerocopy};
use crate::Errno;
use crate::io::last_errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// linux/errqueue.h
const ORIGIN_ZEROCOPY: u8 = 5;
/// linux/errqueue.h
const CODE_COPIED: u8 = 1;

/// The zero-copy sends of one socket. Their memory is borrowed for `'m`. Dropping this value waits
/// until the kernel has released the memory.
///
/// If the peer stops reading, the wait may be long. To avoid it, first shut down the sending
/// direction, or call [`ZerocopySends::abandon`].
#[derive(Debug)]
pub struct ZerocopySends<'m> {
    socket: BorrowedFd<'m>,
    outstanding: u64,
    copied: u64,
}

impl<'m> ZerocopySends<'m> {
    /// Enables zero copy on the socket. Completions are counted, so no other zero-copy send may be
    /// outstanding on the socket, and no other code may read its error queue.
    pub fn new(socket: BorrowedFd<'m>) -> Result<Self, Errno> {
        enable_zerocopy(socket)?;
        Ok(Self { socket, outstanding: 0, copied: 0 })
    }

    /// Sends with [`send_zerocopy`] and counts the send. ENOBUFS: call [`reap`](Self::reap) first.
    pub fn send(&mut self, memory: &'m [u8]) -> Result<usize, Errno> {
        self.send_unborrowed(memory)
    }

    /// Like [`send`](Self::send), for memory that is not borrowed for `'m`. The caller may unmap
    /// it. If the caller writes to it while sends are outstanding, the sent bytes may change.
    pub fn send_unborrowed(&mut self, memory: &[u8]) -> Result<usize, Errno> {
        let sent = send_zerocopy(self.socket, memory)?;
        // The kernel numbers calls, not bytes. A call that sent nothing gets no number.
        self.outstanding += u64::from(sent > 0);
        Ok(sent)
    }

    /// Returns the number of sends from memory that the kernel may still read.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Returns the number of finished sends that the kernel copied nevertheless. Over
    /// loopback, it always copies. For these sends, zero copy only added overhead.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Reads the error queue without waiting, and returns the number of sends that it reports as
    /// complete. Makes one call per entry of the queue, and one more that finds the queue empty.
    pub fn reap(&mut self) -> Result<u64, Errno> {
        let mut finished = 0;
        while self.outstanding > 0 {
            match next_notice(self.socket) {
                Ok(Some(notice)) => {
                    let count = notice.count().min(self.outstanding);
                    self.outstanding -= count;
                    self.copied += if notice.copied { count } else { 0 };
                    finished += count;
                }
                Ok(None) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(finished)
    }

    /// Waits until no send is outstanding. EINTR: a signal arrived first; call again.
    pub fn finish(&mut self) -> Result<(), Errno> {
        self.finish_by(None).map(|_| ())
    }

    /// Like [`finish`](Self::finish), for at most `limit`. Returns `true` if no send is
    /// outstanding.
    pub fn finish_within(&mut self, limit: Duration) -> Result<bool, Errno> {
        self.finish_by(Some(Instant::now() + limit))
    }

    fn finish_by(&mut self, end: Option<Instant>) -> Result<bool, Errno> {
        let mut pause = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            if self.reap()? > 0 {
                pause.tv_nsec = 0;
            }
            if self.outstanding == 0 {
                return Ok(true);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            poll(&mut [PollFd::new(&self.socket, PollFlags::empty())], left.as_ref())?;
            // After a hang-up, poll always returns at once, so only this pause limits the rate of
            // the loop.
            if pause.tv_nsec > 0 {
                poll(&mut [], Some(&pause))?;
            }
            pause.tv_nsec = (pause.tv_nsec * 2 + 50_000).min(5_000_000);
        }
    }

    /// Stops waiting. If the memory changes from now on, the kernel may send the new contents
    /// instead of the old.
    pub fn abandon(mut self) {
        self.outstanding = 0;
    }
}

impl Drop for ZerocopySends<'_> {
    fn drop(&mut self) {
        while self.finish() == Err(Errno::INTR) {}
    }
}

/// A range of finished sends, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ZeroCopyNotice {
    first: u32,
    last: u32,
    copied: bool,
}

impl ZeroCopyNotice {
    /// Returns the number of sends. The kernel's numbers have 32 bits and wrap around.
    fn count(self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }

    fn of(error: &libc::sock_extended_err) -> Option<Self> {
        let ours = error.ee_errno == 0 && error.ee_origin == ORIGIN_ZEROCOPY;
        let copied = error.ee_code & CODE_COPIED != 0;
        ours.then_some(Self { first: error.ee_info, last: error.ee_data, copied })
    }
}

/// Space for control messages, with the alignment of their headers.
#[repr(C, align(8))]
struct ControlBuffer([u8; 256]);

/// `recvmsg(2)` with MSG_ERRQUEUE: reads one entry of the error queue. `None` if the entry is not
/// about zero copy. EAGAIN if the queue is empty. Never waits.
fn next_notice(socket: BorrowedFd<'_>) -> Result<Option<ZeroCopyNotice>, Errno> {
    let mut control = ControlBuffer([0; 256]);
    // SAFETY: zeroes are a valid msghdr: no name, no vectors, no control.
    let mut message = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<ControlBuffer>() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message points only to `control`, with its true length.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) } < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel filled the message in.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header inside `control`.
        let found = unsafe { *header };
        let kind = (found.cmsg_level, found.cmsg_type);
        // SAFETY: CMSG_LEN only computes.
        let enough = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) };
        let about_errors = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)];
        if about_errors.contains(&kind) && found.cmsg_len as u64 >= u64::from(enough) {
            // SAFETY: the header's length covers a sock_extended_err after it.
            let data = unsafe { libc::CMSG_DATA(header) };
            // SAFETY: as above; read without an assumption about its alignment.
            let error = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
            return Ok(ZeroCopyNotice::of(&error));
        }
        // SAFETY: `header` belongs to this message.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fd::AsFd;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_notice_counts_over_the_wrap() {
        let notice = |first, last| ZeroCopyNotice { first, last, copied: false };
        assert_eq!(notice(7, 7).count(), 1);
        assert_eq!(notice(u32::MAX, 1).count(), 3);
        assert_eq!(notice(0, u32::MAX).count(), 1 << 32);
    }

    #[test]
    fn only_zero_copy_news_is_taken_for_one() {
        let news = |ee_errno, ee_origin, ee_code| libc::sock_extended_err {
            ee_errno,
            ee_origin,
            ee_type: 0,
            ee_code,
            ee_pad: 0,
            ee_info: 3,
            ee_data: 4,
        };
        let notice = ZeroCopyNotice { first: 3, last: 4, copied: true };
        assert_eq!(ZeroCopyNotice::of(&news(0, ORIGIN_ZEROCOPY, CODE_COPIED)), Some(notice));
        assert_eq!(ZeroCopyNotice::of(&news(0, 2, CODE_COPIED)), None);
        assert_eq!(ZeroCopyNotice::of(&news(104, ORIGIN_ZEROCOPY, 0)), None);
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn every_send_comes_back_and_its_bytes_arrive() {
        let memory: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let (near, mut far) = connection();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut sends = ZerocopySends::new(near.as_fd()).unwrap();
        let (mut at, mut calls) = (0, 0);
        while at < memory.len() {
            let end = memory.len().min(at + 7000);
            match sends.send(&memory[at..end]) {
                Ok(sent) => at += sent,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOBUFS);
                    sends.finish().unwrap();
                }
            }
            calls += 1;
        }
        assert_eq!(sends.send(&[]), Ok(0));
        sends.finish().unwrap();
        assert_eq!(sends.outstanding(), 0);
        assert!(sends.copied() <= calls);
        drop(sends);
        drop(near);
        assert_eq!(reader.join().unwrap(), memory);
    }

    #[test]
    fn dropping_waits_for_a_peer_that_went_away_and_abandoning_waits_for_none() {
        let memory = vec![5; 7000];
        let (near, far) = connection();
        let mut sends = ZerocopySends::new(near.as_fd()).unwrap();
        sends.send(&memory).unwrap();
        drop(far);
        drop(sends);
        let (near, _far) = connection();
        let mut sends = ZerocopySends::new(near.as_fd()).unwrap();
        sends.send_unborrowed(&memory).unwrap();
        assert!(sends.reap().unwrap() <= 1);
        let limit = Duration::from_millis(1);
        assert!(sends.finish_within(limit).unwrap() == (sends.outstanding() == 0));
        sends.abandon();
    }

    #[test]
    fn a_pipe_has_no_zero_copy() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(ZerocopySends::new(reader.as_fd()).err(), Some(Errno::NOTSOCK));
    }
}
