//! Rings: no offer, page, head or frame of a hostile producer may crash its consumer, or expose bytes from outside
//! the ring.

use std::os::fd::AsFd;
use std::time::Instant;
use thalweg_channel::layout::{Frame, Geometry, Hello, HelloKind, Role};
use thalweg_channel::{Consumer, Link, Options};
use thalweg_sys::{io, memfd};

const PAGE: usize = 4096;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let _ = Hello::parse(bytes);
    let _ = Geometry::parse(bytes, Role::Producer);
    if let Some((header, rest)) = bytes.split_first_chunk() {
        let _ = Frame::parse(header, rest.len() as u64, 0);
    }
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let mut memory = vec![0; 2 * PAGE];
    let fixed = Geometry { header: 4096, capacity: 4096, checksums: false, epoch: 7, process: 1 };
    // A bit of the first byte selects which words the input overwrites: the start of the fixed fields, or the
    // head. The input also fills the frames.
    let from = if mode & 1 == 0 { 0 } else { 128 };
    memory[..Geometry::LEN].copy_from_slice(&fixed.to_bytes(Role::Producer));
    let words = bytes.len().min(16);
    memory[from..from + words].copy_from_slice(&bytes[..words]);
    let data = &bytes[words..bytes.len().min(PAGE + words)];
    memory[PAGE..PAGE + data.len()].copy_from_slice(data);

    let fd = memfd::create("fuzz", memory.len() as u64).expect("a memory file");
    assert_eq!(io::pwrite(&fd, &memory, 0), Ok(memory.len()));
    if mode & 2 == 0 {
        memfd::seal_for_one_writer(&fd).expect("seals");
    }
    let (near, far) = Link::pair().expect("a link");
    let offer = Hello::of_ring(HelloKind::Offer, 7).to_bytes();
    far.send(&offer, &[fd.as_fd()]).expect("room for the offer");
    let ready = Hello::of_ring(HelloKind::Ready, 7).to_bytes();
    far.send(&ready, &[]).expect("room for the last word");
    let options = Options { trusted: mode & 4 == 0, ..Options::default() };
    let Ok(mut consumer) = Consumer::open_until(near, &options, Some(Instant::now())) else {
        return;
    };
    assert!(mode & 2 == 0, "memory without seals was taken");
    // The ring has room for at most 64 frames.
    for _ in 0..=64 {
        match consumer.try_receive() {
            Ok(Some(sample)) => assert!(sample.len() <= PAGE - 32),
            _ => return,
        }
    }
    panic!("more messages than the ring has room for");
}
