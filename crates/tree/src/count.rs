//! Counts the files and bytes of a copy in a separate walk, so that the caller can show how much is left. It copies
//! nothing and reports no errors.

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDirEntry, Stat, fstat, openat, statat},
    process::{Resource, getrlimit},
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    path::{Component, PathBuf},
};

use thalweg_core::{Cancelled, atomic_file::name::is_reserved};

use crate::{
    CopyOptions, Total,
    fs::list::{each_entry, listing_buffer},
    identity::{Id, kind, size},
    left_out::UntypedEntry,
    names::os,
    sources::in_folder,
};

/// Maximum depth of the count: each level holds a descriptor and a buffer.
const DEEPEST: u64 = 128;

/// Counts the files that a copy of `sources` with these options meets. Returns `None` if it is cancelled, or if the
/// tree is too deep to be counted cheaply: no total is better than a wrong one.
pub fn count(
    sources: &[PathBuf],
    options: &CopyOptions,
    go_on: &dyn Fn() -> Result<(), Cancelled>,
) -> Option<Total> {
    // Most descriptors are reserved for the copy.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let deepest = DEEPEST.min(descriptors / 4) as usize;
    let (total, above, path) = (Total::default(), Vec::new(), PathBuf::new());
    let mut count = TreeCount { options, go_on, deepest, total, above, path };
    let follow = options.follows(true);
    for source in sources {
        let Ok(named) = in_folder(source, options) else { continue };
        let (at, name, listed) = (CWD, &*named.source, FileType::Unknown);
        let is_directory = UntypedEntry { at, name, listed, follow }.is_directory();
        if !options.leaves_out_source(&named, is_directory) {
            let inside = options.inside.iter().flat_map(|_| source.components());
            count.path = inside.filter(|part| matches!(part, Component::Normal(_))).collect();
            count.entry(at, name, listed, follow)?;
        }
    }
    Some(count.total)
}

struct TreeCount<'c> {
    options: &'c CopyOptions,
    go_on: &'c dyn Fn() -> Result<(), Cancelled>,
    deepest: usize,
    total: Total,
    // The ancestors of the current directory: a followed symbolic link may lead back to one of them.
    above: Vec<Id>,
    // The path that a filter sees, as in the copy.
    path: PathBuf,
}

impl TreeCount<'_> {
    fn entry(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        listed: FileType,
        follow: bool,
    ) -> Option<()> {
        let uncounted = listed == FileType::Symlink && !follow;
        if uncounted || is_reserved(name) {
            return Some(());
        }
        if listed == FileType::Directory {
            return self.folder(at, name, follow);
        }
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        // The copy meets and reports this error.
        let Ok(stat) = statat(at, name, flags) else { return Some(()) };
        match kind(&stat) {
            FileType::RegularFile => self.file(&stat),
            FileType::Directory if self.options.recursive => return self.folder(at, name, follow),
            _ => {}
        }
        Some(())
    }

    fn file(&mut self, stat: &Stat) {
        self.total.files += 1;
        self.total.bytes = self.total.bytes.saturating_add(size(stat));
    }

    fn folder(&mut self, at: BorrowedFd<'_>, name: &CStr, follow: bool) -> Option<()> {
        if self.above.len() >= self.deepest {
            return None;
        }
        let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | no_follow;
        let Ok(folder) = openat(at, name, flags, Mode::empty()) else { return Some(()) };
        let Ok(stat) = fstat(&folder) else { return Some(()) };
        let id = Id::of(&stat);
        let begins_on = self.above.first().map(|top| top.dev);
        let stays = self.options.one_file_system && begins_on.is_some_and(|dev| dev != id.dev);
        if stays || (follow && self.above.contains(&id)) {
            return Some(());
        }
        self.above.push(id);
        let listed = self.list(folder.as_fd());
        self.above.pop();
        listed
    }

    fn list(&mut self, folder: BorrowedFd<'_>) -> Option<()> {
        let mut counted = Some(());
        // The copy meets and reports this error.
        let _ = each_entry(folder, &mut listing_buffer(), |entry| {
            counted = self.met(folder, entry);
            counted.is_some()
        });
        counted
    }

    fn met(&mut self, folder: BorrowedFd<'_>, entry: &RawDirEntry<'_>) -> Option<()> {
        (self.go_on)().ok()?;
        let (name, listed, follow) =
            (entry.file_name(), entry.file_type(), self.options.follows(false));
        let met = UntypedEntry { at: folder, name, listed, follow };
        self.path.push(os(name));
        let left_out = self.options.leaves_out_entry(&met, || self.path.clone());
        let counted = if left_out { Some(()) } else { self.entry(folder, name, listed, follow) };
        self.path.pop();
        counted
    }
}
