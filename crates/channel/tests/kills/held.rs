//! A consumer holds messages, and the process at one end is killed. Held messages must stay
//! complete until they are given back. The producer counts only messages given back as delivered.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Held, Link, Listener, Options, Producer};
use thalweg_testing::{Dice, again, message};

const CHILD: &str = "THALWEG_HELD_CHILD";
/// A process that runs longer than this counts as hanging. It is no requirement of speed.
const GUARD: Duration = Duration::from_secs(120);
const KINDS: [(bool, bool); 3] = [(true, false), (true, true), (false, true)];
/// Number of messages that the killed consumer gave back before the oldest held one.
const GIVEN_BACK: u64 = 5;

fn options(kind: usize) -> Options {
    let (trusted, checksums) = KINDS[kind];
    Options { capacity: 65536, trusted, checksums, ..Options::default() }
}

/// Main program of the killed process. It is a test so that this binary can start itself again.
#[test]
fn victim() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut told = told.splitn(3, ' ');
    let (role, kind) = (told.next().unwrap(), told.next().unwrap().parse().unwrap());
    let place = PathBuf::from(told.next().unwrap());
    let link = Link::connect(&Address::at(place.join("ring"))).unwrap();
    if role == "producer" {
        let mut producer = Producer::open(link, &options(kind)).unwrap();
        let mut bytes = Vec::new();
        for seq in 0.. {
            message(seq, &mut bytes);
            producer.send(&bytes).unwrap();
        }
        return;
    }
    let mut consumer = Consumer::open(link, &options(kind)).unwrap();
    for _ in 0..GIVEN_BACK {
        drop(consumer.receive().unwrap().hold());
    }
    let oldest = consumer.receive().unwrap().hold();
    // These messages are given back, but do not count, because they come after a held one.
    drop(consumer.receive().unwrap());
    drop(consumer.receive().unwrap().hold());
    std::fs::write(place.join("holds"), b"").unwrap();
    // Receive until the ring is full and the producer waits. Then this loop blocks until the
    // process is killed.
    while consumer.receive().is_ok() {}
    drop(oldest);
}

fn meet(role: &str, kind: usize, place: &Path) -> (Child, Link) {
    let listener = Listener::bind(&Address::at(place.join("ring"))).unwrap();
    let victim = again("held::victim", CHILD, &format!("{role} {kind} {}", place.display()));
    (victim, listener.accept_until(Some(Instant::now() + GUARD)).unwrap())
}

fn kill(mut victim: Child) {
    victim.kill().unwrap();
    assert_eq!(victim.wait().unwrap().signal(), Some(9), "the victim failed by itself");
}

fn is_message(held: &Held, seq: u64) {
    let mut expected = Vec::new();
    message(seq, &mut expected);
    assert!(**held == expected[..], "message {seq} changed while it was held");
}

fn mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:thalweg-ring")
}

#[test]
fn held_messages_outlive_a_killed_process_and_are_reported() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let _alone = thalweg_testing::alone();
    // Run the kinds one after another, because each checks the mappings of this process.
    for kind in 0..KINDS.len() {
        held_when_the_producer_is_killed(kind);
        assert!(!mapped());
        holding_when_it_is_killed(kind);
        assert!(!mapped());
    }
}

fn held_when_the_producer_is_killed(kind: usize) {
    let place = tempfile::tempdir().unwrap();
    let (victim, link) = meet("producer", kind, place.path());
    let mut consumer = Consumer::open(link, &options(kind)).unwrap();
    let mut dice = Dice::new(module_path!());
    let mut held = VecDeque::new();
    let mut receive =
        |consumer: &mut Consumer, held: &mut VecDeque<(u64, Held)>| -> Result<(), Error> {
            let seq = consumer.received();
            let sample = consumer.receive()?;
            if dice.below(3) > 0 {
                held.push_back((seq, sample.hold()));
            }
            // Give messages back in random order, but early enough that they do not fill the ring.
            while held.len() > 4 || held.iter().any(|(old, _)| seq - old > 8) {
                let oldest = held.iter().map(|(old, _)| *old).min().unwrap();
                let random = held[dice.below(held.len() as u64) as usize].0;
                let which = if seq - oldest > 8 { oldest } else { random };
                let at = held.iter().position(|(old, _)| *old == which).unwrap();
                is_message(&held.remove(at).unwrap().1, which);
            }
            Ok(())
        };
    while consumer.received() < 2000 {
        receive(&mut consumer, &mut held).unwrap();
    }
    kill(victim);
    let error = loop {
        if let Err(error) = receive(&mut consumer, &mut held) {
            break error;
        }
    };
    assert_eq!(error, Error::PeerDied { delivered: consumer.received(), partial: 0 });
    let half = held.split_off(held.len() / 2);
    for (seq, one) in held {
        is_message(&one, seq);
    }
    drop(consumer);
    assert!(mapped() || half.is_empty());
    // Read the last messages on another thread, after all other parts of the channel were dropped.
    let last = std::thread::spawn(move || {
        for (seq, one) in half {
            is_message(&one, seq);
        }
    });
    last.join().unwrap();
}

fn holding_when_it_is_killed(kind: usize) {
    let place = tempfile::tempdir().unwrap();
    let (victim, link) = meet("consumer", kind, place.path());
    let mut producer = Producer::open(link, &options(kind)).unwrap();
    let mut bytes = Vec::new();
    let began = Instant::now();
    let holds = place.path().join("holds");
    // Send until the ring is full up to the oldest held message.
    let mut victim = Some(victim);
    let error = loop {
        message(producer.sent(), &mut bytes);
        let soon = Instant::now() + Duration::from_millis(50);
        match producer.loan_until(bytes.len(), Some(soon)) {
            Ok(mut loan) => {
                loan.copy_from_slice(&bytes);
                loan.commit().unwrap();
            }
            Err(Error::Timeout) => {
                assert!(began.elapsed() < GUARD);
                // If the ring is full and the victim holds a message, only the victim's death can
                // end the next wait.
                if let Some(victim) = victim.take_if(|_| holds.exists()) {
                    kill(victim);
                }
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::PeerDied { delivered: GIVEN_BACK, partial: 0 });
}
