//! Files: whole, in ranges, and 304 for clients that already have them.

use proptest::prelude::*;
use std::sync::OnceLock;
use thalweg_core::Guarantees;
use thalweg_serve::server::ListenAddress;

use super::support::{TestSite, noise, serve, settle};

#[test]
fn a_file_has_its_length_kind_and_version() {
    let place = TestSite::new();
    place.file("a b.html", "<p>text");
    settle();
    let whole = place.get("/a%20b.html", "");
    assert_eq!((whole.status, whole.text().as_str()), (200, "<p>text"));
    assert_eq!(whole.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(whole.field("Accept-Ranges"), Some("bytes"));
    assert!(whole.field("Date").is_some() && whole.field("Last-Modified").is_some());
    let tag = whole.field("ETag").unwrap();
    assert!(tag.starts_with('"'), "{tag}");

    let head = place.connect().ask("HEAD /a%20b.html HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.field("Content-Length"), head.field("ETag")), (Some("7"), Some(tag)));
    let same = place.get("/a%20b.html", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((same.status, same.field("ETag")), (304, Some(tag)));
    let other = place.get("/a%20b.html", "If-Match: \"other\"\r\n");
    assert_eq!(other.status, 412);
    let rest = place.get("/a%20b.html", &format!("Range: bytes=3-\r\nIf-Range: {tag}\r\n"));
    assert_eq!((rest.status, rest.text().as_str()), (206, "text"));
    assert_eq!(rest.field("Content-Range"), Some("bytes 3-6/7"));
    let anew = place.get("/a%20b.html", "Range: bytes=3-\r\nIf-Range: \"other\"\r\n");
    assert_eq!((anew.status, anew.text().as_str()), (200, "<p>text"));
    let beyond = place.get("/a%20b.html", "Range: bytes=7-\r\n");
    assert_eq!((beyond.status, beyond.field("Content-Range")), (416, Some("bytes */7")));
}

#[test]
fn an_empty_file_is_whole() {
    let place = TestSite::new();
    place.file("empty", "");
    for fields in ["", "Range: bytes=-5\r\n"] {
        let answer = place.get("/empty", fields);
        assert_eq!((answer.status, answer.field("Content-Length")), (200, Some("0")));
    }
    assert_eq!(place.get("/empty", "Range: bytes=0-\r\n").status, 416);
}

#[test]
fn every_way_of_moving_gives_the_same_bytes() {
    let bytes = noise((3 << 20) + 17);
    for method in ["read-write", "sendfile", "splice", "io-uring", "mmap-write", "no such"] {
        for needs in [Guarantees::COPIED, Guarantees::SHARED] {
            let place = TestSite::with(|options| {
                options.needs = needs;
                options.request.only = Some(method.to_owned());
            });
            place.file("large", &bytes);
            let answer = place.get("/large", "");
            assert!(answer.is_whole && answer.body == bytes, "{method}");
        }
    }
}

#[test]
fn a_compressed_sibling_is_sent_to_clients_that_accept_it() {
    let place = TestSite::with(|options| options.precompressed = true);
    place.file("a.css", "plain");
    place.file("a.css.gz", "packed");
    let packed = place.get("/a.css", "Accept-Encoding: br, gzip\r\n");
    assert_eq!(
        (packed.text().as_str(), packed.field("Content-Encoding")),
        ("packed", Some("gzip"))
    );
    assert_eq!(packed.field("Content-Type"), Some("text/css; charset=utf-8"));
    let plain = place.get("/a.css", "");
    assert_eq!((plain.text().as_str(), plain.field("Content-Encoding")), ("plain", None));
    assert_eq!(
        (plain.field("Vary"), packed.field("Vary")),
        (Some("Accept-Encoding"), Some("Accept-Encoding"))
    );
    let part = place.get("/a.css", "Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "pl"));
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let place = TestSite::new();
    place.file("small", "one");
    let large = noise(300 << 10);
    place.file("large", &large);
    let requests = "GET /small HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n\
                    HEAD /small HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n\
                    GET /small HTTP/1.0\r\n\r\n";
    for piece in [1, 7, 64, requests.len()] {
        let mut client = place.connect();
        client.stream.set_nodelay(true).unwrap();
        for bytes in requests.as_bytes().chunks(piece) {
            client.send(bytes);
        }
        assert_eq!(client.answer(false).text(), "one");
        assert_eq!(client.answer(false).body, large);
        assert_eq!(client.answer(true).field("Content-Length"), Some("3"));
        assert_eq!(client.answer(false).status, 404);
        assert_eq!(client.answer(false).text(), "one");
        assert!(client.is_at_end());
    }
}

#[test]
fn a_unix_socket_serves_the_same_and_leaves_no_name() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file"), noise(1 << 20)).unwrap();
    let name = place.path().join("socket");
    let server = serve(&place.path().join("file"), |options| {
        options.listen = vec![ListenAddress::Unix(name.clone())];
    });
    let mut stream = std::os::unix::net::UnixStream::connect(&name).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    assert!(answer.ends_with(&noise(1 << 20)) && answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(server.stop(std::time::Duration::from_secs(60), || false));
    assert!(!name.exists());
}

/// A server and its files, by name.
type SharedSite = (TestSite, Vec<(String, Vec<u8>)>);

/// One server for all cases of the property.
fn shared() -> &'static SharedSite {
    static SHARED: OnceLock<SharedSite> = OnceLock::new();
    SHARED.get_or_init(|| {
        let place = TestSite::new();
        let sizes = [1, 100, 4096, 65_535, 65_536, 70_001, 300_000];
        let files = sizes.map(|size| (format!("file{size}"), noise(size)));
        for (name, bytes) in &files {
            place.file(name, bytes);
        }
        settle();
        (place, files.into())
    })
}

/// Parses an answer with several ranges. Returns the offset and the bytes of each.
fn parts(boundary: &str, body: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut rest = body;
    let mut parts = Vec::new();
    loop {
        let opening = format!("\r\n--{boundary}");
        rest = rest.strip_prefix(opening.as_bytes()).expect("a boundary");
        if rest == b"--\r\n" {
            return parts;
        }
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let range = head.split("bytes ").nth(1).unwrap().split('/').next().unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
        let len = (last - first + 1) as usize;
        parts.push((first, rest[end..end + len].to_vec()));
        rest = &rest[end + len..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_ranges_of_any_file_are_its_slices(
        file in any::<prop::sample::Index>(),
        asked in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0..90_000_u64)), 1..6),
    ) {
        let (place, files) = shared();
        let (name, bytes) = file.get(files);
        let spec = |(first, more): &(prop::sample::Index, Option<u64>)| {
            let first = first.index(bytes.len()) as u64;
            format!("{first}-{}", more.map(|more| (first + more).to_string()).unwrap_or_default())
        };
        let specs: Vec<String> = asked.iter().map(spec).collect();
        let fields = format!("Range: bytes={}\r\n", specs.join(","));
        let answer = place.get(&format!("/{name}"), &fields);
        prop_assert_eq!(answer.status, 206);
        prop_assert!(answer.is_whole);
        let kind = answer.field("Content-Type").unwrap();
        let got = if let Some((_, boundary)) = kind.split_once("boundary=") {
            parts(boundary, &answer.body)
        } else {
            let range = answer.field("Content-Range").unwrap();
            let first = range["bytes ".len()..].split('-').next().unwrap();
            vec![(first.parse().unwrap(), answer.body.clone())]
        };
        let mut seen = vec![false; bytes.len()];
        for (first, part) in &got {
            let from = *first as usize;
            prop_assert!(part[..] == bytes[from..from + part.len()]);
            seen[from..from + part.len()].fill(true);
        }
        for (first, more) in &asked {
            let first = first.index(bytes.len());
            let end = more.map_or(bytes.len(), |more| (first + more as usize + 1).min(bytes.len()));
            prop_assert!(seen[first..end].iter().all(|byte| *byte));
        }
    }

    #[test]
    fn any_split_of_pipelined_requests_gets_the_same_answers(
        asked in prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let (place, files) = shared();
        let request = |(file, kind): &(prop::sample::Index, usize)| {
            let (name, _) = file.get(files);
            match kind {
                0 => format!("HEAD /{name} HTTP/1.1\r\nHost: a\r\n\r\n"),
                1 => format!("GET /{name} HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0,-1\r\n\r\n"),
                2 => "\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
                3 => format!("GET /{name}/ HTTP/1.1\r\nhost:a\r\n\r\n"),
                _ => format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n"),
            }
        };
        let requests = asked.iter().map(request).collect::<Vec<_>>().concat();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(requests.len())).collect();
        places.sort_unstable();
        let answers = |places: &[usize]| {
            let mut client = place.connect();
            client.stream.set_nodelay(true).unwrap();
            let mut from = 0;
            for to in places.iter().chain([&requests.len()]) {
                client.send(&requests[from..*to]);
                from = *to;
            }
            let answer = |(_, kind): &(_, usize)| {
                let answer = client.answer(*kind == 0);
                // The dates of two answers may differ.
                let head = answer.head.lines().filter(|line| !line.starts_with("Date: "));
                (answer.status, head.collect::<Vec<_>>().join("\n"), answer.body, answer.is_whole)
            };
            asked.iter().map(answer).collect::<Vec<_>>()
        };
        let whole = answers(&[]);
        prop_assert!(whole.iter().all(|(_, _, _, is_whole)| *is_whole));
        prop_assert!(answers(&places) == whole);
    }
}
