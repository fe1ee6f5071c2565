//! Invalid responses to `fetch`, one test each: the file is not published.

use std::{io::Write, thread, time::Duration};

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::client::{Extra, FetchError, FetchOptions, FetchUrl, fetch};

use crate::support::fetch::QuietWatcher;
use crate::support::liar::LyingServer;

fn gets_no_name(text: &str) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let server = LyingServer::always(text.as_bytes().to_vec());
    let options = FetchOptions { retries: 0, ..crate::support::fetch::options() };
    let destination = Destination::open_until(&path, Until::Part).unwrap();
    let target = FetchUrl::parse(&server.url("x")).unwrap();
    let failed = fetch(&target, destination, &options, &QuietWatcher::default()).unwrap_err();
    assert!(!path.exists());
    assert!(!failed.kept || failed.there > 0, "{failed:?}");
}

macro_rules! lies {
    ($($name:ident: $text:expr;)*) => {
        $(
            #[test]
            fn $name() {
                gets_no_name(&$text);
            }
        )*
    };
}

fn ok(rest: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{rest}")
}

fn part(rest: &str) -> String {
    format!("HTTP/1.1 206 X\r\n{rest}")
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 X\r\nLocation: {to}\r\n\r\n")
}

lies! {
    another_range_than_was_asked_for: part("Content-Range: bytes 5-9/10\r\n\r\n01234");
    a_range_beyond_its_total: part("Content-Range: bytes 0-9/5\r\n\r\n0123456789");
    more_bytes_than_the_range_has:
        part("Content-Range: bytes 0-9/10\r\nContent-Length: 11\r\n\r\n01234567890");
    a_part_that_says_no_range: part("Content-Length: 5\r\n\r\n01234");
    chunks_longer_than_the_range: part(
        "Content-Range: bytes 0-4/5\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n0\r\n\r\n"
    );
    chunks_that_are_nonsense: ok("Transfer-Encoding: chunked\r\n\r\nnonsense");
    a_chunk_longer_than_it_says: ok("Transfer-Encoding: chunked\r\n\r\n3\r\n01234\r\n0\r\n\r\n");
    a_chunk_of_all_bytes_there_can_be: ok("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx");
    a_chunk_that_ends_early: ok("Transfer-Encoding: chunked\r\n\r\n5\r\n01");
    gzip_among_the_transfer_codings: ok("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
    gzip_that_nobody_asked_for: ok("Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx");
    a_length_beside_chunks:
        ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n");
    chunks_beside_a_length_of_a_part: part(
        "Content-Range: bytes 0-4/5\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\
         Content-Length: 5\r\n\r\n5\r\n01234\r\n0\r\n\r\n"
    );
    chunks_of_an_old_protocol:
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n";
    chunks_twice:
        ok("Transfer-Encoding: chunked, chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n");
    two_lengths: ok("Content-Length: 1\r\nContent-Length: 2\r\n\r\nx");
    a_body_that_is_too_short: ok("Content-Length: 9\r\n\r\nshort");
    a_head_without_end: ok(&format!("A: {}\r\n\r\n", "a".repeat(70_000)));
    a_redirect_to_itself: moved("/x");
    redirects_without_end: moved("/again");
    a_redirect_to_a_file_of_ours: moved("file:///etc/passwd");
    not_modified_although_nothing_was_said_to_be_there: "HTTP/1.1 304 X\r\n\r\n";
    not_found: "HTTP/1.1 404 X\r\n\r\n";
    another_protocol: "SSH-2.0-OpenSSH\r\n";
    nothing_at_all: "";
}

#[test]
fn a_head_that_comes_byte_by_byte_has_no_more_time_than_silence() {
    let place = tempfile::tempdir().unwrap();
    let server = LyingServer::new(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nA: "));
        while stream.write_all(b"a").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let stall = Duration::from_millis(500);
    let options = FetchOptions { retries: 0, stall, ..crate::support::fetch::options() };
    let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
    let target = FetchUrl::parse(&server.url("x")).unwrap();
    let failed = fetch(&target, destination, &options, &QuietWatcher::default()).unwrap_err();
    assert!(matches!(failed.error, FetchError::Stalled { .. }), "{failed:?}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_hashes_first_has_more_time_than_a_silent_one() {
    let place = tempfile::tempdir().unwrap();
    let server = LyingServer::new(|_, stream| {
        thread::sleep(Duration::from_millis(600));
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext"));
    });
    let stall = Duration::from_millis(200);
    let get = |wants_digest| {
        let extra = Extra { wants_digest, ..Extra::default() };
        let options = FetchOptions { retries: 0, stall, extra, ..crate::support::fetch::options() };
        let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
        let target = FetchUrl::parse(&server.url("x")).unwrap();
        fetch(&target, destination, &options, &QuietWatcher::default())
    };
    let failed = get(false).unwrap_err();
    assert!(matches!(failed.error, FetchError::Stalled { .. }), "{failed:?}");
    get(true).unwrap();
    assert_eq!(std::fs::read(place.path().join("f")).unwrap(), b"text");
}

#[test]
fn a_chunked_body_that_ends_early_reports_the_bytes_received() {
    for rest in ["5\r\n01234\r\n", "5\r\n01234", "5\r\n01234\r\n3", "5\r\n01234\r\n0\r\nTrailer: x"]
    {
        let place = tempfile::tempdir().unwrap();
        let text = ok(&format!("Transfer-Encoding: chunked\r\n\r\n{rest}"));
        let server = LyingServer::always(text.into_bytes());
        let options = FetchOptions { retries: 0, ..crate::support::fetch::options() };
        let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
        let target = FetchUrl::parse(&server.url("x")).unwrap();
        let failed = fetch(&target, destination, &options, &QuietWatcher::default()).unwrap_err();
        let FetchError::Short { got, .. } = &failed.error else { panic!("{failed:?}") };
        assert_eq!(*got, thalweg_core::quantity::exact(5), "{rest:?}");
    }
}
