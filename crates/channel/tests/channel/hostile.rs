//! A peer that violates the protocol. Every violation must be an error, and never a crash or a read
//! outside the ring. The tests write the format by hand.

use proptest::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use std::time::Instant;
use thalweg_channel::layout::{Frame, Geometry, Hello, HelloKind, Refusal, Role};
use thalweg_channel::{Arrival, Consumer, Error, Link, Mpsc, Options, Producer, Wait};
use thalweg_sys::region::{Region, Sharing};
use thalweg_sys::{io, memfd};

const DATA: u64 = 8192;

fn geometry() -> Geometry {
    let header = rustix::param::page_size() as u32;
    let capacity = DATA.max(u64::from(header));
    Geometry { header, capacity, checksums: false, epoch: 7, process: 1 }
}

/// A memory file of a peer, with contents that an honest owner would never write.
struct LyingSide {
    fd: OwnedFd,
    region: Region,
}

impl LyingSide {
    fn new(role: Role, told: Geometry, bytes: u64) -> Self {
        let fd = memfd::create("liar", bytes).unwrap();
        let region = Region::of_file(&fd, bytes as usize, Sharing::Write).unwrap();
        poke(&region, 0, &told.to_bytes(role));
        Self { fd, region }
    }

    fn sealed(self) -> Self {
        memfd::seal_for_one_writer(&self.fd).unwrap();
        self
    }

    fn producer() -> Self {
        let geometry = geometry();
        Self::new(Role::Producer, geometry, geometry.capacity + u64::from(geometry.header)).sealed()
    }

    fn consumer(geometry: Geometry) -> Self {
        Self::new(Role::Consumer, geometry, u64::from(geometry.header)).sealed()
    }

    /// Writes a frame header at offset `at` of the data, and then the head.
    fn frame(&mut self, at: u64, header: &[u8], head: u64) {
        poke(&self.region, u64::from(geometry().header) + at, header);
        poke(&self.region, 128, &head.to_le_bytes());
    }
}

/// Writes to the memory through a mapping that is older than its seals.
fn poke(region: &Region, at: u64, bytes: &[u8]) {
    let at = at as usize;
    assert!(at + bytes.len() <= region.len());
    // SAFETY: inside the region, as checked above.
    let to = unsafe { region.as_ptr().add(at) };
    // SAFETY: as above, and the region is writable. Only the kernel and a consumer read the memory.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn say(link: &Link, kind: HelloKind, fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    link.send(&Hello::of_ring(kind, 7).to_bytes(), &fds).unwrap();
}

fn soon() -> Instant {
    Instant::now() + std::time::Duration::from_millis(200)
}

/// Deadline for an event that must happen. It allows for slow machines.
fn in_time() -> Instant {
    Instant::now() + std::time::Duration::from_secs(60)
}

/// Offers these descriptors to a consumer. Returns the consumer's error and its last message.
fn offered(fds: &[&OwnedFd]) -> (Error, Option<HelloKind>) {
    let (near, far) = Link::pair().unwrap();
    say(&far, HelloKind::Offer, fds);
    let error = Consumer::open_until(near, &Options::default(), Some(in_time())).unwrap_err();
    let mut told = None;
    let mut bytes = [0; 64];
    while let Ok((len, _)) = far.receive_until(&mut bytes, Some(in_time())) {
        told = Some(Hello::parse(&bytes[..len]).unwrap().kind);
    }
    (error, told)
}

/// Opens a consumer on the memory of `side`.
fn consumer_of(side: &LyingSide, trusted: bool) -> (Consumer, Link) {
    let (near, far) = Link::pair().unwrap();
    say(&far, HelloKind::Offer, &[&side.fd]);
    say(&far, HelloKind::Ready, &[]);
    (Consumer::open(near, &Options { trusted, ..Options::default() }).unwrap(), far)
}

#[test]
fn memory_that_is_not_what_was_agreed_is_refused() {
    let good = geometry();
    let whole = good.capacity + u64::from(good.header);
    let unsealed = LyingSide::new(Role::Producer, good, whole);
    let (error, told) = offered(&[&unsealed.fd]);
    assert!(matches!(&error, Error::NotPermitted { why } if why.contains("fixed size")), "{error}");
    assert_eq!(told, Some(HelloKind::Refuse(Refusal::Memory)));
    // The file has shrunk. The consumer must not map it, because reading it would raise SIGBUS.
    io::ftruncate(&unsealed.fd, 0).unwrap();
    assert!(matches!(offered(&[&unsealed.fd]).0, Error::NotPermitted { .. }));

    let half = LyingSide::new(Role::Producer, good, whole);
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&half.fd, seals).unwrap();
    assert!(matches!(offered(&[&half.fd]).0, Error::NotPermitted { .. }));

    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert!(matches!(offered(&[&reader]).0, Error::NotPermitted { .. }));
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    assert!(matches!(offered(&[&file]).0, Error::NotPermitted { .. }));
}

/// The pages of a hole are charged to the process that first touches them, which would be the reader.
#[test]
fn memory_with_unallocated_pages_is_refused() {
    let good = geometry();
    let whole = good.capacity + u64::from(good.header);
    let fd = memfd::create("liar", u64::from(good.header)).unwrap();
    io::ftruncate(&fd, whole).unwrap();
    assert_eq!(io::pwrite(&fd, &good.to_bytes(Role::Producer), 0), Ok(Geometry::LEN));
    memfd::seal_for_one_writer(&fd).unwrap();
    let (error, told) = offered(&[&fd]);
    assert!(matches!(&error, Error::NotPermitted { why } if why.contains("allocated")), "{error}");
    assert_eq!(told, Some(HelloKind::Refuse(Refusal::Memory)));
    assert!(!memfd::is_whole(&fd));
}

#[test]
fn sizes_that_lie_are_refused() {
    let good = geometry();
    let whole = good.capacity + u64::from(good.header);
    let lies = [
        (good, whole - 4096),
        (good, whole + 4096),
        (Geometry { capacity: good.capacity * 2, ..good }, whole),
        (Geometry { capacity: good.capacity / 2, ..good }, whole),
        (Geometry { capacity: 12288, ..good }, 12288 + u64::from(good.header)),
        (Geometry { capacity: 1 << 63, ..good }, whole),
        (Geometry { header: 0, ..good }, whole),
        (Geometry { header: good.header * 2, ..good }, whole),
        (Geometry { header: 1 << 17, ..good }, good.capacity + (1 << 17)),
        (Geometry { epoch: 8, ..good }, whole),
    ];
    for (told, bytes) in lies {
        let side = LyingSide::new(Role::Producer, told, bytes).sealed();
        let error = offered(&[&side.fd]).0;
        assert!(matches!(error, Error::Corrupt { .. }), "{told:?} in {bytes}: {error}");
    }
    let side = LyingSide::new(Role::Consumer, good, whole).sealed();
    assert!(matches!(offered(&[&side.fd]).0, Error::Corrupt { .. }));
    let side = LyingSide::producer();
    assert!(matches!(offered(&[]).0, Error::Corrupt { .. }));
    assert!(matches!(offered(&[&side.fd, &side.fd]).0, Error::Corrupt { .. }));
}

#[test]
fn a_head_that_cannot_be_is_corrupt_for_good() {
    for trusted in [true, false] {
        for head in [1, 63, DATA + 64, DATA * 2, u64::MAX, 1 << 63, u64::MAX - 63] {
            let mut side = LyingSide::producer();
            let (mut consumer, _far) = consumer_of(&side, trusted);
            assert!(consumer.try_receive().unwrap().is_none());
            side.frame(0, &Frame { len: 5, seq: 0, crc: None }.to_bytes(), head);
            for _ in 0..2 {
                let error = consumer.receive().unwrap_err();
                assert!(
                    matches!(&error, Error::Corrupt { what } if what.contains("head")),
                    "{error}"
                );
            }
            // The error is permanent, even if the head becomes valid again.
            side.frame(0, &[], 64);
            assert!(matches!(consumer.try_receive(), Err(Error::Corrupt { .. })));
        }
        // The head moves back to before a position that the consumer has already read.
        let mut side = LyingSide::producer();
        let (mut consumer, _far) = consumer_of(&side, trusted);
        side.frame(0, &Frame { len: 5, seq: 0, crc: None }.to_bytes(), 64);
        drop(consumer.receive().unwrap());
        side.frame(0, &[], 0);
        assert!(matches!(consumer.try_receive(), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn a_frame_that_lies_is_corrupt() {
    let good = Frame { len: 5, seq: 0, crc: None };
    let mut lies: Vec<Vec<u8>> = [
        Frame { len: 33, ..good },
        Frame { len: u32::MAX, ..good },
        Frame { len: 8192, ..good },
        Frame { seq: 1, ..good },
        Frame { crc: Some(12345), ..good },
    ]
    .iter()
    .map(|frame| frame.to_bytes().to_vec())
    .collect();
    lies.push(vec![0; 32]);
    lies.push(vec![0xff; 32]);
    for (trusted, lie) in [true, false].iter().flat_map(|t| lies.iter().map(move |lie| (t, lie))) {
        let mut side = LyingSide::producer();
        let (mut consumer, _far) = consumer_of(&side, *trusted);
        side.frame(0, lie, 64);
        assert!(matches!(consumer.receive(), Err(Error::Corrupt { .. })), "{lie:x?}");
        assert_eq!(consumer.received(), 0);
    }
}

#[test]
fn an_untrusted_message_does_not_change_while_it_is_read() {
    let mut side = LyingSide::producer();
    let (mut consumer, _far) = consumer_of(&side, false);
    let mut frame = Frame { len: 4, seq: 0, crc: None }.to_bytes().to_vec();
    frame.extend(b"good");
    side.frame(0, &frame, 64);
    let sample = consumer.receive().unwrap();
    assert_eq!(&*sample, b"good");
    poke(&side.region, u64::from(geometry().header) + 32, b"evil");
    assert_eq!(&*sample, b"good");
}

#[test]
fn a_tail_that_cannot_be_is_corrupt() {
    for tail in [1, 64 * 3, u64::MAX, 1 << 63] {
        let (near, far) = Link::pair().unwrap();
        let told = std::thread::spawn(move || {
            let mut bytes = [0; 64];
            let (_, fds) = far.receive(&mut bytes).unwrap();
            let mut theirs = [0; Geometry::LEN];
            io::pread(&fds[0], &mut theirs, 0).unwrap();
            let geometry = Geometry::parse(&theirs, Role::Producer).unwrap();
            let side = LyingSide::consumer(geometry);
            say(&far, HelloKind::Ask, &[]);
            let hello = Hello::of_ring(HelloKind::Accept, geometry.epoch);
            far.send(&hello.to_bytes(), &[side.fd.as_fd()]).unwrap();
            (side, far)
        });
        let options = Options { capacity: DATA, ..Options::default() };
        let mut producer = Producer::open(near, &options).unwrap();
        let (side, _far) = told.join().unwrap();
        producer.send(b"first").unwrap();
        producer.send(b"second").unwrap();
        poke(&side.region, 128, &tail.to_le_bytes());
        let error = producer.send(&vec![0; producer.largest()]).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { what } if what.contains("tail")), "{error}");
        assert_eq!(producer.send(b"small").unwrap_err(), error);
    }
}

#[test]
fn noise_in_the_handshake_is_refused() {
    let noise: [&[u8]; 4] = [b"x", &[0; 64], &[0xff; 64], b"GET / HTTP/1.1\r\n\r\n"];
    for bytes in noise {
        let (near, far) = Link::pair().unwrap();
        far.send(bytes, &[]).unwrap();
        let error = Consumer::open_until(near, &Options::default(), Some(in_time())).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    // Cases: messages in the wrong order, another version, and an unknown reason of refusal.
    let (near, far) = Link::pair().unwrap();
    say(&far, HelloKind::Ready, &[]);
    let error = Consumer::open(near, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    for (at, value, part) in [(8, 2, "version 2"), (12, 9, "kind 9")] {
        let (near, far) = Link::pair().unwrap();
        let mut bytes = Hello::of_ring(HelloKind::Offer, 7).to_bytes();
        bytes[at] = value;
        far.send(&bytes, &[]).unwrap();
        let error = Consumer::open(near, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let (near, far) = Link::pair().unwrap();
    let mut bytes = Hello::of_ring(HelloKind::Refuse(Refusal::Other), 7).to_bytes();
    bytes[24] = 99;
    far.send(&bytes, &[]).unwrap();
    let error = Consumer::open(near, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
}

#[test]
fn a_flood_of_wake_ups_only_keeps_the_sender_busy() {
    let side = LyingSide::producer();
    let (mut consumer, far) = consumer_of(&side, false);
    while far.send_until(b"!", &[], Some(Instant::now())).is_ok() {}
    assert_eq!(consumer.receive_until(Some(soon())).err(), Some(Error::Timeout));
}

#[test]
fn a_silent_peer_is_left_at_the_deadline() {
    let (near, _far) = Link::pair().unwrap();
    let error = Consumer::open_until(near, &Options::default(), Some(soon())).unwrap_err();
    assert_eq!(error, Error::Timeout);
    let (near, _far) = Link::pair().unwrap();
    let error = Producer::open_until(near, &Options::default(), Some(soon())).unwrap_err();
    assert_eq!(error, Error::Timeout);
}

#[test]
fn a_peer_without_an_alive_word_is_watched_through_the_link() {
    for wait in [Wait::Block, Wait::Spin] {
        let mut side = LyingSide::producer();
        let (near, far) = Link::pair().unwrap();
        say(&far, HelloKind::Offer, &[&side.fd]);
        say(&far, HelloKind::Ready, &[]);
        let mut consumer = Consumer::open(near, &Options { wait, ..Options::default() }).unwrap();
        assert_eq!(consumer.receive_until(Some(soon())).err(), Some(Error::Timeout));
        side.frame(0, &Frame { len: 5, seq: 0, crc: None }.to_bytes(), 64);
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(far);
        });
        assert_eq!(consumer.receive().unwrap().len(), 5);
        let died = Error::PeerDied { delivered: 1, partial: 0 };
        assert_eq!(consumer.receive().err(), Some(died));
        leaving.join().unwrap();
    }
}

/// Returns a producer that has offered its channel, and both ends of its link. Its liveness word claims that it lives, but
/// is on no robust list. The kernel therefore never marks the word, and the consumer must detect the death by other means.
fn liar() -> (LyingSide, Link, Link) {
    let side = LyingSide::producer();
    poke(&side.region, 512, &0x8000_1234_u32.to_le_bytes());
    let (near, far) = Link::pair().unwrap();
    say(&far, HelloKind::Offer, &[&side.fd]);
    say(&far, HelloKind::Ready, &[]);
    (side, near, far)
}

#[test]
fn a_peer_that_lies_about_its_life_is_found_out() {
    let died = Error::PeerDied { delivered: 0, partial: 0 };
    let soon_after = std::time::Duration::from_millis(5);
    for wait in [Wait::Block, Wait::Spin] {
        let options = Options { wait, ..Options::default() };
        let (_side, near, far) = liar();
        let mut consumer = Consumer::open(near, &options).unwrap();
        assert_eq!(consumer.receive_until(Some(soon())).err(), Some(Error::Timeout));
        let (_other, near, other_far) = liar();
        let mut all = Mpsc::new(&options);
        let number = all.add(near, None).unwrap();
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(soon_after);
            drop(far);
            std::thread::sleep(soon_after);
            drop(other_far);
        });
        assert_eq!(consumer.receive().err(), Some(died.clone()));
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        match all.receive_until(Some(deadline)) {
            Ok(Arrival::Left { from, error }) => assert_eq!((from, &error), (number, &died)),
            other => panic!("{other:?}"),
        }
        leaving.join().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Random frames, most of them valid, so that the invalid one comes late.
    #[test]
    fn no_frames_crash_a_consumer_or_show_it_more_than_the_ring(
        trusted: bool,
        frames in prop::collection::vec((0u32..5000, 0u64..40, any::<Option<u32>>()), 1..20),
        head in prop_oneof![(0u64..300).prop_map(|frames| frames * 64), any::<u64>()],
        noise in prop::collection::vec((0u64..DATA, any::<u64>()), 0..4),
    ) {
        let mut side = LyingSide::producer();
        let (mut consumer, _far) = consumer_of(&side, trusted);
        let mut at = 0;
        for (seq, (len, wrong, crc)) in (0..).zip(frames) {
            let seq = if wrong == 0 { seq + 1 } else { seq };
            let crc = crc.filter(|_| wrong == 1);
            side.frame(at % (DATA - 64), &Frame { len, seq, crc }.to_bytes(), 0);
            at += thalweg_channel::layout::occupied(u64::from(len));
        }
        for (at, word) in noise {
            side.frame(at & !7, &word.to_le_bytes(), 0);
        }
        side.frame(0, &[], head);
        let mut shown = 0;
        while let Ok(Some(sample)) = consumer.try_receive() {
            prop_assert!(sample.len() <= DATA as usize - 32);
            // Read the whole message. A mapping that is too short would raise a signal.
            prop_assert!(sample.iter().map(|byte| u64::from(*byte)).sum::<u64>() < u64::MAX);
            shown += 1;
        }
        prop_assert!(shown <= DATA / 64);
    }
}
