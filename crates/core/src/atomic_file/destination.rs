//! The output of a command. A file appears under its name only when it is complete. A device, a FIFO or an open stream
//! is written directly.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, stat, statat};
use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};
use thalweg_sys::{Errno, io};

use super::{
    AtomicFile, CallFailed, Fsync, Leftovers, failed,
    followed::{Followed, follow, open_directory},
    lock::Id,
    ownership::{LeftAlone, birth_mode, is_trap, is_trap_at},
    sync_directory,
};
use crate::Cancelled;

/// An open destination.
#[derive(Debug)]
pub enum Destination {
    /// A device, a FIFO or an open stream. Written data is visible at once.
    Direct(OwnedFd),
    /// A file. Its data is visible only after it is published.
    Whole {
        file: AtomicFile<OwnedFd, CString>,
        /// `true` if an existing file of the name is replaced.
        replace: bool,
        /// The mode to set immediately before publishing; `None` if the file already has its mode.
        mode: Option<u32>,
    },
}

/// The reason that a destination cannot be opened, written or published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error("{0}")]
    Call(CallFailed),
    /// The path ends with `/`, and no directory of that name exists.
    #[error("no such directory")]
    NoFolder,
    /// A dangling symbolic link that cannot be followed, and that the caller did not ask to replace.
    #[error("the destination is a dangling symbolic link")]
    Dangling,
    /// A file of this name exists, and must not be replaced.
    #[error("the destination already exists")]
    Exists,
    /// The name belongs to an entry that is neither a regular file nor a symbolic link.
    #[error("the destination already exists and is not a regular file")]
    NoFile,
    /// Another user's symbolic link, FIFO or file in a directory that every user may write.
    #[error("the destination belongs to another user in a world-writable directory")]
    Trap,
}

impl From<CallFailed> for DestinationError {
    fn from(failed: CallFailed) -> Self {
        Self::Call(failed)
    }
}

impl From<DestinationError> for std::io::Error {
    fn from(error: DestinationError) -> Self {
        match error {
            DestinationError::Call(CallFailed { errno, .. }) => errno.into(),
            DestinationError::NoFolder | DestinationError::Dangling => Errno::NOENT.into(),
            DestinationError::Exists | DestinationError::NoFile => Errno::EXIST.into(),
            DestinationError::Trap => Errno::ACCESS.into(),
        }
    }
}

/// Writes a file atomically.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), DestinationError> {
    let mut destination = Destination::open(path)?;
    destination.write(bytes, &|| Ok(()))?;
    destination.publish()
}

/// The state of a file until it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The file has no name if the file system supports `O_TMPFILE`. A killed process then leaves no file.
    Nameless,
    /// The file is a partial file. If an earlier run left one, this run resumes it.
    Part,
}

impl Destination {
    /// Opens the destination at this path. A symbolic link is followed, and an existing file is replaced.
    pub fn open(path: &Path) -> Result<Self, DestinationError> {
        Self::open_until(path, Until::Nameless)
    }

    /// Like [`Self::open`]; `until` chooses between a nameless and a partial file.
    pub fn open_until(path: &Path, until: Until) -> Result<Self, DestinationError> {
        let found = match stat(path) {
            Ok(found) => Some(found),
            // Without this check, the error would occur only after all bytes were written.
            Err(Errno::NOENT) if path.as_os_str().as_bytes().ends_with(b"/") => {
                return Err(DestinationError::NoFolder);
            }
            Err(Errno::NOENT) if statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                return Err(DestinationError::Dangling);
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(CallFailed { call: "stat", errno }.into()),
        };
        let is_direct = found.is_some_and(|found| !is_file(&found));
        match resolve(path)? {
            Some((dir, name)) if is_direct => {
                if is_trap_at(&dir, &name).map_err(failed("stat"))? {
                    return Err(DestinationError::Trap);
                }
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
                let fd = openat(dir, name, flags, Mode::empty()).map_err(failed("open"))?;
                Ok(Self::Direct(fd))
            }
            None if is_direct => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let fd = openat(CWD, path, flags, Mode::empty()).map_err(failed("open"))?;
                Ok(Self::Direct(fd))
            }
            Some((dir, name)) => {
                Self::over_file(dir, OsStr::from_bytes(name.to_bytes()), true, until)
            }
            None => {
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let name = path.file_name().ok_or(DestinationError::NoFolder)?;
                Self::over_file(open_folder(&folder_of(&path))?, name, true, until)
            }
        }
    }

    /// Creates a file in a directory under a name that another process supplied, which must be a single component. A
    /// symbolic link of that name is never followed. With `replace`, only a regular file or a symbolic link is
    /// replaced.
    pub fn in_folder(folder: &Path, name: &OsStr, replace: bool) -> Result<Self, DestinationError> {
        Self::in_folder_until(folder, name, replace, Until::Nameless)
    }

    /// Like [`Self::in_folder`]; `until` chooses between a nameless and a partial file.
    pub fn in_folder_until(
        folder: &Path,
        name: &OsStr,
        replace: bool,
        until: Until,
    ) -> Result<Self, DestinationError> {
        Self::over_file(open_folder(folder)?, name, replace, until)
    }

    fn over_file(
        dir: OwnedFd,
        name: &OsStr,
        replace: bool,
        until: Until,
    ) -> Result<Self, DestinationError> {
        let may_be = |kind| matches!(kind, FileType::RegularFile | FileType::Symlink);
        Self::over(dir, name, replace, until, may_be)
    }

    /// Like [`Self::in_folder_until`], in an open directory. Also replaces FIFOs, sockets and devices.
    pub fn at(
        dir: OwnedFd,
        name: &OsStr,
        replace: bool,
        until: Until,
    ) -> Result<Self, DestinationError> {
        Self::over(dir, name, replace, until, |kind| kind != FileType::Directory)
    }

    fn over(
        dir: OwnedFd,
        name: &OsStr,
        replace: bool,
        until: Until,
        may_be: impl Fn(FileType) -> bool,
    ) -> Result<Self, DestinationError> {
        let found = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if !replace => return Err(DestinationError::Exists),
            Ok(found) if !may_be(FileType::from_raw_mode(found.st_mode)) => {
                return Err(DestinationError::NoFile);
            }
            Ok(found) => Some(found).filter(is_file),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(CallFailed { call: "stat", errno }.into()),
        };
        Self::whole(dir, name, found, replace, until)
    }

    fn whole(
        dir: OwnedFd,
        name: &OsStr,
        found: Option<Stat>,
        replace: bool,
        until: Until,
    ) -> Result<Self, DestinationError> {
        let name = CString::new(name.as_bytes()).map_err(|_| failed("open")(Errno::INVAL))?;
        let spare = found.as_ref().map(Id::of).unwrap_or_default();
        let file = match until {
            Until::Nameless => AtomicFile::create(dir, name, 0o666),
            Until::Part => AtomicFile::part(dir, name, Leftovers { resume: true, spare }),
        };
        let file = file.map_err(|error| CallFailed { call: "open", ..error })?;
        // A replaced file's mode is kept if the file belongs to this user. Another user's mode might give that user
        // write access to the new file.
        let owner = fstat(&file.fd).map_err(failed("fstat"))?.st_uid;
        let kept = found.filter(|found| found.st_uid == owner).map(|found| found.st_mode & 0o777);
        let born = || file.is_part().then(|| birth_mode(file.folder(), 0o666));
        let mode = kept.or_else(born);
        Ok(Self::Whole { file, replace, mode })
    }

    /// Returns the leftover that was not used, because another user may have created it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        match self {
            Self::Direct(_) => None,
            Self::Whole { file, .. } => file.left_alone.as_ref(),
        }
    }

    /// Returns the descriptor to write to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Direct(fd) => fd.as_fd(),
            Self::Whole { file, .. } => file.fd.as_fd(),
        }
    }

    /// Writes all bytes. Repeats a call that a signal interrupted (EINTR), unless `go_on` returns an error.
    pub fn write(
        &mut self,
        mut bytes: &[u8],
        go_on: &dyn Fn() -> Result<(), Cancelled>,
    ) -> Result<(), CallFailed> {
        while !bytes.is_empty() {
            let (call, errno) = match io::write(self.fd(), bytes) {
                // Repeating a write that returned 0 could loop for ever.
                Ok(0) => ("write", Errno::IO),
                Ok(count) => {
                    bytes = &bytes[count..];
                    continue;
                }
                Err(Errno::AGAIN) => match io::wait_writable(self.fd(), None) {
                    Ok(_) => continue,
                    Err(errno) => ("poll", errno),
                },
                Err(errno) => ("write", errno),
            };
            if errno != Errno::INTR || go_on().is_err() {
                return Err(CallFailed { call, errno });
            }
        }
        Ok(())
    }

    /// Keeps a partial file for a later run. Returns `false` if the destination is not a partial file, or if no later
    /// run would find the file. A file that no run would find is removed.
    pub fn leave(self) -> bool {
        match self {
            Self::Direct(_) => false,
            Self::Whole { mut file, .. } => file.leave().is_some(),
        }
    }

    /// Reports pending write errors of a regular file, and gives an atomic file its final name. If the file replaces
    /// another one, its data is brought to stable storage first.
    pub fn publish(self) -> Result<(), DestinationError> {
        self.publish_synced(Fsync::Auto)
    }

    /// Like [`publish`](Self::publish), but `fsync` selects the data that must be on stable storage afterwards.
    pub fn publish_synced(self, fsync: Fsync) -> Result<(), DestinationError> {
        let kind = FileType::from_raw_mode(fstat(self.fd()).map_err(failed("fstat"))?.st_mode);
        if let Self::Whole { file, mode: Some(mode), .. } = &self {
            // The mode is set before the file is flushed and gets its name. Errors are ignored, because a file system
            // without modes refuses fchmod.
            let _ = fchmod(&file.fd, Mode::from_raw_mode(*mode));
        }
        // Network file systems report ENOSPC and EDQUOT when a file is closed.
        if kind == FileType::RegularFile {
            io::flush(self.fd()).map_err(failed("close"))?;
        }
        match self {
            Self::Direct(fd) => {
                let holds = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
                if holds && fsync == Fsync::Always {
                    io::sync(&fd).map_err(failed("fsync"))?;
                }
                Ok(())
            }
            Self::Whole { mut file, replace, .. } => {
                match fsync {
                    Fsync::Always => io::sync(&file.fd).map_err(failed("fsync"))?,
                    Fsync::Auto if replace && file.replaces() => {
                        io::sync_data(&file.fd).map_err(failed("fdatasync"))?;
                    }
                    Fsync::Auto | Fsync::Never => {}
                }
                match file.publish(!replace) {
                    Err(CallFailed { errno: Errno::EXIST, .. }) if !replace => {
                        return Err(DestinationError::Exists);
                    }
                    answer => answer?,
                }
                if fsync == Fsync::Always {
                    sync_directory(file.folder(), file.fd.as_fd())?;
                }
                Ok(())
            }
        }
    }
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

/// Opens a file that is written in place, and creates it if it does not exist. A symbolic link is followed. Another
/// user's link, FIFO or file in a directory that every user may write is a [`DestinationError::Trap`].
pub fn open_in_place(path: &Path, flags: OFlags) -> Result<OwnedFd, DestinationError> {
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o666);
    let Some((dir, name)) = resolve(path)? else {
        return Ok(openat(CWD, path, flags, mode).map_err(failed("open"))?);
    };
    // This check comes before the open, because opening a FIFO without a reader blocks.
    if is_trap_at(&dir, &name).map_err(failed("stat"))? {
        return Err(DestinationError::Trap);
    }
    let file = openat(&dir, name, flags | OFlags::NOFOLLOW, mode).map_err(failed("open"))?;
    let above = statat(&dir, c".", AtFlags::empty()).map_err(failed("stat"))?;
    if is_trap(&above, &fstat(&file).map_err(failed("fstat"))?) {
        return Err(DestinationError::Trap);
    }
    Ok(file)
}

/// Returns the directory and the name to which a path leads. `None` if the path leads through `/proc` to an open file.
fn resolve(path: &Path) -> Result<Option<(OwnedFd, CString)>, DestinationError> {
    // The root and paths that end in `..` have no file name. They are directories.
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let name = CString::new(name.as_bytes()).map_err(|_| failed("open")(Errno::INVAL))?;
    let dir = open_folder(&folder_of(path))?;
    match follow(dir.as_fd(), &name).map_err(failed("open"))? {
        Followed::At(dir, name) => Ok(Some((dir, name))),
        Followed::Magic => Ok(None),
        Followed::Trap => Err(DestinationError::Trap),
    }
}

/// Opens a directory with O_PATH, because a directory may be writable without being readable.
fn open_folder(folder: &Path) -> Result<OwnedFd, CallFailed> {
    open_directory(folder, OFlags::PATH).map_err(failed("open"))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_file_is_seen_when_it_is_published_and_goes_if_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let mut destination = Destination::open(&path).unwrap();
        destination.write(b"whole", &|| Ok(())).unwrap();
        assert!(!path.exists());
        drop(destination);
        assert_eq!(count(), 0);
        write_file(&path, b"whole").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_file(&path, b"again").unwrap();
        assert_eq!((fs::read(&path).unwrap(), count()), (b"again".to_vec(), 1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_is_followed_unless_its_name_came_from_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let inside = |replace| Destination::in_folder(folder.path(), OsStr::new("link"), replace);
        assert_eq!(inside(false).unwrap_err(), DestinationError::Exists);
        let mut destination = inside(true).unwrap();
        destination.write(b"replaced", &|| Ok(())).unwrap();
        destination.publish().unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), fs::read(&link).unwrap().len()),
            (b"new".to_vec(), 8)
        );
        fs::remove_file(&file).unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(Destination::open(&link).unwrap_err(), DestinationError::Dangling);
        let missing = folder.path().join("missing/");
        assert_eq!(Destination::open(&missing).unwrap_err(), DestinationError::NoFolder);
    }

    #[test]
    fn what_replaces_a_file_is_synced_before_it_has_the_name() {
        use thalweg_sys::fault::{Call, Effect, Rule, Script};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let write = |rules: Vec<Rule>, fsync| {
            let outcome = Script::new(rules).run(|| {
                let mut destination = Destination::open(&path)?;
                destination.write(b"new", &|| Ok(()))?;
                destination.publish_synced(fsync)
            });
            (outcome.value, outcome.calls[Call::Fsync])
        };
        assert_eq!(write(Vec::new(), Fsync::Auto), (Ok(()), 0), "a new name");
        assert_eq!(write(Vec::new(), Fsync::Auto), (Ok(()), 1), "a replacement");
        assert_eq!(write(Vec::new(), Fsync::Never), (Ok(()), 0));
        assert_eq!(write(Vec::new(), Fsync::Always), (Ok(()), 2), "the file and its directory");
        fs::write(&path, "old").unwrap();
        let rule = || vec![Rule::once(Call::Fsync, 1, Effect::Errno(Errno::IO))];
        assert!(write(rule(), Fsync::Auto).0.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let destination = Destination::in_folder(folder.path(), OsStr::new("f"), false).unwrap();
        fs::write(folder.path().join("f"), "theirs").unwrap();
        assert_eq!(destination.publish(), Err(DestinationError::Exists));
        assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
