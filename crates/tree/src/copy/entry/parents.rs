//! Creates the directories of a source's path below the destination (`cp --parents`).

use rustix::fs::{Mode, OFlags, fstat, openat};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use crate::{
    copy::{
        copy_entry::{CopyEntry, SourceDirectory},
        dest::mkdir::enter,
        directory::Directory,
        shared::CopyShared,
        worker::CopyWorker,
    },
    error::{Attempt, at_source},
    sources::NamedSource,
};

/// The directories that were created or entered for `--parents`. They are completed after all sources are copied.
pub(crate) struct Parents<'r> {
    shared: &'r CopyShared<'r>,
    base: Arc<Directory>,
    entered: HashMap<Vec<u8>, (Arc<Directory>, SourceDirectory)>,
    // The directories in the order in which they were entered, so that each one comes after its parent.
    order: Vec<Arc<Directory>>,
}

/// A source, and the destination directory for its copy.
pub(crate) struct SourceBelow {
    pub directory: Arc<Directory>,
    pub from: SourceDirectory,
    pub source: CString,
    pub name: CString,
}

impl SourceBelow {
    /// Returns a source that is copied directly into the base directory.
    pub fn of(base: &Arc<Directory>, NamedSource { source, name }: NamedSource) -> Self {
        Self { directory: Arc::clone(base), from: SourceDirectory::Caller, source, name }
    }
}

impl<'r> Parents<'r> {
    pub fn new(shared: &'r CopyShared<'r>, base: &Arc<Directory>) -> Self {
        let (base, entered) = (Arc::clone(base), HashMap::new());
        Self { shared, base, entered, order: Vec::new() }
    }

    /// Creates the directories above a source. Reports a failure and returns `None`.
    pub fn enter(&mut self, NamedSource { source, name }: &NamedSource) -> Option<SourceBelow> {
        let bytes = name.to_bytes();
        // The prefix of the source path that is not kept: empty, `/`, or the directory of `CopyOptions::inside`.
        let path = source.to_bytes();
        let (path, slash) = path.strip_suffix(b"/").map_or((path, &b""[..]), |path| (path, b"/"));
        let before = path.get(..path.len().saturating_sub(bytes.len()))?.to_owned();
        let mut at = (Arc::clone(&self.base), SourceDirectory::Caller);
        let mut begin = 0;
        while let Some(length) = bytes[begin..].iter().position(|byte| *byte == b'/') {
            let end = begin + length;
            let path = &bytes[..end];
            if let Some(known) = self.entered.get(path) {
                at = known.clone();
            } else {
                let own = CString::new(&bytes[begin..end]).ok()?;
                let whole = if begin == 0 {
                    CString::new([&before, path].concat()).ok()?
                } else {
                    own.clone()
                };
                let entry = CopyEntry { directory: &at.0, from: &at.1, source: &whole, name: &own };
                match self.make(&entry) {
                    Ok(made) => {
                        self.order.push(Arc::clone(&made.0));
                        self.entered.insert(path.to_owned(), made.clone());
                        at = made;
                    }
                    Err(failure) => {
                        self.shared.run.failed(entry.error(failure));
                        return None;
                    }
                }
            }
            begin = end + 1;
        }
        let last = CString::new(&bytes[begin..]).ok()?;
        let source = match begin {
            0 => source.clone(),
            _ => CString::new([&bytes[begin..], slash].concat()).ok()?,
        };
        Some(SourceBelow { directory: at.0, from: at.1, source, name: last })
    }

    fn make(&self, entry: &CopyEntry<'_>) -> Attempt<(Arc<Directory>, SourceDirectory)> {
        let source = open(entry.from, entry.source)?;
        let stat = fstat(&source).map_err(at_source("fstat"))?;
        let directory = enter(&self.shared.run, entry, source.as_fd(), &stat)?;
        if directory.is_fresh {
            CopyWorker::new(self.shared).report_copied(entry, None);
        }
        Ok((directory, SourceDirectory::Named(Arc::new(source))))
    }

    /// Completes the directories, which receive no further entries. Returns their number.
    pub fn complete(self) -> u64 {
        let count = self.order.len() as u64;
        drop(self.entered);
        for directory in self.order.into_iter().rev() {
            Directory::done(&self.shared.run, directory);
        }
        count
    }
}

/// Opens a directory on the path of a source. Symbolic links are followed, as the kernel does when it resolves a path.
fn open(from: &SourceDirectory, name: &CStr) -> Attempt<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(from.open()?, name, flags, Mode::empty()).map_err(at_source("openat"))
}
