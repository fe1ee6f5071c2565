//! Decides which files and directories may be used if another user may have created them.
//!
//! The names of partial files, journals and staging directories can be guessed, and every user can create them in a
//! directory such as `/tmp`. Every leftover that is resumed or removed passes [`distrust`] first.

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat, unlinkat},
    process::geteuid,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_sys::Errno;

use super::{create_new, name::unique, open_nameless, unlink};

/// Write permission of group and others.
const WRITABLE: u32 = 0o022;

/// The reason that a leftover is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// A FIFO, a device, a symbolic link or a directory.
    #[error("is not a regular file")]
    NotAFile,
    /// Not a directory.
    #[error("is not a directory")]
    NotADirectory,
    /// It belongs to another user.
    #[error("belongs to user {0}")]
    Owner(u32),
    /// A file with further hard links: writing to it would change the file under its other names.
    #[error("has more than one hard link")]
    Links,
    /// Writable by group or others.
    #[error("can be written by other users (mode {0:04o})")]
    Mode(u32),
}

/// A leftover that was not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' {why}; left unchanged and not used to resume", name.to_string_lossy())]
pub struct LeftAlone {
    pub name: CString,
    pub why: Distrust,
}

/// Returns the reason not to use the entry `stat` of the directory `dir` as a leftover. `None` if it may be used.
///
/// `stat` must come from `fstat` of the open and locked descriptor, so that it describes the entry that will be used.
pub fn distrust(dir: BorrowedFd<'_>, stat: &Stat, kind: FileType) -> Option<Distrust> {
    let found = judge(stat, kind, geteuid().as_raw(), 0)?;
    if !matches!(found, Distrust::Owner(_) | Distrust::Mode(_)) {
        return Some(found);
    }
    // NFS (root_squash), FAT and FUSE choose owner and mode themselves. A new entry shows which ones they choose.
    let born = if kind == FileType::Directory { dir_birth(dir) } else { birth(dir, 0o600) };
    let Some(born) = born else { return Some(found) };
    judge(stat, kind, born.st_uid, born.st_mode & WRITABLE)
}

fn judge(stat: &Stat, kind: FileType, owner: u32, writable: u32) -> Option<Distrust> {
    let is_file = kind == FileType::RegularFile;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Some(if is_file { Distrust::NotAFile } else { Distrust::NotADirectory });
    }
    if stat.st_uid != owner {
        return Some(Distrust::Owner(stat.st_uid));
    }
    if is_file && stat.st_nlink > 1 {
        return Some(Distrust::Links);
    }
    let is_writable = stat.st_mode & WRITABLE & !writable != 0;
    is_writable.then_some(Distrust::Mode(stat.st_mode & 0o7777))
}

/// Returns `true` if an entry of `dir` belongs to the user that would own a file created there now.
pub fn is_own(dir: BorrowedFd<'_>, stat: &Stat) -> bool {
    let born = || birth(dir, 0o600).is_some_and(|born| born.st_uid == stat.st_uid);
    stat.st_uid == geteuid().as_raw() || born()
}

/// Like [`distrust`], but by name. The name may lead to another entry afterwards, so check again after opening it.
/// `None` if the entry does not exist.
pub fn distrust_name(dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Option<Distrust> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    distrust(dir, &stat, kind)
}

/// Opens a file that an earlier run left; `None` if another user may have created it. Never blocks.
pub fn open_own(
    dir: BorrowedFd<'_>,
    name: &CStr,
    access: OFlags,
) -> Result<Option<OwnedFd>, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    let is_own = distrust(dir, &fstat(&fd)?, FileType::RegularFile).is_none();
    Ok(is_own.then_some(fd))
}

/// Removes a file that an earlier run left. A file that another user may have created is kept.
pub fn remove_own(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // Another user may create a directory under this name after the check. `unlinkat` without `AT_REMOVEDIR` does not
    // remove a directory.
    let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        stat => stat?,
    };
    match distrust(dir, &stat, FileType::RegularFile) {
        None => unlink(dir, name),
        Some(_) => Ok(()),
    }
}

/// Returns the attributes that a file created in `dir` with this mode gets: its owner, and its mode after the umask and
/// the default ACL. `None` if no file can be created.
fn birth(dir: BorrowedFd<'_>, mode: u32) -> Option<Stat> {
    if let Ok(Some(fd)) = open_nameless(dir, OFlags::WRONLY, mode) {
        return fstat(fd).ok();
    }
    let name = unique(c"new");
    let fd = create_new(dir, &name, OFlags::WRONLY, mode).ok()?;
    let _ = unlinkat(dir, &name, AtFlags::empty());
    fstat(fd).ok()
}

fn dir_birth(dir: BorrowedFd<'_>) -> Option<Stat> {
    let name = unique(c"new");
    mkdirat(dir, &name, Mode::RWXU).ok()?;
    let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let _ = unlinkat(dir, &name, AtFlags::REMOVEDIR);
    stat
}

/// Returns the permission bits that a file created in `dir` with this mode gets; `0600` if they are not known.
pub fn birth_mode(dir: BorrowedFd<'_>, mode: u32) -> u32 {
    birth(dir, mode).map_or(0o600, |stat| stat.st_mode & 0o7777)
}

/// Returns `true` if another user may have placed the entry `there` in the directory `dir`. This process would then
/// write to that entry or follow it. This is the rule of the kernel's `fs.protected_symlinks`, `fs.protected_fifos` and
/// `fs.protected_regular`, which are off in many containers.
pub fn is_trap(dir: &Stat, there: &Stat) -> bool {
    dir.st_mode & 0o1002 == 0o1002
        && there.st_uid != geteuid().as_raw()
        && there.st_uid != dir.st_uid
}

/// Returns `true` if the entry `name` of `dir` is a trap by the rule of [`is_trap`].
pub fn is_trap_at(dir: impl AsFd, name: &CStr) -> Result<bool, Errno> {
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok(is_trap(&fstat_path(&dir)?, &there)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn fstat_path(dir: impl AsFd) -> Result<Stat, Errno> {
    // `fstat` does not accept `AT_FDCWD`.
    statat(dir, c".", AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, chownat, mknodat};
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
    };

    use crate::atomic_file::{AtomicFile, Leftovers};

    const FILE: FileType = FileType::RegularFile;

    fn give_away(path: &Path) -> bool {
        let nobody = Some(rustix::fs::Uid::from_raw(65534));
        chownat(rustix::fs::CWD, path, nobody, None, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Resumes the partial file of `n`, and returns the reason that the leftover was not used.
    fn resume(folder: &Path) -> Option<Distrust> {
        let dir = fs::File::open(folder).unwrap();
        let leftovers = Leftovers { resume: true, ..Leftovers::default() };
        let file = AtomicFile::part(&dir, c"n", leftovers).unwrap();
        assert_eq!(file.adopted, file.left_alone.is_none());
        assert_eq!(fstat(&file.fd).unwrap().st_mode & 0o777, 0o600);
        assert_eq!(file.left_alone.is_some(), file.journal().is_none());
        file.left_alone.as_ref().map(|left| left.why)
    }

    #[test]
    fn a_partial_file_is_resumed_only_if_no_other_user_can_have_made_it_or_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join(".n.thalweg-part");
        let plant = || {
            let _ = fs::remove_file(&part);
            fs::write(&part, "planted").unwrap();
            chmod(&part, 0o644);
        };
        plant();
        assert_eq!(resume(folder.path()), None);
        for mode in [0o664, 0o646, 0o666] {
            plant();
            chmod(&part, mode);
            assert_eq!(resume(folder.path()), Some(Distrust::Mode(mode)));
        }
        plant();
        fs::hard_link(&part, folder.path().join("other")).unwrap();
        assert_eq!(resume(folder.path()), Some(Distrust::Links));
        plant();
        if give_away(&part) {
            assert_eq!(resume(folder.path()), Some(Distrust::Owner(65534)));
            // Even if the other user's file is locked, it is not taken for the file of a living run.
            let held = fs::File::open(&part).unwrap();
            held.lock().unwrap();
            assert_eq!(resume(folder.path()), Some(Distrust::Owner(65534)));
        }
        assert_eq!(fs::read(&part).unwrap(), b"planted");
        fs::remove_file(&part).unwrap();
        mknodat(rustix::fs::CWD, &part, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(resume(folder.path()), Some(Distrust::NotAFile));
        fs::remove_file(&part).unwrap();
        symlink("other", &part).unwrap();
        assert_eq!(resume(folder.path()), Some(Distrust::NotAFile));
        fs::remove_file(&part).unwrap();
        fs::create_dir(&part).unwrap();
        assert_eq!(resume(folder.path()), Some(Distrust::NotAFile));
    }

    #[test]
    fn a_journal_of_another_user_keeps_the_partial_file_beside_it_from_being_used() {
        let folder = tempfile::tempdir().unwrap();
        let (part, journal) =
            (folder.path().join(".n.thalweg-part"), folder.path().join(".n.thalweg-journal"));
        fs::write(&part, "ours").unwrap();
        fs::write(&journal, "text").unwrap();
        chmod(&part, 0o600);
        chmod(&journal, 0o600);
        fs::hard_link(&journal, folder.path().join("of root")).unwrap();
        assert_eq!(resume(folder.path()), Some(Distrust::Links));
        fs::remove_file(folder.path().join("of root")).unwrap();
        if give_away(&journal) {
            assert_eq!(resume(folder.path()), Some(Distrust::Owner(65534)));
        }
        let dir = fs::File::open(folder.path()).unwrap();
        let is_own = distrust_name(dir.as_fd(), c".n.thalweg-journal", FILE).is_none();
        remove_own(dir.as_fd(), c".n.thalweg-journal").unwrap();
        assert_eq!(journal.exists(), !is_own);
        assert_eq!(fs::read(&part).unwrap(), b"ours");
    }

    #[test]
    fn a_leftover_of_another_user_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join(".n.thalweg-part");
        fs::write(&part, "planted").unwrap();
        let dir = fs::File::open(folder.path()).unwrap();
        let remove = || {
            crate::atomic_file::remove_leftover(
                dir.as_fd(),
                c"n",
                super::super::lock::Id::default(),
            )
            .unwrap();
        };
        if give_away(&part) {
            remove();
            assert!(part.exists());
            fs::remove_file(&part).unwrap();
            fs::write(&part, "ours").unwrap();
        }
        chmod(&part, 0o600);
        remove();
        assert!(!part.exists());
    }

    #[test]
    fn a_part_gets_its_final_mode_when_it_gets_its_name_and_another_users_mode_is_not_kept() {
        use crate::atomic_file::{Destination, Until};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n");
        let mode = |name: &str| {
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777
        };
        let fetch = |until| {
            let mut file = Destination::open_until(&path, until).unwrap();
            file.write(b"bytes", &|| Ok(())).unwrap();
            if until == Until::Part {
                assert_eq!(mode(".n.thalweg-part"), 0o600);
            }
            file.publish().unwrap();
            mode("n")
        };
        fs::write(folder.path().join("plain"), "").unwrap();
        for until in [Until::Part, Until::Nameless] {
            let _ = fs::remove_file(&path);
            assert_eq!(fetch(until), mode("plain"));
            chmod(&path, 0o646);
            assert_eq!(fetch(until), 0o646);
            if give_away(&path) {
                assert_eq!(fetch(until), mode("plain"));
            }
        }
    }
}
