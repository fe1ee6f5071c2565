//! Special files, and unusual names and connections: the server opens no file that could block it, and
//! no client delays another one.

use std::{io::Write, net::Shutdown, path::Path};

use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

use super::support::{TestSite, name, noise, serve};
use thalweg_serve::server::ListenAddress;

#[test]
fn a_fifo_is_not_there_and_was_never_opened() {
    let place = TestSite::with(|options| options.threads = Some(1));
    place.file("file", "text");
    mkfifoat(CWD, place.path("fifo"), Mode::RWXU).unwrap();
    for target in ["/fifo", "/fifo/", "/fifo?digest=sha-256"] {
        assert_eq!(place.get(target, "").status, 404, "{target}");
    }
    assert_eq!(place.get("/file", "").text(), "text");
}

#[test]
fn a_socket_is_not_there() {
    let place = TestSite::new();
    let _listener = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    assert_eq!(place.get("/socket", "").status, 404);
}

#[test]
fn a_device_is_not_there() {
    let place = TestSite::new();
    // A device node like /dev/zero, which has no end.
    let made =
        mknodat(CWD, place.path("zero"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 5));
    if made.is_err() {
        std::os::unix::fs::symlink("/dev/zero", place.path("zero")).unwrap();
    }
    assert_eq!(place.get("/zero", "").status, 404);
}

#[test]
fn files_of_proc_that_would_wait_or_never_end_delay_no_client() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let _server = serve(Path::new("/proc"), |options| {
        options.threads = Some(1);
        options.listen = vec![ListenAddress::Unix(socket.clone())];
    });
    for target in ["kmsg", "self/mem", "self/pagemap", "self/fd/0", "uptime", "self/exe"] {
        let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        write!(client, "HEAD /{target} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut client, &mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 "), "{target}");
        let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        write!(client, "GET /{target} HTTP/1.0\r\nRange: bytes=0-9\r\n\r\n").unwrap();
        answer.clear();
        // The answer may be incomplete, but it must end.
        let _ = std::io::Read::read_to_end(&mut client, &mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{target}");
    }
}

#[test]
fn a_name_that_is_no_text_is_served_by_its_bytes() {
    let place = TestSite::new();
    std::fs::write(place.path(name(b"a\xff\xfeb\n")), "text").unwrap();
    assert_eq!(place.get("/a%ff%feb%0a", "").text(), "text");
    assert_eq!(place.get("/a%ff%feb", "").status, 404);
}

#[test]
fn a_half_closed_connection_gets_its_answers() {
    let place = TestSite::with(|options| options.threads = Some(1));
    place.file("large", noise(4 << 20));
    let mut client = place.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        let answer = client.answer(false);
        assert!(answer.is_whole && answer.body == noise(4 << 20));
    }
    assert!(client.is_at_end());
}
