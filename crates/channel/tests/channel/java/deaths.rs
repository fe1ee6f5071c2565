//! Kills the process at either end with SIGKILL. The end in the other language gets an error, and
//! every committed message is complete.

use super::jvm::Jvm;
use super::messages::{in_a_while, meet, options};
use rustix::process::{Signal, kill_process};
use std::path::PathBuf;
use std::time::Duration;
use thalweg_channel::{Address, Consumer, Error, Link, Producer, Wait};
use thalweg_testing::{Dice, again, from_env, message};

const CHILD: &str = "THALWEG_JAVA_VICTIM";
const WAITS: [Wait; 3] = [Wait::Block, Wait::HYBRID, Wait::Spin];

/// Receives and checks messages until an error ends this. Returns the error.
fn drain(consumer: &mut Consumer, from: u64) -> Error {
    let mut expected = Vec::new();
    for seq in from.. {
        message(seq, &mut expected);
        match consumer.receive_until(in_a_while()) {
            Ok(sample) => assert!(*sample == expected[..], "message {seq} is torn"),
            Err(error) => return error,
        }
    }
    unreachable!("the other side is killed")
}

/// Sends until an error ends this. Returns the error.
fn fill(producer: &mut Producer) -> Error {
    let mut bytes = Vec::new();
    for seq in 0.. {
        message(seq, &mut bytes);
        if let Err(error) = producer.send_until(&bytes, in_a_while()) {
            return error;
        }
    }
    unreachable!("the other side is killed")
}

/// Kills the JVM after a random delay.
fn kill_soon(jvm: &Jvm, dice: &mut Dice) -> std::thread::JoinHandle<()> {
    let (pid, delay) = (jvm.pid(), Duration::from_micros(dice.below(30_000)));
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        kill_process(pid, Signal::KILL).unwrap();
    })
}

#[test]
fn a_killed_jvm_is_a_death() {
    let mut dice = Dice::new(module_path!());
    for round in 0..from_env("THALWEG_KILLS", 3) {
        let wait = WAITS[(round / 2 % 3) as usize];
        let place = tempfile::tempdir().unwrap();
        let role = if round % 2 == 0 { "produce" } else { "consume" };
        let words = format!("{role} connect PATH -1");
        let Some((jvm, link)) = meet("a_killed_jvm_is_a_death", &words, place.path()) else {
            return;
        };
        let (error, delivered) = if role == "produce" {
            let mut consumer = Consumer::open_until(link, &options(wait), in_a_while()).unwrap();
            let killer = kill_soon(&jvm, &mut dice);
            let error = drain(&mut consumer, 0);
            killer.join().unwrap();
            (error, consumer.received())
        } else {
            let mut producer = Producer::open_until(link, &options(wait), in_a_while()).unwrap();
            let killer = kill_soon(&jvm, &mut dice);
            let error = fill(&mut producer);
            killer.join().unwrap();
            let Error::PeerDied { delivered, .. } = error else { panic!("{error}") };
            assert!(delivered <= producer.sent());
            (error, delivered)
        };
        assert_eq!(error, Error::PeerDied { delivered, partial: 0 }, "round {round}, {role}");
    }
}

#[test]
fn a_jvm_that_exits_without_closing_has_died() {
    let place = tempfile::tempdir().unwrap();
    let test = "a_jvm_that_exits_without_closing_has_died";
    let Some((jvm, link)) = meet(test, "produce connect PATH 3 exit", place.path()) else { return };
    let mut consumer = Consumer::open_until(link, &options(Wait::Block), in_a_while()).unwrap();
    assert_eq!(drain(&mut consumer, 0), Error::PeerDied { delivered: 3, partial: 0 });
    assert_eq!(jvm.finish(), "open");
}

/// Main program of the killed process. It is a test so that this binary can start itself again.
#[test]
fn victim() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (role, place) = told.split_once(' ').unwrap();
    let link = Link::connect(&Address::at(PathBuf::from(place).join("ring"))).unwrap();
    // The result is ignored, because an error means that the test has ended.
    if role == "produce" {
        fill(&mut Producer::open(link, &options(Wait::HYBRID)).unwrap());
    } else {
        drain(&mut Consumer::open(link, &options(Wait::HYBRID)).unwrap(), 0);
    }
}

#[test]
fn java_gets_an_error_when_a_process_is_killed() {
    let test = "java_gets_an_error_when_a_process_is_killed";
    let mut dice = Dice::new(module_path!());
    for round in 0..from_env("THALWEG_KILLS", 4) {
        let place = tempfile::tempdir().unwrap();
        let (java, rust) = [("consume", "produce"), ("produce", "consume")][(round % 2) as usize];
        let how = ["block", "spin", "hybrid", "block link"][(round / 2 % 4) as usize];
        let words = format!("{java} host PATH -1 {how}");
        let Some(mut jvm) = Jvm::peer(test, &words, place.path()) else { return };
        assert_eq!(jvm.line(), "ready");
        let told = format!("{rust} {}", place.path().display());
        let mut victim = again("java::deaths::victim", CHILD, &told);
        assert_eq!(jvm.line(), "open");
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let last = jvm.finish();
        assert!(
            last.starts_with("died ") && last.ends_with(" 0"),
            "round {round}, {words}: {last}"
        );
    }
}
