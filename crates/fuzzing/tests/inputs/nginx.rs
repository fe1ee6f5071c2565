//! Mutated requests for our parser and for nginx: a request that only we accept, or that we read differently, could
//! pass a proxy unseen (request smuggling).

use std::{
    fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use thalweg_fuzzing::request::answers;
use thalweg_serve::http::head::RequestHead;
use thalweg_testing::{Dice, from_env, skip};

/// A server that answers each request with its request line.
struct Nginx {
    folder: tempfile::TempDir,
    process: Child,
}

impl Nginx {
    fn start() -> Option<Self> {
        let unpacked =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nginx/usr/sbin/nginx");
        let program = if unpacked.exists() { unpacked } else { PathBuf::from("nginx") };
        let folder = tempfile::tempdir().expect("a directory");
        let place = folder.path().display();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/log emerg; {user}
            events {{}}
            http {{
                access_log off; client_body_temp_path {place}/a; proxy_temp_path {place}/b;
                fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
                keepalive_requests 1000000; large_client_header_buffers 4 64k;
                server {{
                    listen unix:{place}/socket;
                    location / {{ add_header Line \"$request\"; return 200 \"body\"; }}
                }}
            }}"
        );
        let configuration = folder.path().join("conf");
        fs::write(&configuration, text).expect("a file");
        let process = Command::new(program)
            .arg("-p")
            .arg(folder.path())
            .arg("-e")
            .arg(folder.path().join("log"))
            .arg("-c")
            .arg(&configuration)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut nginx = Self { folder, process };
        while UnixStream::connect(nginx.socket()).is_err() {
            let ended = nginx.process.try_wait().expect("a process");
            let log = || fs::read_to_string(nginx.folder.path().join("log"));
            assert!(ended.is_none(), "{ended:?}: {:?}", log());
            thread::sleep(Duration::from_millis(10));
        }
        Some(nginx)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Returns the request lines that nginx has accepted, in order.
    fn accepted(&self, bytes: &[u8]) -> Vec<String> {
        let mut stream = UnixStream::connect(self.socket()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        // nginx may close before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            answers.extend_from_slice(&buffer[..count]);
        }
        lines(&answers)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the request line that each answer with status 200 repeats.
fn lines(mut rest: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(at) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&rest[..at]).into_owned();
        rest = &rest[at + 4..];
        // After an interim answer, the final one follows.
        if head.starts_with("HTTP/1.1 100") {
            continue;
        }
        let header = |name| head.lines().find_map(|line| line.strip_prefix(name));
        let Some(line) = header("Line: ").filter(|_| head.starts_with("HTTP/1.1 200")) else {
            break;
        };
        let length = header("Content-Length: ").and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let body: usize = if line.starts_with("HEAD ") { 0 } else { length };
        rest = rest.get(body..).unwrap_or_default();
        lines.push(line.to_owned());
    }
    lines
}

/// Parts of requests that a server interprets by their place in the request.
const PARTS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\xff",
    b":",
    b"/",
    b"..",
    b"%00",
    b"%2e%2e/",
    b"%",
    b"?",
    b"#",
    b"*",
    b"http://h/",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/1.2",
    b"HTTP/0.9",
    b"GET / HTTP/1.1\r\n",
    b"HEAD ",
    b"Host: a\r\n",
    b"Host: a..b\r\n",
    b"Host: [::1]:80\r\n",
    b"Host:\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: x\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b" folded\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b"Range: bytes=0-1\r\n",
    b"0\r\n\r\n",
    b"hello",
];
const BASES: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /a/b?c HTTP/1.1\r\nHost: a:80\r\nRange: bytes=0-4\r\n\r\n",
    b"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET /y HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /z HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET http://h/p HTTP/1.1\r\nHost: h\r\n\r\n",
];

/// Returns one to three requests with some changes.
fn mutated(dice: &mut Dice) -> Vec<u8> {
    let mut pick = |all: &[&'static [u8]]| all[dice.within(0..all.len() as u64) as usize];
    let mut bytes = [pick(BASES), pick(BASES)].concat();
    let changes = dice.within(0..5);
    for _ in 0..changes {
        let at = dice.within(0..bytes.len() as u64 + 1) as usize;
        let part = PARTS[dice.within(0..PARTS.len() as u64) as usize];
        match dice.within(0..6) {
            0 | 1 => drop(bytes.splice(at..at, part.iter().copied())),
            2 => {
                let end = bytes.len().min(at + dice.within(1..8) as usize);
                drop(bytes.splice(at..end, part.iter().copied()));
            }
            3 => {
                let end = bytes.len().min(at + dice.within(1..12) as usize);
                drop(bytes.drain(at..end));
            }
            4 => {
                // Parts fit best at the start of a line.
                let start =
                    bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                drop(bytes.splice(start..start, part.iter().copied()));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = dice.within(0..256) as u8;
                }
            }
        }
    }
    bytes
}

/// Returns the requests that we accept, up to the one that ends the connection. Our server answers a request with a
/// body without reading the body, and closes. nginx reads the body first and may refuse it, so such a request ends the
/// list.
fn ours(bytes: &[u8]) -> Vec<RequestHead> {
    let heads = answers(std::iter::once(bytes)).into_iter().map_while(Result::ok);
    let mut accepted = Vec::new();
    for head in heads.take_while(|head| !head.has_body) {
        let is_last = !head.keep_alive;
        accepted.push(head);
        if is_last {
            break;
        }
    }
    accepted
}

/// Sends `$THALWEG_REQUESTS` mutated inputs to both parsers.
#[test]
fn nginx_accepts_every_request_that_we_accept() {
    let test = "nginx_accepts_every_request_that_we_accept";
    let Some(nginx) = Nginx::start() else {
        return skip(test, "nginx is not installed");
    };
    let mut dice = Dice::of_campaign(test, "THALWEG_REQUESTS");
    let (mut both, mut wrong) = (0_u64, Vec::new());
    for _ in 0..from_env("THALWEG_REQUESTS", 300) {
        let bytes = mutated(&mut dice);
        let own = ours(&bytes);
        // Contrary to RFC 9110, 5.6.3, nginx treats a tab before or after a value as a part of the value.
        let is_blank = |two: &[u8]| {
            [b":\t", b" \t", b"\t\r", b"\t\n", b"\t "].contains(&two.try_into().expect("two"))
        };
        if own.is_empty() || bytes.windows(2).any(is_blank) {
            continue;
        }
        let theirs = nginx.accepted(&bytes);
        let is_seen = |(at, head): (usize, &RequestHead)| {
            theirs.get(at).is_some_and(|line| *line == head.line)
        };
        both += own.len() as u64;
        if !own.iter().enumerate().all(is_seen) {
            let lines: Vec<&str> = own.iter().map(|head| &*head.line).collect();
            wrong.push(format!(
                "{:?}: {lines:?}, nginx {theirs:?}",
                String::from_utf8_lossy(&bytes)
            ));
        }
    }
    assert!(both > 0, "no request was accepted");
    println!("nginx: {both} requests accepted by both");
    assert!(
        wrong.is_empty(),
        "{} inputs:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}
