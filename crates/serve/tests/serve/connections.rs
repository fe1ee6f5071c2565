//! One file over one or several connections, from servers that are slow, strict, wrong or silent.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use thalweg_core::{
    Cancelled,
    atomic_file::{Destination, Until},
    rate_limit::RateLimit,
};
use thalweg_serve::client::{
    BodySettings, Connections, FetchError, FetchFailure, FetchOptions, FetchProgress, FetchUrl,
    FetchWatcher, Fetched, fetch,
};

use crate::support::fetch::QuietWatcher;
use crate::support::liar::{
    LyingServer, ReceivedRequest, await_hang_up, full, honest, partial_to, send,
};
use thalweg_testing::noise;

const LEN: usize = 12_000_000;

fn by(connections: usize) -> FetchOptions {
    FetchOptions {
        connections: Connections::Exactly(connections),
        ..crate::support::fetch::options()
    }
}

fn get(
    server: &LyingServer,
    path: &Path,
    options: &FetchOptions,
) -> Result<Fetched, Box<FetchFailure>> {
    let destination = Destination::open_until(path, Until::Part).unwrap();
    fetch(
        &FetchUrl::parse(&server.url("x")).unwrap(),
        destination,
        options,
        &QuietWatcher::default(),
    )
}

/// Sends the body in small pieces, so that other connections have time to begin.
fn slowly(stream: &mut TcpStream, (head, body): &(String, Vec<u8>)) {
    drop(stream.write_all(head.as_bytes()));
    for piece in body.chunks(100_000) {
        if stream.write_all(piece).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn is_whole(path: &Path, bytes: &[u8]) {
    assert!(fs::read(path).unwrap() == bytes);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn several_connections_bring_one_file_and_each_names_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 1);
    let own = bytes.clone();
    let server =
        LyingServer::new(move |asked, stream| slowly(stream, &honest(asked, &own, "\"a\"")));
    let fetched = get(&server, &path, &by(4)).unwrap();
    is_whole(&path, &bytes);
    assert_eq!(fetched.report.bytes, LEN as u64);
    let shares = fetched.report.shares.iter().map(|share| share.bytes);
    assert_eq!(shares.sum::<u64>(), LEN as u64);
    let asked = server.asked();
    assert!(asked.len() >= 4, "{}", asked.len());
    assert!(asked[1..].iter().all(|asked| asked.get("if-range") == Some("\"a\"")));
}

#[test]
fn a_server_that_allows_one_connection_is_fetched_from_by_one() {
    for refusal in [
        "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
        "",
    ] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let bytes = noise(LEN, 2);
        let (own, busy) = (bytes.clone(), AtomicUsize::new(0));
        let server = LyingServer::new(move |asked, stream| {
            if busy.fetch_add(1, Ordering::SeqCst) == 0 {
                slowly(stream, &honest(asked, &own, "\"a\""));
            } else {
                drop(stream.write_all(refusal.as_bytes()));
            }
            busy.fetch_sub(1, Ordering::SeqCst);
        });
        get(&server, &path, &FetchOptions { retries: 5, ..by(4) }).unwrap();
        is_whole(&path, &bytes);
    }
}

#[test]
fn a_later_run_brings_the_gaps_of_an_earlier_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 3);
    let (own, sent) = (bytes.clone(), Arc::new(AtomicUsize::new(0)));
    let (count, is_whole_now) = (sent.clone(), Arc::new(AtomicBool::new(false)));
    let sends_all = is_whole_now.clone();
    // In the first run, every answer ends in the middle of its range.
    let server = LyingServer::new(move |asked, stream| {
        let (head, body) = honest(asked, &own, "\"a\"");
        if sends_all.load(Ordering::SeqCst) {
            count.fetch_add(body.len(), Ordering::SeqCst);
            send(stream, &(head, body), LEN);
        } else {
            // The server sends half of each answer. The ranges have different lengths, so no fixed
            // length would do.
            let early = body.len() / 2;
            send(stream, &(head, body), early);
            thread::sleep(Duration::from_millis(300));
        }
    });
    let failed = get(&server, &path, &FetchOptions { retries: 0, ..by(4) }).unwrap_err();
    assert!(failed.kept && failed.there > 0, "{failed:?}");
    assert!(!path.exists());
    is_whole_now.store(true, Ordering::SeqCst);
    let fetched = get(&server, &path, &by(1)).unwrap();
    assert_eq!(fetched.resumed, failed.there);
    is_whole(&path, &bytes);
    assert_eq!(sent.load(Ordering::SeqCst) as u64, LEN as u64 - failed.there);
}

/// Function that answers a request. The parts of a file in its answers do not belong together.
type Lie = fn(&ReceivedRequest, &[u8], &[u8]) -> (String, Vec<u8>);

#[test]
fn pieces_of_two_files_are_never_put_together() {
    let changed: Lie = |asked, old, new| match asked.turn {
        0 => honest(asked, old, "\"old\""),
        _ => honest(asked, new, "\"new\""),
    };
    // The server ignores `If-Range`.
    let careless: Lie = |asked, old, new| match asked.range() {
        Some((from, to)) if asked.turn > 0 => {
            let to = to.unwrap_or(new.len());
            (partial_to(from, to, new.len(), "\"new\""), new[from..to].to_vec())
        }
        _ => honest(asked, old, "\"old\""),
    };
    // The total size in `Content-Range` differs.
    let longer: Lie = |asked, old, new| match asked.range() {
        Some((from, to)) if asked.turn > 0 => {
            let to = to.unwrap_or(new.len());
            (partial_to(from, to, new.len() + 1, "\"old\""), new[from..to].to_vec())
        }
        _ => honest(asked, old, "\"old\""),
    };
    // The server answers later range requests with the whole new file.
    let all: Lie = |asked, old, new| match asked.turn {
        0 => honest(asked, old, "\"old\""),
        _ => (full(new.len(), "\"new\""), new.to_vec()),
    };
    for (name, lie) in
        [("changed", changed), ("careless", careless), ("longer", longer), ("all", all)]
    {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let (old, new) = (noise(LEN, 4), noise(LEN, 5));
        let (own_old, own_new) = (old.clone(), new.clone());
        let server =
            LyingServer::new(move |asked, stream| slowly(stream, &lie(asked, &own_old, &own_new)));
        match get(&server, &path, &by(4)) {
            Ok(_) => {
                let there = fs::read(&path).unwrap();
                assert!(there == old || there == new, "{name}");
            }
            Err(failed) => {
                assert!(
                    matches!(failed.error, FetchError::Changing | FetchError::Broken(_)),
                    "{failed:?}"
                );
                assert!(!path.exists(), "{name}");
            }
        }
    }
}

#[test]
fn a_range_that_was_not_asked_for_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 6);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| match asked.range() {
        Some((from, _)) if asked.turn > 0 => {
            let from = from - 1;
            slowly(stream, &(partial_to(from, LEN, LEN, "\"a\""), own[from..].to_vec()));
        }
        _ => slowly(stream, &honest(asked, &own, "\"a\"")),
    });
    let failed = get(&server, &path, &by(3)).unwrap_err();
    assert!(matches!(failed.error, FetchError::Broken(_)), "{failed:?}");
    assert!(!path.exists());
}

#[test]
fn a_connection_that_stands_still_is_replaced_while_the_others_go_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 7);
    let own = bytes.clone();
    let server = LyingServer::new(move |asked, stream| {
        let answer = honest(asked, &own, "\"a\"");
        if asked.turn == 1 {
            send(stream, &answer, 50_000);
            await_hang_up(stream);
        } else {
            slowly(stream, &answer);
        }
    });
    // Long enough that no other connection stalls on a busy machine.
    let options = FetchOptions { stall: Duration::from_secs(5), ..by(2) };
    get(&server, &path, &options).unwrap();
    is_whole(&path, &bytes);
}

#[test]
fn one_that_raises_the_rate_is_added_by_itself() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(2 * LEN, 8);
    let own = bytes.clone();
    // The server limits each connection to 4 MB per second.
    let server = LyingServer::new(move |asked, stream| {
        let (head, body) = honest(asked, &own, "\"a\"");
        drop(stream.write_all(head.as_bytes()));
        for piece in body.chunks(40_000) {
            if stream.write_all(piece).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    get(&server, &path, &FetchOptions { connections: Connections::Auto, ..by(1) }).unwrap();
    is_whole(&path, &bytes);
    assert!(server.asked().len() > 1);
}

#[test]
fn several_connections_keep_one_limit_together() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let bytes = noise(LEN, 9);
    let own = bytes.clone();
    let server =
        LyingServer::new(move |asked, stream| send(stream, &honest(asked, &own, "\"a\""), LEN));
    let limit = Some(Arc::new(RateLimit::new(LEN as u64 / 2)));
    let options = by(4);
    let options = FetchOptions { way: BodySettings { limit, ..options.way.clone() }, ..options };
    let began = Instant::now();
    get(&server, &path, &options).unwrap();
    is_whole(&path, &bytes);
    assert!(server.asked().len() > 1);
    // Each connection may send its last step early. If each connection had its own limit, the fetch
    // would take a quarter of the time.
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Cancels when it is asked for the third time.
#[derive(Default)]
struct Impatient(AtomicUsize);

impl FetchWatcher for Impatient {
    fn progress(&self, _: FetchProgress) -> Result<(), Cancelled> {
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        if self.0.fetch_add(1, Ordering::Relaxed) < 2 { Ok(()) } else { Err(Cancelled) }
    }

    fn report(&self, _: &str) {}
}

/// The queue of the server is full, so connect(2) waits until its time limit.
#[test]
fn a_fetch_that_is_cancelled_while_it_connects_ends() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let queued: Vec<_> = std::iter::from_fn(connect).take(5000).collect();
    assert!(queued.len() < 5000, "the queue of the listener is never full");
    let destination = Destination::open_until(&place.path().join("f"), Until::Part).unwrap();
    let url = FetchUrl::parse(&format!("http://{address}/x")).unwrap();
    let failed =
        fetch(&url, destination, &FetchOptions { retries: 0, ..by(1) }, &Impatient::default())
            .unwrap_err();
    assert!(matches!(failed.error, FetchError::Cancelled), "{}", failed.error);
}
