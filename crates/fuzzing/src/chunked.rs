//! Chunked bodies: the client must accept only complete ones, and must write the bytes that a second decoder finds.

use std::fs;

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::client::{FetchUrl, fetch};

use crate::{
    scripted::{NEXT_CONNECTION, NEXT_WRITE, PAUSE, Scripted},
    watched::{Watched, options},
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Runs one input: a body.
pub fn run(bytes: &[u8]) {
    // Separators of the script do not belong to the body.
    let answer = bytes.split(|byte| *byte == NEXT_CONNECTION).next().unwrap_or_default();
    let is_sent = |byte: &u8| !matches!(*byte, NEXT_WRITE | PAUSE);
    let body: Vec<u8> = answer.iter().copied().filter(is_sent).collect();
    let server = Scripted::start(&[HEAD, answer].concat());
    let target = FetchUrl::parse(&format!("http://{}/f", server.address())).expect("a URL");
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("f");
    let destination = Destination::open_until(&path, Until::Part).expect("a destination");
    let fetched = fetch(&target, destination, &options(None), &Watched);
    match (fetched, decoded(&body)) {
        (Ok(_), Some(want)) => assert!(fs::read(&path).expect("the file") == want),
        (Ok(_), None) => panic!("the client accepted a body that is not complete"),
        (Err(failed), Some(want)) if is_plain(&body, &want) => panic!("{}", failed.error),
        (Err(_), _) => assert!(!path.exists()),
    }
}

/// Decodes a body by RFC 9112, 7.1. Accepts blanks after a size, as many recipients do.
fn decoded(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = line(&mut rest)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        let extension = extension.trim_ascii_start();
        if !(extension.is_empty() || extension.starts_with(b";")) {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let (chunk, after) = rest.split_at_checked(size)?;
        body.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n")?;
    }
    while !line(&mut rest)?.is_empty() {}
    Some(body)
}

/// Takes a line that ends with CR LF.
fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    Some(line)
}

/// Returns `true` if the body is one chunk without extensions and trailers: every client must accept it.
fn is_plain(body: &[u8], content: &[u8]) -> bool {
    let size = format!("{:x}\r\n", content.len()).into_bytes();
    !content.is_empty() && body == [&size[..], content, b"\r\n0\r\n\r\n"].concat()
}
