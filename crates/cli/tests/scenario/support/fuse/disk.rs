//! A file system with one file, the image of a disk. It logs writes and flushes in the order of their completion, and
//! fails the requests that a test selects.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::{
    ffi::OsStr,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{Mounted, attributes};

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "disk";
const FOR_LONG: Duration = Duration::from_secs(3600);
const MAX_WRITE: u32 = 1 << 20;
/// Size up to which a request of the block layer reaches the server as one request.
pub const REQUEST_KIB: u64 = 64;

/// A request that the disk has completed.
pub enum DiskEvent {
    Write { offset: u64, bytes: Vec<u8> },
    Flush,
}

/// The request that fails with EIO, counted from the moment the fault is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// The n-th write fails, later writes succeed.
    Write(u64),
    /// The n-th write and every later one fail.
    WritesFrom(u64),
    /// The n-th flush fails, later flushes succeed. All writes are kept.
    Flush(u64),
    /// The n-th flush fails, and the writes since the previous flush are lost.
    FlushLosing(u64),
}

/// Counts of requests since the fault was set.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestCounts {
    pub writes: u64,
    pub flushes: u64,
}

/// The served image.
pub struct FuseDisk {
    mounted: Mounted,
    state: Arc<Mutex<DiskState>>,
}

struct DiskState {
    image: File,
    log: Vec<DiskEvent>,
    fault: Option<DiskFault>,
    counts: RequestCounts,
    /// The bytes that the writes since the last flush have overwritten; used by `FlushLosing` only.
    before: Vec<(u64, Vec<u8>)>,
}

struct ServedDisk(Arc<Mutex<DiskState>>);

impl FuseDisk {
    /// Serves an image below `folder`, an existing directory. Records a skip without FUSE.
    pub fn serve(test: &str, image: &Path, folder: &Path) -> Option<Self> {
        let image = File::options().read(true).write(true).open(image).unwrap();
        let state = DiskState {
            image,
            log: Vec::new(),
            fault: None,
            counts: RequestCounts::default(),
            before: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let served = ServedDisk(Arc::clone(&state));
        let mounted = Mounted::at(test, folder.to_owned(), served, MountOption::RW)?;
        Some(Self { mounted, state })
    }

    /// Returns the path of the file for a loop device.
    pub fn file(&self) -> PathBuf {
        self.mounted.folder().join(NAME)
    }

    /// Returns the number of completed requests.
    pub fn position(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    pub fn take_log(&self) -> Vec<DiskEvent> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// Sets the fault of the following requests, or removes it.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        let mut state = self.state.lock().unwrap();
        (state.fault, state.counts) = (fault, RequestCounts::default());
    }

    /// Returns the requests since the fault was set, including failed ones.
    pub fn counts(&self) -> RequestCounts {
        self.state.lock().unwrap().counts
    }
}

impl DiskState {
    fn write(&mut self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.counts.writes += 1;
        let fails = match self.fault {
            Some(DiskFault::Write(n)) => self.counts.writes == n,
            Some(DiskFault::WritesFrom(n)) => self.counts.writes >= n,
            Some(DiskFault::Flush(_) | DiskFault::FlushLosing(_)) | None => false,
        };
        if fails {
            return Err(std::io::ErrorKind::Other.into());
        }
        if matches!(self.fault, Some(DiskFault::FlushLosing(_))) {
            let mut old = vec![0; data.len()];
            self.image.read_exact_at(&mut old, offset)?;
            self.before.push((offset, old));
        }
        self.image.write_all_at(data, offset)?;
        self.log.push(DiskEvent::Write { offset, bytes: data.to_vec() });
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.counts.flushes += 1;
        let before = std::mem::take(&mut self.before);
        match self.fault {
            Some(DiskFault::Flush(n)) if n == self.counts.flushes => {
                return Err(std::io::ErrorKind::Other.into());
            }
            Some(DiskFault::FlushLosing(n)) if n == self.counts.flushes => {
                for (offset, old) in before.iter().rev() {
                    self.image.write_all_at(old, *offset)?;
                }
                return Err(std::io::ErrorKind::Other.into());
            }
            _ => {}
        }
        self.log.push(DiskEvent::Flush);
        Ok(())
    }
}

impl ServedDisk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap()
    }

    fn attributes(&self, ino: INodeNo) -> FileAttr {
        if ino == FILE {
            let len = self.state().image.metadata().map_or(0, |found| found.len());
            attributes(ino, Some(len), 0o600)
        } else {
            attributes(ino, None, 0o755)
        }
    }
}

impl Filesystem for ServedDisk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        config.set_max_write(MAX_WRITE).map(drop).map_err(|_| std::io::ErrorKind::Other.into())
    }

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
        // Without the page cache, every request of the block layer becomes one request to this server, in the same
        // order.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
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
        let mut data = vec![0; size as usize];
        match self.state().image.read_at(&mut data, offset) {
            Ok(count) => reply.data(&data[..count]),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state().write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.state().flush() {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    /// Does nothing: closing a file does not flush a disk.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Refuses discard, because a real disk has no holes.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let _ = reply.add(FILE, 1, FileType::RegularFile, NAME);
        }
        reply.ok();
    }
}
