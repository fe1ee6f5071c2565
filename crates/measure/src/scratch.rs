//! Temporary directories that are removed when dropped, also on errors and panics.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};
use thalweg_core::{atomic_file::name::unfinished_name, trusted_file::make_directory};
use thalweg_sys::host::memory_available;

/// A hidden directory with the reserved name of unfinished files. A copy of its parent directory skips it, even if a
/// killed process has left it behind.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Creates a directory inside an existing one. Only this user can enter it, because `copy --tune` puts parts of
    /// files there that other users must not read.
    pub fn inside(parent: &Path) -> io::Result<Self> {
        Self::make(parent, "tune", 0o700)
    }

    /// Creates a directory for another purpose than tuning. The umask decides the mode, because a measured program may
    /// start processes as another user, and these need access.
    pub fn named(parent: &Path, purpose: &str) -> io::Result<Self> {
        Self::make(parent, purpose, 0o777)
    }

    fn make(parent: &Path, purpose: &str, mode: u32) -> io::Result<Self> {
        loop {
            let path = parent.join(unfinished_name(OsStr::new(purpose)));
            match fs::DirBuilder::new().mode(mode).create(&path) {
                // An earlier process with this process id was killed and left this directory behind. The next name is
                // tried.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A drop cannot report errors; a directory that cannot be removed stays hidden, with a name that identifies
        // this process.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes a file or a directory tree, if it exists.
pub fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Returns `$XDG_CACHE_HOME/thalweg/PURPOSE`, or a directory below `~/.cache`. `None` if it cannot be created. Also
/// `None` if another user can write to it, because thalweg executes programs in this directory.
pub fn cache(purpose: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let folder = base.join("thalweg").join(purpose);
    make_directory(&folder).ok()?;
    Some(folder)
}

/// Returns the bytes that an unprivileged user can still write in a directory; `u64::MAX` if unknown.
pub fn free_space(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Returns an error if this number of bytes would use up the machine's memory.
pub fn room_for(bytes: usize) -> Result<(), String> {
    match memory_available() {
        Some(available) if available < bytes as u64 => Err(format!(
            "it needs {} MiB of memory, but only {} MiB are available",
            bytes >> 20,
            available >> 20
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        assert!(room_for(usize::MAX).is_err());
        assert_eq!(room_for(1 << 10), Ok(()));
    }

    #[test]
    fn two_folders_do_not_collide_and_both_go_with_what_they_hold() {
        let parent = tempfile::tempdir().unwrap();
        let (a, b) = (
            ScratchFolder::inside(parent.path()).unwrap(),
            ScratchFolder::inside(parent.path()).unwrap(),
        );
        assert_ne!(a.path(), b.path());
        fs::write(a.file("x"), "y").unwrap();
        drop((a, b));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(ScratchFolder::inside(&parent.path().join("nowhere")).is_err());
    }
}
