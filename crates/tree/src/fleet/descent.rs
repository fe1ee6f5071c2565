//! Opens directories by their path, one name at a time from the root, and never through a symbolic link. The
//! directories on the last path stay open, because the next path is probably near it.

use rustix::fs::fstat;
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};
use thalweg_sys::Errno;

use super::fleet_directory::folder;
use crate::{
    fs::{
        beneath::open_directory,
        cached::{CachedDirectory, DirectoryCache, ReopenAddress},
        list::DIRECTORY,
    },
    identity::Id,
};

/// The open path from the root of a tree to one directory.
pub(crate) struct Descent {
    root: Arc<CachedDirectory>,
    kept: Arc<DirectoryCache>,
    // `true` if missing directories are created.
    makes: bool,
    way: Vec<(CString, Arc<CachedDirectory>)>,
}

impl Descent {
    /// Creates a descent from `root`, which stays open.
    pub fn new(root: OwnedFd, kept: &Arc<DirectoryCache>, makes: bool) -> Result<Self, Errno> {
        let id = Id::of(&fstat(&root)?);
        let address = ReopenAddress { above: None, name: c".", flags: DIRECTORY };
        let root = CachedDirectory::new(root, id, &address, None);
        Ok(Self { root, kept: Arc::clone(kept), makes, way: Vec::new() })
    }

    /// Opens the directory of a path below the root.
    pub fn folder(&mut self, path: &[u8]) -> Result<&Arc<CachedDirectory>, Errno> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let mut depth = 0;
        for name in names {
            let is_known = self.way.get(depth).is_some_and(|(known, _)| known.to_bytes() == name);
            if !is_known {
                self.way.truncate(depth);
                let name = CString::new(name).map_err(|_| Errno::INVAL)?;
                let folder = self.step(&name)?;
                self.way.push((name, folder));
            }
            depth += 1;
        }
        self.way.truncate(depth);
        Ok(self.last())
    }

    fn last(&self) -> &Arc<CachedDirectory> {
        self.way.last().map_or(&self.root, |(_, folder)| folder)
    }

    fn step(&self, name: &CStr) -> Result<Arc<CachedDirectory>, Errno> {
        let above = self.last();
        let dir = above.open()?;
        let fd = match open_directory(dir.as_fd(), name, DIRECTORY) {
            Err(Errno::NOENT) if self.makes => folder(dir.as_fd(), name)?,
            answer => answer?,
        };
        let id = Id::of(&fstat(&fd)?);
        let address = ReopenAddress { above: Some(above), name, flags: DIRECTORY };
        Ok(CachedDirectory::new(fd, id, &address, Some(&self.kept)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn folders_are_found_made_and_never_reached_through_a_link() {
        let here = tempfile::tempdir().unwrap();
        let root = || OwnedFd::from(fs::File::open(here.path()).unwrap());
        let kept = DirectoryCache::new(4);
        let mut makes = Descent::new(root(), &kept, true).unwrap();
        let deep = "a/".repeat(300) + "b";
        for path in [deep.as_bytes(), b"a/c", b"", b"x/y", b"a/c"] {
            makes.folder(path).unwrap();
        }
        let mut looks = Descent::new(root(), &kept, false).unwrap();
        let id = looks.folder(deep.as_bytes()).unwrap().id;
        assert_eq!(makes.folder(deep.as_bytes()).unwrap().id, id);
        assert_eq!(looks.folder(b"a/d").err(), Some(Errno::NOENT));
        std::os::unix::fs::symlink("x", here.path().join("link")).unwrap();
        for descent in [&mut makes, &mut looks] {
            assert!(descent.folder(b"link/y").is_err());
            assert!(descent.folder(b"x/y").is_ok());
        }
    }
}
