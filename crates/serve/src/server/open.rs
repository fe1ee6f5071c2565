//! Resolves a path below the root to an open file. Never opens a file for which `open` may block.

use std::{
    cell::RefCell,
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, statat};
use thalweg_sys::Errno;
use thalweg_tree::install::{Beneath, FollowLinks};

use super::{
    error::ServeError,
    opened::{READ, ServedFile},
    store::Store,
    version::FileVersion,
};
use crate::http::status::HttpStatus;

/// The served directory or file.
#[derive(Debug)]
pub struct ServedRoot {
    beneath: Beneath<OwnedFd>,
    /// Name of the directory, for display.
    pub name: String,
    /// If a single file is served: its name below the root. No other name is served.
    pub only: Option<OsString>,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum ServedEntry {
    /// A regular file.
    File(Arc<ServedFile>),
    /// A directory, as an `O_PATH` descriptor.
    Directory(OwnedFd),
}

const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl ServedRoot {
    /// Opens the directory or file to be served.
    pub fn open(path: &Path, links: FollowLinks) -> Result<Self, ServeError> {
        let failed = |errno| ServeError::Root { path: path.to_owned(), errno };
        let path_of_file =
            |path: &Path| Some((path.parent()?.to_owned(), path.file_name()?.to_owned()));
        let (stat, _) = look(open(path, PATH, Mode::empty()).map_err(failed)?).map_err(failed)?;
        let (directory, only) = match kind(&stat) {
            FileType::Directory => (path.to_owned(), None),
            FileType::RegularFile => match path_of_file(path) {
                Some((directory, name)) if directory.as_os_str().is_empty() => {
                    (PathBuf::from("."), Some(name))
                }
                Some((directory, name)) => (directory, Some(name)),
                None => return Err(ServeError::Kind(path.to_owned())),
            },
            _ => return Err(ServeError::Kind(path.to_owned())),
        };
        let name = displayed(&directory);
        let flags = PATH | OFlags::DIRECTORY;
        let directory = openat(CWD, &directory, flags, Mode::empty()).map_err(failed)?;
        // A file that the caller named is served even if its name is a symbolic link.
        let links = if only.is_some() { FollowLinks::Anywhere } else { links };
        Ok(Self { beneath: Beneath::new(directory, links), name, only })
    }

    /// Returns the rule for following symbolic links.
    pub fn follows(&self) -> FollowLinks {
        self.beneath.links()
    }

    /// Finds a path below the root. A file that is open in the store is not opened again.
    pub fn find(
        &self,
        path: &Path,
        store: Option<&RefCell<Store>>,
    ) -> Result<ServedEntry, HttpStatus> {
        if self.only.as_deref().is_some_and(|only| path.as_os_str() != only) {
            return Err(HttpStatus::NOT_FOUND);
        }
        let open = |stat: &Stat| store?.borrow_mut().file(path, &FileVersion::of(stat));
        if store.is_some()
            && let Some(file) = self.glance(path).as_ref().and_then(open)
        {
            return Ok(ServedEntry::File(file));
        }
        let found = self.resolve(path, PATH).and_then(look);
        let (stat, fd) = match found {
            Err(Errno::MFILE | Errno::NFILE) if store.is_some_and(|s| s.borrow_mut().close()) => {
                self.resolve(path, PATH).and_then(look)
            }
            found => found,
        }
        .map_err(refusal)?;
        match kind(&stat) {
            FileType::Directory => Ok(ServedEntry::Directory(fd)),
            FileType::RegularFile => {
                if let Some(file) = open(&stat) {
                    return Ok(ServedEntry::File(file));
                }
                let file = match self.open_found(path, &fd, &stat) {
                    Err(Errno::MFILE | Errno::NFILE)
                        if store.is_some_and(|s| s.borrow_mut().close()) =>
                    {
                        self.open_found(path, &fd, &stat)
                    }
                    file => file,
                };
                let file = Arc::new(file.map_err(refusal)?);
                if let Some(store) = store {
                    store.borrow_mut().keep(path, &file);
                }
                Ok(ServedEntry::File(file))
            }
            // Opening a FIFO waits for a writer, and opening a device may have side effects: neither is opened.
            _ => Err(HttpStatus::NOT_FOUND),
        }
    }

    /// Opens a regular file for reading after its lookup.
    fn open_found(&self, path: &Path, found: &OwnedFd, stat: &Stat) -> Result<ServedFile, Errno> {
        match ServedFile::again(found.as_fd(), stat)? {
            Some(file) => Ok(file),
            None => ServedFile::by_name(self.resolve(path, READ)?, stat),
        }
    }

    /// Returns the metadata of a regular file if one call suffices to get it. This holds for a single name that is not
    /// a link, and for every path if all links may be followed.
    fn glance(&self, path: &Path) -> Option<Stat> {
        let flags = match self.beneath.links() {
            FollowLinks::Anywhere => AtFlags::empty(),
            FollowLinks::Inside | FollowLinks::Never => {
                let mut names = path.components();
                let is_name = matches!(names.next(), Some(Component::Normal(_)));
                if !is_name || names.next().is_some() {
                    return None;
                }
                AtFlags::SYMLINK_NOFOLLOW
            }
        };
        let stat = statat(self.beneath.root(), path, flags).ok()?;
        (kind(&stat) == FileType::RegularFile).then_some(stat)
    }

    /// Returns the metadata of a path without opening it for reading.
    pub fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        Ok(self.identify(path)?.0)
    }

    /// Returns the metadata of a path, and a descriptor that cannot be read.
    pub fn identify(&self, path: &Path) -> Result<(Stat, OwnedFd), Errno> {
        self.resolve(path, PATH).and_then(look)
    }

    /// Returns a descriptor of the path. With `PATH`, the descriptor only identifies the file and cannot be read.
    fn resolve(&self, path: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
        self.beneath.open(path.as_os_str().as_bytes(), how)
    }
}

/// Returns the name of a directory for display: `/` if it is the root of the file system.
fn displayed(directory: &Path) -> String {
    let absolute = directory.canonicalize();
    let name = absolute.as_deref().unwrap_or(directory).file_name();
    name.map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn look(fd: OwnedFd) -> Result<(Stat, OwnedFd), Errno> {
    Ok((fstat(&fd)?, fd))
}

/// Returns the file type from `st_mode`.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the status for a path that could not be opened.
pub fn refusal(errno: Errno) -> HttpStatus {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::XDEV => {
            HttpStatus::NOT_FOUND
        }
        Errno::ACCESS | Errno::PERM => HttpStatus::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => HttpStatus::UNAVAILABLE,
        _ => HttpStatus::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkfifoat;
    use std::{fs, os::unix::fs::symlink};

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("root/folder")).unwrap();
        fs::write(at("outside"), "secret").unwrap();
        fs::write(at("root/folder/file"), "text").unwrap();
        symlink("../outside", at("root/out")).unwrap();
        symlink("/etc", at("root/absolute")).unwrap();
        symlink("folder", at("root/in")).unwrap();
        symlink("../root/folder", at("root/around")).unwrap();
        symlink("loop", at("root/loop")).unwrap();
        mkfifoat(CWD, at("root/fifo"), Mode::RWXU).unwrap();
        place
    }

    fn found(root: &ServedRoot, path: &str) -> Result<&'static str, u16> {
        match root.find(Path::new(path), None) {
            Ok(ServedEntry::File(_)) => Ok("file"),
            Ok(ServedEntry::Directory(_)) => Ok("folder"),
            Err(status) => Err(status.0),
        }
    }

    #[test]
    fn links_lead_as_far_as_they_may() {
        let place = place();
        for follow in [FollowLinks::Never, FollowLinks::Inside, FollowLinks::Anywhere] {
            let root = ServedRoot::open(&place.path().join("root"), follow).unwrap();
            let if_at_least = |least: FollowLinks, kind| {
                if follow as u8 >= least as u8 { Ok(kind) } else { Err(404) }
            };
            assert_eq!(found(&root, ""), Ok("folder"));
            assert_eq!(found(&root, "folder/file"), Ok("file"));
            assert_eq!(found(&root, "in/file"), if_at_least(FollowLinks::Inside, "file"));
            assert_eq!(found(&root, "out"), if_at_least(FollowLinks::Anywhere, "file"));
            assert_eq!(found(&root, "absolute"), if_at_least(FollowLinks::Anywhere, "folder"));
            assert_eq!(found(&root, "around/file"), if_at_least(FollowLinks::Anywhere, "file"));
            for nothing in ["loop", "fifo", "none", "folder/file/x", &"x".repeat(300)] {
                assert_eq!(found(&root, nothing), Err(404), "{nothing}");
            }
        }
    }

    #[test]
    fn without_proc_the_name_is_opened_unless_it_is_another_files_by_then() {
        let place = place();
        let at = |name: &str| place.path().join("root/folder").join(name);
        let path = Path::new("folder/file");
        let root = ServedRoot::open(&place.path().join("root"), FollowLinks::Inside).unwrap();
        let stat = root.stat(path).unwrap();
        let again = || ServedFile::by_name(root.resolve(path, READ)?, &stat).map(|_| ());
        assert_eq!(again(), Ok(()));
        fs::write(at("new"), "text").unwrap();
        fs::rename(at("new"), at("file")).unwrap();
        assert_eq!(again(), Err(Errno::AGAIN));
        fs::remove_file(at("file")).unwrap();
        mkfifoat(CWD, at("file"), Mode::RWXU).unwrap();
        assert_eq!(again(), Err(Errno::AGAIN), "and nobody waits for a writer");
    }

    #[test]
    fn a_file_that_is_kept_open_is_found_as_long_as_its_name_leads_to_it() {
        let place = place();
        let at = |name: &str| place.path().join("root").join(name);
        for follow in [FollowLinks::Never, FollowLinks::Inside, FollowLinks::Anywhere] {
            let root = ServedRoot::open(&place.path().join("root"), follow).unwrap();
            let store = RefCell::default();
            let find = |path: &str| match root.find(Path::new(path), Some(&store)) {
                Ok(ServedEntry::File(file)) => Ok(file),
                Ok(ServedEntry::Directory(_)) => panic!(),
                Err(status) => Err(status.0),
            };
            for name in ["plain", "folder/file"] {
                fs::write(at(name), "text").unwrap();
                let first = find(name).unwrap();
                assert!(Arc::ptr_eq(&first, &find(name).unwrap()));
                store.borrow_mut().turn();
                assert!(Arc::ptr_eq(&first, &find(name).unwrap()));
                store.borrow_mut().turn();
                store.borrow_mut().turn();
                assert!(!Arc::ptr_eq(&first, &find(name).unwrap()), "nobody asked for it");
                // In turn: another version, another file, no file, a link that leaves the root.
                let first = find(name).unwrap();
                fs::write(at(name), "other text").unwrap();
                assert_eq!(find(name).unwrap().version.size, 10);
                assert_eq!(first.version.size, 4);
                fs::write(at("new"), "new").unwrap();
                fs::rename(at("new"), at(name)).unwrap();
                assert_eq!(find(name).unwrap().version.size, 3);
                let kept = find(name).unwrap();
                fs::rename(at(name), place.path().join("moved")).unwrap();
                assert_eq!(find(name).map(|_| ()), Err(404));
                symlink(place.path().join("moved"), at(name)).unwrap();
                let found = find(name);
                assert_eq!(found.is_ok(), follow == FollowLinks::Anywhere);
                assert_eq!(kept.version.size, 3);
                fs::remove_file(at(name)).unwrap();
            }
            fs::write(at("folder/file"), "text").unwrap();
        }
    }

    #[test]
    fn of_a_file_that_was_named_nothing_else_is_served() {
        let place = place();
        let root =
            ServedRoot::open(&place.path().join("root/folder/file"), FollowLinks::Inside).unwrap();
        assert_eq!(found(&root, "file"), Ok("file"));
        for nothing in ["", ".", "folder", "file/x", "./file/"] {
            assert_eq!(found(&root, nothing), Err(404), "{nothing}");
        }
        assert!(matches!(
            ServedRoot::open(&place.path().join("root/fifo"), FollowLinks::Anywhere),
            Err(ServeError::Kind(_))
        ));
    }
}
