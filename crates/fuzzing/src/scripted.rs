//! A server on the loopback interface that answers each connection with the next part of an input.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Separates the answers to two connections.
const NEXT_CONNECTION: u8 = 0xff;
/// Separates two writes of one answer.
const NEXT_WRITE: u8 = 0xfe;
/// Longest wait for a request. A client in a TLS handshake sends none.
const PATIENCE: Duration = Duration::from_millis(100);

/// The server. It ends when it is dropped.
pub struct Scripted {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts a server that plays the answers of a script in order. Later connections are closed at once.
    pub fn start(script: &[u8]) -> Self {
        // libFuzzer's main is not Rust's, which ignores SIGPIPE.
        thalweg_sys::signal::ignore_sigpipe().expect("a handler");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let answers: Vec<Vec<u8>> =
            script.split(|byte| *byte == NEXT_CONNECTION).map(<[u8]>::to_vec).collect();
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut answers = answers.into_iter();
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let (Ok(stream), Some(answer)) = (stream, answers.next()) {
                    play(stream, &answer);
                }
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Reads one request and writes the answer. An early end of the client is ignored.
fn play(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_nodelay(true);
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    for piece in answer.split(|byte| *byte == NEXT_WRITE) {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}
