//! Clients that try to use as many resources of a server as possible.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Sends requests and reads nothing.
    Unread(&'static str),
    /// Sends hundreds of requests at once, and reads all responses.
    Pipelined(&'static str),
    /// Sends a request, and reads a few bytes at intervals.
    Slow(&'static str),
    /// Sends a request byte by byte, without an end.
    Head,
    /// Sends empty lines.
    EmptyLines,
    /// Requests the digest of a large file, and closes the connection.
    Digest,
}

pub const KINDS: [Kind; 12] = [
    Kind::Unread("GET /many/?json"),
    Kind::Pipelined("HEAD /many/?json"),
    Kind::Head,
    Kind::EmptyLines,
    Kind::Digest,
    Kind::Slow("GET /many/?json"),
    Kind::Unread("GET /many/"),
    Kind::Unread("GET /many/?manifest"),
    Kind::Unread("GET /many/?tar"),
    Kind::Pipelined("HEAD /many/"),
    Kind::Slow("GET /many/?manifest"),
    Kind::Pipelined("GET /few/?json"),
];

/// Pause of a client between two actions.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Hostile<'t> {
    kind: Kind,
    number: u64,
    from: Ipv4Addr,
    to: SocketAddr,
    is_over: &'t AtomicBool,
}

/// Connects from an address of this machine.
pub fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

impl<'t> Hostile<'t> {
    /// Returns the client with this number. Half of the clients share an address; the others use many addresses.
    pub fn new(number: u64, to: SocketAddr, is_over: &'t AtomicBool) -> Self {
        let kind = KINDS[number as usize % KINDS.len()];
        let host = if number.is_multiple_of(2) { 2 } else { 3 + number % 250 };
        Self { kind, number, from: Ipv4Addr::new(127, 0, 0, host as u8), to, is_over }
    }

    /// Attacks until `is_over` is set, and reconnects whenever a connection ends. Returns the number of connections.
    pub fn run(self) -> u64 {
        // Real attackers use other machines, so these clients must not take CPU time from the server and the
        // well-behaved client.
        let _ = rustix::process::nice(19);
        let mut connections = 0;
        while !self.is_over() {
            if let Ok(stream) = connect_from(self.from, self.to) {
                connections += 1;
                // Errors are ignored, because the server closes connections of such clients.
                let _ = stream.set_read_timeout(Some(PAUSE));
                let _ = stream.set_write_timeout(Some(PAUSE));
                let _ = self.attack(stream);
            }
            self.pause(PAUSE);
        }
        connections
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(PAUSE.min(until - Instant::now()));
        }
    }

    fn attack(&self, mut stream: TcpStream) -> io::Result<()> {
        let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
        match self.kind {
            Kind::Unread(line) => {
                stream.write_all(request(line).as_bytes())?;
                self.pause(Duration::from_secs(3600));
            }
            Kind::Pipelined(line) => {
                stream.write_all(request(line).repeat(200).as_bytes())?;
                let began = Instant::now();
                while !self.is_over() && began.elapsed() < Duration::from_secs(2) {
                    read(&mut stream, 64 << 10)?;
                }
            }
            Kind::Slow(line) => {
                stream.write_all(request(line).as_bytes())?;
                while !self.is_over() {
                    read(&mut stream, 2 << 10)?;
                    self.pause(PAUSE);
                }
            }
            Kind::Head => {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")?;
                while !self.is_over() {
                    stream.write_all(b"x")?;
                    self.pause(PAUSE);
                }
            }
            Kind::EmptyLines => {
                while !self.is_over() {
                    stream.write_all(b"\r\n")?;
                    self.pause(PAUSE);
                }
            }
            Kind::Digest => {
                let line = format!("GET /large{}?digest=sha-256", self.number / 12 % 8);
                stream.write_all(request(&line).as_bytes())?;
                self.pause(PAUSE);
            }
        }
        Ok(())
    }
}

/// Reads at most this many bytes. Fails if the server has closed the connection; a timeout is not an error.
fn read(stream: &mut TcpStream, most: usize) -> io::Result<()> {
    let mut buffer = vec![0; most];
    match stream.read(&mut buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
