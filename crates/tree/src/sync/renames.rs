//! Finds new files of the source that exist in the destination under another name, which the deletion would remove.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, fstatfs, openat, statat};
use std::{
    collections::HashMap,
    ffi::CString,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use super::{
    listing::SourceNames,
    local::LocalNames,
    plan::{DeleteOptions, DeletePlanner},
};
use crate::{
    Error, Events,
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{DIRECTORY, NAMED_DIRECTORY},
    },
    identity::{kind, mtime, size},
    threads::locked,
    times::{self, Resolution, Time},
    twins::{TwinFile, Twins},
};

/// Smallest file, in bytes, for which a comparison costs less than a copy.
const LEAST: u64 = 16 << 10;

/// Size, and half the seconds of the modification time: FAT stores only even seconds.
type FileKey = (u64, i64);

/// Size and modification time of a new file. If the file was renamed, they equal those of the file under its old name.
#[derive(Clone, Copy, Debug)]
pub struct SizeAndTime {
    /// In bytes.
    pub size: u64,
    /// Whole seconds of the time since 1970.
    pub seconds: i64,
    /// Nanoseconds of the time, below 10^9.
    pub nanoseconds: u64,
}

impl SizeAndTime {
    fn of(file: &Stat) -> Self {
        let (seconds, nanoseconds) = mtime(file);
        Self { size: size(file), seconds, nanoseconds: nanoseconds.into() }
    }

    fn key(self) -> FileKey {
        (self.size, self.seconds.div_euclid(2))
    }
}

/// The files that the deletion would remove.
#[derive(Debug)]
pub struct RenameCandidates {
    beneath: Beneath<OwnedFd>,
    /// Each file is used once. If two new files became links to it, they would share one inode.
    files: Mutex<HashMap<FileKey, Vec<RenamedFile>>>,
}

/// A file that the deletion would remove, and that may be the old name of a new file.
#[derive(Debug)]
struct RenamedFile {
    directory: Vec<u8>,
    name: CString,
    mtime: Time,
    resolution: Option<Resolution>,
}

impl RenamedFile {
    /// Returns `true` if the time is equal, as precisely as the file system stores it.
    fn has_time(&self, wanted: SizeAndTime) -> bool {
        let wanted = (wanted.seconds, wanted.nanoseconds as u32);
        times::order(self.mtime, wanted, || self.resolution).is_eq()
    }
}

impl RenameCandidates {
    /// Lists the destination. `names`: the names of the source. Returns `None` if the destination cannot be opened, or
    /// if `events` cancels the search.
    pub fn find(
        destination: &Path,
        names: &dyn SourceNames,
        options: &DeleteOptions,
        events: &dyn Events,
    ) -> Option<Self> {
        let fd = openat(CWD, destination, NAMED_DIRECTORY, Mode::empty()).ok()?;
        let beneath = Beneath::new(fd, FollowLinks::Never);
        let planner = DeletePlanner::new(&beneath, destination, names, options, events);
        let plan = planner.plan().ok()?;
        let mut files: HashMap<FileKey, Vec<RenamedFile>> = HashMap::new();
        for doomed in plan.doomed {
            events.go_on().ok()?;
            if doomed.kind != FileType::RegularFile {
                continue;
            }
            let directory = &plan.directories[doomed.parent].path;
            let Ok(dir) = beneath.open(directory, DIRECTORY) else { continue };
            let Ok(stat) = statat(&dir, &*doomed.name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if kind(&stat) == FileType::RegularFile && size(&stat) >= LEAST && stat.st_nlink == 1 {
                let file = RenamedFile {
                    directory: directory.clone(),
                    name: doomed.name,
                    mtime: mtime(&stat),
                    resolution: Resolution::of(&stat, || fstatfs(&dir)),
                };
                files.entry(SizeAndTime::of(&stat).key()).or_default().push(file);
            }
        }
        Some(Self { beneath, files: Mutex::new(files) })
    }

    /// Returns `true` if no file is left.
    pub fn is_empty(&self) -> bool {
        let files = locked(&self.files);
        files.values().all(Vec::is_empty)
    }

    /// Returns `true` if [`Self::take`] would find a file.
    pub fn has(&self, wanted: SizeAndTime) -> bool {
        let files = locked(&self.files);
        let alike = files.get(&wanted.key());
        alike.is_some_and(|alike| alike.iter().any(|file| file.has_time(wanted)))
    }

    /// Returns a file with this size and time, each file once. Prefers one with this name in another directory.
    pub fn take(&self, name: &[u8], wanted: SizeAndTime) -> Option<TwinFile> {
        let mut files = locked(&self.files);
        let alike = files.get_mut(&wanted.key())?;
        let has_time = |file: &RenamedFile| file.has_time(wanted);
        let has_name = |file: &RenamedFile| has_time(file) && file.name.to_bytes() == name;
        let at = alike.iter().position(has_name).or_else(|| alike.iter().position(has_time))?;
        let RenamedFile { directory, name, .. } = alike.swap_remove(at);
        drop(files);
        let dir = self.beneath.open(&directory, DIRECTORY).ok()?;
        Some(TwinFile { dir, name })
    }
}

/// Finds renamed files for a local sync. Lists the destination when the copy meets the first new file.
#[derive(Debug)]
pub(super) struct LocalRenames {
    pub destination: PathBuf,
    pub names: Arc<LocalNames>,
    pub options: DeleteOptions,
    pub found: OnceLock<Option<RenameCandidates>>,
}

impl Twins for LocalRenames {
    fn candidate(&self, below: &Path, source: &Stat) -> Option<TwinFile> {
        if size(source) < LEAST {
            return None;
        }
        let find = || RenameCandidates::find(&self.destination, &*self.names, &self.options, &());
        let found = self.found.get_or_init(find).as_ref()?;
        let name = below.file_name().unwrap_or_default().as_bytes();
        found.take(name, SizeAndTime::of(source))
    }

    fn are_moved(&self) -> bool {
        true
    }
}

/// An earlier snapshot (`--reference`). A new file is looked up there by its path.
#[derive(Debug)]
pub(super) struct Reference {
    beneath: Beneath<OwnedFd>,
}

impl Reference {
    /// Opens the directory of the snapshot.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let opened = openat(CWD, path, NAMED_DIRECTORY, Mode::empty());
        let fd = opened.map_err(at_path(path, "openat"))?;
        Ok(Self { beneath: Beneath::new(fd, FollowLinks::Never) })
    }
}

impl Twins for Reference {
    fn candidate(&self, below: &Path, _source: &Stat) -> Option<TwinFile> {
        let directory = below.parent().unwrap_or(Path::new(""));
        let dir = self.beneath.open(directory.as_os_str().as_bytes(), DIRECTORY).ok()?;
        let name = CString::new(below.file_name()?.as_bytes()).ok()?;
        Some(TwinFile { dir, name })
    }

    fn are_moved(&self) -> bool {
        false
    }
}
