//! A file with faults in reading.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Mounted, attributes};
use crate::support::bytes;

/// The fault in reading.
#[derive(Clone, Copy, Debug)]
pub enum Illness {
    /// Reads fail with EIO from this offset on.
    BrokenAt(u64),
    /// Reads return fewer bytes than requested.
    ShortReads,
    /// Reads block from this offset on.
    SilentAt(u64),
    /// Every second readdir request fails with EINTR.
    InterruptedListing,
    /// Each reply takes this long. Several reads wait at the same time.
    Late(Duration),
}

const FILE: INodeNo = INodeNo(2);
/// The name of the file.
pub const NAME: &str = "source";
const FOR_LONG: Duration = Duration::from_secs(3600);

/// Reads without a reply.
type Unanswered = Arc<Mutex<Vec<ReplyData>>>;

struct Sick {
    illness: Illness,
    seed: u64,
    len: u64,
    unanswered: Unanswered,
    listings: AtomicU64,
    late: Arc<LateReads>,
}

/// The reads that wait for a late reply.
#[derive(Debug, Default)]
struct LateReads {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// The mounted file system.
pub struct SickSource {
    // The order of the fields matters: dropping `unanswered` first releases blocked readers, which would keep the file
    // system busy.
    unanswered: Answer,
    mounted: Mounted,
    late: Arc<LateReads>,
}

struct Answer(Unanswered);

impl Drop for Answer {
    fn drop(&mut self) {
        if let Ok(mut replies) = self.0.lock() {
            replies.drain(..).for_each(|reply| reply.error(Errno::EIO));
        }
    }
}

impl SickSource {
    /// Mounts a file of `len` bytes of `seed`. Records a skip without FUSE.
    pub fn mount(test: &str, illness: Illness, seed: u64, len: u64) -> Option<Self> {
        let unanswered = Unanswered::default();
        let listings = AtomicU64::new(0);
        let late = Arc::new(LateReads::default());
        let sick = Sick {
            illness,
            seed,
            len,
            unanswered: Arc::clone(&unanswered),
            listings,
            late: Arc::clone(&late),
        };
        let mounted = Mounted::new(test, sick, MountOption::RO)?;
        Some(Self { unanswered: Answer(unanswered), mounted, late })
    }

    pub fn folder(&self) -> &Path {
        self.mounted.folder()
    }

    pub fn source(&self) -> PathBuf {
        self.folder().join(NAME)
    }

    /// Returns the largest number of reads that waited for late replies at the same time.
    pub fn most_reads_at_once(&self) -> usize {
        self.late.most.load(Ordering::Relaxed)
    }

    /// Returns `true` if a reader is blocked.
    pub fn is_waited_for(&self) -> bool {
        !self.unanswered.0.lock().unwrap().is_empty()
    }
}

impl Sick {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        if ino == FILE {
            attributes(ino, Some(self.len), 0o644)
        } else {
            attributes(ino, None, 0o755)
        }
    }
}

impl Filesystem for Sick {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&FOR_LONG, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_LONG, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // With the page cache, the kernel would treat a short reply as the end of the file, not as a short read.
        let flags = match self.illness {
            Illness::ShortReads => FopenFlags::FOPEN_DIRECT_IO,
            Illness::BrokenAt(_)
            | Illness::SilentAt(_)
            | Illness::InterruptedListing
            | Illness::Late(_) => FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.len.saturating_sub(offset).min(u64::from(size));
        let count = match self.illness {
            Illness::BrokenAt(bad) if offset + left > bad => return reply.error(Errno::EIO),
            Illness::SilentAt(end) if offset + left > end => {
                return self.unanswered.lock().unwrap().push(reply);
            }
            // The number of bytes varies, and is sometimes 1.
            Illness::ShortReads => left.min(1 + offset.wrapping_mul(0x9e37_79b9) % 60_000),
            Illness::BrokenAt(_)
            | Illness::SilentAt(_)
            | Illness::InterruptedListing
            | Illness::Late(_) => left,
        };
        let mut data = vec![0; count as usize];
        bytes::fill(self.seed, offset, &mut data);
        let Illness::Late(delay) = self.illness else { return reply.data(&data) };
        let late = Arc::clone(&self.late);
        late.most.fetch_max(late.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        thread::spawn(move || {
            thread::sleep(delay);
            late.now.fetch_sub(1, Ordering::Relaxed);
            reply.data(&data);
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let is_even = self.listings.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if matches!(self.illness, Illness::InterruptedListing) && is_even {
            return reply.error(Errno::EINTR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (n, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
