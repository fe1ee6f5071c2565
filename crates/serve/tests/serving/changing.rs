//! Files that change while they are sent: no answer is both whole and torn.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    time::Duration,
};

use super::support::{Answer, Place};

const SIZE: usize = 32 << 20;

/// Asks for a large file, changes it once the answer has begun, and reads on.
fn changed_meanwhile(change: impl FnOnce(&Place)) -> Answer {
    let place = Place::new();
    place.file("file", vec![b'a'; SIZE]);
    let mut client = place.connect();
    client.send("GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert!(head.contains(&format!("Content-Length: {SIZE}\r\n")));
    change(&place);
    let mut body = Vec::new();
    let end = std::io::Read::read_to_end(&mut client.stream, &mut body);
    let is_whole = end.is_ok() && body.len() >= SIZE;
    Answer { status: 200, head, body, is_whole }
}

#[test]
fn one_that_was_cut_is_not_finished() {
    let answer = changed_meanwhile(|place| {
        File::options().write(true).open(place.path("file")).unwrap().set_len(1 << 20).unwrap();
    });
    assert!(!answer.is_whole && answer.body.len() < SIZE);
}

#[test]
fn one_that_was_written_over_is_not_finished() {
    let answer = changed_meanwhile(|place| {
        let file = OpenOptions::new().write(true).open(place.path("file")).unwrap();
        file.write_all_at(&[b'b'; 4096], (SIZE / 2) as u64).unwrap();
    });
    assert!(!answer.is_whole && answer.body.len() < SIZE);
}

#[test]
fn one_that_grew_is_not_finished() {
    let answer = changed_meanwhile(|place| {
        let file = OpenOptions::new().write(true).open(place.path("file")).unwrap();
        file.write_all_at(b"more", SIZE as u64).unwrap();
    });
    assert!(!answer.is_whole && answer.body.len() < SIZE);
}

#[test]
fn one_that_was_replaced_is_not_finished() {
    let answer = changed_meanwhile(|place| {
        std::fs::write(place.path("other"), vec![b'b'; SIZE]).unwrap();
        std::fs::rename(place.path("other"), place.path("file")).unwrap();
    });
    assert!(!answer.is_whole && answer.body.len() < SIZE);
}

#[test]
fn a_small_one_that_changes_all_the_time_is_never_torn() {
    let place = Place::new();
    let path = place.file("file", [b'0'; 5000]);
    std::thread::scope(|scope| {
        let (stop, told) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            for n in 0_u64.. {
                let byte = b'0' + (n % 10) as u8;
                if told.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                    return;
                }
                file.write_all_at(&[byte; 2500], 0).unwrap();
                file.write_all_at(&[byte; 2500], 2500).unwrap();
                if n % 8 == 0 {
                    // Long enough for a strong tag.
                    std::thread::sleep(Duration::from_millis(25));
                }
            }
        });
        let mut client = place.connect();
        for _ in 0..500 {
            let answer = client.ask("GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
            if answer.status == 503 {
                client = place.connect();
                continue;
            }
            assert_eq!((answer.status, answer.body.len()), (200, 5000));
            // Where the clock of the file could tell, it is a state that the file once was in.
            if answer.field("ETag").is_some_and(|tag| tag.starts_with('"')) {
                let mut halves = answer.body.chunks(2500);
                assert!(halves.all(|half| half.iter().all(|byte| *byte == half[0])));
            }
        }
        drop(stop);
    });
}
