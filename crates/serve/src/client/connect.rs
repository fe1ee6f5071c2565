//! A connection to a server, and its buffer of bytes that were read and not used yet.

use std::{
    io::ErrorKind,
    net::{TcpStream, ToSocketAddrs},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use rustix::net::sockopt;
#[cfg(feature = "tls")]
use rustls::{ClientConnection, StreamOwned};
#[cfg(feature = "tls")]
use std::io::{Read, Write};
use thalweg_core::{cadence::Deadline, error::reason, rate_limit::RateLimit};
use thalweg_sys::{Errno, buffer::Buffer, io, net};

use super::{
    FetchError, FetchOptions, FetchUrl, TlsTrust,
    channels::HeldChannel,
    deadline::NetDeadline,
    head::{Framing, ResponseHead},
};
use crate::{plans::KnownEnd, stream::known_end};

/// Size of the read buffer in bytes. [`FetchConnection::gather`] fills at most half of it.
const ROOM: usize = 256 << 10;
/// Longest wait for one address before the next one is tried.
const LONGEST_TRY: Duration = Duration::from_secs(15);
/// Time limit for the first response on a channel. The user may first have to enter a password.
const LONGEST_LOGIN: Duration = Duration::from_secs(3600);
/// Largest body that is discarded instead of opening another channel, in bytes.
const MOST_DISCARDED: u64 = 16 << 20;
/// Largest number of bytes of an invalid response that an error message quotes.
const SHOWN: usize = 80;

/// The transport of a connection.
enum Wire {
    Plain(TcpStream),
    Channel(HeldChannel),
    #[cfg(feature = "tls")]
    Secret(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The operation on a socket, for error messages and for the wait after `EAGAIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketUse {
    Send,
    Receive,
}

impl SocketUse {
    /// Returns the verb for messages: "cannot VERB HOST".
    fn verb(self) -> &'static str {
        match self {
            Self::Send => "send to",
            Self::Receive => "read from",
        }
    }
}

/// A connection with a non-blocking socket.
pub struct FetchConnection {
    wire: Wire,
    host: String,
    // Allocated by the first read.
    buffer: Buffer,
    // Offsets in the buffer: the end of the used bytes, and the end of the bytes read.
    used: usize,
    have: usize,
    // The rate limit of this connection, once set.
    limit: Option<Arc<RateLimit>>,
}

impl FetchConnection {
    /// Connects to the first address of the server, or of its proxy, that answers.
    pub fn open(
        target: &FetchUrl,
        options: &FetchOptions,
        deadline: &NetDeadline<'_>,
    ) -> Result<Self, FetchError> {
        if let Some(channels) = &options.channels {
            let channel = channels.take(deadline.check)?;
            return Ok(Self::over(Wire::Channel(channel), channels.name().to_owned()));
        }
        let trust = &options.trust;
        let Some(proxy) = options.proxies.of(target) else {
            let (host, port) = target.host();
            let socket = dial(&target.authority(), &host, port, deadline)?;
            return Ok(Self::over(Wire::over(socket, target, trust)?, target.authority()));
        };
        let name = proxy.name();
        let socket = dial(&name, &proxy.host, proxy.port, deadline)?;
        if !target.is_secure() {
            return Ok(Self::over(Wire::Plain(socket), name));
        }
        let mut open = Self::over(Wire::Plain(socket), name);
        open.send(proxy.connect(target).as_bytes(), deadline)?;
        let head = open.head(deadline)?;
        if !(200..300).contains(&head.status) {
            return Err(FetchError::Proxy { status: head.status, reason: head.reason });
        }
        match open.wire {
            // A TLS server sends nothing before the client's first message, so the buffer must be empty.
            Wire::Plain(socket) if open.used == open.have => {
                Ok(Self::over(Wire::over(socket, target, trust)?, target.authority()))
            }
            _ => Err(FetchError::broken("the proxy sent data before the TLS handshake")),
        }
    }

    fn over(wire: Wire, host: String) -> Self {
        Self { wire, host, buffer: Buffer::default(), used: 0, have: 0, limit: None }
    }

    /// Returns the rate limit of this connection, shared by all bodies that it receives.
    pub fn limit(&mut self, per_second: u64) -> Arc<RateLimit> {
        Arc::clone(self.limit.get_or_insert_with(|| Arc::new(RateLimit::new(per_second))))
    }

    /// Returns the server's name, for messages.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the descriptor from which a mechanism may read once the buffer is empty; `None` for TLS.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.wire {
            Wire::Plain(socket) => Some(socket.as_fd()),
            Wire::Channel(channel) => channel.input().ok(),
            #[cfg(feature = "tls")]
            Wire::Secret(_) => None,
        }
    }

    /// Returns the properties of the descriptor that the planner needs.
    pub fn known_end(&self) -> KnownEnd {
        match &self.wire {
            Wire::Channel(channel) => {
                channel.input().map_or(KnownEnd::Socket { is_internet: false }, known_end)
            }
            _ => KnownEnd::Socket { is_internet: true },
        }
    }

    /// Returns `true` for a channel. A thread must give it back before it takes another one.
    pub fn is_channel(&self) -> bool {
        matches!(self.wire, Wire::Channel(_))
    }

    /// Releases the connection after the last response was received completely. A channel is kept for the next caller;
    /// a network connection is closed.
    pub fn finish(self, head: &ResponseHead) {
        if head.keeps_alive() {
            self.release();
        }
    }

    /// Releases a connection that the server keeps open. See [`Self::finish`].
    pub fn release(self) {
        if let Wire::Channel(channel) = self.wire
            && self.used == self.have
        {
            channel.give_back();
        }
    }

    /// Releases the connection after the head of a response with an unwanted body, and with `further` requests in
    /// flight behind it. Closes the connection if their bodies cannot be discarded.
    pub fn decline(mut self, head: &ResponseHead, further: usize, deadline: &NetDeadline<'_>) {
        let mut is_usable = self.discard(head, deadline);
        for _ in 0..further {
            let head = is_usable.then(|| self.head(deadline));
            is_usable =
                head.is_some_and(|head| head.is_ok_and(|head| self.discard(&head, deadline)));
        }
        if is_usable {
            self.release();
        }
    }

    /// Discards the body of a response on a channel. Returns `false` if the connection cannot be used any more.
    pub fn discard(&mut self, head: &ResponseHead, deadline: &NetDeadline<'_>) -> bool {
        let Wire::Channel(channel) = &self.wire else { return false };
        let Ok(Framing::Length(mut left)) = head.framing() else { return false };
        if !head.keeps_alive() || left > MOST_DISCARDED && channel.is_replaceable() {
            return false;
        }
        while left > 0 {
            if self.unused().is_empty() && !matches!(self.fill(deadline), Ok(1..)) {
                return false;
            }
            let count = self.unused().len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.take(count);
            left -= count as u64;
        }
        true
    }

    /// Returns the error for input that is not a response, such as the output of a login script.
    fn not_a_response(&self) -> FetchError {
        let text = &self.unused()[..self.unused().len().min(SHOWN)];
        let text = String::from_utf8_lossy(text);
        let text = thalweg_core::shown(text.lines().next().unwrap_or_default()).to_string();
        let why =
            format!("printed '{text}' before its first response; login scripts must print nothing");
        FetchError::Remote { host: self.host.clone(), code: None, why }
    }

    /// Returns `true` if the error means that the other end of a channel is closed.
    fn is_closed_by(&self, error: &std::io::Error) -> bool {
        let is_end = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        is_end && self.is_channel()
    }

    /// Returns the error for a connection that the server closed before a response.
    fn closed(&mut self, deadline: &NetDeadline<'_>) -> FetchError {
        if let Wire::Channel(channel) = &mut self.wire {
            return channel.end(deadline.check);
        }
        let why = "the server closed the connection without a response".to_owned();
        FetchError::Network { doing: "read from", host: self.host.clone(), why }
    }

    /// Sends all bytes.
    pub fn send(&mut self, mut bytes: &[u8], deadline: &NetDeadline<'_>) -> Result<(), FetchError> {
        while !bytes.is_empty() {
            match self.wire.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if self.is_closed_by(&error) => return Err(self.closed(deadline)),
                Err(error) => self.wait_after(&error, SocketUse::Send, deadline)?,
            }
        }
        Ok(())
    }

    /// Returns the head of the response and skips interim ones (100, 103). The time limit for a silent server also
    /// applies to the whole head, because a server may send it byte by byte.
    pub fn head(&mut self, deadline: &NetDeadline<'_>) -> Result<ResponseHead, FetchError> {
        let is_login = matches!(&self.wire, Wire::Channel(channel) if !channel.has_answered());
        let limit = if is_login { LONGEST_LOGIN.max(deadline.limit) } else { deadline.limit };
        let deadline = &NetDeadline { limit, ..*deadline };
        let silence = Deadline::after(deadline.limit);
        loop {
            if silence.passed() {
                return Err(deadline.stalled(&self.host));
            }
            let parsed = ResponseHead::parse(self.unused());
            match parsed.map_err(|error| if is_login { self.not_a_response() } else { error })? {
                Some((head, length)) => {
                    if let Wire::Channel(channel) = &mut self.wire {
                        channel.note_answer();
                    }
                    self.take(length);
                    if head.status == 101 {
                        // A server may not switch protocols (101) if no request asked for it (RFC 9110, 15.2.2).
                        return Err(FetchError::broken(
                            "unexpected status 101 (Switching Protocols)",
                        ));
                    }
                    if !(100..200).contains(&head.status) {
                        return Ok(head);
                    }
                }
                None if self.fill(deadline)? == 0 => return Err(self.closed(deadline)),
                None => {}
            }
        }
    }

    /// Returns the bytes that were read and not used yet.
    pub fn unused(&self) -> &[u8] {
        &self.buffer[self.used..self.have]
    }

    /// Marks `count` bytes of the buffer as used.
    pub fn take(&mut self, count: usize) {
        self.used += count;
        if self.used >= self.have {
            (self.used, self.have) = (0, 0);
        }
    }

    /// Waits for at least one byte, and reads the available bytes after the unused ones. Returns 0 at the end of the
    /// stream. The buffer always has room, because it is larger than any head, line or small file.
    pub fn fill(&mut self, deadline: &NetDeadline<'_>) -> Result<usize, FetchError> {
        self.buffer.resize(ROOM);
        if self.used > 0 {
            self.buffer.copy_within(self.used..self.have, 0);
            (self.used, self.have) = (0, self.have - self.used);
        }
        loop {
            match self.wire.read(&mut self.buffer[self.have..]) {
                Ok(count) => {
                    self.have += count;
                    return Ok(count);
                }
                Err(error) if self.is_closed_by(&error) => return Err(self.closed(deadline)),
                Err(error) => self.wait_after(&error, SocketUse::Receive, deadline)?,
            }
        }
    }

    /// Reads until the buffer holds `wanted` bytes or the peer ends the stream. Does nothing if `wanted` is more than
    /// half of the buffer.
    pub fn gather(&mut self, wanted: u64, deadline: &NetDeadline<'_>) -> Result<(), FetchError> {
        while wanted <= ROOM as u64 / 2 && (self.unused().len() as u64) < wanted {
            if self.fill(deadline)? == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until an operation that returned `EAGAIN` can continue. Any other error is returned.
    fn wait_after(
        &self,
        error: &std::io::Error,
        attempted: SocketUse,
        deadline: &NetDeadline<'_>,
    ) -> Result<(), FetchError> {
        match error.kind() {
            ErrorKind::WouldBlock => {
                let waits = self.wire.waits_for(attempted == SocketUse::Receive);
                let Some((fd, to_read)) = waits else {
                    return Err(FetchError::Ended(self.host.clone()));
                };
                deadline.wait(fd, to_read, &self.host)
            }
            ErrorKind::Interrupted => Ok(()),
            // rustls reports invalid messages and certificates of the peer as `InvalidData`.
            ErrorKind::InvalidData => {
                #[cfg(feature = "tls")]
                let why = super::tls::why(error);
                #[cfg(not(feature = "tls"))]
                let why = error.to_string();
                Err(FetchError::Untrusted { host: self.host.clone(), why })
            }
            _ => {
                let errno = Errno::from_io_error(error);
                let why = errno.map_or_else(|| error.to_string(), thalweg_core::error::errno_name);
                Err(FetchError::Network { doing: attempted.verb(), host: self.host.clone(), why })
            }
        }
    }
}

/// Lets the connection fail if the server's machine does not respond for about a minute. A server that hashes a large file
/// sends nothing for longer than that, but its kernel responds.
fn notice_death(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Connects to the first address that answers. `name` is for messages.
fn dial(
    name: &str,
    host: &str,
    port: u16,
    deadline: &NetDeadline<'_>,
) -> Result<TcpStream, FetchError> {
    let (address, limit) = (host.to_owned(), deadline.limit.min(LONGEST_TRY));
    let dialed = deadline.run_blocking(name, move || dial_first(&address, port, limit))?;
    dialed.map_err(|(doing, error)| FetchError::Unreached {
        doing,
        host: name.to_owned(),
        why: reason(&error),
    })
}

/// Connects to the first address that answers. Returns the operation that failed, for messages, and its error.
fn dial_first(
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<TcpStream, (&'static str, std::io::Error)> {
    let found = (host, port).to_socket_addrs().map_err(|e| ("resolve", e))?;
    let mut last = ErrorKind::AddrNotAvailable.into();
    for address in found {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => {
                // Each request is one write, so Nagle's algorithm could only delay it.
                let _ = socket.set_nodelay(true);
                let _ = notice_death(&socket);
                socket.set_nonblocking(true).map_err(|e| ("set up the connection to", e))?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(("connect to", last))
}

impl Wire {
    fn over(socket: TcpStream, target: &FetchUrl, trust: &TlsTrust) -> Result<Self, FetchError> {
        #[cfg(feature = "tls")]
        if target.is_secure() {
            let secret = trust.begin(&target.host().0)?;
            return Ok(Self::Secret(Box::new(StreamOwned::new(secret, socket))));
        }
        let _ = (target, trust);
        Ok(Self::Plain(socket))
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(net::send(socket, bytes)?),
            Self::Channel(channel) => Ok(channel.write(bytes)?),
            #[cfg(feature = "tls")]
            Self::Secret(stream) => stream.write(bytes),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(io::read(socket, into)?),
            Self::Channel(channel) => Ok(io::read(channel.input()?, into)?),
            #[cfg(feature = "tls")]
            Self::Secret(stream) => stream.read(into),
        }
    }

    /// Returns the socket, and `true` if it must become readable (`false`: writable) before the operation can continue.
    fn waits_for(&self, to_read: bool) -> Option<(BorrowedFd<'_>, bool)> {
        match self {
            Self::Plain(socket) => Some((socket.as_fd(), to_read)),
            Self::Channel(channel) => {
                let fd = if to_read { channel.input() } else { channel.output() };
                Some((fd.ok()?, to_read))
            }
            // During a handshake, TLS may have to read before it can write, or write before it can read.
            #[cfg(feature = "tls")]
            Self::Secret(stream) => Some((stream.sock.as_fd(), !stream.conn.wants_write())),
        }
    }
}
