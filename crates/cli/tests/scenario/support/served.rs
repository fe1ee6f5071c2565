//! Runs `thalweg serve` for a directory.

use std::{
    io::{BufRead, BufReader},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use thalweg_testing::ReservedPort;

use super::run::{GUARD, thalweg};

/// A server process. Dropping this ends it.
pub struct Served {
    child: Child,
    folder: PathBuf,
    words: Vec<String>,
    /// Keeps other processes from the port after a kill. `None` if the caller has chosen the port.
    _port: Option<ReservedPort>,
    /// URL of the directory, with a slash at its end.
    pub url: String,
}

impl Served {
    /// Starts a server at a free port.
    pub fn on(folder: &Path) -> Self {
        Self::with(folder, &[])
    }

    /// Starts a server at a free port with these options.
    pub fn with(folder: &Path, words: &[&str]) -> Self {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let port = ReservedPort::new();
        let (child, url) = start(folder, &format!("127.0.0.1:{}", port.number), &words)
            .expect("no server at a free port");
        Self { child, folder: folder.to_owned(), words, _port: Some(port), url }
    }

    /// Starts a server at this port, or returns `None` if the port is in use.
    pub fn at_port(folder: &Path, port: &str) -> Option<Self> {
        let (child, url) = start(folder, &format!("127.0.0.1:{port}"), &[])?;
        Some(Self { child, folder: folder.to_owned(), words: vec![], _port: None, url })
    }

    pub fn port(&self) -> &str {
        self.url.trim_end_matches('/').rsplit(':').next().unwrap_or_default()
    }

    /// Returns the URL of an entry of the directory.
    pub fn at(&self, name: &str) -> String {
        format!("{}{name}", self.url)
    }

    /// Opens a connection. A read from it fails after [`GUARD`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream
    }

    fn address(&self) -> &str {
        self.url["http://".len()..].trim_end_matches('/')
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a new server at the port of the killed one. Retries if another process uses the port for a while.
    pub fn start_again(&mut self) {
        let port = self.address().to_owned();
        let began = Instant::now();
        loop {
            if let Some((child, url)) = start(&self.folder, &port, &self.words) {
                assert_eq!(url, self.url);
                self.child = child;
                return;
            }
            assert!(began.elapsed() < GUARD, "no server at {port}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts a server, or returns `None` if it cannot listen at this address.
fn start(folder: &Path, at: &str, words: &[String]) -> Option<(Child, String)> {
    let mut command: Command = thalweg();
    command.args(["serve", "--listen", at]).args(words).arg(folder);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let words = lines.flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let Some(url) = { words }.find(|word| word.starts_with("http://")) else {
        drop(child.wait());
        return None;
    };
    Some((child, format!("{}/", url.trim_end_matches('/'))))
}
