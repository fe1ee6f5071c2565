//! Memory of answers for clients that do not read.

use super::support::{Client, TestSite, noise};

pub fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

#[test]
fn above_the_budget_the_clients_that_wait_longest_are_parked_and_lose_no_byte() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.metrics = true;
        options.memory = 600 << 10;
    });
    let bytes = noise(12 << 20);
    place.file("large", &bytes);
    let small = noise(60_000);
    place.file("small", &small);
    let deaf: Vec<Client> = (0..24)
        .map(|_| {
            let mut client = place.connect();
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    // The answers to these requests for a small file do not fit into the socket buffer, so they
    // wait in memory.
    let mut full = place.connect();
    for _ in 0..400 {
        full.send("GET /small HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    place.counts(|page| metric(page, "thalweg_answers_parked_total") >= 20);
    for mut client in deaf {
        let answer = client.answer(false);
        assert!(answer.is_whole && answer.body == bytes);
    }
    for _ in 0..400 {
        let answer = full.answer(false);
        assert!(answer.is_whole && answer.body == small);
    }
}

#[test]
fn parked_answers_in_parts_go_on_where_they_were() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        // With this limit, every answer that waits is parked.
        options.memory = 0;
    });
    let bytes = noise(9 << 20);
    place.file("large", &bytes);
    let mut client = place.connect();
    client.send(
        "GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=10-50009,100000-4000000,4000010-4000020,5000000-\r\n\r\n",
    );
    let mut other = place.connect();
    other.send("GET /?tar HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let answer = client.answer(false);
    assert!(answer.is_whole && answer.status == 206);
    let mut rest = &answer.body[..];
    for (from, to) in
        [(10, 50_010), (100_000, 4_000_001), (4_000_010, 4_000_021), (5_000_000, 9 << 20)]
    {
        let head = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let text = std::str::from_utf8(&rest[..head]).unwrap();
        assert!(text.contains(&format!("bytes {from}-{}/", to - 1)), "{text}");
        assert!(rest[head..head + to - from] == bytes[from..to]);
        rest = &rest[head + to - from..];
        // The delimiter of the next part begins with CR LF.
        rest = &rest[2..];
    }
    let answer = other.answer(false);
    // The contents follow the tar header and, if there is one, the pax header.
    let begin = answer.body.chunks(512).position(|block| block == &bytes[..512]).unwrap() * 512;
    assert!(answer.is_whole && answer.body[begin..begin + bytes.len()] == bytes);
}

#[test]
fn the_bytes_behind_a_range_survive_parking() {
    let place = TestSite::with(|options| {
        options.threads = Some(1);
        options.memory = 0;
    });
    let bytes = noise(60_000);
    place.file("file", &bytes);
    let ranges: [std::ops::Range<usize>; 3] = [0..7_000, 10_000..31_000, 40_000..59_000];
    let listed = ranges.each_ref().map(|range| format!("{}-{}", range.start, range.end - 1));
    let mut client = place.connect();
    // More bytes than the socket buffers hold. So the server stops at many places, also between two ranges.
    for _ in 0..300 {
        let ranges = listed.join(",");
        client.send(format!("GET /file HTTP/1.1\r\nHost: a\r\nRange: bytes={ranges}\r\n\r\n"));
    }
    for _ in 0..300 {
        let answer = client.answer(false);
        assert!(answer.is_whole && answer.status == 206);
        let mut rest = &answer.body[..];
        for range in ranges.clone() {
            let head = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            assert!(rest[head..].starts_with(&bytes[range.clone()]));
            rest = &rest[head + range.len()..];
        }
        assert_eq!(&rest[..2], b"\r\n");
    }
}
