//! Moves directories and files: by a rename where that is possible, otherwise by a copy that is verified before the
//! source is deleted.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, fstatfs, openat, statat, unlinkat};
use std::{
    collections::HashSet,
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Mutex,
};
use thalweg_core::shown;
use thalweg_sys::{Errno, io};

use super::{
    delete::remove_all,
    distinct::distinct,
    run::{LocalSync, SyncOptions, has_entries},
};
use crate::{
    Ending, Error, Event, Events, Fsync, Hash, Refusal, TreeReport,
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{DIRECTORY, NAMED_DIRECTORY, each_entry, listing_buffer},
    },
    identity::{kind, size},
    names::{c_string, cut, os_bytes},
    threads::locked,
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
    let changed = || Error::Refused { path: source.to_owned(), reason: Refusal::ChangedSince };
    if kind(&stat) != FileType::Directory {
        let there = statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("newfstatat"))?;
        let dir =
            openat(CWD, target.parent().unwrap_or(Path::new(".")), NAMED_DIRECTORY, Mode::empty());
        if !is_copy(&stat, &there, &dir.map_err(failed("openat"))?) {
            return Err(changed());
        }
        unlinkat(&above, &*name, AtFlags::empty()).map_err(failed("unlinkat"))?;
        report.removed += 1;
        return Ok(());
    }
    let copy = openat(CWD, target, NAMED_DIRECTORY, Mode::empty()).map_err(failed("openat"))?;
    let copy = Beneath::new(copy, FollowLinks::Never);
    let names = Mutex::new((Vec::new(), HashSet::new()));
    let is_copied = |path: &[u8], stat: &Stat| {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) =
            cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        let Ok(name) = CString::new(name) else { return false };
        let Ok(dir) = copy.open(directory, DIRECTORY) else { return false };
        // On a file system that ignores case, one copy may stand for two source entries. The destination then lacks a
        // name, and nothing in this source directory is deleted.
        let mut names = locked(&names);
        if names.0 != directory || names.1.is_empty() {
            let Ok(mut listed) = list(&dir) else { return false };
            let from =
                openat(CWD, source.join(os_bytes(directory)), NAMED_DIRECTORY, Mode::empty());
            let Ok(own) = from.and_then(|from| list(&from)) else { return false };
            if !own.is_subset(&listed) {
                listed.clear();
            }
            *names = (directory.to_vec(), listed);
        }
        names.1.contains(&name)
            && statat(&dir, &*name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|there| is_copy(stat, &there, &dir))
    };
    let removed = remove_all(above.as_fd(), &name, source, &is_copied, events)?;
    report.removed += removed.deleted;
    report.tree.halted = report.tree.halted.or(removed.halted);
    report.tree.add_errors(removed.errors.len() as u64, removed.errors);
    if report.tree.error_count > 0 || report.tree.halted.is_some() {
        return Ok(());
    }
    unlinkat(&above, &*name, AtFlags::REMOVEDIR).map_err(failed("unlinkat"))
}

fn list(dir: &OwnedFd) -> Result<HashSet<CString>, Errno> {
    let mut names = HashSet::new();
    each_entry(dir, &mut listing_buffer(), |entry| {
        names.insert(entry.file_name().to_owned());
        true
    })?;
    Ok(names)
}

/// Returns `true` if the destination has a copy of the source's type. For files and links, size and time must also be
/// equal. A link that was replaced after the copy has another time.
fn is_copy(source: &Stat, there: &Stat, dir: &OwnedFd) -> bool {
    let has_time = matches!(kind(source), FileType::RegularFile | FileType::Symlink);
    let is_alike = || size(source) == size(there) && times::is_same(there, source, || fstatfs(dir));
    kind(source) == kind(there) && (!has_time || is_alike())
}
