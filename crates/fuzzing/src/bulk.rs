//! Bulk transfers: a hostile peer must not crash the process at the other end, block it, exhaust its memory, or make it
//! leak descriptors. The input controls every packet, including the heads and tails of files, and the notes in the
//! peer's shared page. A packet can name any mechanism, with any knobs and descriptors.

use std::fs::File;
use std::io::Cursor;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_channel::bulk::{Announced, Item, MECHANISMS, Options, Pace, Receiver, Sender, Sink};
use thalweg_channel::{Link, Wait};
use thalweg_sys::region::{SealFlags, seal};
use thalweg_sys::{io, memfd, net, pipe};
use thalweg_testing::open_files;

const PAGE: usize = 4096;
const HELLO: u16 = 1;
const KINDS: u8 = 12;
/// If the first byte of a message in the input is at least this value, raw bytes follow.
const RAW: u8 = 240;

// Bits of the first byte.
const INTRODUCES_ITSELF: u8 = 1;
const HAS_PAGE: u8 = 2;
const TO_SENDER: u8 = 4;
const FILES: u8 = 8;
const STAYS: u8 = 16;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let before = open_files();
    let mut input = Input(bytes);
    let Some(mode) = input.byte() else { return };
    let (near, far) = Link::pair().expect("a link");
    if mode & INTRODUCES_ITSELF != 0 {
        let page = (mode & HAS_PAGE != 0).then(|| page(&mut input)).into_iter();
        say(&far, &packet(HELLO, &[1, 2, 1, 0, 0, 0], &[], ""), &page.collect::<Vec<_>>());
    }
    while let Some((words, fds)) = message(&mut input) {
        say(&far, &words, &fds);
    }
    // With `STAYS`, the peer keeps its end open but sends nothing more, so the other end waits.
    let far = (mode & STAYS != 0).then_some(far);
    let end = Instant::now() + Duration::from_millis(3);
    if mode & TO_SENDER != 0 {
        send(near, mode, Some(end));
    } else {
        receive(near, mode, Some(end));
    }
    drop(far);
    // A helper thread of this input may close a descriptor later.
    let settled = Instant::now() + Duration::from_secs(5);
    let mut after = open_files();
    while after.len() > before.len() && Instant::now() < settled {
        std::thread::sleep(Duration::from_millis(1));
        after = open_files();
    }
    assert!(
        after.len() <= before.len(),
        "descriptors were left open: {after:#?} after {before:#?}"
    );
}

/// Disables trust: the peer is this same process, so the receiver would accept claims about its own memory.
fn options() -> Options {
    Options { trust: false, wait: Wait::Spin, ..Options::default() }
}

fn receive(link: Link, mode: u8, end: Option<Instant>) {
    let Ok(mut receiver) = Receiver::over_until(link, &options(), end) else { return };
    // The functions for files take no deadline, so they are tested only with peers that leave.
    if mode & (FILES | STAYS) == FILES {
        let _ = receiver.recv_all(&mut Nowhere, &mut |_, _| {});
        return;
    }
    let mut few = [0; 2 * PAGE];
    for turn in 0..8 {
        let Ok(Some(len)) = receiver.next_len_until(end) else { return };
        // The caller decides how much memory to allocate for an announced length.
        let got = if turn % 2 == 0 || len > 1 << 20 {
            receiver.recv_into_until(&mut few, end).map(|len| few[..len].to_vec())
        } else {
            receiver.recv_new_until(end).map(|buffer| buffer.to_vec())
        };
        if got.is_err() {
            return;
        }
    }
}

fn send(link: Link, mode: u8, end: Option<Instant>) {
    let only = MECHANISMS.get(usize::from(mode >> 5)).filter(|_| mode & FILES == 0);
    let only = only.map(|m| m.info().name.to_owned());
    let Ok(mut sender) = Sender::over_until(link, Options { only, ..options() }, end) else {
        return;
    };
    if mode & (FILES | STAYS) == FILES {
        let source = Cursor::new([7_u8; 5000]);
        // A peer that announces support for open files receives one.
        let file = File::open("/proc/self/exe").ok().map(Into::into);
        let item = Item { name: Some("name".into()), size: Some(5000), source, file };
        let mut pace = Pace { buffer: PAGE, total: Some(1), watch: &mut |_| {} };
        let _ = sender.send_all([item], &mut pace);
        return;
    }
    let Ok(mut loan) = sender.alloc(5000) else { return };
    loan.fill(7);
    if sender.send_loan_until(loan, end).is_ok() {
        let _ = sender.send_from_until(&[7; 5000], end);
    }
}

/// Discards all files.
struct Nowhere;

impl Sink for Nowhere {
    fn begin(&mut self, _: &Announced) -> Result<(), String> {
        Ok(())
    }

    fn write(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    /// Reads a small number, a power of two, or an arbitrary number.
    fn word(&mut self) -> Option<u64> {
        match self.byte()? {
            small @ 0..200 => Some(small.into()),
            power @ 200..232 => Some(1 << (2 * (power - 200))),
            _ => self.bytes(8)?.try_into().ok().map(u64::from_le_bytes),
        }
    }

    fn words(&mut self) -> Option<Vec<u64>> {
        let count = self.byte()? % 8;
        (0..count).map(|_| self.word()).collect()
    }
}

/// Builds a message of the protocol with values from the input, or raw bytes.
fn message(input: &mut Input) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let kind = input.byte()?;
    if kind >= RAW {
        let len = input.byte()?;
        return Some((input.bytes(len.into())?.to_vec(), Vec::new()));
    }
    let words = input.words()?;
    let mechanism = MECHANISMS.get(usize::from(input.byte()?)).map(|m| m.info());
    let known = mechanism.map_or(&[][..], |m| m.knobs);
    let mut knobs = Vec::new();
    for _ in 0..input.byte()? % 4 {
        let knob = known.get(usize::from(input.byte()?)).map_or("knob", |knob| knob.name);
        knobs.push((knob, input.word()?));
    }
    let which = input.byte()?;
    let fds = descriptors(which, &contents(input)?);
    let name = mechanism.map_or("nonsense", |m| m.name);
    Some((packet((kind % KINDS).into(), &words, &knobs, name), fds))
}

fn packet(kind: u16, words: &[u64], knobs: &[(&str, u64)], text: &str) -> Vec<u8> {
    let mut bytes = b"TWBK\x02\x00".to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend((words.len() as u16).to_le_bytes());
    bytes.extend((knobs.len() as u16).to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    for (name, value) in knobs {
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(text.as_bytes());
    bytes
}

/// Contents of the descriptors: one repeated byte, or some input bytes at the start.
fn contents(input: &mut Input) -> Option<Vec<u8>> {
    let mut full = vec![0; 3 * PAGE];
    match input.byte()? {
        fill @ 0..128 => full.fill(fill),
        count => {
            let some = input.bytes(usize::from(count) - 128)?;
            full[..some.len()].copy_from_slice(some);
        }
    }
    Some(full)
}

/// Returns the descriptors that the peer sends along with a message: none, or one of nine valid and invalid kinds.
fn descriptors(which: u8, full: &[u8]) -> Vec<OwnedFd> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    let memory = |seals| {
        let fd = memfd::create("fuzz", full.len() as u64).expect("a memory file");
        assert_eq!(io::pwrite(&fd, full, 0), Ok(full.len()));
        seal(&fd, seals).expect("seals");
        fd
    };
    let socket = |packets| {
        let (near, far) = net::unix_pair(packets).expect("a socket");
        assert_eq!(net::send(&near, &full[..128]), Ok(128));
        far
    };
    match which % 10 {
        1 => vec![memory(size)],
        2 => vec![memory(size | SealFlags::WRITE | SealFlags::SEAL)],
        3 => vec![memory(SealFlags::empty())],
        4 => {
            let fd = memfd::create("fuzz", 1).expect("a memory file");
            io::ftruncate(&fd, 1 << 40).expect("a length");
            seal(&fd, size | SealFlags::WRITE).expect("seals");
            vec![fd]
        }
        5 => {
            let pipe = pipe::Pipe::new(0).expect("a pipe");
            assert_eq!(io::write(&pipe.writer, full), Ok(full.len()));
            vec![pipe.reader]
        }
        6 => vec![socket(false)],
        7 => vec![socket(true)],
        8 => vec![memory(size | SealFlags::FUTURE_WRITE), memory(size)],
        9 => vec![File::open("/dev/zero").expect("a device").into()],
        _ => Vec::new(),
    }
}

/// Returns the sender's page with notes: their number at offset 128, the notes from offset 256 on, 64 bytes apart.
fn page(input: &mut Input) -> OwnedFd {
    let mut page = vec![0; PAGE];
    let count = input.byte().unwrap_or(0) % 10;
    page[128] = count;
    for note in 0..usize::from(count).min(8) {
        for (n, word) in input.words().unwrap_or_default().iter().enumerate().take(6) {
            page[256 + note * 64 + n * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }
    let fd = memfd::create("fuzz", PAGE as u64).expect("a memory file");
    assert_eq!(io::pwrite(&fd, &page, 0), Ok(PAGE));
    seal(&fd, SealFlags::SHRINK | SealFlags::GROW).expect("seals");
    fd
}

/// Sends a packet. A full queue is ignored, as it only ends the conversation.
fn say(link: &Link, words: &[u8], fds: &[OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let _ = link.send_until(words, &fds, Some(Instant::now()));
}
