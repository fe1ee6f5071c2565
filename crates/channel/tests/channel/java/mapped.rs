//! A JVM at one end that uses no native code. This process performs the handshake for it. JDK 17
//! then maps the memory files by paths under `/proc`, which this process passes to the JVM.

use super::jvm::Jvm;
use super::messages::{in_a_while, options};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use thalweg_channel::layout::{Geometry, Hello, HelloKind, Role};
use thalweg_channel::{Consumer, Error, Link, Producer, Wait};
use thalweg_sys::{io, memfd};
use thalweg_testing::jdk::{SHORT, jdk, sources};
use thalweg_testing::{from_env, message};

const RELEASE: u32 = 17;
const EPOCH: u64 = 0x0123_4567_89ab_cdef;
const CAPACITY: u64 = 16384;

fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

fn header() -> u64 {
    rustix::param::page_size() as u64
}

/// Starts JDK 17 with a memory file for its own side. Waits until the JVM has mapped the file.
/// Without a JDK 17, counts a skip and returns `None`.
fn start(test: &str, role: &str, own: &OwnedFd, epoch: u64, count: u64) -> Option<Jvm> {
    let Some(jdk) = jdk(|release| release == RELEASE) else {
        thalweg_testing::skip(test, &format!("no JDK {RELEASE} in $JAVA_HOME or /usr/lib/jvm"));
        return None;
    };
    let mut command = Command::new(jdk.join("bin/java"));
    command.args(SHORT).arg(sources().join("interop/JoinByMapping.java"));
    let words = [count, epoch, CAPACITY].map(|number| number.to_string());
    command.args([role, &path_of(own)]).args(words).arg("true");
    let mut jvm = Jvm::start(command);
    assert_eq!(jvm.line(), "mapped");
    memfd::seal_for_one_writer(own).unwrap();
    Some(jvm)
}

fn say(link: &Link, kind: HelloKind, epoch: u64, fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    link.send(&Hello::of_ring(kind, epoch).to_bytes(), &fds).unwrap();
}

fn hear(link: &Link, kind: HelloKind) -> Vec<OwnedFd> {
    let mut bytes = [0; Hello::LEN];
    let (len, fds) = link.receive_until(&mut bytes, in_a_while()).unwrap();
    assert_eq!(Hello::parse(&bytes[..len]).unwrap().kind, kind);
    fds
}

#[test]
fn a_jvm_without_native_code_reads_a_ring() {
    let test = "a_jvm_without_native_code_reads_a_ring";
    let messages = from_env("THALWEG_MESSAGES", 10_000) / 5;
    let (near, far) = Link::pair().unwrap();
    let opening =
        std::thread::spawn(move || Producer::open_until(near, &options(Wait::Spin), in_a_while()));
    let theirs = hear(&far, HelloKind::Offer).remove(0);
    let mut fixed = [0; Geometry::LEN];
    assert_eq!(io::pread(&theirs, &mut fixed, 0), Ok(Geometry::LEN));
    let epoch = Geometry::parse(&fixed, Role::Producer).unwrap().epoch;
    let own = memfd::create("jvm", header()).unwrap();
    let Some(mut jvm) = start(test, "consume", &own, epoch, messages) else { return };
    jvm.tell(&path_of(&theirs));
    assert_eq!(jvm.line(), "joined");
    say(&far, HelloKind::Ask, 0, &[]);
    say(&far, HelloKind::Accept, epoch, &[&own]);
    hear(&far, HelloKind::Ready);
    let mut producer = opening.join().unwrap().unwrap();
    let mut bytes = Vec::new();
    for seq in 0..messages {
        message(seq, &mut bytes);
        producer.send_until(&bytes, in_a_while()).unwrap();
    }
    assert_eq!(jvm.finish(), format!("done {messages}"));
    let end = producer.send(b"more").err();
    assert_eq!(end, Some(Error::Closed { delivered: messages }));
}

#[test]
fn a_jvm_without_native_code_writes_a_ring() {
    let test = "a_jvm_without_native_code_writes_a_ring";
    let messages = from_env("THALWEG_MESSAGES", 10_000) / 5;
    let own = memfd::create("jvm", header() + CAPACITY).unwrap();
    let Some(mut jvm) = start(test, "produce", &own, EPOCH, messages) else { return };
    let (near, far) = Link::pair().unwrap();
    let opening =
        std::thread::spawn(move || Consumer::open_until(near, &options(Wait::Spin), in_a_while()));
    say(&far, HelloKind::Offer, EPOCH, &[&own]);
    hear(&far, HelloKind::Ask);
    let theirs = hear(&far, HelloKind::Accept).remove(0);
    jvm.tell(&path_of(&theirs));
    assert_eq!(jvm.line(), "joined");
    say(&far, HelloKind::Ready, EPOCH, &[]);
    let mut consumer = opening.join().unwrap().unwrap();
    let mut expected = Vec::new();
    for seq in 0..messages {
        message(seq, &mut expected);
        let sample = consumer.receive_until(in_a_while()).unwrap();
        assert!(*sample == expected[..], "message {seq} is torn");
    }
    let end = consumer.receive_until(in_a_while()).err();
    assert_eq!(end, Some(Error::Closed { delivered: messages }));
    assert_eq!(jvm.finish(), format!("done {messages}"));
}
