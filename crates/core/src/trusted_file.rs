//! Opens and writes the files that control thalweg: the profile, saved results, cached programs and `.netrc`.
//!
//! Such a file is used only if it belongs to this user or to root, and no other user can write it. `sudo` keeps HOME,
//! so the file may belong to another user. In a directory such as `/tmp`, another user may have created the name first.
//! Files that a user names as data are not checked here.

use rustix::{
    fs::{
        CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, lstat, mkdirat, open as open_path, openat,
    },
    process::geteuid,
};
use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use thalweg_sys::Errno;

use crate::{
    atomic_file::{Destination, DestinationError},
    failed::{of_io, quoted},
};

/// Write permission of group and others.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The reason that a file or a directory is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It belongs neither to this user nor to root.
    #[error("belongs to user {0}")]
    Owner(u32),
    /// Writable by group or others.
    #[error("can be written by other users (mode {0:04o}; chmod go-w makes it usable)")]
    Mode(u32),
    /// A FIFO or a device.
    #[error("is not a regular file")]
    NotAFile,
}

/// A file or a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A system call failed.
    #[error("{}", of_io(&quoted(path), call, source))]
    Io {
        /// The file or the directory.
        path: PathBuf,
        /// The name of the system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another user may have created or changed the file or the directory.
    #[error("{} {why}", quoted(path))]
    Untrusted {
        /// The file or the directory.
        path: PathBuf,
        /// The reason.
        why: Untrusted,
    },
}

impl TrustError {
    fn io(path: &Path, call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Io { path: path.to_owned(), call, source: errno.into() }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens a file for reading, and returns it with the result of `fstat`. Never blocks on a FIFO.
pub fn open_any(path: &Path) -> Result<(File, Stat), TrustError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = open_path(path, flags, Mode::empty()).map_err(TrustError::io(path, "open"))?;
    let stat = fstat(&fd).map_err(TrustError::io(path, "fstat"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((File::from(fd), stat)),
        FileType::Directory => Err(TrustError::io(path, "read")(Errno::ISDIR)),
        _ => Err(TrustError::Untrusted { path: path.to_owned(), why: Untrusted::NotAFile }),
    }
}

/// Opens a file for reading; `None` if it does not exist. Fails if another user may have created or changed it.
pub fn open(path: &Path) -> Result<Option<File>, TrustError> {
    match open_any(path) {
        Ok((file, stat)) => expect_trusted(path, &stat, WRITABLE).map(|()| Some(file)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file atomically. Creates its directory if that does not exist. Whatever the umask is, no other user can
/// write the file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), TrustError> {
    make_directory(directory_of(path))?;
    let failed = |error: DestinationError| TrustError::Io {
        path: path.to_owned(),
        call: "write",
        source: error.into(),
    };
    let mut destination = Destination::open(path).map_err(failed)?;
    if let Destination::Whole { mode: Some(mode), .. } = &mut destination {
        *mode &= !WRITABLE;
    } else {
        close_to_others(&destination).map_err(TrustError::io(path, "fchmod"))?;
    }
    destination.write(bytes, &|| Ok(())).map_err(|error| failed(error.into()))?;
    destination.publish().map_err(failed)
}

/// Removes write permission of group and others, which the umask may have granted. Devices keep their mode.
fn close_to_others(destination: &Destination) -> Result<(), Errno> {
    let stat = fstat(destination.fd())?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_mode & WRITABLE == 0 {
        return Ok(());
    }
    fchmod(destination.fd(), Mode::from_raw_mode(stat.st_mode & 0o777 & !WRITABLE))
}

/// Opens or creates a lock file in a directory that [`make_directory`] accepts. `None` if the existing entry is not a
/// regular file of this user, because another user could hold the lock for ever.
pub fn lock_file(path: &Path) -> Result<Option<OwnedFd>, TrustError> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let fd = match openat(CWD, path, flags | OFlags::CREATE, mode) {
        Ok(fd) => fd,
        // ELOOP: a symbolic link. ENXIO: a socket. EACCES: `fs.protected_regular` forbids it. EISDIR: a directory.
        Err(Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::ISDIR) => return Ok(None),
        Err(errno) => return Err(TrustError::io(path, "open")(errno)),
    };
    let stat = fstat(&fd).map_err(TrustError::io(path, "fstat"))?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok((is_file && stat.st_uid == geteuid().as_raw()).then_some(fd))
}

/// Creates a directory and its missing parents. The directory, or its nearest existing parent, must belong to this user
/// or to root, and must not be writable by others. A sticky directory such as `/tmp` is accepted.
pub fn make_directory(path: &Path) -> Result<(), TrustError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match check_directory(path) {
        Err(error) if error.is_absent() => {}
        answer => return answer,
    }
    make_directory(directory_of(path))?;
    match mkdirat(CWD, path, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH) {
        Ok(()) | Err(Errno::EXIST) => check_directory(path),
        Err(errno) => Err(TrustError::io(path, "mkdir")(errno)),
    }
}

/// Checks the directory of a file that will be written, or its nearest existing parent. Creates nothing.
pub fn check_place(path: &Path) -> Result<(), TrustError> {
    let mut nearest = directory_of(path);
    loop {
        match check_directory(nearest) {
            Err(error) if error.is_absent() && directory_of(nearest) != nearest => {
                nearest = directory_of(nearest);
            }
            answer => return answer,
        }
    }
}

/// Checks that a directory, and a symbolic link to it, belongs to this user or to root. Other users must not be able to
/// write the directory.
pub fn check_directory(path: &Path) -> Result<(), TrustError> {
    let link = lstat(path).map_err(TrustError::io(path, "lstat"))?;
    if FileType::from_raw_mode(link.st_mode) == FileType::Symlink {
        expect_trusted(path, &link, 0)?;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open_path(path, flags, Mode::empty()).map_err(TrustError::io(path, "open"))?;
    let stat = fstat(&fd).map_err(TrustError::io(path, "fstat"))?;
    let writable = if stat.st_mode & STICKY == 0 { WRITABLE } else { 0 };
    expect_trusted(path, &stat, writable)
}

fn expect_trusted(path: &Path, stat: &Stat, writable: u32) -> Result<(), TrustError> {
    let owner = stat.st_uid;
    let why = if owner != 0 && owner != geteuid().as_raw() {
        Untrusted::Owner(owner)
    } else if stat.st_mode & writable != 0 {
        Untrusted::Mode(stat.st_mode & 0o7777)
    } else {
        return Ok(());
    };
    Err(TrustError::Untrusted { path: path.to_owned(), why })
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ if path.is_absolute() => Path::new("/"),
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, Uid, chownat, mknodat};
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Returns `false` if this process lacks the permission to change the owner.
    fn give_away(path: &Path) -> bool {
        let other = Some(Uid::from_raw(65534));
        chownat(CWD, path, other, None, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn why<T>(answer: Result<T, TrustError>) -> Option<Untrusted> {
        match answer {
            Ok(_) => None,
            Err(TrustError::Untrusted { why, .. }) => Some(why),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_file_is_opened_only_if_no_other_user_can_have_made_or_changed_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        assert!(open(&path).unwrap().is_none());
        fs::write(&path, "ours").unwrap();
        for (mode, expected) in [
            (0o600, None),
            (0o644, None),
            (0o664, Some(Untrusted::Mode(0o664))),
            (0o646, Some(Untrusted::Mode(0o646))),
        ] {
            chmod(&path, mode);
            assert_eq!(why(open(&path)), expected);
        }
        chmod(&path, 0o644);
        if give_away(&path) {
            assert_eq!(why(open(&path)), Some(Untrusted::Owner(65534)));
        }
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(why(open(&path)), Some(Untrusted::NotAFile));
        assert!(open(place.path()).unwrap_err().to_string().contains("EISDIR"));
    }

    #[test]
    fn directories_are_made_only_below_one_that_belongs_to_this_user_or_to_root() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/file");
        write(&path, b"text").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        for (mode, expected) in
            [(0o777, Some(Untrusted::Mode(0o777))), (0o1777, None), (0o755, None)]
        {
            chmod(place.path(), mode);
            assert_eq!(why(make_directory(&place.path().join("c/d"))), expected);
            let _ = fs::remove_dir_all(place.path().join("c"));
        }
        if give_away(&place.path().join("a")) {
            assert_eq!(
                why(make_directory(&place.path().join("a/new"))),
                Some(Untrusted::Owner(65534))
            );
            assert!(!place.path().join("a/new").exists());
        }
        symlink("a/b", place.path().join("link")).unwrap();
        assert_eq!(why(check_directory(&place.path().join("link"))), None);
        if give_away(&place.path().join("link")) {
            let linked = why(write(&place.path().join("link/file"), b"lost"));
            assert_eq!(linked, Some(Untrusted::Owner(65534)));
        }
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }

    #[test]
    fn what_is_written_cannot_be_written_by_others() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "old").unwrap();
        chmod(&path, 0o666);
        write(&path, b"new").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, fs::read(&path).unwrap()), (0o644, b"new".to_vec()));
    }

    #[test]
    fn a_lock_file_of_another_user_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        assert!(lock_file(&path).unwrap().is_some() && lock_file(&path).unwrap().is_some());
        if give_away(&path) {
            assert!(lock_file(&path).unwrap().is_none());
        }
        fs::remove_file(&path).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(lock_file(&path).unwrap().is_none());
        assert!(!place.path().join("elsewhere").exists());
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(lock_file(&path).unwrap().is_none());
    }
}
