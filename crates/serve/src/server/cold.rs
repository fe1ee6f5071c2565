//! Stretches of files that are not in memory: helpers read them in, so that no worker waits for a disk.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::fs::{Advice, fadvise, fstatfs};
use thalweg_sys::{Errno, buffer::Buffer, io};

use super::{
    crew::Crew,
    mailbox::Mailbox,
    opened::Opened,
    tasks::{Hand, Lane, Task, Waiter},
};
use crate::http::range::Stretch;

/// What a helper reads at a time.
const PIECE: usize = 128 << 10;
/// How far apart the bytes are by which a long stretch is judged: the kernel reads ahead by as much.
const STRIDE: u64 = 128 << 10;

/// What is known of a device that files lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// It says whether a read would wait.
    Tells,
    /// There is nothing to wait for, or nothing that could be asked: overlayfs reads another file below.
    Direct,
    /// It may take its time and does not say so: FUSE, and what lies on another machine.
    Silent,
}

// statfs(2): file systems without RWF_NOWAIT that a worker reads itself.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;
const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;
const DIRECT: &[u64] = &[TMPFS, RAMFS, OVERLAY, PROC, SYSFS];

/// The devices one worker has met: few, so a list.
#[derive(Debug, Default)]
pub struct Disks(Vec<(u64, Disk)>);

/// What came of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes; none at the end of the file.
    Bytes(usize),
    /// The next one is not in memory, or nobody can tell.
    Cold,
}

impl Disks {
    /// Reads what is in memory.
    pub fn read(&mut self, file: &Opened, into: &mut [u8], at: u64) -> Result<Got, Errno> {
        match self.of(file) {
            Disk::Silent => return Ok(Got::Cold),
            Disk::Direct => return io::pread(file, into, at).map(Got::Bytes),
            Disk::Tells => {}
        }
        match io::pread_cached(file, into, at) {
            Ok(count) => Ok(Got::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Got::Cold),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.learn(file);
                self.read(file, into, at)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether some of a stretch is not in memory, judged by a byte here and there.
    pub fn is_cold(&mut self, file: &Opened, stretch: Stretch) -> bool {
        let last = stretch.to.saturating_sub(1);
        let mut places = (stretch.from..last).step_by(STRIDE as usize).chain([last]);
        let is_cold = |disks: &mut Self, at| {
            // What cannot be read is for the mechanism to say.
            matches!(disks.read(file, &mut [0], at), Ok(Got::Cold))
        };
        match self.of(file) {
            Disk::Direct => false,
            _ => places.any(|at| is_cold(self, at)),
        }
    }

    fn of(&self, file: &Opened) -> Disk {
        let device = file.version.device();
        let known = self.0.iter().find(|(known, _)| *known == device);
        known.map_or(Disk::Tells, |(_, disk)| *disk)
    }

    fn learn(&mut self, file: &Opened) {
        let kind = fstatfs(file).map(|stat| stat.f_type as u64);
        let is_direct = kind.is_ok_and(|kind| DIRECT.contains(&kind));
        let disk = if is_direct { Disk::Direct } else { Disk::Silent };
        self.0.push((file.version.device(), disk));
    }
}

/// What a worker knows of disks, and the helpers that wait for them.
pub struct Colds {
    pub disks: Disks,
    pub crew: Arc<Crew>,
    pub mailbox: Arc<Mailbox>,
    /// The connection that is at work, and the address of its client.
    pub token: u64,
    pub client: Option<IpAddr>,
    /// Stretches that were read in by helpers.
    pub count: u64,
}

impl Colds {
    /// The connection that is at work, as the one that waits for a task.
    pub fn waiter(&self) -> Waiter {
        Waiter { token: self.token, mailbox: Arc::clone(&self.mailbox), client: self.client }
    }
}

/// Has a stretch read in by somebody else; the flag is set when that is done. Where no thread can be had it is set
/// at once: the worker then waits itself.
pub fn ask_for(
    (file, stretch): (Arc<Opened>, Stretch),
    crew: &Crew,
    waiter: Waiter,
) -> Arc<AtomicBool> {
    let lane = Lane::Device(file.version.device());
    let work = Box::new(move |hand: &mut Hand<'_>| read_in(&file, stretch, hand.buffer));
    crew.give(Task { lane, work, waiter }).unwrap_or_else(|| Arc::new(true.into()))
}

/// Reads, so that it is in memory. What goes wrong the worker finds out by itself.
fn read_in(file: &Opened, stretch: Stretch, buffer: &mut Buffer) {
    buffer.resize(buffer.capacity().max(PIECE));
    // The disk goes on with what follows while this is sent.
    if let Some(len) = std::num::NonZeroU64::new(stretch.len()) {
        let _ = fadvise(file, stretch.to, Some(len), Advice::WillNeed);
    }
    let mut at = stretch.from;
    while at < stretch.to {
        let most = PIECE.min((stretch.to - at) as usize);
        match io::pread(file, &mut buffer[..most], at) {
            Ok(0) => return,
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        mailbox::Mailbox,
        open::{Follow, Found, Root},
    };
    use rustix::event::{EventfdFlags, eventfd};
    use std::{path::Path, sync::atomic::Ordering};

    #[test]
    fn what_was_read_in_is_in_memory() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), vec![1; 300_000]).unwrap();
        let root = Root::open(place.path(), Follow::None).unwrap();
        let Ok(Found::File(file)) = root.find(Path::new("file"), None) else { panic!() };
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let (crew, mailbox) = (Crew::default(), Arc::new(Mailbox::new(Arc::clone(&wake))));
        let stretch = Stretch { from: 5, to: 300_000 };
        let waiter = Waiter { token: 7, mailbox: Arc::clone(&mailbox), client: None };
        let done = ask_for((Arc::clone(&file), stretch), &crew, waiter);
        io::read(&*wake, &mut [0; 8]).unwrap();
        assert!(mailbox.take() == [7] && done.load(Ordering::Acquire));
        let mut disks = Disks::default();
        assert!(!disks.is_cold(&file, Stretch { from: 0, to: 300_000 }));
    }
}
