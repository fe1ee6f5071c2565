//! A server on its own directory, and a client that reads answers byte by byte.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use thalweg_serve::server::{RunningServer, ServeOptions};

pub use crate::support::serve::{address, serve};

/// Timeout of every answer. No test asserts a shorter time.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestSite {
    folder: tempfile::TempDir,
    server: Option<RunningServer>,
}

impl TestSite {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts a server with further options.
    pub fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        let server = Some(serve(&folder.path().join("root"), change));
        Self { folder, server }
    }

    /// Returns a path next to the root.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    /// Creates a file below the root.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn connect(&self) -> Client {
        Client::of(TcpStream::connect(address(self.running())).unwrap())
    }

    pub fn running(&self) -> &RunningServer {
        self.server.as_ref().unwrap()
    }

    pub fn take(&mut self) -> RunningServer {
        self.server.take().unwrap()
    }

    /// Sends one request on a new connection.
    pub fn get(&self, target: &str, fields: &str) -> RawAnswer {
        self.connect().ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    /// Returns the metrics page as soon as `is_right` accepts it: an answer is counted only after its
    /// last byte is sent.
    pub fn counts(&self, is_right: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let page = self.get("/-/metrics", "").text();
            if is_right(&page) {
                return page;
            }
            assert!(began.elapsed() < PATIENCE, "{page}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub struct Client {
    pub stream: TcpStream,
    came: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// `true` if the body has its announced length, or its end is marked.
    pub is_whole: bool,
}

impl RawAnswer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

impl Client {
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, came: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The server may already have answered and closed the connection.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub fn ask(&mut self, request: &str) -> RawAnswer {
        self.send(request);
        self.answer(request.starts_with("HEAD"))
    }

    /// Reads more bytes. Returns `false` at the end.
    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.came.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no answer came, only {} bytes; {}", self.came.len(), self.sockets())
            }
            // The server has reset the connection.
            Err(_) => false,
        }
    }

    /// Returns the lines of both sockets in `/proc/net/tcp`. Their queues and timers show if the server or the kernel holds
    /// the answer back.
    fn sockets(&self) -> String {
        let port =
            format!(":{:04X} ", self.stream.local_addr().map_or(0, |address| address.port()));
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        let lines = tables.iter().flatten().flat_map(|table| table.lines());
        lines.filter(|line| line.contains(&port)).collect::<Vec<_>>().join("\n")
    }

    /// Removes and returns the first bytes received.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let rest = self.came.split_off(len);
        std::mem::replace(&mut self.came, rest)
    }

    /// Returns `true` if no more bytes come.
    pub fn is_at_end(&mut self) -> bool {
        self.came.is_empty() && !self.more()
    }

    pub fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.came.windows(4).position(|four| four == b"\r\n\r\n") {
                return String::from_utf8(self.take(end + 4)).unwrap();
            }
            assert!(
                self.more(),
                "the end instead of a head: {:?}",
                String::from_utf8_lossy(&self.came)
            );
        }
    }

    pub fn answer(&mut self, to_head: bool) -> RawAnswer {
        let head = self.head();
        let status = head[9..12].parse().unwrap();
        let mut answer = RawAnswer { status, head, body: Vec::new(), is_whole: true };
        let has_none = to_head || status == 304;
        if answer.field("Transfer-Encoding").is_some() && !has_none {
            answer.is_whole = self.chunks(&mut answer.body);
        } else if let Some(len) = answer.field("Content-Length").filter(|_| !has_none) {
            let len: usize = len.parse().unwrap();
            while self.came.len() < len && self.more() {}
            answer.is_whole = self.came.len() >= len;
            answer.body = self.take(len.min(self.came.len()));
        } else if !has_none {
            while self.more() {}
            answer.body = std::mem::take(&mut self.came);
        }
        answer
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.came.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        while let Some(len) = self.line() {
            let len = usize::from_str_radix(&len, 16).unwrap();
            while self.came.len() < len + 2 {
                if !self.more() {
                    return false;
                }
            }
            body.extend_from_slice(&self.take(len));
            assert_eq!(self.take(2), b"\r\n");
            if len == 0 {
                return true;
            }
        }
        false
    }
}

/// Waits until existing files are old enough for strong tags.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Returns pseudorandom bytes.
pub fn noise(len: usize) -> Vec<u8> {
    thalweg_testing::noise(len, 1)
}

pub fn name(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

impl Client {
    /// Discards the received bytes.
    pub fn drained(mut self) -> Self {
        self.came.clear();
        self
    }
}

/// Returns a number of repetitions: the value of an environment variable, or `usual` if it is not set.
pub fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
