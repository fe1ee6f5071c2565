//! Finds new files of the source that the destination has under another name, which the deletion would remove.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, openat, statat};
use std::{
    collections::HashMap,
    ffi::CString,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::{
    local::LocalNames,
    plan::{DeleteOptions, DeletePlanner, ROOT},
};
use crate::{
    Error,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::DIRECTORY,
        walk::failed_call,
    },
    identity::{kind, size},
    twins::{TwinFile, Twins},
};

/// Smallest file, in bytes, for which a comparison costs less than a copy.
const LEAST: u64 = 16 << 10;

/// Size and seconds of the modification time.
type FileKey = (u64, i64);

/// The files that the deletion would remove. The destination is listed for them when the copy meets the first new file.
#[derive(Debug)]
pub(super) struct RenameCandidates {
    destination: PathBuf,
    names: Arc<LocalNames>,
    options: DeleteOptions,
    found: OnceLock<Option<FoundCandidates>>,
}

#[derive(Debug)]
struct FoundCandidates {
    beneath: Beneath<OwnedFd>,
    /// Each file is offered only once: two new files that are links to it would share one inode.
    files: Mutex<HashMap<FileKey, Vec<RenamedFile>>>,
}

/// A file that the deletion would remove.
#[derive(Debug)]
struct RenamedFile {
    directory: Vec<u8>,
    name: CString,
    /// Nanoseconds of the modification time.
    nanoseconds: u64,
}

impl RenameCandidates {
    pub fn new(destination: &Path, names: Arc<LocalNames>, options: DeleteOptions) -> Self {
        let (destination, found) = (destination.to_owned(), OnceLock::new());
        Self { destination, names, options, found }
    }

    fn find(&self) -> Option<FoundCandidates> {
        let fd = openat(CWD, &self.destination, ROOT, Mode::empty()).ok()?;
        let beneath = Beneath::new(fd, FollowLinks::Never);
        let names: &LocalNames = &self.names;
        let planner = DeletePlanner::new(&beneath, &self.destination, names, &self.options, &());
        let plan = planner.plan().ok()?;
        let mut files: HashMap<FileKey, Vec<RenamedFile>> = HashMap::new();
        for doomed in plan.doomed {
            if doomed.kind != FileType::RegularFile {
                continue;
            }
            let directory = &plan.directories[doomed.parent].path;
            let Ok(dir) = beneath.open(directory, DIRECTORY) else { continue };
            let Ok(stat) = statat(&dir, &*doomed.name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if kind(&stat) == FileType::RegularFile && size(&stat) >= LEAST && stat.st_nlink == 1 {
                let key = (size(&stat), stat.st_mtime);
                let file = RenamedFile {
                    directory: directory.clone(),
                    name: doomed.name,
                    nanoseconds: stat.st_mtime_nsec,
                };
                files.entry(key).or_default().push(file);
            }
        }
        Some(FoundCandidates { beneath, files: Mutex::new(files) })
    }
}

impl Twins for RenameCandidates {
    fn candidate(&self, _below: &Path, source: &Stat) -> Option<TwinFile> {
        if size(source) < LEAST {
            return None;
        }
        let found = self.found.get_or_init(|| self.find()).as_ref()?;
        let mut files = found.files.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = files.get_mut(&(size(source), source.st_mtime))?;
        let has_time = |file: &RenamedFile| {
            // Some destinations store times only in multiples of 100 ns.
            file.nanoseconds == source.st_mtime_nsec || file.nanoseconds.is_multiple_of(100)
        };
        let found_at = alike.iter().position(has_time)?;
        let RenamedFile { directory, name, .. } = alike.swap_remove(found_at);
        drop(files);
        let dir = found.beneath.open(&directory, DIRECTORY).ok()?;
        Some(TwinFile { dir, name })
    }

    fn are_moved(&self) -> bool {
        true
    }
}

/// An earlier snapshot (`--reference`). Its files have the paths of the new files.
#[derive(Debug)]
pub(super) struct Reference {
    beneath: Beneath<OwnedFd>,
}

impl Reference {
    /// Opens the directory of the snapshot.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let opened = openat(CWD, path, ROOT, Mode::empty());
        let fd = opened.map_err(|errno| failed_call(path.to_owned(), "openat", errno))?;
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
