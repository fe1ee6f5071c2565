//! Creates the directories of a source's path below the destination (`cp --parents`).

use rustix::fs::{Mode, fstat, openat};
use std::{collections::HashMap, ffi::CString, os::fd::AsFd, sync::Arc};

use crate::{
    copy::{
        copy_entry::{CopyEntry, QueuedEntry, SourceDirectory},
        dest::mkdir::enter,
        directory::Directory,
        shared::CopyShared,
        worker::CopyWorker,
    },
    error::{Attempt, at_source},
    fs::list::NAMED_DIRECTORY,
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

impl<'r> Parents<'r> {
    pub fn new(shared: &'r CopyShared<'r>, base: &Arc<Directory>) -> Self {
        let (base, entered) = (Arc::clone(base), HashMap::new());
        Self { shared, base, entered, order: Vec::new() }
    }

    /// Creates the directories above a source. Reports a failure and returns `None`.
    pub fn enter(&mut self, NamedSource { source, name }: &NamedSource) -> Option<QueuedEntry> {
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
        Some(CopyEntry { directory: &at.0, from: &at.1, source: &source, name: &last }.queued())
    }

    fn make(&self, entry: &CopyEntry<'_>) -> Attempt<(Arc<Directory>, SourceDirectory)> {
        // Symbolic links are followed, as the kernel does when it resolves a path.
        let source = openat(entry.from.open()?, entry.source, NAMED_DIRECTORY, Mode::empty());
        let source = source.map_err(at_source("openat"))?;
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
