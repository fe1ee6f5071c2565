//! Filter files: patterns that a directory of the source has for its own entries, as `.gitignore`.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::{
    collections::HashMap,
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_core::shown;
use thalweg_sys::{Errno, io};

use crate::{
    Error, ExcludePatterns, Filter, Refusal,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::DIRECTORY,
        walk::failed_call,
    },
    identity::kind,
};

/// Largest filter file, in bytes.
const LARGEST: usize = 1 << 20;

/// The patterns of the caller, and then those of the filter files. The file nearest to an entry decides first.
#[derive(Debug)]
pub(super) struct DirectoryFilter {
    source: PathBuf,
    beneath: Beneath<OwnedFd>,
    /// The name of the filter files.
    name: OsString,
    caller: Option<Arc<dyn Filter>>,
    /// The patterns of each directory; `None` if the file cannot be read.
    read: Mutex<HashMap<PathBuf, Option<Arc<ExcludePatterns>>>>,
    errors: Mutex<Vec<Error>>,
}

impl DirectoryFilter {
    /// Creates the filter of one source directory.
    pub fn new(
        source: &Path,
        name: OsString,
        caller: Option<Arc<dyn Filter>>,
    ) -> Result<Self, Error> {
        let first = Path::new(&name).components().next();
        if !matches!(first, Some(Component::Normal(only)) if only == name) {
            let why = format!("'{}': not the name of a filter file", shown(&name));
            return Err(Error::Usage(why));
        }
        let fd = openat(CWD, source, DIRECTORY - OFlags::NOFOLLOW, Mode::empty());
        let fd = fd.map_err(|errno| failed_call(source.to_owned(), "openat", errno))?;
        let beneath = Beneath::new(fd, FollowLinks::Never);
        let (read, errors) = Default::default();
        Ok(Self { source: source.to_owned(), beneath, name, caller, read, errors })
    }

    /// Takes the errors of filter files that could not be read.
    pub fn take_errors(&self) -> Vec<Error> {
        std::mem::take(&mut self.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn patterns(&self, directory: &Path) -> Option<Arc<ExcludePatterns>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(directory) {
            return known.clone();
        }
        let path = directory.join(&self.name);
        let patterns = match self.load(&path) {
            Ok(patterns) => Some(Arc::new(patterns)),
            Err(error) => {
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                None
            }
        };
        read.insert(directory.to_owned(), patterns.clone());
        patterns
    }

    fn load(&self, path: &Path) -> Result<ExcludePatterns, Error> {
        let failed = |call| move |errno| failed_call(self.source.join(path), call, errno);
        let mut patterns = ExcludePatterns::default();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match self.beneath.open(path.as_os_str().as_bytes(), flags) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(patterns),
            Err(errno) => return Err(failed("openat2")(errno)),
        };
        let stat = fstat(&fd).map_err(failed("fstat"))?;
        let reason = match kind(&stat) {
            FileType::RegularFile if stat.st_size <= LARGEST as i64 => None,
            FileType::RegularFile => Some(Refusal::NoFilterFile("larger than 1 MiB")),
            _ => Some(Refusal::NoFilterFile("not a regular file")),
        };
        if let Some(reason) = reason {
            return Err(Error::Refused { path: self.source.join(path), reason });
        }
        let mut bytes = vec![0; LARGEST];
        let mut len = 0;
        while len < bytes.len() {
            match io::read(&fd, &mut bytes[len..]).map_err(failed("read"))? {
                0 => break,
                more => len += more,
            }
        }
        patterns.add_file(&bytes[..len]);
        Ok(patterns)
    }
}

impl Filter for DirectoryFilter {
    fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        if path.starts_with("..") {
            return self
                .caller
                .as_ref()
                .is_some_and(|filter| filter.leaves_out(path, is_directory));
        }
        if let Some(filter) = &self.caller
            && filter.leaves_out(path, is_directory)
        {
            return true;
        }
        let mut directory = path.parent();
        while let Some(here) = directory {
            // An unreadable file may exclude any entry, so no entry of its directory is changed.
            let Some(patterns) = self.patterns(here) else { return true };
            let below = path.strip_prefix(here).unwrap_or(path);
            if let Some(decision) = patterns.decide(below, is_directory) {
                return decision;
            }
            directory = here.parent();
        }
        false
    }
}
