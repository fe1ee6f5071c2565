//! Simulates a directory that machines share over a network; each machine has its own mount. A mount caches names and
//! attributes for a second. It supports no O_TMPFILE, no RENAME_NOREPLACE and no locks.

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod,
    chownat, fstat, fstatvfs, linkat, mkdirat, mknodat, openat, readlinkat, renameat, symlinkat,
    unlinkat, utimensat,
};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::DirEntryExt,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_sys::io;

use super::Mounted;

/// Time for which the kernel caches names and attributes.
const BELIEVED: Duration = Duration::from_secs(1);

/// The mount of one machine.
pub struct SharedMount(Mounted);

impl SharedMount {
    /// Mounts the directory for one machine. Records a skip without FUSE.
    pub fn of(test: &str, folder: &Path) -> Option<Self> {
        Self::with(test, folder, false)
    }

    /// Mounts the directory, and ignores the case of names. Records a skip without FUSE.
    pub fn folding(test: &str, folder: &Path) -> Option<Self> {
        Self::with(test, folder, true)
    }

    fn with(test: &str, folder: &Path, folds: bool) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, folder, flags, Mode::empty()).unwrap();
        let nodes = HashMap::from([(INodeNo::ROOT.0, (Arc::new(root), 1))]);
        let state = Mutex::new(State { nodes, ..State::default() });
        let shared = Shared { state, folds };
        Mounted::new(test, shared, MountOption::RW).map(Self)
    }

    pub fn folder(&self) -> &Path {
        self.0.folder()
    }
}

use state::*;

mod state;

impl Filesystem for Shared {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Only with these flags, the kernel sends lock requests to this server, which refuses them.
        let locks = InitFlags::FUSE_FLOCK_LOCKS | InitFlags::FUSE_POSIX_LOCKS;
        config.add_capabilities(locks).map_err(|_| std::io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            // Inode number 0 means that the name does not exist, and that the kernel may cache this.
            Err(rustix::io::Errno::NOENT) => match self.node(INodeNo::ROOT) {
                Ok(any) => match attributes(&any, Some(INodeNo(0))) {
                    Ok(nothing) => reply.entry(&BELIEVED, &nothing, Generation(0)),
                    Err(errno) => reply.error(error(errno)),
                },
                Err(errno) => reply.error(error(errno)),
            },
            Ok(found) => reply.entry(&BELIEVED, &found, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        let mut state = self.state();
        if let Some((_, known)) = state.nodes.get_mut(&ino.0) {
            *known = known.saturating_sub(times);
            if *known == 0 {
                state.nodes.remove(&ino.0);
            }
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino).and_then(|node| attributes(&node, Some(ino))) {
            Ok(found) => reply.attr(&BELIEVED, &found),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let settings = Settings { mode, owner: (uid, gid), size, times: [atime, mtime] };
        match self.set(ino, &settings) {
            Ok(found) => reply.attr(&BELIEVED, &found),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino).and_then(|node| readlinkat(&*node, "", Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let stored = self.stored(parent, name);
        let made = self.node(parent).and_then(|dir| mknodat(&*dir, &stored, kind, mode, 0));
        self.entry((parent, name), made, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let stored = self.stored(parent, name);
        let made = self.node(parent).and_then(|dir| mkdirat(&*dir, &stored, mode));
        self.entry((parent, name), made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = self.stored(parent, name);
        empty(self.node(parent).and_then(|dir| unlinkat(&*dir, &name, AtFlags::empty())), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = self.stored(parent, name);
        empty(self.node(parent).and_then(|dir| unlinkat(&*dir, &name, AtFlags::REMOVEDIR)), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let stored = self.stored(parent, name);
        let made = self.node(parent).and_then(|dir| symlinkat(target, &*dir, &stored));
        self.entry((parent, name), made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let dirs = self.node(parent).and_then(|from| Ok((from, self.node(newparent)?)));
        let name = self.stored(parent, name);
        // Uses the stored spelling of the new name, unless the rename only changes the case of this entry's name.
        let stored = Some(self.stored(newparent, newname)).filter(|stored| *stored != name);
        let newname = stored.unwrap_or_else(|| newname.to_owned());
        empty(dirs.and_then(|(from, to)| renameat(&*from, &name, &*to, &newname)), reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let nodes = self.node(ino).and_then(|file| Ok((file, self.node(newparent)?)));
        let stored = self.stored(newparent, newname);
        let made = nodes.and_then(|(file, dir)| {
            linkat(CWD, way(&file), &*dir, &stored, AtFlags::SYMLINK_FOLLOW)
        });
        self.entry((newparent, newname), made, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let access = OFlags::from_bits_retain((flags.0 & libc::O_ACCMODE) as u32);
        let opened = self
            .node(ino)
            .and_then(|node| openat(CWD, way(&node), access | OFlags::CLOEXEC, Mode::empty()));
        match opened {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let kept = (libc::O_ACCMODE | libc::O_EXCL) & flags;
        let flags = OFlags::from_bits_retain(kept as u32) | OFlags::CREATE | OFlags::CLOEXEC;
        let stored = self.stored(parent, name);
        let made = self.node(parent).and_then(|dir| {
            let file = openat(&*dir, &stored, flags, Mode::from_raw_mode(mode & 0o7777))?;
            Ok((file, self.find(parent, name)?))
        });
        match made {
            Ok((file, found)) => {
                let handle = self.keep(file);
                reply.created(&BELIEVED, &found, Generation(0), handle, FopenFlags::empty());
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.file(handle).and_then(|file| io::pread(&*file, &mut data, offset)) {
            Ok(got) => reply.data(&data[..got]),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(handle).and_then(|file| io::pwrite(&*file, data, offset)) {
            Ok(put) => reply.written(put as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state().files.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = self.node(ino).map_err(std::io::Error::from).and_then(|node| {
            let mut all = Vec::new();
            for entry in fs::read_dir(way(&node))? {
                let entry = entry?;
                let kind = entry.file_type()?;
                let kind = match (kind.is_dir(), kind.is_symlink()) {
                    (true, _) => FileType::Directory,
                    (_, true) => FileType::Symlink,
                    _ => FileType::RegularFile,
                };
                all.push((entry.ino(), kind, entry.file_name()));
            }
            Ok(all)
        });
        match listed {
            Ok(all) => {
                let mut state = self.state();
                state.next += 1;
                let handle = state.next;
                state.listings.insert(handle, all);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(failed) => reply.error(Errno::from_i32(failed.raw_os_error().unwrap_or(5))),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        let all = state.listings.get(&handle.0).map(Vec::as_slice).unwrap_or_default();
        for (n, (ino, kind, name)) in all.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), n as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.state().listings.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.node(INodeNo::ROOT).and_then(|root| fstatvfs(&*root)) {
            Ok(fs) => reply.statfs(
                fs.f_blocks,
                fs.f_bfree,
                fs.f_bavail,
                fs.f_files,
                fs.f_ffree,
                fs.f_bsize as u32,
                255,
                fs.f_frsize as u32,
            ),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOLCK);
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOLCK);
    }
}
