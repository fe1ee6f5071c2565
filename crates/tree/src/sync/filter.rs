//! Filter files: patterns that a directory of the source has for its own entries, like `.gitignore`.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
};
use thalweg_core::shown;
use thalweg_sys::{Errno, io};

use crate::{
    Error, ExcludePatterns, Filter, Refusal,
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::NAMED_DIRECTORY,
    },
    identity::kind,
    threads::locked,
};

/// Largest filter file, in bytes.
pub const LONGEST_FILTER: usize = 1 << 20;

/// Largest memory of the patterns in all filter files of one source, in bytes.
const MOST_HELD: usize = 64 << 20;

/// Exclude patterns. The filter of the caller decides first, and then the filter file nearest to the entry.
#[derive(Debug, Default)]
pub struct DirectoryFilter {
    caller: Option<Arc<dyn Filter>>,
    /// The filter files of a local source. `None`: another machine sends their texts.
    files: Option<FilterFiles>,
    known: Mutex<KnownPatterns>,
    errors: Mutex<Vec<Error>>,
}

/// The patterns of the filter files that were read.
#[derive(Debug, Default)]
struct KnownPatterns {
    /// The patterns of each directory; `None` if the file cannot be used.
    by_directory: HashMap<PathBuf, Option<Arc<ExcludePatterns>>>,
    /// Memory of the patterns in bytes.
    held: usize,
}

impl KnownPatterns {
    /// Adds the text of a filter file. `None` means that the file cannot be read. Returns `false` if the patterns would
    /// need too much memory. The filter file then cannot be used.
    fn add(&mut self, directory: &Path, text: Option<&[u8]>) -> bool {
        let mut patterns = ExcludePatterns::default();
        if let Some(text) = text {
            patterns.add_file(text);
        }
        let held = self.held + patterns.held();
        let is_allowed = held <= MOST_HELD;
        if is_allowed {
            self.held = held;
        }
        let patterns = text.filter(|_| is_allowed).map(|_| Arc::new(patterns));
        self.by_directory.insert(directory.to_owned(), patterns);
        is_allowed
    }
}

/// The filter files of a source directory.
#[derive(Debug)]
struct FilterFiles {
    /// The path of the source, for messages.
    source: PathBuf,
    beneath: Beneath<OwnedFd>,
    /// The name of each file.
    name: OsString,
}

impl DirectoryFilter {
    /// Creates the filter of one source directory. `links`: the symbolic links that are followed to its filter files.
    pub fn new(
        source: &Path,
        links: FollowLinks,
        name: OsString,
        caller: Option<Arc<dyn Filter>>,
    ) -> Result<Self, Error> {
        let fd = openat(CWD, source, NAMED_DIRECTORY, Mode::empty());
        let fd = fd.map_err(at_path(source, "openat"))?;
        Self::below(Beneath::new(fd, links), source, name, caller)
    }

    /// Creates the filter of an open source directory. `source`: its path, for messages.
    pub fn below(
        beneath: Beneath<OwnedFd>,
        source: &Path,
        name: OsString,
        caller: Option<Arc<dyn Filter>>,
    ) -> Result<Self, Error> {
        if !is_filter_name(&name) {
            let why = format!(
                "'{}': the filter file must be a file name without a directory",
                shown(&name)
            );
            return Err(Error::Usage(why));
        }
        let files = FilterFiles { source: source.to_owned(), beneath, name };
        Ok(Self { files: Some(files), ..Self::received(caller) })
    }

    /// Creates the filter for a source on another machine, which sends the texts of its filter files.
    pub fn received(caller: Option<Arc<dyn Filter>>) -> Self {
        Self { caller, ..Self::default() }
    }

    /// Adds the text of a directory's filter file. `None` means that the file cannot be read. Returns `false` if the
    /// patterns of all filter files would need more than 64 MiB of memory. The filter file then counts as unreadable.
    #[must_use]
    pub fn add(&self, directory: &Path, text: Option<&[u8]>) -> bool {
        locked(&self.known).add(directory, text)
    }

    /// Reads and adds the filter file of a directory of a local source. Returns its text; `None` if it cannot be used.
    pub fn read(&self, directory: &Path) -> Option<Vec<u8>> {
        let text = self.load(directory);
        self.add_loaded(&mut locked(&self.known), directory, text.as_deref()).then_some(text)?
    }

    fn load(&self, directory: &Path) -> Option<Vec<u8>> {
        match self.files.as_ref().map(|files| files.load(directory)) {
            None => Some(Vec::new()),
            Some(Ok(text)) => Some(text),
            Some(Err(error)) => {
                locked(&self.errors).push(error);
                None
            }
        }
    }

    /// Adds the text of a filter file of a local source. Returns `false` and records an error if the patterns would need
    /// too much memory.
    fn add_loaded(&self, known: &mut KnownPatterns, directory: &Path, text: Option<&[u8]>) -> bool {
        let is_added = known.add(directory, text);
        if let Some(files) = self.files.as_ref().filter(|_| !is_added) {
            let path = files.source.join(directory).join(&files.name);
            let reason = Refusal::NoFilterFile(
                "the patterns of all filter files would need more than 64 MiB of memory",
            );
            locked(&self.errors).push(Error::Refused { path, reason });
        }
        is_added
    }

    /// Returns `true` if the source has filter files.
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Returns and removes the errors of filter files that could not be read.
    pub fn take_errors(&self) -> Vec<Error> {
        std::mem::take(&mut locked(&self.errors))
    }

    fn patterns(&self, directory: &Path) -> Option<Arc<ExcludePatterns>> {
        let mut known = locked(&self.known);
        if !known.by_directory.contains_key(directory) {
            let text = self.load(directory);
            self.add_loaded(&mut known, directory, text.as_deref());
        }
        known.by_directory.get(directory).cloned().flatten()
    }
}

/// Returns `true` if filter files may have this name. It must not contain a slash.
pub fn is_filter_name(name: &OsStr) -> bool {
    let first = Path::new(name).components().next();
    matches!(first, Some(Component::Normal(only)) if only == name)
}

impl FilterFiles {
    fn load(&self, directory: &Path) -> Result<Vec<u8>, Error> {
        let path = directory.join(&self.name);
        let shown = self.source.join(&path);
        let failed = |call| at_path(&shown, call);
        let open = |flags| match self.beneath.open(path.as_os_str().as_bytes(), flags) {
            Ok(fd) => {
                let stat = fstat(&fd).map_err(failed("fstat"))?;
                let reason = match kind(&stat) {
                    FileType::RegularFile if stat.st_size <= LONGEST_FILTER as i64 => {
                        return Ok(Some(fd));
                    }
                    FileType::RegularFile => Refusal::NoFilterFile("larger than 1 MiB"),
                    _ => Refusal::NoFilterFile("not a regular file"),
                };
                Err(Error::Refused { path: shown.clone(), reason })
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(failed("openat2")(errno)),
        };
        // Opening a device may have side effects, so `O_PATH` is used to check the type of the file first.
        if open(OFlags::PATH | OFlags::CLOEXEC)?.is_none() {
            return Ok(Vec::new());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Some(fd) = open(flags)? else { return Ok(Vec::new()) };
        let mut bytes = vec![0; LONGEST_FILTER];
        let mut len = 0;
        while len < bytes.len() {
            match io::read(&fd, &mut bytes[len..]).map_err(failed("read"))? {
                0 => break,
                more => len += more,
            }
        }
        bytes.truncate(len);
        Ok(bytes)
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
            // An unreadable filter file might exclude any entry, so all entries of its directory are excluded.
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
