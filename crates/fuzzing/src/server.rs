//! A whole connection of a server: it must answer exactly the requests that the parser finds, in order, and then close.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use thalweg_serve::{
    http::{head::RequestHead, head::RequestMethod, status::HttpStatus},
    server::{ListenAddress, RunningServer, ServeOptions},
};

use crate::{answered::Answered, request::answers};

const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/site");
const TEXT: &[u8] = include_bytes!("../site/a.txt");

/// Returns the address of a server that runs as long as this process.
fn address() -> SocketAddr {
    static SERVER: OnceLock<RunningServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let mut options = ServeOptions::new(SITE);
        options.listen = vec![ListenAddress::Tcp(([127, 0, 0, 1], 0).into())];
        options.threads = Some(1);
        options.hash = true;
        options.metrics = true;
        options.precompressed = true;
        RunningServer::start(options).expect("a server")
    });
    match server.addresses() {
        [ListenAddress::Tcp(address)] => *address,
        other => panic!("{other:?}"),
    }
}

/// Runs one input: the number of writes, then the bytes of the client.
pub fn run(bytes: &[u8]) {
    let Some((writes, bytes)) = bytes.split_first() else { return };
    let mut stream = TcpStream::connect(address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    for piece in bytes.chunks(bytes.len() / (1 + usize::from(writes % 8)) + 1) {
        // The server closes after a bad request.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("answers and the end");
    let mut rest = &received[..];
    for expected in answers(std::iter::once(bytes)) {
        let to_head = expected.as_ref().is_ok_and(|head| head.method == RequestMethod::Head);
        let answer = Answered::take(&mut rest, to_head);
        match expected {
            Ok(head) => {
                check(&head, &answer);
                let is_last = answer.field("Connection") == Some("close");
                if !head.keep_alive || head.has_body || is_last {
                    break;
                }
            }
            Err(HttpStatus(code, _)) => {
                assert_eq!(answer.status, code);
                assert_eq!(answer.field("Connection"), Some("close"));
            }
        }
    }
    assert!(rest.is_empty(), "bytes after the last answer: {}", String::from_utf8_lossy(rest));
}

/// Checks the body of a known file.
fn check(head: &RequestHead, answer: &Answered<'_>) {
    let allowed = [200, 206, 302, 304, 403, 404, 412, 416];
    // If a digest is not ready in time, the server answers 503 with Retry-After.
    let is_late = answer.status == 503 && answer.field("Retry-After").is_some();
    let asks_digest = head.target.query.as_deref().is_some_and(|query| query.contains("digest="));
    let may_wait = is_late && asks_digest;
    assert!(may_wait || allowed.contains(&answer.status), "{}", answer.head);
    let is_known = head.target.path == Path::new("a.txt") && head.target.query.is_none();
    if !is_known || head.target.is_directory || head.method == RequestMethod::Head {
        return;
    }
    match (answer.status, answer.field("Content-Range")) {
        (200, _) if answer.field("Content-Encoding").is_none() => assert!(answer.body == TEXT),
        (206, Some(range)) => {
            let range = range.strip_prefix("bytes ").and_then(|range| range.split_once('/'));
            let (first, last) =
                range.and_then(|(range, _)| range.split_once('-')).expect("a range");
            let bounds = [first, last].map(|number| number.parse::<usize>().expect("a number"));
            assert!(answer.body == TEXT[bounds[0]..=bounds[1]]);
        }
        _ => {}
    }
}
