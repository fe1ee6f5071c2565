//! A directory with faults in writing.

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use super::{Mounted, attributes};

/// The fault in writing.
#[derive(Clone, Copy, Debug)]
pub enum Illness {
    /// Writes fail with ENOSPC from this offset of each file on.
    FullAt(u64),
    /// A write accepts fewer bytes than given.
    ShortWrites,
    /// Writes succeed, and only the last `close` reports that the data is lost, as on a network file system.
    LostAtClose,
}

#[derive(Default)]
struct Files {
    names: BTreeMap<OsString, INodeNo>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

struct Sick {
    illness: Illness,
    files: Arc<Mutex<Files>>,
}

/// The mounted file system.
pub struct SickSink {
    mounted: Mounted,
    files: Arc<Mutex<Files>>,
}

impl SickSink {
    /// Mounts an empty directory. Records a skip without FUSE.
    pub fn mount(test: &str, illness: Illness) -> Option<Self> {
        let files = Arc::new(Mutex::new(Files::default()));
        let sick = Sick { illness, files: Arc::clone(&files) };
        let mounted = Mounted::new(test, sick, MountOption::RW)?;
        Some(Self { mounted, files })
    }

    pub fn folder(&self) -> &Path {
        self.mounted.folder()
    }

    /// Returns the stored bytes of the file with this name, without any cache.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let files = self.files.lock().unwrap();
        let ino = files.names.get(OsStr::new(name))?;
        files.bytes.get(&ino.0).cloned()
    }

    pub fn names(&self) -> Vec<OsString> {
        self.files.lock().unwrap().names.keys().cloned().collect()
    }
}

const NOT_AT_ALL: Duration = Duration::ZERO;

impl Sick {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
    }
}

impl Files {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        if ino == INodeNo::ROOT {
            return Some(attributes(ino, None, 0o755));
        }
        Some(attributes(ino, Some(self.bytes.get(&ino.0)?.len() as u64), 0o644))
    }
}

impl Filesystem for Sick {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = self.files();
        match files.names.get(name).and_then(|ino| files.attributes(*ino)) {
            Some(found) => reply.entry(&NOT_AT_ALL, &found, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.files().attributes(ino) {
            Some(found) => reply.attr(&NOT_AT_ALL, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = self.files();
        if let (Some(size), Some(bytes)) = (size, files.bytes.get_mut(&ino.0)) {
            bytes.resize(size as usize, 0);
        }
        match files.attributes(ino) {
            Some(found) => reply.attr(&NOT_AT_ALL, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut files = self.files();
        let ino = INodeNo(files.bytes.len() as u64 + 2);
        files.names.insert(name.to_owned(), ino);
        files.bytes.insert(ino.0, Vec::new());
        let made = attributes(ino, Some(0), 0o644);
        reply.created(
            &NOT_AT_ALL,
            &made,
            Generation(0),
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO,
        );
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let files = self.files();
        let bytes = files.bytes.get(&ino.0).map(Vec::as_slice).unwrap_or_default();
        let from = bytes.len().min(offset as usize);
        let to = bytes.len().min(from + size as usize);
        reply.data(&bytes[from..to]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let count = match self.illness {
            Illness::FullAt(end) if offset >= end => return reply.error(Errno::ENOSPC),
            Illness::FullAt(end) => data.len().min((end - offset) as usize),
            Illness::ShortWrites => data.len().min(1 + (offset as usize * 7919) % 50_000),
            Illness::LostAtClose => data.len(),
        };
        let mut files = self.files();
        let Some(bytes) = files.bytes.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        let (from, to) = (offset as usize, offset as usize + count);
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(&data[..count]);
        reply.written(count as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        match self.illness {
            Illness::LostAtClose => reply.error(Errno::EIO),
            Illness::FullAt(_) | Illness::ShortWrites => reply.ok(),
        }
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut files = self.files();
        match files.names.remove(name) {
            Some(ino) => {
                files.names.insert(new.to_owned(), ino);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.files().names.remove(name) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let files = self.files();
        for (n, (name, ino)) in files.names.iter().enumerate().skip(offset as usize) {
            if reply.add(*ino, n as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
