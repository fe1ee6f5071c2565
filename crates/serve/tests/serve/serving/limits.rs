//! Limits for one client: connections, time, empty lines before a request, and memory of listings.

use std::{
    fs::File,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::{
    parking::metric,
    support::{Client, TestSite, address, noise},
};

const REQUEST: &str = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3600);

/// Connects from another address of this machine.
fn connect_from(host: u8, place: &TestSite) -> Client {
    let kind = SocketType::STREAM;
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).unwrap();
    connect(&socket, &address(place.running())).unwrap();
    Client::of(TcpStream::from(socket))
}

#[test]
fn an_address_with_as_many_connections_as_it_may_have_keeps_no_other_out() {
    let place = TestSite::with(|options| {
        options.connections_per_address = Some(4);
        options.metrics = true;
    });
    place.file("file", "text");
    let mut first: Vec<Client> = (0..4).map(|_| connect_from(2, &place)).collect();
    for client in &mut first {
        assert_eq!(client.ask(REQUEST).text(), "text");
    }
    let mut refused = connect_from(2, &place);
    assert_eq!(refused.answer(false).status, 503);
    assert!(refused.is_at_end());
    assert_eq!(connect_from(3, &place).ask(REQUEST).text(), "text");
    place.counts(|page| metric(page, "thalweg_connections_turned_away_total") == 1);
    // A connection that ends makes room.
    drop(first.pop());
    let began = Instant::now();
    while connect_from(2, &place).ask(REQUEST).status != 200 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    for client in &mut first {
        assert_eq!(client.ask(REQUEST).text(), "text");
    }
}

#[test]
fn heads_without_an_end_give_way_when_the_connections_are_used_up() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.max_connections = Some(8);
        options.timeouts.head = NEVER;
        options.timeouts.idle = NEVER;
    });
    place.file("file", "text");
    let hostile: Vec<Client> = (0..16)
        .map(|_| {
            let mut client = place.connect();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
            client
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(place.get("/file", "").text(), "text");
    }
    drop(hostile);
}

#[test]
fn a_running_answer_is_never_closed_for_a_new_client() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.max_connections = Some(2);
        options.timeouts.idle = NEVER;
    });
    place.file("file", "text");
    let bytes = noise(16 << 20);
    place.file("large", &bytes);
    let mut busy = place.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut idle = place.connect();
    assert_eq!(idle.ask(REQUEST).text(), "text");
    for _ in 0..2 {
        assert_eq!(place.get("/file", "").text(), "text");
    }
    let answer = busy.answer(false);
    assert!(answer.is_whole && answer.body == bytes);
}

#[test]
fn empty_lines_keep_no_connection_alive() {
    let site = |head| {
        TestSite::with(|options| {
            options.timeouts.head = head;
            options.timeouts.idle = NEVER;
        })
    };
    let place = site(NEVER);
    place.file("file", "text");
    let mut client = place.connect();
    assert_eq!(client.ask(&format!("\r\n\r\n{REQUEST}")).text(), "text");
    // One client sends many empty lines. The other sends a single one and nothing after it.
    client.send("\r\n".repeat(1000));
    assert_eq!(client.answer(false).status, 400);
    let place = site(Duration::from_secs(1));
    let mut slow = place.connect();
    slow.send("\r\n");
    assert_eq!(slow.answer(false).status, 408);
    assert!(slow.is_at_end());
}

#[test]
fn a_byte_now_and_then_does_not_extend_the_time_for_a_head() {
    let place = TestSite::with(|options| options.timeouts.head = Duration::from_secs(1));
    let mut client = place.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        let began = Instant::now();
        while sender.write_all(b"G").is_ok() {
            assert!(began.elapsed() < Duration::from_secs(60), "it is never refused");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(client.answer(false).status, 408);
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_head_request_reads_no_directory() {
    let place = TestSite::with(|options| options.metrics = true);
    for number in 0..500 {
        place.file(&format!("d/{number}"), "");
    }
    for target in ["/d/", "/d/?json", "/d/?manifest", "/d/?tar"] {
        let head = place.connect().ask(&format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let get = place.get(target, "");
        assert_eq!((head.status, get.status), (200, 200), "{target}");
        for field in ["Content-Type", "Content-Security-Policy", "Transfer-Encoding"] {
            assert_eq!(head.field(field), get.field(field), "{target}: {field}");
        }
    }
    let place = TestSite::with(|options| options.metrics = true);
    for number in 0..500 {
        place.file(&format!("d/{number}"), "");
    }
    let mut client = place.connect();
    client.send("HEAD /d/?json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200));
    for _ in 0..200 {
        assert_eq!(client.answer(true).status, 200);
    }
    place.counts(|page| metric(page, "thalweg_name_list_bytes") == 0);
    assert_eq!(place.get("/d/?json", "").status, 200);
    place.counts(|page| metric(page, "thalweg_name_list_bytes") > 0);
}

#[test]
fn listings_without_a_reader_are_truncated_before_memory_is_used_up() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.metrics = true;
        options.memory = 128 << 10;
    });
    let long = "n".repeat(200);
    for (directory, files) in [("d", 2000), ("short", 50)] {
        let x = place.file(&format!("{directory}/x"), "");
        for number in 0..files {
            File::create(x.with_file_name(format!("{long}{number}"))).unwrap();
        }
    }
    let unread: Vec<Client> = (0..10)
        .map(|number| {
            let mut client = place.connect();
            // The answers together are larger than the socket buffers of a connection. The number of short answers
            // differs, so that not all buffers become full exactly at the end of an answer.
            client.send("GET /short/?json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(number));
            client.send("GET /d/?json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20));
            client
        })
        .collect();
    // A client that reads gets complete listings.
    for _ in 0..3 {
        let answer = place.get("/d/?json", "");
        let listing: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(listing.as_array().map(Vec::len), Some(2001));
    }
    place.counts(|page| metric(page, "thalweg_answers_parked_total") > 0);
    drop(unread);
}

#[test]
fn a_tree_with_more_folders_than_memory_allows_is_cut_short_and_costs_no_other_answer() {
    let place = TestSite::with(|options| options.memory = 0);
    let long = "n".repeat(120);
    for number in 0..4000 {
        std::fs::create_dir_all(place.path(format!("wide/{long}{number}"))).unwrap();
    }
    place.file("small/d/file", "text");
    for _ in 0..2 {
        let answer = place.get("/wide/?manifest", "");
        assert!(answer.status == 200 && !answer.is_whole);
        // The memory of the unfinished answer is free again.
        let answer = place.get("/small/?manifest", "");
        assert!(answer.is_whole && answer.body.windows(4).any(|name| name == b"file"));
        assert!(place.get("/wide/?json", "").is_whole);
    }
}

/// Returns how many files below the root are open in this process.
fn open_files(place: &TestSite) -> usize {
    let root = place.path("");
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| fd.ok()?.path().read_link().ok());
    links.filter(|link| link.starts_with(&root) && !link.is_dir()).count()
}

#[test]
fn heads_without_an_end_count_as_memory() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.memory = 256 << 10;
        options.metrics = true;
        options.timeouts.head = NEVER;
    });
    place.file("file", "text");
    let mut clients: Vec<Client> = (0..64).map(|_| place.connect()).collect();
    for client in &mut clients {
        client.send(format!("GET /{}", "a".repeat(20 << 10)));
    }
    // At most 96 KiB remain, and the connection that asks.
    place.counts(|page| metric(page, "thalweg_connections") <= 5);
    assert_eq!(place.connect().ask(REQUEST).text(), "text");
}

#[test]
fn many_archives_that_are_not_read_open_one_file_each() {
    let place = TestSite::with(|options| {
        options.max_connections = Some(32);
        options.metrics = true;
    });
    for n in 0..16 {
        place.file(&format!("tree/{n}"), noise(1 << 20));
    }
    let deaf: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = place.connect();
            client.send("GET /tree/?tar HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    // The first two may open several files, because the server is not crowded yet.
    place.counts(|page| {
        metric(page, "thalweg_connections") > 20 && (1..=20 + 2 * 7).contains(&open_files(&place))
    });
    for mut client in deaf {
        let answer = client.answer(false);
        assert!(answer.is_whole && answer.body.len() > 16 << 20);
    }
}

#[test]
fn an_idle_server_closes_its_files() {
    let place = TestSite::new();
    let path = place.file("file", "text");
    let mut client = place.connect();
    client.send("GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(client.answer(false).is_whole && client.is_at_end());
    drop(client);
    std::fs::remove_file(path).unwrap();
    let began = Instant::now();
    while open_files(&place) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}
