//! The descriptors of a connection: a socket, or standard input and output.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use rustix::net::{
    Shutdown, shutdown,
    sockopt::{set_socket_linger, set_tcp_nodelay},
};
use thalweg_sys::{Errno, io};

use crate::{
    plans::KnownEnd,
    stream::{ByteStream, known_end},
};

/// The descriptors of a connection.
pub struct ConnectionEnds {
    /// The socket or, if `source` is set, standard output.
    pub socket: Rc<OwnedFd>,
    /// The descriptor to read from, if that is not the socket.
    source: Option<OwnedFd>,
    pub sink: KnownEnd,
    /// `true` for standard input and output, and for a socket to a command.
    pub is_stream: bool,
}

impl ConnectionEnds {
    /// Creates the ends of a connection over an accepted socket. `is_internet`: `true` for TCP.
    pub fn of_socket(socket: OwnedFd, is_internet: bool) -> Self {
        Self {
            socket: Rc::new(socket),
            source: None,
            sink: KnownEnd::Socket { is_internet },
            is_stream: false,
        }
    }

    /// Creates the ends of a connection over a stream to one peer.
    pub fn of_stream(stream: ByteStream) -> Self {
        let sink = known_end(stream.output());
        let (socket, source) = stream.into_parts();
        Self { socket: Rc::new(socket), source, sink, is_stream: true }
    }

    /// Returns the descriptors that epoll has to watch.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(self.socket.as_fd()), self.source.as_ref().map(AsFd::as_fd)].into_iter().flatten()
    }

    /// Returns `true` if `EPOLLHUP` means that the client does not read any more either. On a pipe, `EPOLLHUP` only
    /// means that the writer has closed it.
    pub fn hang_up_together(&self) -> bool {
        self.source.is_none()
    }

    /// Reads once, and retries after a signal.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let source = self.source.as_ref().unwrap_or(&self.socket);
        loop {
            match io::read(source, &mut *buffer) {
                Err(Errno::INTR) => {}
                ended => return ended,
            }
        }
    }

    /// Sends a corked segment.
    pub fn flush(&self) {
        let _ = set_tcp_nodelay(&*self.socket, true);
    }

    /// Closes the sending side. Ignores errors: a pipe cannot be shut down, and the next read reports that a client has
    /// disconnected.
    pub fn finish(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Write);
    }

    /// Makes `close` send a TCP reset. Unix sockets and pipes have no reset; there the client notices the missing
    /// bytes.
    pub fn reset_at_close(&self) {
        let _ = set_socket_linger(&*self.socket, Some(Duration::ZERO));
    }
}
