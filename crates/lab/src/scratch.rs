//! A folder of our own that goes when it is dropped, also on errors and panics.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A hidden folder `.thalweg-PURPOSE-PID`.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder inside an existing one.
    pub fn inside(parent: &Path) -> io::Result<Self> {
        Self::named(parent, "tune")
    }

    /// The same for another purpose than tuning.
    pub fn named(parent: &Path, purpose: &str) -> io::Result<Self> {
        let name = format!(".thalweg-{purpose}-{}", std::process::id());
        let mut path = parent.join(&name);
        for n in 2.. {
            match fs::create_dir(&path) {
                Ok(()) => break,
                // Left by a killed process of this number, or made by another thread of this one.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    path = parent.join(format!("{name}-{n}"));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Self(path))
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
        // Nobody is left to be told; what cannot be removed is hidden and named after us.
        let _ = fs::remove_dir_all(&self.0);
    }
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
