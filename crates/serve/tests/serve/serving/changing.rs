//! Files that change while they are sent: no complete answer mixes two states.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    sync::Mutex,
    time::Duration,
};

use super::support::{RawAnswer, TestSite, settle, times};

const SIZE: usize = 32 << 20;

/// Requests a large file, changes it once the answer has begun, and reads the rest.
fn changed_meanwhile(change: impl FnOnce(&TestSite)) -> RawAnswer {
    let place = TestSite::new();
    place.file("file", vec![b'a'; SIZE]);
    // Before Linux 6.13, a change within the same clock tick keeps the modification time.
    settle();
    let mut client = place.connect();
    client.send("GET /file HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert!(head.contains(&format!("Content-Length: {SIZE}\r\n")));
    change(&place);
    let mut body = Vec::new();
    let end = std::io::Read::read_to_end(&mut client.stream, &mut body);
    let is_whole = end.is_ok() && body.len() >= SIZE;
    RawAnswer { status: 200, head, body, is_whole }
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

/// Returns the letters of a state of a file without repetitions, and its length.
fn state(bytes: &[u8]) -> (Vec<u8>, usize) {
    let mut letters = bytes.to_vec();
    letters.dedup();
    (letters, bytes.len())
}

/// A file that changes in several ways, and all states that it has had.
struct Restless<'p> {
    place: &'p TestSite,
    bytes: Vec<u8>,
    states: &'p Mutex<HashSet<(Vec<u8>, usize)>>,
}

impl Restless<'_> {
    /// Long enough for a transfer mechanism, short enough that many answers are complete.
    const LEN: usize = 700_000;

    /// Makes the n-th change: replaces, overwrites, extends or truncates the file.
    fn change(&mut self, n: usize) {
        let letter = b'a' + (n % 26) as u8;
        let path = self.place.path("file");
        let open = || OpenOptions::new().write(true).open(&path).unwrap();
        match n % 4 {
            0 => {
                self.become_now(vec![letter; Self::LEN + n % 7 * 1000]);
                let new = self.place.file("new", &self.bytes);
                std::fs::rename(new, &path).unwrap();
            }
            1 => {
                let file = open();
                for at in (0..self.bytes.len()).step_by(100_000) {
                    let mut next = self.bytes.clone();
                    let end = (at + 100_000).min(next.len());
                    next[at..end].fill(letter);
                    self.become_now(next);
                    file.write_all_at(&self.bytes[at..end], at as u64).unwrap();
                }
            }
            2 => {
                let (mut next, len) = (self.bytes.clone(), self.bytes.len());
                next.resize(len + 1000, letter);
                self.become_now(next);
                open().write_all_at(&self.bytes[len..], len as u64).unwrap();
            }
            _ => {
                self.become_now(self.bytes[..Self::LEN / 2].to_vec());
                open().set_len(self.bytes.len() as u64).unwrap();
            }
        }
    }

    fn become_now(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.states.lock().unwrap().insert(state(&self.bytes));
    }
}

#[test]
fn whatever_happens_to_a_file_a_whole_answer_is_a_state_it_was_in() {
    let (place, states) = (TestSite::new(), Mutex::default());
    let mut file = Restless { place: &place, bytes: Vec::new(), states: &states };
    file.change(0);
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            for n in 1.. {
                if stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                    return;
                }
                file.change(n);
                std::thread::sleep(Duration::from_millis(n as u64 * 7 % 40));
            }
        });
        let (mut whole, mut short) = (0, 0);
        for _ in 0..times("THALWEG_RACES", 120) {
            let answer = place.get("/file", "");
            if !answer.is_whole || answer.status == 503 {
                short += 1;
                continue;
            }
            whole += 1;
            // A weak tag may stand for two states, because the file was so young. Such an answer is not checked.
            if answer.field("ETag").is_some_and(|tag| tag.starts_with('"')) {
                let state = state(&answer.body);
                assert!(states.lock().unwrap().contains(&state), "{state:?}");
            }
        }
        drop(stop);
        assert!(whole > 0, "{whole} whole, {short} short");
    });
}

#[test]
fn a_small_one_that_changes_all_the_time_is_never_torn() {
    let place = TestSite::new();
    let path = place.file("file", [b'0'; 5000]);
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            for n in 0_u64.. {
                let byte = b'0' + (n % 10) as u8;
                if stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
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
            // If the tag is strong, the body must be one state of the file.
            if answer.field("ETag").is_some_and(|tag| tag.starts_with('"')) {
                let mut halves = answer.body.chunks(2500);
                assert!(halves.all(|half| half.iter().all(|byte| *byte == half[0])));
            }
        }
        drop(stop);
    });
}
