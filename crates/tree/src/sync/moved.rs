//! Moves directories and files: by a rename where that is possible, otherwise by a copy that is verified before the
//! source is deleted.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, fstatfs, openat, statat, unlinkat};
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_core::shown;
use thalweg_sys::{Errno, io};

use super::{
    copied_names::CopiedNames,
    delete::{RemovalCandidate, remove_all},
    distinct::distinct,
    run::{LocalSync, SyncOptions, has_entries},
    state::has_record,
};
use crate::{
    Ending, Error, Event, Events, Fsync, Hash, Refusal, TreeReport,
    copy::{dest::one_file::are_one, name_at::NameAt},
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{DIRECTORY, NAMED_DIRECTORY},
    },
    identity::{kind, size},
    names::{STATE_FILE, c_string, cut, os_bytes},
    times,
};

/// Result of a move.
#[derive(Debug, Default)]
pub struct MoveReport {
    /// Sources that were moved by a rename.
    pub renamed: u64,
    /// The report of the copy of the other sources, with all errors.
    pub tree: TreeReport,
    /// Entries of the sources that were deleted after they were copied.
    pub removed: u64,
}

impl MoveReport {
    fn fail(&mut self, error: Error, events: &dyn Events) {
        events.event(&Event::Failed(&error));
        self.tree.add_errors(1, vec![error]);
    }
}

/// Moves sources. A single source directory becomes `destination`, or its content is added to an existing
/// `destination`. Several sources, or files, become entries of `destination`.
///
/// An entry of a source is deleted only if its copy was verified and is on stable storage. An entry that changed after
/// it was copied is kept. A repeated call continues an interrupted move. Two sources with one name are an error.
pub fn move_all(
    sources: &[PathBuf],
    destination: &Path,
    options: &SyncOptions,
    events: &dyn Events,
) -> Result<MoveReport, Error> {
    let has_entries = has_entries(sources)?;
    if let [source] = sources
        && !has_entries
        && std::fs::symlink_metadata(source).is_ok_and(|meta| meta.is_symlink())
    {
        let why = format!(
            "'{}' is a symbolic link to a directory, which cannot be moved; name the directory itself",
            shown(source)
        );
        return Err(Error::Usage(why));
    }
    let mut copy = options.copy.clone();
    (copy.verify, copy.fsync, copy.filter) = (Some(Hash::Blake3), Fsync::Always, None);
    // The source will be deleted, so an attribute that the destination refuses must be an error.
    copy.preserve.strict = true;
    let options = SyncOptions { copy, delete: None, force: false, ..options.clone() };
    let sources = if has_entries { distinct(sources, events)? } else { sources.to_vec() };
    // Checks for overlaps before anything is renamed.
    let sync = LocalSync::new(&sources, destination, &options, has_entries, events)?;
    let destination = sync.destination().to_owned();
    drop(sync);
    let mut report = MoveReport::default();
    let mut left = Vec::new();
    for source in &sources {
        let target = target(source, &destination, has_entries)?;
        match if options.copy.dry_run { Ok(false) } else { is_renamed(source, &target) } {
            Ok(true) => report.renamed += 1,
            Ok(false) => left.push(source.clone()),
            Err(error) => report.fail(error, events),
        }
    }
    if left.is_empty() || report.tree.error_count > 0 {
        return Ok(report);
    }
    let sync = LocalSync::new(&left, &destination, &options, has_entries, events)?;
    report.tree = sync.perform()?.tree;
    if report.tree.ending() != Ending::Done || options.copy.dry_run {
        return Ok(report);
    }
    for source in &left {
        let target = target(source, &destination, has_entries)?;
        let removed = remove_source(source, &target, events, &mut report);
        if let Err(error) = removed {
            report.fail(error, events);
        }
    }
    Ok(report)
}

/// Returns the path that a source gets.
fn target(source: &Path, destination: &Path, has_entries: bool) -> Result<PathBuf, Error> {
    let name = cut(source).1;
    if has_entries && name == "." {
        return Err(Error::Usage("cannot move '.': write the name of the directory".to_owned()));
    }
    Ok(if has_entries { destination.join(name) } else { destination.to_owned() })
}

/// Renames a source. Returns `false` if the target exists or is on another file system.
fn is_renamed(source: &Path, target: &Path) -> Result<bool, Error> {
    let [from, to] = [source, target].map(|path| c_string(path.as_os_str()));
    match io::rename_new(CWD, &*from?, CWD, &*to?) {
        Ok(()) => Ok(true),
        Err(Errno::XDEV | Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
        Err(errno) => Err(at_path(source, "renameat2")(errno)),
    }
}

/// Deletes a source after its copy is complete.
fn remove_source(
    source: &Path,
    target: &Path,
    events: &dyn Events,
    report: &mut MoveReport,
) -> Result<(), Error> {
    let failed = |call| at_path(source, call);
    let (above, name) = cut(source);
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let name: CString = c_string(name)?;
    let above = openat(CWD, above, NAMED_DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    let stat = statat(&above, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("newfstatat"))?;
    let own = NameAt { dir: above.as_fd(), name: &name };
    let paths = MovedPaths { source, target };
    if kind(&stat) != FileType::Directory {
        let (beside, last) = cut(target);
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        let dir = openat(CWD, beside, NAMED_DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
        paths.expect_copy(own, &stat, NameAt { dir: dir.as_fd(), name: &c_string(last)? })?;
        unlinkat(&above, &*name, AtFlags::empty()).map_err(failed("unlinkat"))?;
        report.removed += 1;
        return Ok(());
    }
    let copy = openat(CWD, target, NAMED_DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    paths.expect_copy(own, &stat, NameAt { dir: copy.as_fd(), name: c"." })?;
    let copy = Beneath::new(copy, FollowLinks::Never);
    let copied = CopiedDirectory { paths, copy, names: CopiedNames::new(source) };
    let removed =
        remove_all(above.as_fd(), &name, source, &|entry| copied.expect_copy(entry), events)?;
    report.removed += removed.deleted;
    report.tree.halted = report.tree.halted.or(removed.halted);
    report.tree.add_errors(removed.errors.len() as u64, removed.errors);
    if report.tree.error_count > 0 || report.tree.halted.is_some() {
        return Ok(());
    }
    // The deletion keeps the state file of a sync in the top directory.
    let dir = openat(&above, &*name, DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    if has_record(dir.as_fd()) {
        unlinkat(&dir, STATE_FILE, AtFlags::empty()).map_err(failed("unlinkat"))?;
    }
    unlinkat(&above, &*name, AtFlags::REMOVEDIR).map_err(failed("unlinkat"))
}

/// The paths of an entry and of its copy.
#[derive(Clone, Copy)]
struct MovedPaths<'m> {
    source: &'m Path,
    target: &'m Path,
}

impl MovedPaths<'_> {
    fn changed(self) -> Error {
        Error::Refused { path: self.source.to_owned(), reason: Refusal::ChangedSince }
    }

    /// Checks that `copy` is a copy of the source, and not the source itself, shown by another mount.
    fn expect_copy(self, own: NameAt<'_>, stat: &Stat, copy: NameAt<'_>) -> Result<(), Error> {
        let there = statat(copy.dir, copy.name, AtFlags::SYMLINK_NOFOLLOW);
        let there = there.map_err(|_| self.changed())?;
        if !is_copy(stat, &there, copy.dir) {
            return Err(self.changed());
        }
        if are_one(own, stat, copy, &there).map_err(at_path(self.source, "utimensat"))? {
            let reason = Refusal::SameFile(self.target.to_owned());
            return Err(Error::Refused { path: self.source.to_owned(), reason });
        }
        Ok(())
    }
}

/// A source directory and its copy, while the entries of the source are deleted.
struct CopiedDirectory<'m> {
    paths: MovedPaths<'m>,
    copy: Beneath<OwnedFd>,
    names: CopiedNames<'m>,
}

impl CopiedDirectory<'_> {
    /// Checks that an entry of the source has a copy.
    fn expect_copy(&self, entry: &RemovalCandidate<'_>) -> Result<(), Error> {
        let RemovalCandidate { path, at, stat } = *entry;
        let below = os_bytes(path);
        let [source, target] = [self.paths.source, self.paths.target].map(|root| root.join(below));
        let paths = MovedPaths { source: &source, target: &target };
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let directory = cut.map_or(&b""[..], |cut| &path[..cut]);
        if *at.name == *STATE_FILE && kind(stat) == FileType::RegularFile {
            return if self.names.has_record(directory) { Ok(()) } else { Err(paths.changed()) };
        }
        if kind(stat) == FileType::Directory {
            self.names.forget(path);
        }
        let dir = self.copy.open(directory, DIRECTORY).map_err(|_| paths.changed())?;
        if !self.names.contain(directory, &dir, at.name).unwrap_or(false) {
            return Err(paths.changed());
        }
        paths.expect_copy(at, stat, NameAt { dir: dir.as_fd(), name: at.name })
    }
}

/// Returns `true` if the destination has a copy of the source's type. For files and links, size and time must also be
/// equal. A link that was replaced after the copy has another time.
fn is_copy(source: &Stat, there: &Stat, dir: BorrowedFd<'_>) -> bool {
    let has_time = matches!(kind(source), FileType::RegularFile | FileType::Symlink);
    let is_alike = || size(source) == size(there) && times::is_same(there, source, || fstatfs(dir));
    kind(source) == kind(there) && (!has_time || is_alike())
}
