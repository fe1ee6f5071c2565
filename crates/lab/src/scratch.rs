//! A folder of our own that goes when it is dropped, also on errors and panics.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};
use thalweg_core::{atomic_file::name::unfinished_name, trusted_file::make_directory};

/// A hidden folder, named as everything unfinished is: a copy of what is around it leaves it out, also
/// when a killed process has left it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder inside an existing one. Only this user can enter it: `copy --tune` puts parts of files there that
    /// other users must not read.
    pub fn inside(parent: &Path) -> io::Result<Self> {
        Self::make(parent, "tune", 0o700)
    }

    /// A new folder for another purpose than tuning, with the mode that the umask leaves: a program may start children
    /// as another user.
    pub fn named(parent: &Path, purpose: &str) -> io::Result<Self> {
        Self::make(parent, purpose, 0o777)
    }

    fn make(parent: &Path, purpose: &str, mode: u32) -> io::Result<Self> {
        loop {
            let path = parent.join(unfinished_name(OsStr::new(purpose)));
            match fs::DirBuilder::new().mode(mode).create(&path) {
                // Left by a killed process of this number.
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

impl Drop for Folder {
    fn drop(&mut self) {
        // A drop cannot report; what cannot be removed is hidden and named after us.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes a file or a tree, if there is one.
pub(crate) fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// `$XDG_CACHE_HOME/thalweg/PURPOSE`, or below `~/.cache`. `None` where it cannot be made, and where another user can
/// write it: programs that lie there are run.
pub(crate) fn cache(purpose: &str) -> Option<PathBuf> {
    let told = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = told("XDG_CACHE_HOME").or_else(|| Some(told("HOME")?.join(".cache")))?;
    let folder = base.join("thalweg").join(purpose);
    make_directory(&folder).ok()?;
    Some(folder)
}

/// Bytes an ordinary user may still write in a folder; no limit where that is not told.
pub(crate) fn free_space(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_do_not_collide_and_both_go_with_what_they_hold() {
        let parent = tempfile::tempdir().unwrap();
        let (a, b) =
            (Folder::inside(parent.path()).unwrap(), Folder::inside(parent.path()).unwrap());
        assert_ne!(a.path(), b.path());
        fs::write(a.file("x"), "y").unwrap();
        drop((a, b));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(Folder::inside(&parent.path().join("nowhere")).is_err());
    }
}
