//! A connection to a server, and what was read from it and not used yet.

use std::{
    io::ErrorKind,
    net::{TcpStream, ToSocketAddrs},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use thalweg_sys::{Errno, io, net};

use super::{Error, Target, head::Head, patience::Patience};

/// Room for what one call reads.
const ROOM: usize = 128 << 10;
/// An address that does not answer must not keep the next one waiting.
const LONGEST_TRY: Duration = Duration::from_secs(15);

/// A connection that does not sleep in its calls.
pub struct Connection {
    socket: TcpStream,
    host: String,
    buffer: Vec<u8>,
    used: usize,
}

impl Connection {
    /// To the first address of the server that answers.
    pub fn open(target: &Target, patience: &Patience<'_>) -> Result<Self, Error> {
        let (host, port) = target.host();
        let failed = |doing, error: &std::io::Error| {
            let why = error.to_string();
            let why = why.split(" (os error").next().unwrap_or_default().to_owned();
            Error::Network { doing, host: target.authority(), why }
        };
        let found = (host.as_str(), port).to_socket_addrs().map_err(|e| failed("find", &e))?;
        let mut last = None;
        for address in found {
            (patience.look)()?;
            match TcpStream::connect_timeout(&address, patience.most.min(LONGEST_TRY)) {
                Ok(socket) => {
                    // Requests are written in one piece: nothing is gained by waiting for more.
                    let _ = socket.set_nodelay(true);
                    socket.set_nonblocking(true).map_err(|e| failed("use", &e))?;
                    let (host, buffer) = (target.authority(), Vec::new());
                    return Ok(Self { socket, host, buffer, used: 0 });
                }
                Err(error) => last = Some(error),
            }
        }
        let last = last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
        Err(failed("connect to", &last))
    }

    /// The server's name, for messages.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What a mechanism may read from, once the buffer is empty.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends all of it.
    pub fn send(&mut self, mut bytes: &[u8], patience: &Patience<'_>) -> Result<(), Error> {
        while !bytes.is_empty() {
            match net::send(&self.socket, bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => patience.wait(self.socket.as_fd(), false, &self.host)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("ask", errno)),
            }
        }
        Ok(())
    }

    /// The head of the answer; those that only announce one (100, 103) are passed over.
    pub fn head(&mut self, patience: &Patience<'_>) -> Result<Head, Error> {
        loop {
            match Head::parse(self.unused())? {
                Some((head, length)) => {
                    self.take(length);
                    if !(100..200).contains(&head.status) {
                        return Ok(head);
                    }
                }
                None if self.fill(patience)? == 0 => {
                    let why = "it closed the connection without an answer".to_owned();
                    return Err(Error::Network { doing: "hear", host: self.host.clone(), why });
                }
                None => {}
            }
        }
    }

    /// What was read and not used yet.
    pub fn unused(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// So much of it was used.
    pub fn take(&mut self, count: usize) {
        self.used += count;
        if self.used >= self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
        }
    }

    /// Reads what is there behind the rest, and waits if that is nothing; 0 at the end.
    pub fn fill(&mut self, patience: &Patience<'_>) -> Result<usize, Error> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let have = self.buffer.len();
        self.buffer.resize(have + ROOM, 0);
        let read = loop {
            match io::read(&self.socket, &mut self.buffer[have..]) {
                Ok(count) => break Ok(count),
                Err(Errno::AGAIN) => {
                    if let Err(error) = patience.wait(self.socket.as_fd(), true, &self.host) {
                        break Err(error);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => break Err(self.failed("read from", errno)),
            }
        };
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        read
    }

    fn failed(&self, doing: &'static str, errno: Errno) -> Error {
        let why = thalweg_core::error::errno_name(errno);
        Error::Network { doing, host: self.host.clone(), why }
    }
}
