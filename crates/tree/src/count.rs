//! Counts the files and bytes of a copy in a separate walk, so that the caller can show how much is left. It copies
//! nothing and reports no errors.

use rustix::{
    fs::{CWD, FileType, Mode, RawDirEntry, fstat, openat},
    process::{Resource, getrlimit},
};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, PathBuf},
};

use thalweg_core::{Cancelled, atomic_file::name::is_reserved};
use thalweg_sys::Errno;

use crate::{
    CopyOptions, Total,
    fs::list::{directory_flags, each_entry, is_directory, listing_buffer, stat_at},
    identity::{Id, kind, size},
    names::os,
    queue::PackedNames,
    sources::in_folder,
};

/// Maximum depth of the count, because each level keeps a descriptor open.
const DEEPEST: u64 = 1024;

/// Counts the files that a copy of `sources` with these options meets. Returns `None` if the count is cancelled. Also
/// returns `None` if the tree needs too many descriptors, because a wrong total would mislead the user.
pub fn count(
    sources: &[PathBuf],
    options: &CopyOptions,
    go_on: &dyn Fn() -> Result<(), Cancelled>,
) -> Option<Total> {
    // Most descriptors are reserved for the copy.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let deepest = DEEPEST.min(descriptors / 4) as usize;
    let (levels, buffer) = (Vec::new(), listing_buffer());
    let (total, path) = (Total::default(), PathBuf::new());
    let mut count = TreeCount { options, go_on, deepest, total, levels, path, buffer };
    let follow = options.follows(true);
    for source in sources {
        let Ok(named) = in_folder(source, options) else { continue };
        let (at, name, listed) = (CWD, &*named.source, FileType::Unknown);
        if !options.leaves_out_source(&named, is_directory(at, name, listed, follow)) {
            let inside = options.inside.iter().flat_map(|_| source.components());
            count.path = inside.filter(|part| matches!(part, Component::Normal(_))).collect();
            if count.is_to_enter(at, name, listed, follow) {
                count.list(openat(at, name, directory_flags(follow), Mode::empty()), follow)?;
                count.walk()?;
            }
        }
    }
    Some(count.total)
}

struct TreeCount<'c> {
    options: &'c CopyOptions,
    go_on: &'c dyn Fn() -> Result<(), Cancelled>,
    deepest: usize,
    total: Total,
    // The current directory and its ancestors. They show whether a followed symbolic link leads back to one of them.
    levels: Vec<CountLevel>,
    // The path of the current directory, as a filter of the copy sees it.
    path: PathBuf,
    buffer: Vec<MaybeUninit<u8>>,
}

/// A directory in which all files are counted. Its subdirectories from `next` on are not counted yet.
struct CountLevel {
    fd: OwnedFd,
    id: Id,
    subdirectories: PackedNames,
    next: usize,
}

impl TreeCount<'_> {
    /// Counts everything below the last level.
    fn walk(&mut self) -> Option<()> {
        let follow = self.options.follows(false);
        while let Some(level) = self.levels.last_mut() {
            if let Some((_, name, next)) = level.subdirectories.at(level.next) {
                self.path.push(os(name));
                let opened = openat(&level.fd, name, directory_flags(follow), Mode::empty());
                level.next = next;
                if !self.list(opened, follow)? {
                    self.path.pop();
                }
            } else {
                self.levels.pop();
                // The path of the first level belongs to the source itself and is not in `path`.
                if !self.levels.is_empty() {
                    self.path.pop();
                }
            }
        }
        Some(())
    }

    /// Counts an entry that is a file. Returns `true` for a directory that the copy enters.
    fn is_to_enter(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        listed: FileType,
        follow: bool,
    ) -> bool {
        let uncounted = listed == FileType::Symlink && !follow;
        if uncounted || is_reserved(name) {
            return false;
        }
        if listed == FileType::Directory {
            return true;
        }
        // This error is ignored, because the copy meets and reports it.
        let Ok(stat) = stat_at(at, name, follow) else { return false };
        match kind(&stat) {
            FileType::RegularFile => {
                self.total.files += 1;
                self.total.bytes = self.total.bytes.saturating_add(size(&stat));
                false
            }
            FileType::Directory => self.options.recursive,
            _ => false,
        }
    }

    /// Counts the files of a directory, and adds it as a level. Returns `false` if the copy does not enter it.
    fn list(&mut self, opened: Result<OwnedFd, Errno>, follow: bool) -> Option<bool> {
        if self.levels.len() >= self.deepest {
            return None;
        }
        // These errors are ignored, because the copy meets and reports them.
        let Ok(fd) = opened else { return Some(false) };
        let Ok(stat) = fstat(&fd) else { return Some(false) };
        let id = Id::of(&stat);
        let begins_on = self.levels.first().map(|top| top.id.dev);
        let stays = self.options.one_file_system && begins_on.is_some_and(|dev| dev != id.dev);
        if stays || (follow && self.levels.iter().any(|above| above.id == id)) {
            return Some(false);
        }
        let mut subdirectories = PackedNames::default();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut cancelled = false;
        let _ = each_entry(&fd, &mut buffer, |entry| {
            cancelled = (self.go_on)().is_err();
            if !cancelled && self.is_subdirectory(fd.as_fd(), entry) {
                subdirectories.push(0, entry.file_name());
            }
            !cancelled
        });
        self.buffer = buffer;
        self.levels.push(CountLevel { fd, id, subdirectories, next: 0 });
        (!cancelled).then_some(true)
    }

    fn is_subdirectory(&mut self, folder: BorrowedFd<'_>, entry: &RawDirEntry<'_>) -> bool {
        let follow = self.options.follows(false);
        let (name, listed) = (entry.file_name(), entry.file_type());
        let is_left_out = self.options.filter.as_ref().is_some_and(|filter| {
            let path = self.path.join(os(name));
            filter.leaves_out(&path, is_directory(folder, name, listed, follow))
        });
        !is_left_out && self.is_to_enter(folder, name, listed, follow)
    }
}
