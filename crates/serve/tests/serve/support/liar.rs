//! A web server in a thread that gives the answers of a test, right or wrong. One request per connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Number of earlier requests.
    pub turn: usize,
    pub path: String,
    headers: Vec<(String, String)>,
}

impl ReceivedRequest {
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.as_str())
    }

    /// Returns the first byte of the requested range.
    pub fn from(&self) -> Option<usize> {
        self.range().map(|(from, _)| from)
    }

    /// Returns the requested range: its first byte and, if it is given, one past the last byte.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (from, last) = self.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let to = last.parse().ok().map(|last: usize| last + 1);
        Some((from.parse().ok()?, to))
    }
}

/// The server. It ends when it is dropped.
pub struct LyingServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LyingServer {
    /// Starts a server that answers every request with this function.
    pub fn new(answer: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (all, is_over, answer) = (asked.clone(), over.clone(), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), all, answer) = (stream, all.clone(), answer.clone()) else {
                    return;
                };
                thread::spawn(move || serve(stream, &all, &*answer));
            }
        });
        Self { address, asked, over, thread: Some(thread) }
    }

    /// Starts a server that gives this answer to every request.
    pub fn always(answer: Vec<u8>) -> Self {
        Self::new(move |_, stream| drop(stream.write_all(&answer)))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Returns the requests so far.
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for LyingServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    mut stream: TcpStream,
    all: &Mutex<Vec<ReceivedRequest>>,
    answer: &dyn Fn(&ReceivedRequest, &mut TcpStream),
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
    let headers = headers.filter_map(|line| {
        line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
    });
    let headers = headers.collect();
    let asked = {
        let mut all = all.lock().unwrap();
        let asked = ReceivedRequest { turn: all.len(), path, headers };
        all.push(asked.clone());
        asked
    };
    answer(&asked, &mut stream);
    drop(stream.shutdown(Shutdown::Write));
}

/// Returns the head and the body of a right answer: the requested range, or the whole file if `If-Range`
/// does not match.
pub fn honest(asked: &ReceivedRequest, bytes: &[u8], etag: &str) -> (String, Vec<u8>) {
    let holds = asked.get("if-range").is_none_or(|given| given == etag);
    match asked.range().filter(|(from, _)| holds && *from < bytes.len()) {
        Some((from, to)) => {
            let to = to.unwrap_or(bytes.len()).min(bytes.len());
            (partial_to(from, to, bytes.len(), etag), bytes[from..to].to_vec())
        }
        None => (full(bytes.len(), etag), bytes.to_vec()),
    }
}

pub fn partial(from: usize, total: usize, etag: &str) -> String {
    partial_to(from, total, total, etag)
}

pub fn partial_to(from: usize, to: usize, total: usize, etag: &str) -> String {
    let (length, last) = (to - from, to - 1);
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{last}/{total}\r\n\
         Content-Length: {length}\r\nETag: {etag}\r\n\r\n"
    )
}

pub fn full(total: usize, etag: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\nETag: {etag}\r\n\r\n")
}

/// Sends the head and at most `most` bytes of the body, as far as the client accepts them.
pub fn send(stream: &mut TcpStream, (head, body): &(String, Vec<u8>), most: usize) {
    drop(stream.write_all(head.as_bytes()));
    drop(stream.write_all(&body[..most.min(body.len())]));
}

/// Waits until the client closes the connection.
pub fn await_hang_up(stream: &mut TcpStream) {
    drop(stream.read(&mut [0]));
}
