//! Hashes sent on request.

use std::{fs::File, time::Duration};

use thalweg_serve::server::{ServeOptions, Timeouts};

use super::support::{TestSite, noise, settle};

const WISH: &str = "Want-Repr-Digest: sha-256=10\r\n";

/// Sends hashes, even if they take long on a busy machine.
fn hashing(options: &mut ServeOptions) {
    options.hash = true;
    options.timeouts = Timeouts::NONE;
}

#[test]
fn the_hash_is_of_the_whole_file_and_of_the_version_that_is_sent() {
    let place = TestSite::with(|options| {
        hashing(options);
        options.precompressed = true;
    });
    place.file("empty", "");
    let large = noise(3 << 20);
    place.file("large", &large);
    place.file("large.gz", "packed");
    settle();
    let empty = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    assert_eq!(place.get("/empty", WISH).field("Repr-Digest"), Some(empty));
    assert_eq!(place.get("/empty", "").field("Repr-Digest"), None);
    assert_eq!(place.get("/empty", "Want-Repr-Digest: sha-256=0\r\n").field("Repr-Digest"), None);
    assert_eq!(place.get("/empty", "Want-Repr-Digest: sha-512=1\r\n").field("Repr-Digest"), None);
    let whole = place.get("/large", WISH);
    let digest = whole.field("Repr-Digest").unwrap();
    assert!(whole.body == large);
    let part = place.get("/large", &format!("{WISH}Range: bytes=5-9\r\n"));
    assert_eq!((part.status, part.field("Repr-Digest")), (206, Some(digest)));
    let head = place.connect().ask(&format!("HEAD /large HTTP/1.1\r\nHost: a\r\n{WISH}\r\n"));
    assert_eq!(head.field("Repr-Digest"), Some(digest));
    let packed = place.get("/large", &format!("{WISH}Accept-Encoding: gzip\r\n"));
    assert!(packed.text() == "packed" && packed.field("Repr-Digest") != Some(digest));
    place.file("large", "other");
    let other = place.get("/large", WISH);
    assert!(other.text() == "other" && other.field("Repr-Digest") != Some(digest));
}

#[test]
fn digits_are_those_of_the_usual_tools() {
    let place = TestSite::with(hashing);
    place.file("abc", "abc");
    for (hash, digits) in [
        ("sha-256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"),
        ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85\n"),
        ("xxh3", "06b05ab6733a618578af5f94892f3950\n"),
    ] {
        assert_eq!(place.get(&format!("/abc?digest={hash}"), "").text(), digits);
    }
    assert_eq!(place.get("/abc?digest=md5", "").text(), "abc");
    let place = TestSite::new();
    place.file("abc", "abc");
    assert_eq!(place.get("/abc?digest=blake3", "").text(), "abc");
    assert_eq!(place.get("/abc", WISH).field("Repr-Digest"), None);
}

/// A file that takes longer to hash than any test.
fn endless(place: &TestSite, name: &str) {
    File::create(place.path(name)).unwrap().set_len(8 << 40).unwrap();
}

#[test]
fn a_hash_whose_client_has_left_is_cancelled_and_small_files_do_not_wait_for_large_ones() {
    let place = TestSite::with(|options| {
        options.hash = true;
        options.timeouts.digest = Duration::from_secs(3600);
    });
    endless(&place, "endless");
    File::create(place.path("large")).unwrap().set_len(300 << 20).unwrap();
    place.file("small", "small");
    settle();
    let mut waiting = place.connect();
    waiting.send("GET /endless?digest=sha-256 HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(200));
    assert!(place.get("/small", WISH).field("Repr-Digest").is_some());
    // The hash of the endless file is cancelled, which frees the lane for large files.
    drop(waiting);
    assert_eq!(place.get("/large?digest=xxh3", "").status, 200);
}

#[test]
fn an_answer_goes_out_without_a_hash_that_takes_too_long() {
    let place = TestSite::with(|options| {
        options.hash = true;
        options.timeouts.digest = Duration::from_millis(100);
    });
    endless(&place, "endless");
    settle();
    let wish = format!("{WISH}Range: bytes=0-3\r\n");
    let answer = place.get("/endless", &wish);
    assert_eq!((answer.status, answer.field("Repr-Digest")), (206, None));
    let digits = place.get("/endless?digest=blake3", "");
    assert_eq!((digits.status, digits.field("Retry-After")), (503, Some("2")));
    // With `Prefer: wait`, the client chooses the time limit.
    File::create(place.path("large")).unwrap().set_len(100 << 20).unwrap();
    settle();
    let answer = place.get("/large", &format!("{wish}Prefer: wait=60\r\n"));
    assert!(answer.status == 206 && answer.field("Repr-Digest").is_some());
}

#[test]
fn many_clients_get_the_hash_of_one_file() {
    let place = TestSite::with(hashing);
    let large = noise(8 << 20);
    place.file("large", &large);
    settle();
    std::thread::scope(|scope| {
        let ask = || place.get("/large", WISH).field("Repr-Digest").unwrap().to_owned();
        let asks: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        let mut digests: Vec<String> = asks.into_iter().map(|ask| ask.join().unwrap()).collect();
        digests.dedup();
        assert_eq!(digests.len(), 1);
    });
}
