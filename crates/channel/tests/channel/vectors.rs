//! The golden vectors in `tests/vectors/`. This test generates and reads them with the Rust code,
//! and compares byte for byte. It also runs Python programs that do the same, written only from
//! docs/reference/formats.md. `THALWEG_BLESS=1` replaces the files.

use rustix::fd::{AsFd, OwnedFd};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use thalweg_channel::layout::{
    FRAME_HEADER, Frame, Geometry, Hello, HelloKind, Introduction, Refusal, Role, occupied,
};
use thalweg_channel::{Consumer, Error, Link, Options, Producer, bulk};
use thalweg_core::Tuning;
use thalweg_sys::{io, memfd};

const EPOCH: u64 = 0x0123_4567_89ab_cdef;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// A ring of which the test has both memory files, because it relayed the handshake.
struct Seen {
    producer: Producer,
    consumer: Consumer,
    memory: [OwnedFd; 2],
    _between: (Link, Link),
}

fn relay(from: &Link, to: &Link) -> Option<OwnedFd> {
    let mut bytes = [0; 64];
    let (len, mut fds) = from.receive(&mut bytes).unwrap();
    let lent: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    to.send(&bytes[..len], &lent).unwrap();
    fds.pop()
}

impl Seen {
    fn new(checksums: bool) -> Self {
        let options = Options { capacity: 4096, checksums, ..Options::default() };
        let ((near, left), (right, far)) = (Link::pair().unwrap(), Link::pair().unwrap());
        let opening = std::thread::spawn(move || Producer::open(near, &options).unwrap());
        let taking = std::thread::spawn(move || Consumer::open(far, &options).unwrap());
        let offered = relay(&left, &right).unwrap();
        relay(&right, &left);
        let accepted = relay(&right, &left).unwrap();
        relay(&left, &right);
        let (producer, consumer) = (opening.join().unwrap(), taking.join().unwrap());
        Self { producer, consumer, memory: [offered, accepted], _between: (left, right) }
    }

    /// Returns the bytes of both memory files.
    fn live(&self) -> [Vec<u8>; 2] {
        self.memory.each_ref().map(dump)
    }

    /// Returns the bytes of both memory files, without the parts that differ from run to run.
    fn golden(&self) -> [Vec<u8>; 2] {
        self.live().map(without_chance)
    }
}

fn dump(fd: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; memfd::facts(fd).unwrap().len as usize];
    assert_eq!(io::pread(fd, &mut bytes, 0), Ok(bytes.len()));
    bytes
}

/// Replaces the fields that differ from run to run: the epoch, the process id, and the word that
/// the kernel marks.
fn without_chance(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[32..40].copy_from_slice(&EPOCH.to_le_bytes());
    bytes[40..44].fill(0);
    bytes[512..528].fill(0);
    bytes
}

fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 17 + at) as u8).collect()
}

/// Returns two rings: one that is new, and one with checksums whose messages wrap around.
fn rings() -> [(&'static str, Seen); 2] {
    let mut fresh = Seen::new(false);
    for (number, len) in [0, 5, 32, 33, 300].into_iter().enumerate() {
        fresh.producer.send(&payload(number, len)).unwrap();
    }
    let mut wrapped = Seen::new(true);
    for (number, len) in [1000, 1000, 1000, 200].into_iter().enumerate() {
        wrapped.producer.send(&payload(number, len)).unwrap();
    }
    for _ in 0..3 {
        drop(wrapped.consumer.receive().unwrap());
    }
    for (number, len) in [(4, 1000), (5, 1), (6, 64)] {
        wrapped.producer.send(&payload(number, len)).unwrap();
    }
    [("ring-fresh", fresh), ("ring-wrapped", wrapped)]
}

fn hellos() -> Vec<Hello> {
    let kinds = [
        HelloKind::Offer,
        HelloKind::Ask,
        HelloKind::Accept,
        HelloKind::Ready,
        HelloKind::Refuse(Refusal::Taken),
    ];
    let epoch = |kind| if kind == HelloKind::Ask { 0 } else { EPOCH };
    kinds.map(|kind| Hello::of_ring(kind, epoch(kind))).to_vec()
}

/// The messages that one side of a bulk transfer sent over the link.
#[derive(Default)]
struct Said {
    messages: Vec<Vec<u8>>,
    /// The descriptors that the side sent. The first is its memory file.
    fds: Vec<OwnedFd>,
}

/// Relays messages until one side has closed the link.
fn forward(from: &Link, to: &Link) -> Said {
    let mut said = Said::default();
    let mut bytes = vec![0; 16 << 10];
    loop {
        let (len, fds) = match from.receive(&mut bytes) {
            Ok(got) => got,
            Err(Error::Closed { .. }) => return said,
            Err(error) => panic!("{error}"),
        };
        let lent: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // Errors are ignored: a receiver that has closed its end needs no more messages.
        let _ = to.send(&bytes[..len], &lent);
        // A message of one byte is a wake-up.
        if len > 1 {
            said.messages.push(bytes[..len].to_vec());
        }
        said.fds.extend(fds);
    }
}

/// Runs a bulk transfer through a ring of two slots. The first buffer takes one slot, and the
/// second takes two.
fn bulk_transfer() -> [Said; 2] {
    let tuning = Tuning::of("slot", 4096).with("slots", 2).with("stream", 0);
    let options = bulk::Options { trust: false, ..bulk::Options::only("ring", tuning) };
    let ((near, left), (right, far)) = (Link::pair().unwrap(), Link::pair().unwrap());
    std::thread::scope(|scope| {
        let there = scope.spawn(|| forward(&left, &right));
        let back = scope.spawn(|| forward(&right, &left));
        let receiving = scope.spawn(|| {
            let mut receiver = bulk::Receiver::over(far, &options).unwrap();
            let mut lens = Vec::new();
            while receiver.next_len().unwrap().is_some() {
                lens.push(receiver.recv_new().unwrap().len());
            }
            assert_eq!(lens, [5, 5000]);
        });
        let mut sender = bulk::Sender::over(near, options.clone()).unwrap();
        for (number, len) in [5, 5000].into_iter().enumerate() {
            sender.send_from(&payload(number, len)).unwrap();
        }
        drop(sender);
        receiving.join().unwrap();
        [there.join().unwrap(), back.join().unwrap()]
    })
}

/// Returns the handshake of a bulk transfer in which the sender trusts its peer and the receiver
/// requests fresh memory.
fn introductions() -> Vec<Hello> {
    let sender =
        Introduction { trusts: true, shares: true, token_at: 0x1000, token: 7, destination: 0 };
    let receiver =
        Introduction { trusts: false, token_at: 0x2000, token: 9, destination: 2, ..sender };
    let said = [
        (HelloKind::Offer, EPOCH, sender),
        (HelloKind::Ask, 0, Introduction { shares: false, ..receiver }),
        (HelloKind::Accept, EPOCH, receiver),
        (HelloKind::Ready, EPOCH, sender),
    ];
    said.map(|(kind, epoch, own)| Hello { kind, epoch, introduction: Some(own) }).to_vec()
}

#[test]
fn a_bulk_transfer_is_the_golden_vectors() {
    if rustix::param::page_size() != 4096 {
        let reason = "the vectors are of a machine with pages of 4096 bytes";
        return thalweg_testing::skip("a_bulk_transfer_is_the_golden_vectors", reason);
    }
    let said = bulk_transfer();
    for (name, said) in ["sender", "receiver"].into_iter().zip(&said) {
        let mut bytes = without_chance(dump(&said.fds[0]));
        // Clear the counts of sleeps and of wake-ups, because they differ from run to run.
        bytes[256..260].fill(0);
        bytes[384..388].fill(0);
        check(&format!("bulk.{name}.hex"), &to_hex(&bytes));
        let role = if name == "sender" { Role::Sender } else { Role::Receiver };
        let geometry = Geometry::parse(&bytes, role).unwrap();
        assert_eq!((geometry.epoch, geometry.capacity), (EPOCH, 0));
    }
    // The first two messages of each side are the handshake. After them come the sender's Offer,
    // the receiver's Accept and the sender's Agreed.
    let messages = [&said[0].messages[2], &said[1].messages[2], &said[0].messages[3]];
    let bytes: Vec<u8> = messages.into_iter().flatten().copied().collect();
    check("bulk-messages.hex", &to_hex(&bytes));
    let hellos = introductions();
    let bytes: Vec<u8> = hellos.iter().flat_map(|hello| hello.to_bytes()).collect();
    check("bulk-handshake.hex", &to_hex(&bytes));
    for (bytes, hello) in bytes.chunks(Hello::LEN).zip(hellos) {
        assert_eq!(Hello::parse(bytes), Ok(hello));
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            write!(text, "{:06x} ", at * 16).unwrap();
            for byte in line {
                write!(text, " {byte:02x}").unwrap();
            }
            text.push('\n');
        }
    }
    writeln!(text, "{:06x}", bytes.len()).unwrap();
    text
}

fn of_hex(text: &str) -> Vec<u8> {
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let mut bytes = vec![0; number(lines.pop().unwrap())];
    for line in lines {
        let mut words = line.split_whitespace();
        let at = number(words.next().unwrap());
        words.enumerate().for_each(|(offset, byte)| bytes[at + offset] = number(byte) as u8);
    }
    bytes
}

fn check(name: &str, text: &str) {
    let path = directory().join(name);
    if std::env::var_os("THALWEG_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == text, "{name} is not what this version writes:\n{text}");
}

#[test]
fn what_is_written_is_the_golden_vectors() {
    if rustix::param::page_size() != 4096 {
        let reason = "the vectors are of a machine with pages of 4096 bytes";
        return thalweg_testing::skip("what_is_written_is_the_golden_vectors", reason);
    }
    let mut described = serde_json::Map::new();
    for (name, mut ring) in rings() {
        let [producer, consumer] = ring.golden();
        check(&format!("{name}.producer.hex"), &to_hex(&producer));
        check(&format!("{name}.consumer.hex"), &to_hex(&consumer));
        described.insert(name.into(), describe(&mut ring));
    }
    let hellos = hellos();
    let bytes: Vec<u8> = hellos.iter().flat_map(|hello| hello.to_bytes()).collect();
    check("handshake.hex", &to_hex(&bytes));
    let handshake: Vec<Value> = (1..)
        .zip(&hellos)
        .map(|(kind, hello)| json!({"kind": kind, "epoch": hello.epoch, "reason": u32::from(kind == 5)}))
        .collect();
    let expected = json!({"rings": described, "handshake": handshake});
    check("expected.json", &(serde_json::to_string_pretty(&expected).unwrap() + "\n"));
}

/// Returns the contents of the ring, as the Rust consumer reads them. Every other reader must find
/// the same.
fn describe(ring: &mut Seen) -> Value {
    let [producer, consumer] = ring.golden();
    let cursor = |bytes: &[u8]| u64::from_le_bytes(bytes[128..136].try_into().unwrap());
    let mut seq = ring.consumer.received();
    let mut messages = Vec::new();
    while let Some(sample) = ring.consumer.try_receive().unwrap() {
        let hex: String =
            sample.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        messages.push(json!({"seq": seq, "payload": hex}));
        seq += 1;
    }
    let geometry = Geometry::parse(&producer, Role::Producer).unwrap();
    json!({
        "epoch": geometry.epoch, "capacity": geometry.capacity, "checksums": geometry.checksums,
        "head": cursor(&producer), "tail": cursor(&consumer), "closed": [0, 0],
        "messages": messages,
    })
}

#[test]
fn the_golden_vectors_are_read_frame_by_frame() {
    let text = |name: &str| fs::read_to_string(directory().join(name)).unwrap();
    let expected: Value = serde_json::from_str(&text("expected.json")).unwrap();
    for (name, ring) in expected["rings"].as_object().unwrap() {
        let producer = of_hex(&text(&format!("{name}.producer.hex")));
        let consumer = of_hex(&text(&format!("{name}.consumer.hex")));
        let geometry = Geometry::parse(&producer, Role::Producer).unwrap();
        assert_eq!(Geometry::parse(&consumer, Role::Consumer), Ok(geometry));
        assert_eq!(geometry.epoch, EPOCH);
        let data = &producer[geometry.header as usize..];
        let mut at = ring["tail"].as_u64().unwrap();
        for message in ring["messages"].as_array().unwrap() {
            let take = |from: u64, len: usize| -> Vec<u8> {
                (from..from + len as u64).map(|p| data[(p % geometry.capacity) as usize]).collect()
            };
            let header: [u8; FRAME_HEADER] = take(at, FRAME_HEADER).try_into().unwrap();
            let seq = message["seq"].as_u64().unwrap();
            let frame = Frame::parse(&header, ring["head"].as_u64().unwrap() - at, seq).unwrap();
            let payload = take(at + FRAME_HEADER as u64, frame.len as usize);
            assert!(frame.crc.is_none_or(|crc| crc == Frame::sum(frame.len, seq, &payload)));
            assert_eq!(frame.crc.is_some(), geometry.checksums);
            let hex: String =
                payload.iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
            assert_eq!(message["payload"], hex);
            at += occupied(u64::from(frame.len));
        }
        assert_eq!(at, ring["head"].as_u64().unwrap());
    }
    for (bytes, hello) in of_hex(&text("handshake.hex")).chunks(Hello::LEN).zip(hellos()) {
        assert_eq!(Hello::parse(bytes), Ok(hello));
    }
}

/// Runs a program in `tests/vectors/`. Without Python 3.10, counts a skip and returns `None`.
fn python(test: &str, program: &str, arguments: &[&str]) -> Option<Value> {
    let probe = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    if !Command::new("python3").args(probe).status().is_ok_and(|status| status.success()) {
        thalweg_testing::skip(test, "no python3, or one before 3.10");
        return None;
    }
    let output =
        Command::new("python3").arg(directory().join(program)).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn another_language_reads_the_golden_vectors() {
    let test = "another_language_reads_the_golden_vectors";
    let directory = directory();
    let arguments = ["vectors", directory.to_str().unwrap()];
    let Some(found) = python(test, "reader.py", &arguments) else { return };
    assert_eq!(found, json!({"rings": 2, "handshake": 5}));
}

#[test]
fn another_language_writes_the_golden_vectors() {
    let test = "another_language_writes_the_golden_vectors";
    if !cfg!(target_arch = "x86_64") {
        return thalweg_testing::skip(
            test,
            "the ends in Python need x86-64: tests/vectors/ring.py says why",
        );
    }
    let directory = directory();
    let arguments = ["vectors", directory.to_str().unwrap()];
    let Some(found) = python(test, "partner.py", &arguments) else { return };
    assert_eq!(found, json!({"rings": 2, "handshake": 5}));
}

#[test]
fn another_language_reads_a_living_ring() {
    let place = tempfile::tempdir().unwrap();
    for (name, mut ring) in rings() {
        let [producer, consumer] = ring.live();
        let files =
            ["producer", "consumer"].map(|side| place.path().join(format!("{name}.{side}")));
        fs::write(&files[0], producer).unwrap();
        fs::write(&files[1], consumer).unwrap();
        let arguments = ["ring", files[0].to_str().unwrap(), files[1].to_str().unwrap()];
        let test = "another_language_reads_a_living_ring";
        let Some(found) = python(test, "reader.py", &arguments) else { return };
        let mut expected = describe(&mut ring);
        expected["epoch"] = json!(ring.producer.epoch());
        assert_eq!(found, expected, "{name}");
    }
}
