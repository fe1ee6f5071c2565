//! Passes open files instead of their bytes. Cases: the receiver copies or refuses the file, the
//! file changes, the sender violates the protocol.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use thalweg_channel::{
    Error, Link,
    bulk::{Announced, Handed, Item, NotMoved, Options, Pace, Problem, Receiver, Sender, Sink},
};
use thalweg_core::Watch;

use super::peer::fill;

const LEN: usize = 70_000;

/// Behavior of the sink towards an open file.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Moves,
    Refuses,
    Fails,
    /// Copies the file, while the test appends to it.
    Disturbed,
    /// Accepts only bytes, never an open file.
    WantsBytes,
}

/// A sink that keeps one file in memory.
struct Folder {
    mood: Mood,
    source: PathBuf,
    data: Vec<u8>,
    published: Vec<Vec<u8>>,
    abandoned: u64,
}

impl Sink for Folder {
    fn begin(&mut self, _: &Announced) -> Result<(), String> {
        self.data.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.data.extend(bytes);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        self.published.push(std::mem::take(&mut self.data));
        Ok(())
    }

    fn abandon(&mut self) {
        self.abandoned += 1;
    }

    fn takes_open(&self) -> bool {
        self.mood != Mood::WantsBytes
    }

    fn move_open(
        &mut self,
        from: BorrowedFd<'_>,
        size: u64,
        watch: &mut dyn Watch,
    ) -> Result<String, NotMoved> {
        match self.mood {
            Mood::Refuses => return Err(NotMoved::Refused("not today".to_owned())),
            Mood::Fails => return Err(NotMoved::Failed("no space".to_owned())),
            _ => {}
        }
        let mut file = File::from(from.try_clone_to_owned().unwrap());
        file.read_to_end(&mut self.data).unwrap();
        assert_eq!(self.data.len() as u64, size);
        assert!(file.write_all(b"x").is_err(), "it may be written");
        if self.mood == Mood::Disturbed {
            let mut source = File::options().append(true).open(&self.source).unwrap();
            source.write_all(b"more").unwrap();
        }
        watch.progress(size).map_err(|_| NotMoved::Stopped)?;
        Ok("by hand".to_owned())
    }
}

/// A source that may be read only if the flag is `true`. Otherwise the open file must be used
/// instead.
struct Bytes(File, bool);

impl Read for Bytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        assert!(self.1, "the bytes were read");
        self.0.read(into)
    }
}

struct Scratch {
    _folder: tempfile::TempDir,
    path: PathBuf,
    data: Vec<u8>,
}

fn scratch() -> Scratch {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source");
    let mut data = vec![0; LEN];
    fill(3, &mut data);
    fs::write(&path, &data).unwrap();
    Scratch { _folder: folder, path, data }
}

fn hand_over(
    (sends, receives): (&Options, &Options),
    (path, file): (&Path, File),
    (mood, bytes_go): (Mood, bool),
) -> (Handed, Handed, Folder, String) {
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = Sender::over(near, sends.clone()).expect("a mechanism");
            let item = Item {
                name: Some(OsString::from("a")),
                size: Some(LEN as u64),
                source: Bytes(File::open(path).unwrap(), bytes_go),
                file: Some(OwnedFd::from(file)),
            };
            let mut pace = Pace { buffer: 5000, total: Some(1), watch: &mut |_| {} };
            let handed = sender.send_all([item], &mut pace).expect("a handover");
            (handed, format!("{:?}", sender.skipped()))
        });
        let (data, published) = (Vec::new(), Vec::new());
        let mut folder = Folder { mood, source: path.to_owned(), data, published, abandoned: 0 };
        let mut receiver = Receiver::over(far, receives).expect("a mechanism");
        let received = receiver.recv_all(&mut folder, &mut |_, _| {}).expect("a handover");
        let (sent, skipped) = sending.join().unwrap();
        (sent, received, folder, skipped)
    })
}

#[test]
fn an_open_file_is_moved_by_the_receiver() {
    let scratch = scratch();
    let file = File::open(&scratch.path).unwrap();
    let own = Options::default();
    let (sent, received, folder, skipped) =
        hand_over((&own, &own), (&scratch.path, file), (Mood::Moves, false));
    assert_eq!(sent, received);
    assert_eq!((sent.files, sent.bytes), (1, LEN as u64));
    let moved = &sent.from_open;
    assert_eq!((moved.files, moved.bytes, moved.by.as_deref()), (1, LEN as u64, Some("by hand")));
    assert_eq!(folder.published, [scratch.data]);
    assert!(!skipped.contains("open file"), "{skipped}");
}

#[test]
fn where_it_cannot_be_the_bytes_go_and_the_reason_is_kept() {
    let scratch = scratch();
    let own = Options::default();
    let distrusts = Options { trust: false, ..Options::default() };
    let read_only = || File::open(&scratch.path).unwrap();
    let writable = || File::options().read(true).write(true).open(&scratch.path).unwrap();
    let cases = [
        (&own, &own, read_only(), Mood::Refuses, "not today"),
        (&own, &own, read_only(), Mood::WantsBytes, "does not accept open files"),
        (&own, &distrusts, read_only(), Mood::Moves, "does not trust"),
        (&distrusts, &own, read_only(), Mood::Moves, "does not trust"),
        (&own, &own, writable(), Mood::Moves, "not opened read-only"),
        (&own, &own, File::open("/dev/null").unwrap(), Mood::Moves, "not a regular file"),
    ];
    for (sends, receives, file, mood, why) in cases {
        let (sent, received, folder, skipped) =
            hand_over((sends, receives), (&scratch.path, file), (mood, true));
        assert_eq!(sent, received, "{why}");
        assert_eq!((sent.files, sent.from_open.files), (1, 0), "{why}");
        assert_eq!(folder.published, [&scratch.data[..]], "{why}");
        assert!(skipped.contains("open file") && skipped.contains(why), "{why}: {skipped}");
    }
}

#[test]
fn a_file_that_fails_or_changes_meanwhile_is_not_published() {
    for (mood, what) in [(Mood::Fails, "no space"), (Mood::Disturbed, "changed during")] {
        let scratch = scratch();
        let file = File::open(&scratch.path).unwrap();
        let own = Options::default();
        let (sent, received, folder, _) =
            hand_over((&own, &own), (&scratch.path, file), (mood, false));
        for handed in [&sent, &received] {
            let [(_, problem)] = &handed.problems[..] else { panic!("{handed:?}") };
            assert!(problem.to_string().contains(what), "{problem}");
            assert_eq!((handed.files, handed.from_open.files), (0, 0));
        }
        assert!(matches!(sent.problems[0].1, Problem::NotTaken { .. }));
        assert_eq!((folder.published.len(), folder.abandoned), (0, 1));
    }
}

/// Plays a sender of another implementation, which violates the protocol.
#[test]
fn an_open_file_that_is_none_or_was_not_asked_for_is_refused() {
    let mut head = b"THALWEGF\x01\0\0\0\x01\0\0\0".to_vec();
    head.extend([5_u64, 5, 0, 1].iter().flat_map(|word| word.to_le_bytes()));
    head.push(b'a');
    let mut tail = 5_u64.to_le_bytes().to_vec();
    tail.extend([0; 16]);
    tail.extend(2_u64.to_le_bytes());
    for mood in [Mood::Moves, Mood::WantsBytes] {
        let (near, far) = Link::pair().unwrap();
        std::thread::scope(|scope| {
            let (head, tail) = (&head, &tail);
            scope.spawn(move || {
                let spoken = near.as_fd().try_clone_to_owned().unwrap();
                let mut sender = Sender::over(near, Options::default()).expect("a mechanism");
                for words in [&head[..], b"", tail] {
                    sender.send_from(words).expect("it is only bytes so far");
                }
                // Send an invalid message instead of the file.
                let _ = rustix::net::send(&spoken, b"no", rustix::net::SendFlags::NOSIGNAL);
                // A receiver that did not accept the open file expects data. Send it an empty
                // buffer and the tail again.
                let again = [&b""[..], tail];
                let _ = again.iter().try_for_each(|words| sender.send_from(words));
            });
            let (data, published) = (Vec::new(), Vec::new());
            let source = PathBuf::new();
            let mut folder = Folder { mood, source, data, published, abandoned: 0 };
            let mut receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
            let error = receiver.recv_all(&mut folder, &mut |_, _| {}).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            assert_eq!((folder.published.len(), folder.abandoned), (0, 1));
        });
    }
}
