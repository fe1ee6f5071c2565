//! The names that the directories of a moved source and their copies have in common.

use rustix::fs::{CWD, Mode, openat};
use std::{
    collections::{HashMap, HashSet},
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Mutex,
};
use thalweg_sys::Errno;

use super::state::has_record;
use crate::{
    fs::list::{NAMED_DIRECTORY, each_entry, listing_buffer},
    names::{STATE_FILE, os_bytes},
    threads::locked,
};

/// The names of copies in the directories that a deletion has entered and not yet removed.
pub(super) struct CopiedNames<'m> {
    source: &'m Path,
    // The key is the path of the directory below the source. The set is empty if the copy lacks a name of the source.
    names: Mutex<HashMap<Vec<u8>, HashSet<CString>>>,
}

impl<'m> CopiedNames<'m> {
    pub fn new(source: &'m Path) -> Self {
        Self { source, names: Mutex::default() }
    }

    /// Returns `true` if `copy`, the copy of a source directory, has this name. On a file system that ignores case, one
    /// copy may stand for two source entries. The copy then lacks a name, and the result is `false` for all names.
    pub fn contain(&self, directory: &[u8], copy: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
        let mut names = locked(&self.names);
        if let Some(known) = names.get(directory) {
            return Ok(known.contains(name));
        }
        let mut listed = list(copy)?;
        let mut own = list(&self.open(directory)?)?;
        // A sync does not copy this file.
        own.remove(STATE_FILE);
        if !own.is_subset(&listed) {
            listed.clear();
        }
        let contains = listed.contains(name);
        names.insert(directory.to_vec(), listed);
        Ok(contains)
    }

    /// Forgets the names in a directory.
    pub fn forget(&self, directory: &[u8]) {
        locked(&self.names).remove(directory);
    }

    /// Returns `true` if a source directory has the state file of a sync.
    pub fn has_record(&self, directory: &[u8]) -> bool {
        self.open(directory).is_ok_and(|fd| has_record(fd.as_fd()))
    }

    fn open(&self, directory: &[u8]) -> Result<OwnedFd, Errno> {
        openat(CWD, self.source.join(os_bytes(directory)), NAMED_DIRECTORY, Mode::empty())
    }
}

fn list(dir: &OwnedFd) -> Result<HashSet<CString>, Errno> {
    let mut names = HashSet::new();
    each_entry(dir, &mut listing_buffer(), |entry| {
        names.insert(entry.file_name().to_owned());
        true
    })?;
    Ok(names)
}
