//! C and Rust exchange messages: a program in C (`c/partner.c`, whose top says what it does) on one
//! side, this process on the other, through the public API of each. Whichever is killed, the other
//! has every message that was committed, and is told.
#![allow(clippy::unwrap_used)]

mod support;

#[path = "../../channel/tests/support/mod.rs"]
mod messages;

use messages::{Dice, again, from_env, message};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{compile, root, run};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait};

const CHILD: &str = "THALWEG_EXCHANGE_CHILD";

/// Not a promise of speed: whoever is still there after this long hangs.
const GUARD: Duration = Duration::from_secs(120);

/// A folder with the program in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    compile(&root().join("tests/c/partner.c"), &folder.path().join("partner"));
    folder
}

/// The program in C. It does not outlive the test.
struct Partner {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

/// The last line of the program.
#[derive(Debug, PartialEq)]
struct Told {
    end: String,
    messages: u64,
    crc: u32,
}

impl Partner {
    fn start(folder: &Path, role: &str, count: u64, options: &[&str]) -> Self {
        let mut child = Command::new(folder.join("partner"))
            .arg(role)
            .arg(folder.join("socket"))
            .arg(count.to_string())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut partner = Self { child, output };
        if options.contains(&"listen") {
            assert_eq!(partner.line(), "ready\n");
        }
        partner
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Waits for its end, which must be a good one.
    fn finish(mut self) -> Told {
        let line = self.line();
        assert!(self.child.wait().unwrap().success(), "{line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[4], "0", "partial: {line}");
        Told {
            end: words[1].to_owned(),
            messages: words[2].parse().unwrap(),
            crc: u32::from_str_radix(words[3], 16).unwrap(),
        }
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listen(folder: &Path) -> Listener {
    Listener::bind(&Address::at(folder.join("socket"))).unwrap()
}

fn accept(listener: &Listener) -> Link {
    listener.accept_until(Some(Instant::now() + GUARD)).unwrap()
}

/// The options of this side, and the same in the words of the program.
fn ways() -> [(Options, &'static [&'static str]); 3] {
    let plain = Options { capacity: 65536, ..Options::default() };
    let careful = Options { wait: Wait::Block, trusted: false, checksums: true, ..plain };
    let tight = Options { capacity: 8192, ..plain };
    [
        (plain, &[]),
        (careful, &["wait=block", "checksums", "untrusted"]),
        (tight, &["capacity=8192", "wait=spin"]),
    ]
}

/// The CRC-32C of the first messages, one behind the other.
fn crc_of(messages: u64) -> u32 {
    let mut bytes = Vec::new();
    (0..messages).fold(0, |crc, seq| {
        message(seq, &mut bytes);
        thalweg_kernels::crc32c(&bytes, crc)
    })
}

fn send(producer: &mut Producer, from: u64, count: u64) -> Result<(), Error> {
    let mut bytes = Vec::new();
    (from..from + count).try_for_each(|seq| {
        message(seq, &mut bytes);
        producer.send(&bytes)
    })
}

/// Receives and checks until the end; how many came, their CRC, and the end.
fn receive(consumer: &mut Consumer) -> (u64, u32, Error) {
    let (mut seq, mut crc, mut expected) = (0, 0, Vec::new());
    loop {
        match consumer.receive() {
            Ok(sample) => {
                message(seq, &mut expected);
                assert!(*sample == expected[..], "message {seq} is not what was sent");
                crc = thalweg_kernels::crc32c(&sample, crc);
                seq += 1;
            }
            Err(end) => return (seq, crc, end),
        }
    }
}

fn how_many(way: usize) -> u64 {
    let most = from_env("THALWEG_MESSAGES", 100_000);
    // The first way has them all, the others enough to go round.
    if way == 0 { most } else { most / 10 }
}

#[test]
fn rust_receives_what_c_sends() {
    let folder = folder();
    for (way, (options, words)) in ways().into_iter().enumerate() {
        let (listener, count) = (listen(folder.path()), how_many(way));
        let partner = Partner::start(folder.path(), "send", count, words);
        let mut consumer = Consumer::open(accept(&listener), &options).unwrap();
        let (came, crc, end) = receive(&mut consumer);
        assert_eq!((came, end), (count, Error::Closed { delivered: count }));
        let told = Told { end: "done".to_owned(), messages: count, crc };
        assert_eq!(partner.finish(), told, "{words:?}");
    }
}

#[test]
fn c_receives_what_rust_sends() {
    let folder = folder();
    for (way, (options, words)) in ways().into_iter().enumerate() {
        let count = how_many(way);
        let partner = Partner::start(folder.path(), "receive", 0, &[words, &["listen"]].concat());
        let link = Link::connect(&Address::at(folder.path().join("socket"))).unwrap();
        let mut producer = Producer::open(link, &options).unwrap();
        send(&mut producer, 0, count).unwrap();
        drop(producer);
        let told = Told { end: "closed".to_owned(), messages: count, crc: crc_of(count) };
        assert_eq!(partner.finish(), told, "{words:?}");
    }
}

#[test]
fn both_ways_at_once() {
    let (folder, count) = (folder(), how_many(0));
    let (options, words) = ways()[0];
    let listener = listen(folder.path());
    let partner = Partner::start(folder.path(), "echo", 0, words);
    let (there, back) = (accept(&listener), accept(&listener));
    let mut producer = Producer::open(there, &options).unwrap();
    let mut consumer = Consumer::open(back, &options).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || send(&mut producer, 0, count).unwrap());
        let (came, crc, end) = receive(&mut consumer);
        assert_eq!((came, end), (count, Error::Closed { delivered: count }));
        assert_eq!(partner.finish(), Told { end: "closed".to_owned(), messages: count, crc });
    });
}

/// Kills after this long, in each of the tests below.
fn delays() -> impl Iterator<Item = Duration> {
    let (mut dice, kills) = (Dice::new(), from_env("THALWEG_KILLS", 12));
    (0..kills).map(move |_| Duration::from_micros(dice.below(20_000)))
}

#[test]
fn rust_is_told_that_a_sender_in_c_was_killed() {
    let folder = folder();
    for (delay, (options, words)) in delays().zip(ways().into_iter().cycle()) {
        let listener = listen(folder.path());
        let mut partner = Partner::start(folder.path(), "send", 0, words);
        let mut consumer = Consumer::open(accept(&listener), &options).unwrap();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&mut consumer));
            std::thread::sleep(delay);
            partner.kill();
            let (came, _, end) = receiving.join().unwrap();
            assert_eq!(end, Error::PeerDied { delivered: came, partial: 0 }, "{words:?}");
        });
    }
}

#[test]
fn rust_is_told_that_a_receiver_in_c_was_killed() {
    let folder = folder();
    for (delay, (options, words)) in delays().zip(ways().into_iter().cycle()) {
        let listener = listen(folder.path());
        let mut partner = Partner::start(folder.path(), "receive", 0, words);
        let mut producer = Producer::open(accept(&listener), &options).unwrap();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| (send(&mut producer, 0, u64::MAX), producer.sent()));
            std::thread::sleep(delay);
            partner.kill();
            let (end, sent) = sending.join().unwrap();
            let Err(Error::PeerDied { delivered, partial: 0 }) = end else { panic!("{end:?}") };
            assert!(delivered <= sent, "{delivered} of {sent}");
        });
    }
}

/// The side in Rust that is killed: this test alone, run again in a process of its own.
#[test]
fn victim() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (role, place) = told.split_once(' ').unwrap();
    let options = ways()[0].0;
    let link = Link::connect(&Address::at(PathBuf::from(place))).unwrap();
    if role == "send" {
        let _ = send(&mut Producer::open(link, &options).unwrap(), 0, u64::MAX);
    } else {
        let _ = receive(&mut Consumer::open(link, &options).unwrap());
    }
}

#[test]
fn c_is_told_that_a_process_in_rust_was_killed() {
    let folder = folder();
    for (n, delay) in delays().enumerate() {
        let (ours, theirs) = [("send", "receive"), ("receive", "send")][n % 2];
        let words = ways()[n / 2 % 2].1;
        let partner = Partner::start(folder.path(), theirs, 0, &[words, &["listen"]].concat());
        let place = folder.path().join("socket");
        let mut victim = again("victim", CHILD, &format!("{ours} {}", place.display()));
        // The listener goes when the two have met.
        let began = Instant::now();
        while place.exists() {
            assert!(began.elapsed() < GUARD, "they do not meet");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        victim.kill().unwrap();
        victim.wait().unwrap();
        let told = partner.finish();
        // Killed before the channel was open, it may look like one that changed its mind.
        let early = told.messages == 0 && told.end == "closed";
        assert!(told.end == "died" || early, "{told:?}");
        if theirs == "receive" {
            assert_eq!(told.crc, crc_of(told.messages), "{told:?}");
        }
    }
}

#[test]
fn c_reads_the_golden_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("vectors");
    compile(&root().join("tests/c/vectors.c"), &program);
    let vectors = root().join("../../tests/vectors");
    let read =
        |command: &mut Command| -> Value { serde_json::from_slice(&run(command).stdout).unwrap() };
    let text = fs::read(vectors.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    for (name, ring) in expected["rings"].as_object().unwrap() {
        let files = ["producer", "consumer"].map(|side| vectors.join(format!("{name}.{side}.hex")));
        assert_eq!(&read(Command::new(&program).arg("ring").args(&files)), ring, "{name}");
        // What the format does not allow is found: the sides swapped.
        let swapped = Command::new(&program)
            .args(["ring".as_ref(), files[1].as_os_str(), files[0].as_os_str()])
            .output();
        assert_eq!(swapped.unwrap().status.code(), Some(1));
    }
    let handshake =
        read(Command::new(&program).arg("handshake").arg(vectors.join("handshake.hex")));
    assert_eq!(handshake, expected["handshake"]);
}
