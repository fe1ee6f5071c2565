//! The state of the shared file system: known and open files.

use super::*;

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// `true` if names that differ only in case are one name, as in FAT.
    pub(super) folds: bool,
}

#[derive(Default)]
pub(super) struct State {
    // Files that the kernel knows, each as an O_PATH descriptor, with its number of lookups.
    pub(super) nodes: HashMap<u64, (Arc<OwnedFd>, u64)>,
    pub(super) files: HashMap<u64, Arc<OwnedFd>>,
    pub(super) listings: HashMap<u64, Vec<(u64, FileType, OsString)>>,
    pub(super) next: u64,
}

pub(super) type Answer<T> = Result<T, rustix::io::Errno>;

pub(super) fn error(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

/// Returns a path to the file of an O_PATH descriptor.
pub(super) fn way(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn attributes(fd: &OwnedFd, ino: Option<INodeNo>) -> Answer<FileAttr> {
    let stat = fstat(fd)?;
    let time = |seconds: i64, nanoseconds: u64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        UNIX_EPOCH + Duration::new(seconds, nanoseconds as u32)
    };
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        _ => FileType::RegularFile,
    };
    Ok(FileAttr {
        ino: ino.unwrap_or(INodeNo(stat.st_ino)),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn node(&self, ino: INodeNo) -> Answer<Arc<OwnedFd>> {
        let state = self.state();
        state.nodes.get(&ino.0).map(|(fd, _)| Arc::clone(fd)).ok_or(rustix::io::Errno::STALE)
    }

    pub(super) fn file(&self, handle: FileHandle) -> Answer<Arc<OwnedFd>> {
        self.state().files.get(&handle.0).map(Arc::clone).ok_or(rustix::io::Errno::BADF)
    }

    /// Returns the name as the directory stores it; its case may differ from `name`.
    pub(super) fn stored(&self, parent: INodeNo, name: &OsStr) -> OsString {
        let listed = self.node(parent).ok().filter(|_| self.folds);
        let listed = listed.and_then(|dir| fs::read_dir(way(&dir)).ok());
        let mut names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.find(|stored| stored.eq_ignore_ascii_case(name)).unwrap_or_else(|| name.to_owned())
    }

    /// Looks up a name, and counts the lookup.
    pub(super) fn find(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.stored(parent, name);
        let fd = openat(&*self.node(parent)?, &name, flags, Mode::empty())?;
        let found = attributes(&fd, None)?;
        let mut state = self.state();
        state.nodes.entry(found.ino.0).or_insert_with(|| (Arc::new(fd), 0)).1 += 1;
        Ok(found)
    }

    pub(super) fn keep(&self, fd: OwnedFd) -> FileHandle {
        let mut state = self.state();
        state.next += 1;
        let handle = state.next;
        state.files.insert(handle, Arc::new(fd));
        FileHandle(handle)
    }

    pub(super) fn entry(
        &self,
        (parent, name): (INodeNo, &OsStr),
        made: Answer<()>,
        reply: ReplyEntry,
    ) {
        match made.and_then(|()| self.find(parent, name)) {
            Ok(found) => reply.entry(&BELIEVED, &found, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    pub(super) fn set(&self, ino: INodeNo, set: &Settings) -> Answer<FileAttr> {
        let node = self.node(ino)?;
        if set.owner != (None, None) {
            let (uid, gid) = (set.owner.0.map(Uid::from_raw), set.owner.1.map(Gid::from_raw));
            chownat(&*node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = set.mode {
            chmod(way(&node), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if let Some(size) = set.size {
            let file = openat(CWD, way(&node), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::fs::ftruncate(&file, size)?;
        }
        if set.times.iter().any(Option::is_some) {
            let [last_access, last_modification] = set.times.map(timespec);
            let times = Timestamps { last_access, last_modification };
            utimensat(&*node, "", &times, AtFlags::EMPTY_PATH)?;
        }
        attributes(&node, Some(ino))
    }
}

pub(super) struct Settings {
    pub(super) mode: Option<u32>,
    pub(super) owner: (Option<u32>, Option<u32>),
    pub(super) size: Option<u64>,
    pub(super) times: [Option<TimeOrNow>; 2],
}

pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

pub(super) fn empty(done: Answer<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}
