//! Hostile or faulty clients: the server continues to serve other clients.

use std::{io::Write, net::Shutdown, os::unix::fs::symlink, time::Duration};

use thalweg_serve::server::Timeouts;

use super::support::{TestSite, noise, times};

#[test]
fn an_unrequested_body_is_no_request() {
    let place = TestSite::new();
    place.file("file", "text");
    let mut client = place.connect();
    let inner = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
    let len = inner.len();
    let answer = client
        .ask(&format!("GET /file HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{inner}"));
    assert_eq!((answer.text().as_str(), answer.field("Connection")), ("text", Some("close")));
    assert!(client.is_at_end());
}

#[test]
fn no_spelling_of_a_name_leads_outside() {
    let place = TestSite::new();
    place.file("file", "text");
    std::fs::write(place.outside("secret"), "secret").unwrap();
    for target in [
        "/%2e%2e%2fsecret",
        "/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/..%2fsecret",
        "/%5c..%5csecret",
        "/file%2f..%2f..%2fsecret",
        "/%252e%252e/secret",
        "/%c0%ae%c0%ae/secret",
        "//etc/passwd",
        "/file/../../root/../secret",
    ] {
        let answer = place.get(target, "");
        assert!(matches!(answer.status, 400 | 404), "{target}: {}", answer.status);
        assert!(!answer.text().contains("secret"), "{target}");
    }
}

#[test]
fn a_hundred_thousand_ranges_are_the_whole_or_too_much() {
    let place = TestSite::new();
    let bytes = noise(200_000);
    place.file("file", &bytes);
    let ranges =
        |count: usize, each: &str| format!("Range: bytes={}\r\n", vec![each; count].join(","));
    let answer = place.get("/file", &ranges(10_000, "0-0"));
    assert!(answer.status == 200 && answer.body == bytes, "more than a few count as none");
    assert_eq!(place.get("/file", &ranges(100_000, "0-")).status, 431);
    // The maximum number of ranges, each of the whole file: they are merged, so the file is sent once.
    let answer = place.get("/file", &ranges(32, "0-"));
    assert!(answer.status == 206 && answer.body == bytes);
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered_when_it_is_whole() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.timeouts = Timeouts::NONE;
    });
    place.file("file", "text");
    let request = format!("GET /file HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "b".repeat(300));
    let mut slow = place.connect();
    slow.stream.set_nodelay(true).unwrap();
    for byte in request.as_bytes().chunks(1) {
        slow.send(byte);
        // Other clients do not wait for the slow one.
        assert_eq!(place.get("/file", "").text(), "text");
    }
    assert_eq!(slow.answer(false).text(), "text");
}

#[test]
fn resets_in_the_middle_of_a_body_take_nothing_from_the_others() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.metrics = true;
    });
    place.file("small", "text");
    place.file("large", noise(4 << 20));
    for n in 0..100 {
        let mut gone = place.connect();
        gone.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        if n % 2 == 0 {
            gone.head();
        }
        // The client has unread bytes, so the kernel closes the connection with a reset.
        drop(gone);
        assert_eq!(place.get("/small", "").text(), "text");
    }
    place.counts(|page| page.contains("thalweg_connections 1\n"));
}

#[test]
fn clients_that_stop_in_the_middle_delay_no_other_client() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.metrics = true;
        // Long enough for complete requests on a busy machine.
        options.timeouts.head = Duration::from_secs(5);
        options.timeouts.stalled = Duration::from_secs(2);
    });
    place.file("small", "text");
    place.file("large", noise(64 << 20));
    // In turn: half a request, a large answer that is not read, an aborted answer, and a half-closed
    // connection.
    let mut half = place.connect();
    half.send("GET /small HTTP/1.1\r\nHo");
    let mut deaf = place.connect();
    deaf.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut gone = place.connect();
    gone.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    gone.head();
    drop(gone);
    let mut closed = place.connect();
    closed.send("GET /small HTTP/1.1\r\nHost: a\r\n\r\n");
    closed.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(closed.answer(false).text(), "text");
    assert!(closed.is_at_end());
    assert_eq!(place.get("/small", "").text(), "text");
    // After the timeout, the half request gets an answer.
    assert_eq!(half.answer(false).status, 408);
    drop((half, closed));
    // The server closes the connection of the client that reads nothing.
    place.counts(|page| page.contains("thalweg_connections 1\n"));
    assert!(!deaf.answer(false).is_whole, "it was cut short while nobody read it");
}

#[test]
fn hundreds_of_half_requests_delay_no_other_client() {
    let place = TestSite::with(|options| options.timeouts = Timeouts::NONE);
    place.file("file", "text");
    let request = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
    let half: Vec<_> = (0..400)
        .map(|n| {
            let mut client = place.connect();
            client.send(&request[..n % request.len()]);
            client
        })
        .collect();
    for _ in 0..50 {
        assert_eq!(place.get("/file", "").text(), "text");
    }
    for (n, mut client) in half.into_iter().enumerate() {
        client.send(&request[n % request.len()..]);
        assert_eq!(client.answer(false).text(), "text");
    }
}

#[test]
fn a_limit_holds_for_all_clients_together_and_loses_no_byte() {
    let place = TestSite::with(|options| options.limit = Some(1 << 20));
    let bytes = noise(300 << 10);
    place.file("large", &bytes);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let answer = place.get("/large", "");
                assert!(answer.is_whole && answer.body == bytes);
            });
        }
    });
    // The server may send the last step of each answer early.
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
}

#[test]
fn a_limit_of_each_connection_holds_for_one_and_not_for_all_together() {
    let place = TestSite::with(|options| options.limit_each = Some(1 << 20));
    let bytes = noise(300 << 10);
    place.file("large", &bytes);
    let mut client = place.connect();
    let began = std::time::Instant::now();
    for _ in 0..4 {
        let answer = client.ask("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.is_whole && answer.body == bytes);
    }
    // The server may send the last step early.
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
}

#[test]
fn of_two_limits_the_narrower_one_holds() {
    for (all, each) in [(1 << 20, 64 << 20), (64 << 20, 1 << 20)] {
        let place = TestSite::with(|options| {
            (options.limit, options.limit_each) = (Some(all), Some(each));
        });
        let bytes = noise(1 << 20);
        place.file("large", &bytes);
        let began = std::time::Instant::now();
        let answer = place.get("/large", "");
        assert!(answer.is_whole && answer.body == bytes);
        // The server may send the last step early.
        assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
    }
}

#[test]
fn a_limit_holds_within_a_body_of_many_files_too() {
    let place = TestSite::with(|options| options.limit = Some(1 << 20));
    for n in 0..12 {
        place.file(&format!("t/{n}"), noise(100 << 10));
    }
    let began = std::time::Instant::now();
    let answer = place.get("/t/?tar", "");
    assert!(answer.is_whole && answer.body.len() > 12 * (100 << 10));
    // The server may send the last steps early.
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let place = TestSite::new();
    let bytes = noise(8 << 20);
    place.file("large", &bytes);
    let mut client = place.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // Long enough for the server to park the answer.
    std::thread::sleep(Duration::from_millis(2500));
    let mut client = place.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    let answer = client.answer(false);
    assert!(answer.is_whole && answer.body == bytes);
}

#[test]
fn more_clients_than_there_is_room_for_wait_their_turn() {
    let place = TestSite::with(|options| {
        options.max_connections = Some(3);
        options.threads = Some(1);
    });
    place.file("file", "text");
    let idle: Vec<_> = (0..3)
        .map(|_| {
            let mut client = place.connect();
            assert_eq!(client.ask("GET /file HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
            client
        })
        .collect();
    let mut waiting = place.connect();
    waiting.stream.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    drop(idle);
    assert_eq!(waiting.answer(false).text(), "text");
}

#[test]
fn what_is_swapped_for_a_link_in_mid_request_never_leads_out() {
    let place = TestSite::new();
    place.file("inside/file", "inside");
    std::fs::create_dir(place.outside("secret")).unwrap();
    std::fs::write(place.outside("secret/file"), "secret").unwrap();
    symlink("../secret", place.path("link")).unwrap();
    let (real, link, name) = (place.path("inside"), place.path("link"), place.path("name"));
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::fs::rename(&real, &name).unwrap();
                std::fs::rename(&name, &real).unwrap();
                std::fs::rename(&link, &name).unwrap();
                std::fs::rename(&name, &link).unwrap();
            }
        });
        let mut client = place.connect();
        let mut served = 0;
        let turns = times("THALWEG_RACES", 1000);
        for turn in 0..100 * turns {
            if turn >= turns && served > 0 {
                break;
            }
            let answer = client.ask("GET /name/file HTTP/1.1\r\nHost: a\r\n\r\n");
            match answer.status {
                200 => {
                    assert_eq!(answer.text(), "inside");
                    served += 1;
                }
                other => assert!(matches!(other, 404 | 503), "{other}"),
            }
        }
        drop(stop);
        assert!(served > 0);
    });
}

#[test]
fn the_end_waits_for_what_is_under_way_and_for_nothing_else() {
    let mut place = TestSite::new();
    let bytes = noise(16 << 20);
    place.file("large", &bytes);
    let mut busy = place.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = busy.head();
    assert!(head.starts_with("HTTP/1.1 200"));
    let mut idle = place.connect();
    idle.send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.answer(false).status, 404);
    let server = place.take();
    let ending = std::thread::spawn(move || server.stop(Duration::from_secs(600), || false));
    assert!(idle.is_at_end());
    let mut came = Vec::new();
    std::io::Read::read_to_end(&mut busy.stream, &mut came).unwrap();
    assert!(bytes.ends_with(&came[came.len() - 100..]));
    drop(busy);
    assert!(ending.join().unwrap());
}

#[test]
fn the_end_that_is_meant_now_leaves_an_answer_short() {
    let mut place = TestSite::new();
    place.file("large", noise(64 << 20));
    let mut busy = place.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    busy.head();
    assert!(!place.take().stop(Duration::from_secs(600), || true));
    while !busy.is_at_end() {
        busy = super::support::Client::drained(busy);
    }
}
