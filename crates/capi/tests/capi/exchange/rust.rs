//! Exchanges between this process and a program in C or Python.

use super::program::{Language, crc_of};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait};
use thalweg_testing::{Dice, again, from_env, message};

const CHILD: &str = "THALWEG_EXCHANGE_CHILD";

/// Number of kills in each test: one for each combination of two roles and three options.
const KILLS: u64 = 6;

/// Time after which a peer counts as hanging. It is no requirement of speed.
const GUARD: Duration = Duration::from_secs(120);

fn listen(folder: &Path) -> Listener {
    Listener::bind(&Address::at(folder.join("socket"))).unwrap()
}

fn accept(listener: &Listener) -> Link {
    listener.accept_until(Some(Instant::now() + GUARD)).unwrap()
}

/// The options of this process, each with the equivalent arguments for the other program.
pub fn ways() -> [(Options, &'static [&'static str]); 3] {
    let plain = Options { capacity: 65536, ..Options::default() };
    let careful = Options { wait: Wait::Block, trusted: false, checksums: true, ..plain };
    let tight = Options { capacity: 8192, ..plain };
    [
        (plain, &[]),
        (careful, &["wait=block", "checksums", "untrusted"]),
        (tight, &["capacity=8192", "wait=spin"]),
    ]
}

fn send(producer: &mut Producer, from: u64, count: u64) -> Result<(), Error> {
    let mut bytes = Vec::new();
    (from..from + count).try_for_each(|seq| {
        message(seq, &mut bytes);
        producer.send(&bytes)
    })
}

/// Receives and checks messages until an error ends the exchange. Returns the number of messages, their CRC, and the
/// error.
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

pub fn how_many(way: usize) -> u64 {
    // A message has about 1,000 bytes on average. The default of 2,000 messages wraps the ring of 64 KiB about 30
    // times. A fifth of them wrap 64 KiB about 6 times and 8 KiB about 50 times. In the ring of 8 KiB, both sides wait
    // in every lap. More messages reach no other limit, because no counter wraps before 4 GiB.
    let most = from_env("THALWEG_MESSAGES", 2_000);
    if way == 0 { most } else { most / 5 }
}

/// Returns the languages to test against this process. crates/channel tests Java.
fn partners(test: &str) -> impl Iterator<Item = Language> {
    [Language::C, Language::Python].into_iter().filter(move |language| language.is_here(test))
}

#[test]
fn rust_receives_what_others_send() {
    for language in partners("rust_receives_what_others_send") {
        let folder = tempfile::tempdir().unwrap();
        for (way, (options, words)) in ways().into_iter().enumerate() {
            let (listener, count) = (listen(folder.path()), how_many(way));
            let partner = language.start(folder.path(), "send", count, words);
            let mut consumer = Consumer::open(accept(&listener), &options).unwrap();
            let (came, crc, end) = receive(&mut consumer);
            assert_eq!((came, end), (count, Error::Closed { delivered: count }), "{language:?}");
            assert_eq!(crc, crc_of(count));
            partner.finish().assert("done", count);
        }
    }
}

#[test]
fn others_receive_what_rust_sends() {
    for language in partners("others_receive_what_rust_sends") {
        let folder = tempfile::tempdir().unwrap();
        for (way, (options, words)) in ways().into_iter().enumerate() {
            let (count, words) = (how_many(way), [words, &["listen"]].concat());
            let partner = language.start(folder.path(), "receive", 0, &words);
            let link = Link::connect(&Address::at(folder.path().join("socket"))).unwrap();
            let mut producer = Producer::open(link, &options).unwrap();
            send(&mut producer, 0, count).unwrap();
            drop(producer);
            partner.finish().assert("closed", count);
        }
    }
}

#[test]
fn both_ways_at_once() {
    let (folder, count) = (tempfile::tempdir().unwrap(), how_many(0));
    let (options, words) = ways()[0];
    let listener = listen(folder.path());
    let partner = Language::C.start(folder.path(), "echo", 0, words);
    let (there, back) = (accept(&listener), accept(&listener));
    let mut producer = Producer::open(there, &options).unwrap();
    let mut consumer = Consumer::open(back, &options).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || send(&mut producer, 0, count).unwrap());
        let (came, _, end) = receive(&mut consumer);
        assert_eq!((came, end), (count, Error::Closed { delivered: count }));
        partner.finish().assert("closed", count);
    });
}

/// Returns random delays before the kills. `THALWEG_KILLS` overrides their number.
pub fn delays(kills: u64) -> impl Iterator<Item = Duration> {
    let (mut dice, kills) = (Dice::new(module_path!()), from_env("THALWEG_KILLS", kills));
    (0..kills).map(move |_| Duration::from_micros(dice.below(20_000)))
}

#[test]
fn rust_gets_an_error_when_the_sender_is_killed() {
    for language in partners("rust_gets_an_error_when_the_sender_is_killed") {
        let folder = tempfile::tempdir().unwrap();
        for (delay, (options, words)) in delays(KILLS).zip(ways().into_iter().cycle()) {
            let listener = listen(folder.path());
            let mut partner = language.start(folder.path(), "send", 0, words);
            let mut consumer = Consumer::open(accept(&listener), &options).unwrap();
            std::thread::scope(|scope| {
                let receiving = scope.spawn(|| receive(&mut consumer));
                std::thread::sleep(delay);
                partner.kill();
                let (came, _, end) = receiving.join().unwrap();
                let died = Error::PeerDied { delivered: came, partial: 0 };
                assert_eq!(end, died, "{language:?} {words:?}");
            });
        }
    }
}

#[test]
fn rust_gets_an_error_when_the_receiver_is_killed() {
    for language in partners("rust_gets_an_error_when_the_receiver_is_killed") {
        let folder = tempfile::tempdir().unwrap();
        for (delay, (options, words)) in delays(KILLS).zip(ways().into_iter().cycle()) {
            let listener = listen(folder.path());
            let mut partner = language.start(folder.path(), "receive", 0, words);
            let mut producer = Producer::open(accept(&listener), &options).unwrap();
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| (send(&mut producer, 0, u64::MAX), producer.sent()));
                std::thread::sleep(delay);
                partner.kill();
                let (end, sent) = sending.join().unwrap();
                let Err(Error::PeerDied { delivered, partial: 0 }) = end else {
                    panic!("{language:?} {words:?}: {end:?}")
                };
                assert!(delivered <= sent, "{delivered} of {sent}");
            });
        }
    }
}

/// The main program of the Rust process that is killed. The test binary starts itself again with only this test.
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
fn other_languages_get_an_error_when_a_process_in_rust_is_killed() {
    for language in partners("other_languages_get_an_error_when_a_process_in_rust_is_killed") {
        let folder = tempfile::tempdir().unwrap();
        for (n, delay) in delays(KILLS).enumerate() {
            let (ours, theirs) = [("send", "receive"), ("receive", "send")][n % 2];
            let words = [ways()[n / 2 % 3].1, &["listen"]].concat();
            let mut partner = language.start(folder.path(), theirs, 0, &words);
            let place = folder.path().join("socket");
            let mut victim =
                again("exchange::rust::victim", CHILD, &format!("{ours} {}", place.display()));
            partner.opened();
            std::thread::sleep(delay);
            victim.kill().unwrap();
            victim.wait().unwrap();
            partner.finish().assert_died(theirs);
        }
    }
}
