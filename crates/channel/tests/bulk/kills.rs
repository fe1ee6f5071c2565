//! SIGKILL of either side at random moments: the survivor is told, what it was told is there is
//! true, and nothing is left behind. `THALWEG_KILLS=1000` makes the campaign longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant, SystemTime},
};
use thalweg_channel::{
    Error,
    bulk::{Receiver, Sender},
};
use thalweg_core::Tuning;

use crate::conformance::working;
use crate::peer::{Peer, Script, difference, fill};

fn kills() -> u64 {
    std::env::var("THALWEG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(24)
}

/// Chance that can be had again: a failing run prints its seed, `THALWEG_SEED` repeats it.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("THALWEG_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
        let seed = seed.unwrap_or_else(now) | 1;
        eprintln!("THALWEG_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}

/// Named shared memory of ours: there must never be any.
fn litter() -> BTreeSet<String> {
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("thalweg")).collect()
}

/// Segments that are there, by their numbers, with who made them.
fn segments() -> BTreeMap<u64, u32> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?.parse().ok()?, words.nth(2)?.parse().ok()?))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

/// What is left of these processes. A process number may be used again, so what was there before
/// does not count.
#[track_caller]
fn expect_no_litter(before: &BTreeMap<u64, u32>, pids: &[u32]) {
    assert_eq!(litter(), BTreeSet::new());
    let mut left = segments();
    left.retain(|id, maker| !before.contains_key(id) && pids.contains(maker));
    assert!(left.is_empty(), "segments left behind: {left:?}");
}

/// What to send: long enough that a kill lands in the middle now and then.
const LEN: usize = 3 << 20;

fn scripts() -> Vec<Script> {
    let mut scripts = Vec::new();
    for arm in working() {
        for tuning in arm.info().tunings().into_iter().step_by(2) {
            scripts.push(Script {
                arm: Some(arm.info().name.to_owned()),
                tuning,
                buffers: vec![(LEN, 1)],
                forever: true,
                ..Script::default()
            });
        }
    }
    scripts
}

#[test]
fn a_receiver_learns_of_its_senders_death_and_keeps_a_true_part() {
    let (mut dice, scripts) = (Dice::new(), scripts());
    for n in 0..kills() {
        let script = Script { sends: true, ..scripts[n as usize % scripts.len()].clone() };
        let before = segments();
        let (mut peer, link) = Peer::start(&script);
        let pid = peer.child.id();
        let wait = Duration::from_micros(dice.below(30_000));
        let told = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive_until_death(link, &script));
            std::thread::sleep(wait);
            peer.kill();
            let died = Instant::now();
            receiving.join().unwrap();
            died.elapsed()
        });
        println!("{script:?}: told after {told:?}");
        expect_no_litter(&before, &[pid]);
    }
}

fn receive_until_death(link: thalweg_channel::Link, script: &Script) {
    let mut receiver = match Receiver::over(link, &script.options()) {
        Ok(receiver) => receiver,
        Err(Error::PeerDied { delivered: 0, .. }) => return,
        Err(error) => panic!("{script:?}: {error}"),
    };
    let mut memory = vec![0xdd; LEN];
    for seed in 0_u64.. {
        match receiver.recv_into(&mut memory) {
            Ok(len) => {
                assert_eq!(len, LEN);
                assert_eq!(difference(seed, &memory), None, "{script:?}: a torn buffer");
            }
            Err(Error::PeerDied { delivered, partial: 0 }) => {
                let part = &memory[..delivered as usize];
                assert_eq!(difference(seed, part), None, "{script:?}: {delivered} are not true");
                let again = receiver.recv_into(&mut memory);
                assert!(again.is_err(), "{script:?}: something came after the end");
                return;
            }
            Err(error) => panic!("{script:?}: {error}"),
        }
    }
}

#[test]
fn a_sender_learns_of_its_receivers_death() {
    let (mut dice, scripts) = (Dice::new(), scripts());
    for n in 0..kills() {
        let script = &scripts[n as usize % scripts.len()];
        let before = segments();
        let (mut peer, link) = Peer::start(script);
        let pid = peer.child.id();
        let wait = Duration::from_micros(dice.below(30_000));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| send_until_death(link, script));
            std::thread::sleep(wait);
            peer.kill();
            sending.join().unwrap();
        });
        expect_no_litter(&before, &[pid, std::process::id()]);
    }
}

fn send_until_death(link: thalweg_channel::Link, script: &Script) {
    let mut sender = match Sender::over(link, script.options()) {
        Ok(sender) => sender,
        Err(Error::PeerDied { .. }) => return,
        Err(error) => panic!("{script:?}: {error}"),
    };
    let mut memory = vec![0; LEN];
    for seed in 0_u64.. {
        fill(seed, &mut memory);
        match sender.send_from(&memory) {
            Ok(()) => {}
            Err(Error::PeerDied { .. }) => return assert!(sender.send_from(&memory).is_err()),
            Err(error) => panic!("{script:?}: {error}"),
        }
    }
}

/// A process that is stopped is not dead: nothing is given up, and nothing is lost.
#[test]
fn a_stopped_sender_is_waited_for() {
    use rustix::process::{Pid, Signal, kill_process};
    for arm in working() {
        let script = Script {
            sends: true,
            arm: Some(arm.info().name.to_owned()),
            tuning: Tuning::default(),
            buffers: vec![(LEN, 0); 6],
            ..Script::default()
        };
        let (peer, link) = Peer::start(&script);
        let pid = Pid::from_child(&peer.child);
        let mut receiver = Receiver::over(link, &script.options()).expect("an arm");
        let mut memory = vec![0; LEN];
        for seed in 0..6 {
            if seed == 2 {
                kill_process(pid, Signal::STOP).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(40));
                        kill_process(pid, Signal::CONT).unwrap();
                    });
                    receiver.recv_into(&mut memory).expect("a buffer");
                });
            } else {
                receiver.recv_into(&mut memory).expect("a buffer");
            }
            assert_eq!(difference(seed, &memory), None, "{}: buffer {seed}", arm.info().name);
        }
        peer.finish();
    }
}
