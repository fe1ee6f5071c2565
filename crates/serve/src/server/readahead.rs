//! File ranges that are not in the page cache: helper threads read them, so that no worker waits for a disk.

use std::{
    net::IpAddr,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::fs::{Advice, fadvise, fstatfs};
use thalweg_sys::{Errno, buffer::Buffer, copy, io};

use super::{
    helper_pool::HelperPool,
    mailbox::Mailbox,
    opened::ServedFile,
    send_buffer::SendBuffer,
    short::Short,
    tasks::{HelperLane, HelperResources, HelperTask, Waiter},
};
use crate::http::range::ByteRange;

/// Number of bytes that a helper reads per call.
const PIECE: usize = 128 << 10;
/// Distance between the bytes of a long range that are probed. The kernel's default read-ahead has this size.
const STRIDE: u64 = 128 << 10;

/// Behaviour of the device on which a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// `RWF_NOWAIT` reports whether a read would block.
    Reports,
    /// The worker reads without a check: reads never block, or `RWF_NOWAIT` cannot work (overlayfs reads a file of
    /// another layer).
    Direct,
    /// Reads may block and the file system does not report it (FUSE, network file systems).
    Silent,
}

// Magic numbers from statfs(2): file systems without `RWF_NOWAIT` from which a worker reads directly.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;
const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;
const DIRECT: &[u64] = &[TMPFS, RAMFS, OVERLAY, PROC, SYSFS];

/// The devices that a worker has used. There are few, so a list is enough.
#[derive(Debug, Default)]
pub struct Disks(Vec<(u64, Disk)>);

/// Result of a read that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// Number of bytes read; 0 at the end of the file.
    Bytes(usize),
    /// The next byte is not in the page cache, or the file system cannot report it.
    Uncached,
}

impl Disks {
    /// Reads from the page cache without blocking.
    pub fn read(&mut self, file: &ServedFile, into: &mut [u8], at: u64) -> Result<Got, Errno> {
        match self.of(file) {
            Disk::Silent => return Ok(Got::Uncached),
            Disk::Direct => return io::pread(file, into, at).map(Got::Bytes),
            Disk::Reports => {}
        }
        match io::pread_cached(file, into, at) {
            Ok(count) => Ok(Got::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Got::Uncached),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.learn(file);
                self.read(file, into, at)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Reads a range into a buffer and checks that the file is still the version that was opened. Returns `false` if
    /// the read would block and `may_wait` is `false`.
    pub fn read_range(
        &mut self,
        file: &ServedFile,
        stretch: ByteRange,
        into: &mut SendBuffer,
        may_wait: bool,
    ) -> Result<bool, Short> {
        let len = stretch.len() as usize;
        let room = into.room(len);
        let mut done = 0;
        while done < len {
            let (rest, at) = (&mut room[done..], stretch.from + done as u64);
            let got = if may_wait {
                io::pread(file, rest, at).map(Got::Bytes)
            } else {
                self.read(file, rest, at)
            };
            match got {
                Ok(Got::Bytes(0)) => return Err(Short::Changed),
                Ok(Got::Bytes(count)) => done += count,
                Ok(Got::Uncached) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Short::File(errno)),
            }
        }
        into.fill(len);
        if file.is_unchanged() { Ok(true) } else { Err(Short::Changed) }
    }

    /// Returns `true` if a part of a range is not in the page cache. Probes one byte per [`STRIDE`].
    pub fn needs_readahead(&mut self, file: &ServedFile, stretch: ByteRange) -> bool {
        let last = stretch.to.saturating_sub(1);
        let mut places = (stretch.from..last).step_by(STRIDE as usize).chain([last]);
        let needs_readahead = |disks: &mut Self, at| {
            // Read errors are ignored here: the transfer mechanism reports them.
            matches!(disks.read(file, &mut [0], at), Ok(Got::Uncached))
        };
        match self.of(file) {
            Disk::Direct => false,
            _ => places.any(|at| needs_readahead(self, at)),
        }
    }

    fn of(&self, file: &ServedFile) -> Disk {
        let device = file.version.device();
        let known = self.0.iter().find(|(known, _)| *known == device);
        known.map_or(Disk::Reports, |(_, disk)| *disk)
    }

    fn learn(&mut self, file: &ServedFile) {
        let kind = fstatfs(file).map(|stat| stat.f_type as u64);
        let is_direct = kind.is_ok_and(|kind| DIRECT.contains(&kind));
        let disk = if is_direct { Disk::Direct } else { Disk::Silent };
        self.0.push((file.version.device(), disk));
    }
}

/// A worker's knowledge of disks, and its access to the helpers that wait for them.
pub struct Readahead {
    pub disks: Disks,
    pub helpers: Arc<HelperPool>,
    pub mailbox: Arc<Mailbox>,
    /// The connection that is being served, and the address of its client.
    pub token: u64,
    pub client: Option<IpAddr>,
    /// Number of ranges that helpers were asked to read since the last tick.
    pub count: u64,
}

impl Readahead {
    /// Returns the connection that is being served as the waiter of a task.
    pub fn waiter(&self) -> Waiter {
        Waiter { token: self.token, mailbox: Arc::clone(&self.mailbox), client: self.client }
    }
}

/// Asks a helper to read a range into the page cache. The returned flag is set when the read is done. If no thread can
/// be started, the flag is set immediately, and the worker waits for the disk itself.
pub fn ask_for(
    file: Arc<ServedFile>,
    stretch: ByteRange,
    helpers: &HelperPool,
    waiter: Waiter,
) -> Arc<AtomicBool> {
    let lane = HelperLane::Device(file.version.device());
    let work = Box::new(move |hand: &mut HelperResources<'_>| read_in(&file, stretch, hand.buffer));
    helpers.give(HelperTask { lane, work, waiter }).unwrap_or_else(|| Arc::new(true.into()))
}

/// Reads a range, so that it is in the page cache. Errors are ignored: the worker meets them when it reads.
fn read_in(file: &ServedFile, stretch: ByteRange, buffer: &mut Buffer) {
    // Read-ahead: the disk reads the following range while this one is sent.
    if let Some(len) = NonZeroU64::new(stretch.len()) {
        let _ = fadvise(file, stretch.to, Some(len), Advice::WillNeed);
    }
    let null = io::open_null();
    let mut at = stretch.from;
    while at < stretch.to {
        let most = PIECE.min((stretch.to - at) as usize);
        match read_piece(file, null.as_ref(), at, most, buffer) {
            Ok(0) => return,
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Reads at most `most` bytes. A transfer to `/dev/null` waits for the pages, but does not copy them.
fn read_piece(
    file: &ServedFile,
    null: Option<&OwnedFd>,
    at: u64,
    most: usize,
    buffer: &mut Buffer,
) -> Result<usize, Errno> {
    match null.map(|null| copy::sendfile(null, file, Some(at), most)) {
        Some(Ok(count)) => Ok(count),
        Some(Err(Errno::INTR)) => Err(Errno::INTR),
        // Not every file system supports sendfile(2).
        _ => {
            buffer.resize(buffer.capacity().max(PIECE));
            io::pread(file, &mut buffer[..most], at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        mailbox::Mailbox,
        open::{ServedEntry, ServedRoot},
    };
    use rustix::event::{EventfdFlags, eventfd};
    use std::{path::Path, sync::atomic::Ordering};
    use thalweg_tree::install::FollowLinks;

    #[test]
    fn what_was_read_in_is_in_memory() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), vec![1; 300_000]).unwrap();
        // Drops the pages, unless the file system is tmpfs.
        let written = std::fs::File::open(place.path().join("file")).unwrap();
        written.sync_all().unwrap();
        fadvise(&written, 0, None, Advice::DontNeed).unwrap();
        let root = ServedRoot::open(place.path(), FollowLinks::Never).unwrap();
        let Ok(ServedEntry::File(file)) = root.find(Path::new("file"), None) else { panic!() };
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let (helpers, mailbox) = (HelperPool::default(), Arc::new(Mailbox::new(Arc::clone(&wake))));
        let stretch = ByteRange { from: 5, to: 300_000 };
        let waiter = Waiter { token: 7, mailbox: Arc::clone(&mailbox), client: None };
        let done = ask_for(Arc::clone(&file), stretch, &helpers, waiter);
        io::read(&*wake, &mut [0; 8]).unwrap();
        assert!(mailbox.take() == [7] && done.load(Ordering::Acquire));
        let mut disks = Disks::default();
        assert!(!disks.needs_readahead(&file, ByteRange { from: 0, to: 300_000 }));
    }
}
