//! Fetches one file from servers that fail or send wrong answers.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    sync::Mutex,
    thread,
    time::Duration,
};

use thalweg_core::{
    Cancelled, Request,
    atomic_file::{Destination, Until},
    rate_limit::RateLimit,
};
use thalweg_serve::client::{
    BodySettings, Connections, Expected, FetchError, FetchFailure, FetchOptions, FetchProgress,
    FetchUrl, FetchWatcher, Fetched, Policy, fetch,
};
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};
use thalweg_tree::{Hash, hashing::hash_file};

use crate::support::fetch::{QuietWatcher, options};
use crate::support::liar::{LyingServer, await_hang_up, full, honest, partial, send};
use thalweg_testing::{ReservedPort, names, noise};

pub const LEN: usize = 1_000_000;

pub fn get(url: &str, path: &Path, options: &FetchOptions) -> Result<Fetched, Box<FetchFailure>> {
    let destination = Destination::open_until(path, Until::Part).unwrap();
    fetch(&FetchUrl::parse(url).unwrap(), destination, options, &QuietWatcher::default())
}

fn once() -> FetchOptions {
    FetchOptions { retries: 0, ..options() }
}

#[track_caller]
pub fn is_whole(folder: &Path, bytes: &[u8]) {
    assert!(fs::read(folder.join("f")).unwrap() == bytes);
    assert_eq!(names(folder), ["f"]);
}

#[test]
fn a_file_is_asked_for_once_and_is_whole() {
    for len in [0, 1, 5000, LEN] {
        let place = tempfile::tempdir().unwrap();
        let bytes = noise(len, 1);
        let own = bytes.clone();
        let server =
            LyingServer::new(move |asked, stream| send(stream, &honest(asked, &own, "\"a\""), LEN));
        let fetched = get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
        assert_eq!(
            (fetched.bytes, fetched.resumed, fetched.report.bytes),
            (len as u64, 0, len as u64)
        );
        is_whole(place.path(), &bytes);
        let asked = server.asked();
        assert_eq!((asked.len(), asked[0].get("range")), (1, Some("bytes=0-")));
        assert_eq!(asked[0].get("accept-encoding"), Some("identity"));
        assert_eq!((asked[0].path.as_str(), asked[0].get("if-range")), ("/x", None));
    }
}

#[test]
fn a_server_that_refuses_connections_after_it_has_answered_is_asked_again() {
    let place = tempfile::tempdir().unwrap();
    let port = ReservedPort::new();
    let listener = TcpListener::bind(("127.0.0.1", port.number)).unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let _ = stream.read(&mut [0; 4096]).unwrap();
        send(&mut stream, &(partial(0, LEN, "\"a\""), noise(LEN, 2)), 300_000);
    });
    let options = FetchOptions { retries: 1, connections: Connections::Exactly(1), ..options() };
    let (watcher, path) = (QuietWatcher::default(), place.path().join("f"));
    let destination = Destination::open_until(&path, Until::Part).unwrap();
    let failed = fetch(&FetchUrl::parse(&url).unwrap(), destination, &options, &watcher);
    server.join().unwrap();
    let failed = failed.unwrap_err();
    assert!(matches!(failed.error, FetchError::Network { doing: "connect to", .. }), "{failed:?}");
    assert!(failed.kept);
    let news = watcher.0.into_inner().unwrap();
    assert!(news.iter().any(|news| news.contains("retrying in")), "{news:?}");
}

#[test]
fn a_connection_that_ends_early_is_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(LEN, 2);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        send(stream, &honest(asked, &own, "\"a\""), 300_000);
    });
    let fetched = get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
    assert_eq!(fetched.report.bytes, LEN as u64);
    is_whole(place.path(), &bytes);
    let asked = server.asked();
    let froms: Vec<_> = asked.iter().map(|asked| asked.from().unwrap()).collect();
    assert_eq!(froms, [0, 300_000, 600_000, 900_000]);
    assert!(asked[1..].iter().all(|asked| asked.get("if-range") == Some("\"a\"")));
}

#[test]
fn a_later_run_moves_only_what_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 3);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        let most = if asked.turn == 0 { 700_000 } else { LEN };
        send(stream, &honest(asked, &own, "\"a\""), most);
    });
    let failed = get(&server.url("x"), &path, &once()).unwrap_err();
    assert!(failed.kept && matches!(failed.error, FetchError::Short { .. }), "{failed:?}");
    assert_eq!((failed.there, failed.size), (700_000, Some(LEN as u64)));
    assert_eq!(names(place.path()), [".f.thalweg-journal", ".f.thalweg-part"]);
    let fetched = get(&server.url("x"), &path, &once()).unwrap();
    assert_eq!((fetched.resumed, fetched.report.bytes), (700_000, 300_000));
    is_whole(place.path(), &bytes);
}

type SpoilDownload = fn(&Path);

#[test]
fn what_was_left_of_another_url_or_with_a_lying_journal_is_not_built_upon() {
    let bytes = noise(LEN, 4);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        let most = if asked.turn % 2 == 0 { 700_000 } else { LEN };
        send(stream, &honest(asked, &own, "\"a\""), most);
    });
    let shorter: SpoilDownload = |at| {
        fs::File::options()
            .write(true)
            .open(at.join(".f.thalweg-part"))
            .unwrap()
            .set_len(9)
            .unwrap();
    };
    let garbled: SpoilDownload = |at| fs::write(at.join(".f.thalweg-journal"), "{").unwrap();
    let gone: SpoilDownload = |at| fs::remove_file(at.join(".f.thalweg-journal")).unwrap();
    let rebooted: SpoilDownload = |at| {
        let path = at.join(".f.thalweg-journal");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replacen("\"boot_id\":\"", "\"boot_id\":\"x", 1)).unwrap();
    };
    for (path, spoil) in [
        ("y", (|_| {}) as SpoilDownload),
        ("x", shorter),
        ("x", garbled),
        ("x", gone),
        ("x", rebooted),
    ] {
        let place = tempfile::tempdir().unwrap();
        get(&server.url("x"), &place.path().join("f"), &once()).unwrap_err();
        spoil(place.path());
        let fetched = get(&server.url(path), &place.path().join("f"), &once()).unwrap();
        assert_eq!((fetched.resumed, fetched.report.bytes), (0, LEN as u64));
        is_whole(place.path(), &bytes);
    }
}

#[test]
fn a_file_that_changes_between_two_pieces_is_fetched_again() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (noise(LEN, 5), noise(LEN + 7, 6));
    let own = new.clone();
    let server = LyingServer::new(move |asked, stream| match asked.turn {
        0 => send(stream, &honest(asked, &old, "\"a\""), 400_000),
        _ => send(stream, &honest(asked, &own, "\"b\""), LEN * 2),
    });
    let fetched = get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
    assert_eq!(fetched.bytes, LEN as u64 + 7);
    is_whole(place.path(), &new);
}

#[test]
fn a_file_that_changes_every_time_is_given_up_and_never_put_together() {
    let place = tempfile::tempdir().unwrap();
    let server = LyingServer::new(move |asked, stream| {
        let etag = format!("\"{}\"", asked.turn);
        send(stream, &honest(asked, &noise(LEN, asked.turn as u64), &etag), 400_000);
    });
    let failed = get(&server.url("x"), &place.path().join("f"), &options()).unwrap_err();
    assert!(matches!(failed.error, FetchError::Changing), "{failed:?}");
    assert!(!place.path().join("f").exists());
}

#[test]
fn a_server_that_does_not_take_its_own_tag_is_asked_without_condition() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(LEN, 7);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        let most = if asked.turn == 0 { 400_000 } else { LEN };
        let answer = match asked.get("if-range") {
            Some(_) => (full(LEN, "\"a\""), own.clone()),
            None => honest(asked, &own, "\"a\""),
        };
        send(stream, &answer, most);
    });
    let fetched = get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
    assert_eq!(fetched.report.bytes, LEN as u64);
    is_whole(place.path(), &bytes);
    let conditions: Vec<_> = server.asked().iter().map(|a| a.get("if-range").is_some()).collect();
    assert_eq!(conditions, [false, true, false]);
}

#[test]
fn a_wrong_total_in_mid_file_means_another_file() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(LEN, 8);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| match asked.turn {
        0 => send(stream, &honest(asked, &own, "\"a\""), 400_000),
        1 => send(stream, &(partial(400_000, LEN + 1, "\"a\""), own[400_000..].to_vec()), LEN),
        _ => send(stream, &honest(asked, &own, "\"a\""), LEN),
    });
    get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
    is_whole(place.path(), &bytes);
    assert_eq!(server.asked()[2].from(), Some(0));
}

#[test]
fn bodies_in_chunks_and_without_a_length_are_taken_too() {
    let bytes = noise(300_000, 9);
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in bytes.chunks(70_001) {
        chunked.extend(format!("{:X};ext=1\r\n", chunk.len()).bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    let until_close = [b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), bytes.clone()].concat();
    let announced = [b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n".to_vec(), chunked.clone()].concat();
    for answer in [chunked, until_close, announced] {
        let place = tempfile::tempdir().unwrap();
        let server = LyingServer::always(answer);
        let fetched = get(&server.url("x"), &place.path().join("f"), &once()).unwrap();
        assert_eq!(fetched.report.bytes, bytes.len() as u64);
        is_whole(place.path(), &bytes);
    }
}

#[test]
fn a_coding_of_none_is_plain_and_another_protocol_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let plain = "HTTP/1.1 200 OK\r\nContent-Encoding: none\r\nContent-Length: 3\r\n\r\nabc";
    let server = LyingServer::always(plain.into());
    get(&server.url("x"), &place.path().join("f"), &once()).unwrap();
    is_whole(place.path(), b"abc");
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
    let server = LyingServer::always([switched, plain].concat().into_bytes());
    let failed = get(&server.url("x"), &place.path().join("g"), &once()).unwrap_err();
    assert!(matches!(failed.error, FetchError::Broken(_)), "{}", failed.error);
    is_whole(place.path(), b"abc");
}

/// The largest number of bytes between two reports of progress.
#[derive(Default)]
struct Largest(Mutex<(u64, u64)>);

impl FetchWatcher for Largest {
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled> {
        let (before, most) = &mut *self.0.lock().unwrap();
        *most = now.there.saturating_sub(*before).max(*most);
        *before = now.there;
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn report(&self, _: &str) {}
}

/// One write moves at most one step of the limit. With a limit of all connections, a longer write would block
/// the others.
#[test]
fn what_is_written_from_memory_is_no_more_at_a_time_than_a_step_of_the_limit() {
    let bytes = noise(LEN, 9);
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{LEN:X}\r\n");
    let server = LyingServer::always([head.as_bytes(), &bytes, b"\r\n0\r\n\r\n"].concat());
    let step = RateLimit::new(LEN as u64).step();
    for of_all in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let own = once();
        let way = if of_all {
            BodySettings { limit: Some(RateLimit::new(LEN as u64).into()), ..own.way.clone() }
        } else {
            BodySettings { limit_each: Some(LEN as u64), ..own.way.clone() }
        };
        let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
        let (target, seen) = (FetchUrl::parse(&server.url("x")).unwrap(), Largest::default());
        fetch(&target, destination, &FetchOptions { way, ..own }, &seen).unwrap();
        is_whole(place.path(), &bytes);
        let most = seen.0.lock().unwrap().1;
        assert!((1..=step).contains(&most), "{most} bytes at once");
    }
}

#[test]
fn an_unknown_length_is_reported_unless_a_digest_vouches_for_the_file() {
    let bytes = b"some bytes";
    let server = LyingServer::always([&b"HTTP/1.0 200 OK\r\n\r\n"[..], bytes].concat());
    let sha256 = "0d22cdcc10e6d049dbe1af5123d50873fdfc1a4f58306e58cb6241be9472014d";
    let expected = vec![Expected::of_digits(Hash::Sha256, sha256, "a test").unwrap()];
    for (expected, count) in [(Vec::new(), 1), (expected, 0)] {
        let place = tempfile::tempdir().unwrap();
        let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
        let (target, watcher) =
            (FetchUrl::parse(&server.url("x")).unwrap(), QuietWatcher::default());
        let options = FetchOptions { expected, ..once() };
        fetch(&target, destination, &options, &watcher).unwrap();
        assert_eq!(watcher.0.lock().unwrap().len(), count);
        is_whole(place.path(), bytes);
    }
}

#[test]
fn a_server_that_asks_for_patience_gets_it_and_one_that_is_silent_is_left() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(LEN, 10);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| match asked.turn {
        0 => drop(
            stream.write_all(b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"),
        ),
        1 => {
            send(stream, &honest(asked, &own, "\"a\""), 100_000);
            await_hang_up(stream);
        }
        _ => send(stream, &honest(asked, &own, "\"a\""), LEN),
    });
    // Long enough that the other answers do not stall on a busy machine.
    let options = FetchOptions { stall: Duration::from_secs(5), ..options() };
    get(&server.url("x"), &place.path().join("f"), &options).unwrap();
    is_whole(place.path(), &bytes);
    assert_eq!(server.asked()[2].from(), Some(100_000));
}

#[test]
fn a_server_that_refuses_ranges_is_asked_once_more_without() {
    let bytes = noise(LEN, 13);
    for status in [400, 403, 501] {
        let (place, own) = (tempfile::tempdir().unwrap(), bytes.clone());
        let server = LyingServer::new(move |asked, stream| {
            if asked.path == "/no" || asked.get("range").is_some() {
                let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
                return drop(stream.write_all(head.as_bytes()));
            }
            send(stream, &(full(LEN, "\"a\""), own.clone()), LEN);
        });
        get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
        is_whole(place.path(), &bytes);
        let failed = get(&server.url("no"), &place.path().join("g"), &options()).unwrap_err();
        assert!(matches!(failed.error, FetchError::Status { status: s, .. } if s == status));
        assert_eq!(server.asked().len(), 4);
    }
}

#[test]
fn what_is_there_stays_if_a_later_range_is_refused() {
    let (place, bytes) = (tempfile::tempdir().unwrap(), noise(LEN, 14));
    let server = LyingServer::new(move |asked, stream| match asked.turn {
        0 => send(stream, &honest(asked, &bytes, "\"a\""), 400_000),
        _ => drop(stream.write_all(b"HTTP/1.1 403 Expired\r\nContent-Length: 0\r\n\r\n")),
    });
    let failed = get(&server.url("x"), &place.path().join("f"), &options()).unwrap_err();
    assert!(failed.kept && failed.there == 400_000, "{failed:?}");
}

#[test]
fn digests_are_compared_before_anything_gets_its_name() {
    let bytes = noise(LEN, 12);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        let (head, body) = honest(asked, &own, "\"a\"");
        let said = "Repr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\r\n\r\n";
        let head = if asked.path == "/said" {
            head.replacen("\r\n\r\n", &format!("\r\n{said}"), 1)
        } else {
            head
        };
        send(stream, &(head, body), LEN);
    });
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let digits = "0".repeat(64);
    for hash in [Hash::Sha256, Hash::Blake3] {
        let expected = vec![Expected::of_digits(hash, &digits, "--hash says").unwrap()];
        let failed =
            get(&server.url("x"), &path, &FetchOptions { expected, ..options() }).unwrap_err();
        assert!(matches!(failed.error, FetchError::Differs { .. }) && !failed.kept, "{failed:?}");
        assert!(names(place.path()).is_empty());
    }
    let failed = get(&server.url("said"), &path, &options()).unwrap_err();
    assert!(matches!(failed.error, FetchError::Differs { .. }), "{failed:?}");
    let verify = FetchOptions { verify: true, ..options() };
    let failed = get(&server.url("x"), &path, &verify).unwrap_err();
    assert!(matches!(failed.error, FetchError::Unsupported(_)), "{failed:?}");
    assert!(names(place.path()).is_empty());
}

#[test]
fn a_full_disk_keeps_the_part_and_a_later_run_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    // More bytes than a few writes move, however large the buffers of this machine are.
    let bytes = noise(16 * LEN, 13);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        send(stream, &honest(asked, &own, "\"a\""), own.len());
    });
    let request = Request { only: Some("read-write".to_owned()), ..Request::default() };
    let plain = FetchOptions {
        way: BodySettings { policy: Policy { request, ..options().way.policy }, ..options().way },
        ..options()
    };
    // The first writes store the journal and the bytes that came with the head.
    let rule =
        Rule { call: Call::Pwrite, nth: 4, effect: Effect::Errno(Errno::NOSPC), repeat: false };
    let failed =
        Script::new(vec![rule]).run(|| get(&server.url("x"), &path, &plain)).value.unwrap_err();
    let FetchError::Moved(error) = &failed.error else { panic!("{failed:?}") };
    assert!(failed.kept && failed.there > 0, "{failed:?}");
    // The kept bytes are the moved bytes that the message reports.
    assert_eq!(error.moved, failed.there);
    let fetched = get(&server.url("x"), &path, &options()).unwrap();
    // If all bytes were present, the last one is requested again: the answer shows whether the file is still
    // that version.
    assert_eq!(fetched.resumed, failed.there.min(bytes.len() as u64 - 1));
    is_whole(place.path(), &bytes);
}

#[test]
fn after_a_sync_that_failed_a_later_run_starts_from_byte_0() {
    let bytes = noise(LEN, 14);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        send(stream, &honest(asked, &own, "\"a\""), own.len());
    });
    let digits = hash_of(&bytes);
    let checked = FetchOptions {
        expected: vec![Expected::of_digits(Hash::Blake3, &digits, "--blake3 says").unwrap()],
        verify: true,
        ..options()
    };
    // The first sync is that of --verify or, without it, that of the data before the file is published.
    for wanted in [&checked, &options()] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let rule = Rule::once(Call::Fsync, 1, Effect::Errno(Errno::IO));
        let failed =
            Script::new(vec![rule]).run(|| get(&server.url("x"), &path, wanted)).value.unwrap_err();
        assert!(!failed.kept && failed.error.to_string().contains("EIO"), "{failed:?}");
        assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
        let fetched = get(&server.url("x"), &path, wanted).unwrap();
        assert_eq!((fetched.resumed, fetched.report.bytes), (0, LEN as u64));
        is_whole(place.path(), &bytes);
    }
}

fn hash_of(bytes: &[u8]) -> String {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut buffer = [0; 4096];
    let fd = std::os::fd::AsFd::as_fd(&file);
    let failed = |errno: Errno| FetchError::Usage(errno.to_string());
    hash_file(fd, Hash::Blake3, &mut buffer, u64::MAX, &|| Ok(()), failed).unwrap().1.to_string()
}
