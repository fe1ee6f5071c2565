//! Keeps files that are about to be replaced, under another name.

use rustix::fs::{AtFlags, FileType, Mode, Stat, openat, statat};
use std::{
    ffi::{CStr, CString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};
use thalweg_core::{atomic_file::rename, cadence::ATTEMPTS};
use thalweg_sys::{Errno, io};

use crate::{
    Backup, CopyOptions, Error, Refusal,
    copy::{copy_entry::CopyEntry, name_at::NameAt},
    error::{Attempt, CopyFailure, at_sink, has_no_links},
    fs::{
        list::{DIRECTORY, each_entry, listing_buffer},
        special::NewEntry,
    },
    identity::{Id, kind},
    names::os,
    sources::NamedSource,
};

/// Links the file at `name_at` to the name of its backup, so that a rename over `name_at` loses no file. `name_at`
/// exists at every moment. Returns the name of the backup; `None` if no backup is needed. In a sync, also keeps the
/// file in [`CopyOptions::kept`].
pub(crate) fn set_aside(
    options: &CopyOptions,
    name_at: NameAt<'_>,
    entry: &CopyEntry<'_>,
    source: &Stat,
) -> Attempt<Option<CString>> {
    if let Some(kept) = &options.kept {
        match kept.keep_replaced(name_at.dir, name_at.name, &entry.path_below(options)) {
            Ok(()) | Err(CopyFailure::Sink(_, Errno::NOENT, _)) => {}
            Err(failure) => return Err(failure),
        }
    }
    // Another process may take the number for a backup of its own. The loop then tries the next number.
    for _ in 0..ATTEMPTS {
        let Some(backup) = backup_name(options, name_at)? else { return Ok(None) };
        let name = &*backup.name;
        let old = statat(name_at.dir, name, AtFlags::SYMLINK_NOFOLLOW);
        if old.is_ok_and(|old| Id::of(&old) == Id::of(source)) && is_read_by(entry, name) {
            return Err(CopyFailure::Refused(Refusal::BackupOverSource));
        }
        match if backup.is_numbered { add(name_at, name) } else { replace(name_at, name) } {
            Ok(()) => return Ok(Some(backup.name)),
            Err(CopyFailure::Sink("linkat", Errno::NOENT, _)) => return Ok(None),
            // Another process has taken this number.
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if backup.is_numbered => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(CopyFailure::Sink("linkat", Errno::EXIST, 0))
}

/// Returns `true` if `entry` is read through the name of the backup, or through a symbolic link that may lead to that
/// name. A source that is another hard link is safe, because it keeps its contents when the backup is replaced.
fn is_read_by(entry: &CopyEntry<'_>, backup: &CStr) -> bool {
    let is_named_alike = Path::new(os(entry.source)).file_name() == Some(os(backup));
    let is_link = entry.from.open().is_ok_and(|from| {
        statat(&from, entry.source, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| kind(&stat) == FileType::Symlink)
    });
    is_named_alike || is_link
}

/// Returns the name of the backup for `cp -f --backup FILE FILE`. GNU `cp` then copies the file to the name of its
/// backup. Returns `None` for any other command.
pub(crate) fn of_itself(
    options: &CopyOptions,
    base: &OwnedFd,
    sources: &[PathBuf],
    destination: &Path,
    named: &[NamedSource],
) -> Result<Option<CString>, Error> {
    let ([source], [named]) = (sources, named) else { return Ok(None) };
    let is_asked = options.force && options.backup != Backup::None && source == destination;
    if !is_asked || !source.is_file() {
        return Ok(None);
    }
    let name_at = NameAt { dir: base.as_fd(), name: &named.name };
    let found = backup_name(options, name_at).map_err(|failure| failure.on(destination))?;
    Ok(found.map(|backup| backup.name))
}

/// Links the file to another name. Fails with EEXIST if the name exists.
fn add(name_at: NameAt<'_>, name: &CStr) -> Attempt<()> {
    match io::link(name_at.dir, name_at.name, name_at.dir, name) {
        Err(errno) if cannot_link(errno) => give_away(name_at, name, true),
        answer => answer.map_err(at_sink("linkat")),
    }
}

/// Links the file to another name and replaces a file of that name. linkat(2) does not replace files, so the link first
/// gets a temporary name.
fn replace(name_at: NameAt<'_>, name: &CStr) -> Attempt<()> {
    let link = NewEntry::hard_link(name_at.dir, name_at.name);
    match link.create_beside(name_at.dir, name_at.name) {
        Ok(temporary) => Ok(temporary.install(name, false)?),
        Err(failed) if cannot_link(failed.errno) => give_away(name_at, name, false),
        Err(failed) => Err(failed.into()),
    }
}

fn cannot_link(errno: Errno) -> bool {
    has_no_links(errno) || errno == Errno::NAMETOOLONG
}

/// Renames the file, because hard links are not available here. The name does not exist for a short time.
fn give_away(name_at: NameAt<'_>, name: &CStr, keep: bool) -> Attempt<()> {
    let there = statat(name_at.dir, name_at.name, AtFlags::SYMLINK_NOFOLLOW);
    if there.is_ok_and(|there| kind(&there) == FileType::Directory) {
        return Err(CopyFailure::Refused(Refusal::OverDirectory));
    }
    match rename(name_at.dir, name_at.name, name, keep) {
        // Another process removed the file. `set_aside` recognizes this case by an error of `linkat`.
        Err(Errno::NOENT) => Err(CopyFailure::Sink("linkat", Errno::NOENT, 0)),
        answer => answer.map_err(at_sink("renameat2")),
    }
}

struct BackupName {
    name: CString,
    is_numbered: bool,
}

fn backup_name(options: &CopyOptions, name_at: NameAt<'_>) -> Attempt<Option<BackupName>> {
    let name = name_at.name.to_bytes();
    let last = match options.backup {
        Backup::None => return Ok(None),
        Backup::Simple => None,
        Backup::Numbered => Some(highest(name_at)?),
        Backup::Existing => Some(highest(name_at)?).filter(|last| *last > 0),
    };
    let suffix = options.suffix.as_bytes();
    let simple = || [name, if suffix.is_empty() { b"~" } else { suffix }].concat();
    let bytes = last.map_or_else(simple, |last| numbered(name, last + 1));
    let name = CString::new(bytes).map_err(|_| CopyFailure::Sink("rename", Errno::INVAL, 0))?;
    Ok(Some(BackupName { name, is_numbered: last.is_some() }))
}

fn numbered(name: &[u8], number: u64) -> Vec<u8> {
    [name, format!(".~{number}~").as_bytes()].concat()
}

/// Returns the highest number of a numbered backup; 0 if none exists.
fn highest(name_at: NameAt<'_>) -> Attempt<u64> {
    let dir = openat(name_at.dir, c".", DIRECTORY, Mode::empty()).map_err(at_sink("openat"))?;
    let mut highest = 0;
    let listed = each_entry(dir, &mut listing_buffer(), |entry| {
        if entry.file_type() != FileType::Directory {
            highest = highest.max(number_of(name_at.name, entry.file_name()).unwrap_or(0));
        }
        true
    });
    listed.map(|()| highest).map_err(at_sink("getdents64"))
}

fn number_of(name: &CStr, entry: &CStr) -> Option<u64> {
    let rest = entry.to_bytes().strip_prefix(name.to_bytes())?;
    let digits = rest.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_backups_of_this_name_only() {
        assert_eq!(number_of(c"a", c"a.~12~"), Some(12));
        for other in [c"a~", c"b.~1~", c"a.~~", c"a.~1", c"a.~+1~", c"a.~99999999999999999999999~"]
        {
            assert_eq!(number_of(c"a", other), None, "{other:?}");
        }
        assert_eq!(numbered(b"a", 3), b"a.~3~");
    }
}
