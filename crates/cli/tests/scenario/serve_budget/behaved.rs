//! A well-behaved client, and the times that it waits.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::{SMALL, hostile::connect_from};
use crate::support::run::GUARD;

/// The address of this client, which no hostile client uses.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// The client, with a persistent connection.
pub struct Behaved {
    to: SocketAddr,
    kept: TcpStream,
    report: Report,
}

/// The results of the requests.
#[derive(Default)]
pub struct Report {
    times: Vec<Duration>,
    pub failed: Vec<String>,
}

type Right = fn(&str, &[u8]) -> bool;

/// Requests, each with the check of its response.
const REQUESTS: [(&str, &str, Right); 5] = [
    ("GET /small", "", |head, body| head.starts_with("HTTP/1.1 200 ") && body == SMALL),
    ("GET /small", "Range: bytes=5-9\r\n", |head, body| {
        head.starts_with("HTTP/1.1 206 ") && body == b"sssss"
    }),
    ("GET /few/?json", "", |head, body| {
        head.starts_with("HTTP/1.1 200 ") && body.ends_with(b"}]") && body.len() > 1000
    }),
    ("GET /small", "Want-Repr-Digest: sha-256=1\r\n", |head, body| {
        head.contains("\r\nRepr-Digest: sha-256=:") && body == SMALL
    }),
    ("HEAD /many/?json", "", |head, body| head.starts_with("HTTP/1.1 200 ") && body.is_empty()),
];

impl Behaved {
    pub fn new(to: SocketAddr) -> Self {
        Self { to, kept: open(to).unwrap(), report: Report::default() }
    }

    /// Sends every request on a new connection, and on the persistent one.
    pub fn round(&mut self) {
        for (line, fields, is_right) in REQUESTS {
            let began = Instant::now();
            let answer = open(self.to).and_then(|mut stream| ask(&mut stream, line, fields));
            self.report.add("own", line, (began, answer), is_right);
            let began = Instant::now();
            let answer = ask(&mut self.kept, line, fields);
            self.report.add("kept", line, (began, answer), is_right);
        }
        std::thread::sleep(Duration::from_millis(10));
    }

    pub fn report(self) -> Report {
        self.report
    }
}

impl Report {
    fn add(
        &mut self,
        connection: &str,
        line: &str,
        (began, answer): (Instant, io::Result<(String, Vec<u8>)>),
        is_right: Right,
    ) {
        self.times.push(began.elapsed());
        match answer {
            Ok((head, body)) if is_right(&head, &body) => {}
            Ok((head, _)) => self.failed.push(format!("{line} ({connection}): {head}")),
            Err(error) => self.failed.push(format!("{line} ({connection}): {error}")),
        }
    }

    /// Returns this percentile of the response times.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() * percent / 100).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, all] = [50, 99, 100].map(|percent| match percent {
            100 => self.times.iter().max().copied().unwrap_or_default(),
            percent => self.percentile(percent),
        });
        let (count, failed) = (self.times.len(), self.failed.len());
        write!(
            f,
            "{count} requests of a client that behaves: {failed} failed, half of them took {half:.1?} at most, 99 % \
             {most:.1?}, all {all:.1?}"
        )
    }
}

fn open(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = connect_from(OWN, to)?;
    stream.set_read_timeout(Some(GUARD))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the body of a page, over a new connection.
pub fn get(to: SocketAddr, path: &str) -> String {
    let answer = open(to).and_then(|mut stream| ask(&mut stream, &format!("GET {path}"), ""));
    String::from_utf8(answer.unwrap().1).unwrap()
}

/// Sends a request and returns the response, with `Content-Length` or with chunks.
fn ask(stream: &mut TcpStream, line: &str, fields: &str) -> io::Result<(String, Vec<u8>)> {
    stream.write_all(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())?;
    let mut came = Vec::new();
    let end = loop {
        if let Some(at) = came.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, &mut came)?;
    };
    let mut body = came.split_off(end);
    let head = String::from_utf8_lossy(&came).into_owned();
    if line.starts_with("HEAD") {
        return Ok((head, body));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    if let Some(length) = length.and_then(|length| length.parse::<usize>().ok()) {
        while body.len() < length {
            more(stream, &mut body)?;
        }
        return Ok((head, body));
    }
    while !body.ends_with(b"0\r\n\r\n") {
        more(stream, &mut body)?;
    }
    Ok((head, chunks(&body)))
}

fn chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(&String::from_utf8_lossy(&rest[..end]), 16).unwrap();
        body.extend_from_slice(&rest[end + 2..][..length]);
        rest = &rest[end + 2 + length + 2..];
        if length == 0 {
            break;
        }
    }
    body
}

fn more(stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 8 << 10];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            into.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}
