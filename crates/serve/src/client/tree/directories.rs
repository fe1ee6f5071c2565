//! The directories of a tree. They are created before all other entries and opened component by component without
//! following links. Their own attributes are set when all entries are complete.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::{Errno, opened::chmod_opened};
use thalweg_tree::install::{Beneath, FollowLinks, each_entry, listing_buffer};

use super::entry::ListedEntry;
use crate::client::FetchError;

/// Flags to open a directory of the tree. `O_NOFOLLOW`: another process may replace an entry by a link at any time.
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// An open directory of the tree.
pub struct TreeDirectory {
    pub fd: OwnedFd,
    /// Device of the files that are created in it.
    pub device: u64,
    /// `true` if this directory is known to be case-sensitive.
    is_case_sensitive: Cell<bool>,
}

/// Opens directories of a tree and caches the last one: the entries of one directory are adjacent in the list.
pub struct DirectoryCache<'a> {
    root: Beneath<BorrowedFd<'a>>,
    last: Option<(Vec<u8>, Rc<TreeDirectory>)>,
}

/// The result of stat on a name; `None` if it does not exist.
pub type NameStat = Option<Stat>;

impl<'a> DirectoryCache<'a> {
    /// Creates the cache for the directories below `root`.
    pub fn below(root: BorrowedFd<'a>) -> Self {
        Self { root: Beneath::new(root, FollowLinks::Never), last: None }
    }

    /// Returns the directory at this path.
    pub fn open(&mut self, path: &[u8]) -> Result<Rc<TreeDirectory>, CallFailed> {
        if let Some((_, directory)) = self.last.as_ref().filter(|(last, _)| last == path) {
            return Ok(Rc::clone(directory));
        }
        let fd = self.open_with(path, OFlags::PATH)?;
        let device = fstat(&fd).map_err(failed("fstat"))?.st_dev;
        let directory = Rc::new(TreeDirectory { fd, device, is_case_sensitive: Cell::new(false) });
        self.last = Some((path.to_owned(), Rc::clone(&directory)));
        Ok(directory)
    }

    /// Opens the directory at this path for listing and changing its attributes.
    pub fn open_itself(&self, path: &[u8]) -> Result<OwnedFd, CallFailed> {
        self.open_with(path, OFlags::RDONLY)
    }

    fn open_with(&self, path: &[u8], access: OFlags) -> Result<OwnedFd, CallFailed> {
        self.root.open(path, access | DIRECTORY).map_err(failed("openat"))
    }

    /// Creates the directory of an entry, and returns `true` if it did not exist. `is_fresh`: `true` if the root was
    /// empty before this run. `is_ours`: `true` if thalweg created everything below the root and may change its
    /// modes. `remove`: removes an entry of another type from the given directory.
    pub fn make(
        &mut self,
        entry: &ListedEntry,
        is_fresh: bool,
        is_ours: bool,
        remove: impl FnOnce(&TreeDirectory) -> Result<(), FetchError>,
    ) -> Result<bool, FetchError> {
        let above = self.open(entry.directory())?;
        let name = entry.name();
        match mkdirat(&above.fd, &name, Mode::RWXU) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) if is_fresh => return Err(FetchError::listed(TWICE)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("mkdirat")(errno).into()),
        }
        match above.look(&name)? {
            Some(there) if is_directory(&there) => {}
            _ => {
                remove(&above)?;
                mkdirat(&above.fd, &name, Mode::RWXU).map_err(failed("mkdirat"))?;
                return Ok(true);
            }
        }
        if is_ours {
            // An earlier run may have set the final mode already, which may forbid access.
            let opened = openat(&above.fd, &name, OFlags::PATH | DIRECTORY, Mode::empty());
            let opened = opened.map_err(failed("openat"))?;
            chmod_opened(&opened, 0o700).map_err(failed("fchmodat2"))?;
        }
        Ok(false)
    }
}

/// The error for an entry that collides with another.
pub const TWICE: &str = "another entry has this name, because the file system ignores case";

impl TreeDirectory {
    /// Returns the result of stat on a name. If the existing entry matches only because the file system ignores case,
    /// the result is an error: it may be another entry of the list.
    pub fn look(&self, name: &CStr) -> Result<NameStat, FetchError> {
        let there = match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            there => there.map_err(failed("newfstatat"))?,
        };
        if !self.is_case_sensitive.get()
            && !self.has_exactly(name, &there).map_err(failed("getdents64"))?
        {
            return Err(FetchError::listed(TWICE));
        }
        Ok(Some(there))
    }

    fn has_exactly(&self, name: &CStr, there: &Stat) -> Result<bool, Errno> {
        let swapped: Vec<u8> = name.to_bytes().iter().copied().map(swap_case).collect();
        if swapped == name.to_bytes() {
            return Ok(true);
        }
        let other = CString::new(swapped).unwrap_or_default();
        match statat(&self.fd, &other, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(other) if (other.st_dev, other.st_ino) == (there.st_dev, there.st_ino) => {}
            _ => {
                self.is_case_sensitive.set(true);
                return Ok(true);
            }
        }
        let listed = openat(&self.fd, c".", OFlags::RDONLY | DIRECTORY, Mode::empty())?;
        let mut found = false;
        each_entry(listed, &mut listing_buffer(), |entry| {
            found = entry.file_name() == name;
            !found
        })?;
        Ok(found)
    }
}

fn swap_case(byte: u8) -> u8 {
    if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::{fd::AsFd, unix::fs::symlink},
    };

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        fs::create_dir(place.path().join("out")).unwrap();
        symlink("../out", place.path().join("a/link")).unwrap();
        let root = fs::File::open(place.path()).unwrap();
        let mut directories = DirectoryCache::below(root.as_fd());
        assert!(directories.open(b"a/b").is_ok() && directories.open(b"").is_ok());
        for path in [&b"a/link"[..], b"a/link/x", b"none"] {
            assert!(directories.open(path).is_err());
        }
    }

    #[test]
    fn names_that_differ_only_in_case_are_distinguished() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("Name"), "").unwrap();
        let root = fs::File::open(place.path()).unwrap();
        let directory = DirectoryCache::below(root.as_fd()).open(b"").unwrap();
        assert!(directory.look(c"name").unwrap().is_none());
        assert!(directory.look(c"Name").unwrap().is_some());
        fs::hard_link(place.path().join("Name"), place.path().join("nAME")).unwrap();
        assert!(directory.look(c"nAME").unwrap().is_some());
        // Simulates a case-insensitive directory: both spellings lead to the file, whose listed name has a third
        // spelling.
        let there = statat(&directory.fd, c"Name", AtFlags::SYMLINK_NOFOLLOW).unwrap();
        fs::hard_link(place.path().join("Name"), place.path().join("NAme")).unwrap();
        directory.is_case_sensitive.set(false);
        assert!(!directory.has_exactly(c"naME", &there).unwrap());
        assert!(directory.has_exactly(c"NAme", &there).unwrap());
    }
}
