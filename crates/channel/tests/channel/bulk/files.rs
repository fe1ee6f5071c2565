//! Several files over one link: each arrives completely or not at all, even if others fail.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_channel::{
    Error, Link,
    bulk::{Announced, Handed, Item, Options, Pace, Problem, Receiver, Sender, Sink},
};

use super::conformance::working;
use super::peer::fill;

const BUFFER: usize = 5000;

/// A sink that keeps files in memory. It fails for the names `unwanted`, `full` and `unpublished`.
#[derive(Default)]
struct Folder {
    under_way: Option<(OsString, Vec<u8>)>,
    files: BTreeMap<OsString, Vec<u8>>,
    abandoned: u64,
}

impl Sink for Folder {
    fn begin(&mut self, file: &Announced) -> Result<(), String> {
        let name = file.name.clone().ok_or("no name")?;
        assert!(self.under_way.is_none(), "{} begins in the middle of another", name.display());
        if name == "unwanted" {
            return Err("unwanted".to_owned());
        }
        self.under_way = Some((name, Vec::new()));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (name, data) = self.under_way.as_mut().unwrap();
        data.extend(bytes);
        if *name == "full" && data.len() > BUFFER { Err("no space".to_owned()) } else { Ok(()) }
    }

    fn publish(&mut self) -> Result<(), String> {
        let (name, data) = self.under_way.take().unwrap();
        if name == "unpublished" {
            return Err("no name for it".to_owned());
        }
        self.files.insert(name, data);
        Ok(())
    }

    fn abandon(&mut self) {
        self.under_way = None;
        self.abandoned += 1;
    }
}

/// A source that fails after this many bytes.
struct Breaks(Cursor<Vec<u8>>, u64);

impl Read for Breaks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.position() >= self.1 {
            return Err(io::Error::other("a bad sector"));
        }
        let most = into.len().min(777);
        self.0.read(&mut into[..most])
    }
}

fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, &mut bytes);
    bytes
}

/// Name, length, `true` if the length is announced, and the position of a read error.
type File = (&'static str, usize, bool, Option<u64>);

/// Sends these files by the mechanism in the options. Returns both results and the sink.
fn hand_over(options: &Options, files: &[File]) -> (Handed, Handed, Folder) {
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = Sender::over(near, options.clone()).expect("a mechanism");
            let items = (0..).zip(files).map(|(seed, (name, len, told, breaks))| Item {
                name: Some(OsString::from(name)),
                size: told.then_some(*len as u64),
                source: Breaks(Cursor::new(data(seed, *len)), breaks.unwrap_or(u64::MAX)),
                file: None,
            });
            let mut seen = 0;
            let mut pace = Pace {
                buffer: BUFFER,
                total: Some(files.len() as u64),
                watch: &mut |now| seen = now,
            };
            let handed = sender.send_all(items, &mut pace).expect("a handover");
            assert_eq!(handed.bytes, seen);
            handed
        });
        let mut folder = Folder::default();
        let mut receiver = Receiver::over(far, options).expect("a mechanism");
        let received = receiver.recv_all(&mut folder, &mut |_, _| {}).expect("a handover");
        (sending.join().unwrap(), received, folder)
    })
}

#[test]
fn files_of_every_length_arrive_in_order_by_every_mechanism() {
    let lengths = [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER + 7, 17];
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let files: Vec<File> =
        names.into_iter().zip(lengths).map(|(name, len)| (name, len, len % 2 == 0, None)).collect();
    for mechanism in working() {
        let options = Options {
            only: Some(mechanism.info().name.to_owned()),
            will_loan: true,
            ..Options::default()
        };
        let (sent, received, folder) = hand_over(&options, &files);
        assert_eq!(sent, received, "{}", mechanism.info().name);
        assert_eq!((sent.files, sent.problems.len()), (7, 0));
        for (seed, (name, len, ..)) in (0..).zip(&files) {
            assert_eq!(folder.files[&OsString::from(name)], data(seed, *len), "{name}");
        }
    }
}

#[test]
fn what_goes_wrong_with_one_does_not_touch_the_others() {
    let files = [
        ("a", 100, true, None),
        ("unwanted", 50_000, true, None),
        ("full", 50_000, true, None),
        ("broken", 50_000, true, Some(12_000)),
        ("unpublished", 10, true, None),
        ("last", 20_000, true, None),
    ];
    let (sent, received, folder) = hand_over(&Options::default(), &files);
    let kept: Vec<_> = folder.files.keys().map(|name| name.to_str().unwrap()).collect();
    assert_eq!(kept, ["a", "last"]);
    assert_eq!(folder.files[&OsString::from("last")], data(5, 20_000));
    assert_eq!(folder.abandoned, 2, "full and broken");
    for handed in [&sent, &received] {
        assert_eq!(handed.files, 2);
        let problems: Vec<_> =
            handed.problems.iter().map(|(n, p)| (n.to_str().unwrap(), p)).collect();
        let [unwanted, full, broken, unpublished] = &problems[..] else { panic!("{problems:?}") };
        let not_taken = |why: &str| Problem::NotTaken { why: why.to_owned() };
        assert_eq!(unwanted, &("unwanted", &not_taken("unwanted")));
        assert_eq!(full, &("full", &not_taken("no space")));
        assert_eq!(broken, &("broken", &Problem::GivenUp { why: "a bad sector".to_owned() }));
        assert_eq!(unpublished, &("unpublished", &not_taken("no name for it")));
    }
}

#[test]
fn a_name_with_a_way_in_it_is_not_sent_and_not_taken() {
    let (sent, received, _) = hand_over(&Options::default(), &[("../up", 1, true, None)]);
    assert!(matches!(&sent.problems[..], [(_, Problem::GivenUp { .. })]), "{sent:?}");
    assert_eq!(received, Handed::default());
    // Write the head by hand, because an honest sender never sends such a name.
    let mut head = b"THALWEGF\x01\0\0\0\x05\0\0\0".to_vec();
    head.extend([1_u64, 1, 0, 1].iter().flat_map(|word| word.to_le_bytes()));
    for (words, part) in [(b"../up".as_slice(), "invalid name"), (b"a".as_slice(), "length")] {
        let (near, far) = Link::pair().unwrap();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
                sender.send_from(&[&head, words].concat()).expect("it is only bytes so far");
            });
            let mut receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
            let mut folder = Folder::default();
            let error = receiver.recv_all(&mut folder, &mut |_, _| {}).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { what } if what.contains(part)), "{error}");
            assert!(receiver.next_len().is_err());
            sending.join().unwrap();
        });
    }
}

#[test]
fn another_number_of_bytes_or_files_than_announced_is_an_error_on_both_sides() {
    let files = [("whole", 9000, 9000), ("shrunk", 9000, 8999), ("grown", 9000, 9001)];
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
            let items = (0..).zip(files).map(|(seed, (name, told, len))| Item {
                name: Some(OsString::from(name)),
                size: Some(told),
                source: Cursor::new(data(seed, len)),
                file: None,
            });
            let mut pace = Pace { buffer: BUFFER, total: Some(5), watch: &mut |_| {} };
            sender.send_all(items, &mut pace).expect("a handover")
        });
        let mut folder = Folder::default();
        let mut receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
        let received = receiver.recv_all(&mut folder, &mut |_, _| {}).expect("a handover");
        assert_eq!(received, sending.join().unwrap());
        assert_eq!((received.files, received.missing), (1, 2));
        assert_eq!(folder.files.keys().collect::<Vec<_>>(), ["whole"]);
        let [(_, shrunk), (_, grown)] = &received.problems[..] else { panic!("{received:?}") };
        for problem in [shrunk, grown] {
            let told = matches!(problem, Problem::GivenUp { why } if why.contains("9000 bytes"));
            assert!(told, "{problem:?}");
        }
    });
}

/// Plays a sender of another implementation, whose data does not match its announcement.
#[test]
fn a_sender_that_announces_something_else_is_found_out() {
    let head = |size: u64, number: u64| {
        let mut head = b"THALWEGF\x01\0\0\0\x01\0\0\0".to_vec();
        head.extend([size, 2, number, 3].iter().flat_map(|word| word.to_le_bytes()));
        [&head[..], b"a"].concat()
    };
    let mut tail = 2_u64.to_le_bytes().to_vec();
    tail.extend(xxhash_rust::xxh3::xxh3_128(b"xy").to_le_bytes());
    tail.extend(0_u64.to_le_bytes());
    for again in [true, false] {
        let (near, far) = Link::pair().unwrap();
        // This sender reads no replies. Its end of the link must stay open until the receiver has
        // sent the last one.
        let _open = near.as_fd().try_clone_to_owned().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
                for words in [&head(3, 0)[..], b"xy", b"", &tail] {
                    sender.send_from(words).expect("it is only bytes so far");
                }
                if again {
                    sender.send_from(&head(2, 0)).expect("it is only bytes so far");
                }
            });
            let mut folder = Folder::default();
            let mut receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
            let received = receiver.recv_all(&mut folder, &mut |_, _| {});
            assert_eq!((folder.files.len(), folder.abandoned), (0, 1));
            if again {
                let backwards =
                    matches!(&received, Err(Error::Corrupt { what }) if what.contains("number 0"));
                assert!(backwards, "{received:?}");
                return;
            }
            let received = received.expect("a handover");
            assert_eq!((received.files, received.missing), (0, 2));
            let why = "2 bytes arrived, but 3 were announced".to_owned();
            assert_eq!(received.problems, [("a".into(), Problem::NotTaken { why })]);
        });
    }
}

/// Plays a sender whose head claims a large buffer size. The sender then sends much less.
#[test]
fn a_buffer_that_is_only_claimed_takes_no_memory() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
    };
    // Large enough to be noticed in the resident size, and small enough that other processes hardly
    // use up this memory during the test.
    let claimed = thalweg_sys::host::memory_available().unwrap_or(4 << 30).min(8 << 30) / 4;
    let mut head = b"THALWEGF\x01\0\0\0\x01\0\0\0".to_vec();
    head.extend([u64::MAX, claimed, 0, 1].iter().flat_map(|word| word.to_le_bytes()));
    head.push(b'a');
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
            for words in [&head[..], b"few"] {
                sender.send_from(words).expect("it is only bytes so far");
            }
        });
        let (before, mut most) = (resident(), 0);
        let mut receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
        let received = receiver.recv_all(&mut Folder::default(), &mut |_, moved| {
            most = if moved > 0 { resident() } else { 0 };
        });
        assert!(matches!(received, Err(Error::Closed { .. })), "{received:?}");
        // Other tests of this process also allocate memory, but less than this limit allows.
        assert!(most > 0 && most < before + claimed / 2, "{before}, {claimed} claimed: {most}");
    });
}

/// Stops the receiver in the middle of a file. Both sides report an error and keep no part of it.
#[test]
fn a_receiver_may_stop_between_two_buffers() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let options = Options { stop: Some(|| ENOUGH.load(Ordering::Relaxed)), ..Options::default() };
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
            let source = Cursor::new(data(0, 10 * BUFFER));
            let item = Item { name: Some("a".into()), size: None, source, file: None };
            let mut pace = Pace { buffer: BUFFER, total: None, watch: &mut |_| {} };
            sender.send_all([item], &mut pace).unwrap_err()
        });
        let mut folder = Folder::default();
        let mut receiver = Receiver::over(far, &options).expect("a mechanism");
        let error = receiver.recv_all(&mut folder, &mut |_, moved| {
            ENOUGH.store(moved > 0, Ordering::Relaxed);
        });
        assert!(matches!(error, Err(Error::System { .. })), "{error:?}");
        assert_eq!((folder.files.len(), folder.abandoned), (0, 1));
        drop(receiver);
        let died = sending.join().unwrap();
        assert!(matches!(died, Error::PeerDied { .. }), "{died}");
    });
}
