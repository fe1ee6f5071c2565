//! Creates the files of a tree from their entries in the list.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    rc::Rc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, unlinkat};
use thalweg_core::atomic_file::{
    AtomicFile, CallFailed, Destination, Fsync, Parked, Until, create_new, failed,
};
use thalweg_sys::{Errno, io};
use thalweg_tree::{
    AttributeDifferences, KeptEntries,
    install::{
        EntryAttributes, EntryXattrs, InheritFrom, KeptPath, WholeSync, inherit_from_replaced,
    },
};

use super::{
    change::EntryChange,
    compare::{compare, has_other_bytes},
    directories::{TWICE, TreeDirectory},
    entry::ListedEntry,
};
use crate::{
    client::{FetchError, fetch::ListedFile},
    manifest::{FileTag, InodeId, Meta},
};

/// Settings for creating entries.
#[derive(Clone, Copy, Debug)]
pub struct InstallPolicy<'a> {
    /// `true` if the directory was empty before this run.
    pub is_fresh: bool,
    /// `true` if the tree is built in a staging directory, which is invisible until it is complete.
    pub is_staged: bool,
    /// `true` to keep owners.
    pub owner: bool,
    /// `true` to make names of one file hard links.
    pub hard_links: bool,
    /// `true` to create symbolic links that may lead out of the tree.
    pub all_links: bool,
    /// `true` to compare files of equal size by their hashes.
    pub by_hash: bool,
    /// `true` to compare all files with the hashes of the server, also unchanged ones.
    pub verify: bool,
    /// `true` to set the extended attributes and ACLs of the list.
    pub xattrs: bool,
    /// Required durability of each file before it receives its name.
    pub fsync: Fsync,
    /// `true` if one syncfs(2) call at the end syncs all names.
    pub is_synced_whole: bool,
    /// `true` if a directory may replace an entry of another type.
    pub over_others: bool,
    /// `true` if close(2) may report that written bytes were lost.
    pub close_may_fail: bool,
    /// `true` in a dry run of a sync that would delete the directories that files or links replace.
    pub is_directory_gone: bool,
    /// The directory that keeps replaced entries, if they are kept.
    pub kept: Option<&'a KeptEntries>,
}

/// A file that must be fetched.
pub struct WantedFile {
    pub path: Vec<u8>,
    pub directory: Rc<TreeDirectory>,
    pub name: CString,
    pub size: u64,
    /// `true` if the file on the server has holes.
    pub is_sparse: bool,
    pub etag: String,
    pub attributes: EntryAttributes,
    /// The change that the fetch of this file makes.
    pub change: EntryChange,
    /// The entry with this name, if there is one.
    pub replaces: Option<ComparedFile>,
    /// `true` if the existing entry may have the listed content. The file is fetched only if the hash differs.
    pub needs_hash_check: bool,
    /// Number of requests that failed with a temporary error.
    pub tries: u32,
}

/// Identity of an existing entry that was compared with the list.
#[derive(Clone, Copy, Debug)]
pub struct ComparedFile {
    id: InodeId,
    /// Number of its hard links.
    links: u64,
}

impl ComparedFile {
    fn of(stat: &Stat) -> Self {
        Self { id: InodeId::of(stat), links: stat.st_nlink }
    }

    /// Opens the file for reading. Fails with `ESTALE` if the name belongs to another file now, or if the file has more
    /// hard links. Otherwise, a user with write permission for this directory could exchange the file for one that must
    /// keep its owner.
    fn open(self, directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, CallFailed> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(directory, name, flags, Mode::empty()).map_err(failed("openat"))?;
        let opened = Self::of(&fstat(&fd).map_err(failed("fstat"))?);
        let is_same = opened.id == self.id && opened.links <= self.links;
        if is_same { Ok(fd) } else { Err(failed("openat")(Errno::STALE)) }
    }
}

/// The decision about a listed file.
pub enum FileDecision {
    /// The file exists as listed.
    Unchanged,
    /// The file existed, and has received other attributes.
    Adjusted {
        change: EntryChange,
        refused_xattrs: u64,
    },
    Wanted(WantedFile),
}

/// The reasons why an entry cannot be created.
pub const OVER_DIRECTORY: &str = "cannot overwrite directory with non-directory";
pub const OVER_OTHER: &str = "cannot overwrite non-directory with directory";

/// An open file. `Own` already has its name, in a staging directory. `Hidden` receives its name when it is complete.
pub enum FileSink<'a> {
    Own(OwnedFd),
    Hidden(AtomicFile<BorrowedFd<'a>, &'a CStr>),
}

impl<'a> InstallPolicy<'a> {
    /// Returns the place where the replaced entry at this path is kept, if replaced entries are kept.
    pub fn kept(self, path: &'a [u8]) -> Option<KeptPath<'a>> {
        Some(KeptPath { entries: self.kept?, path: Path::new(OsStr::from_bytes(path)) })
    }

    /// Returns the final attributes of an entry.
    pub fn attributes(self, meta: &Meta, xattrs: &EntryXattrs) -> EntryAttributes {
        let owner = self.owner.then_some((meta.uid, meta.gid));
        let xattrs = self.xattrs.then(|| xattrs.clone().settable());
        EntryAttributes { mode: meta.mode, owner, mtime: (meta.mtime, meta.nanos), xattrs }
    }

    /// Decides whether the file must be fetched. A file that is already present receives its attributes now.
    pub fn wanted(
        self,
        entry: &ListedEntry,
        file: &FileTag,
        directory: Rc<TreeDirectory>,
    ) -> Result<FileDecision, FetchError> {
        let (name, attributes) = (entry.name(), self.attributes(&entry.meta, &entry.xattrs));
        let (size, Meta { mtime, nanos, .. }) = (file.size, entry.meta);
        let there = if self.is_fresh { None } else { directory.look(&name)? };
        let mut needs_hash_check = false;
        let mut change = EntryChange::created();
        if let Some(there) = &there {
            if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
                return Err(FetchError::listed(OVER_DIRECTORY));
            }
            let differs = compare(there, size, &attributes, &directory, &name);
            let by_time = !self.by_hash;
            let has_other_bytes = has_other_bytes(differs, by_time);
            needs_hash_check = (self.by_hash || self.verify) && !has_other_bytes;
            if !needs_hash_check && !has_other_bytes {
                if !differs.any() {
                    return Ok(FileDecision::Unchanged);
                }
                let refused =
                    give(directory.fd.as_fd(), &name, ComparedFile::of(there), &attributes)?;
                let change = EntryChange::adjusted(differs);
                return Ok(FileDecision::Adjusted { change, refused_xattrs: refused });
            }
            change = if needs_hash_check {
                EntryChange::replaced(differs)
            } else {
                self.replacement(differs)
            };
        }
        Ok(FileDecision::Wanted(WantedFile {
            path: entry.path.clone(),
            directory,
            name,
            size,
            is_sparse: file.is_sparse,
            etag: file.etag(mtime, nanos),
            attributes,
            replaces: there.as_ref().map(ComparedFile::of),
            change,
            needs_hash_check,
            tries: 0,
        }))
    }

    /// Returns the change of a file that gets other bytes. As in a local sync, its extended attributes are not
    /// compared.
    pub fn replacement(self, differs: AttributeDifferences) -> EntryChange {
        let (content, acl, xattrs) = (false, false, false);
        let differs = AttributeDifferences { content, acl, xattrs, ..differs };
        let content = !differs.any() || self.by_hash;
        EntryChange::replaced(AttributeDifferences { content, ..differs })
    }

    /// Removes the entry that has the name of a listed directory. Does not remove a directory that another process
    /// creates.
    pub fn remove_other(
        self,
        entry: &ListedEntry,
        directory: &TreeDirectory,
    ) -> Result<(), FetchError> {
        if !self.over_others {
            return Err(FetchError::listed(OVER_OTHER));
        }
        let (fd, name) = (directory.fd.as_fd(), entry.name());
        match self.kept(&entry.path) {
            Some(kept) => kept.take(fd, &name)?,
            None => unlinkat(fd, &name, AtFlags::empty()).map_err(failed("unlinkat"))?,
        }
        Ok(())
    }

    /// Converts the errno of a call that creates an entry.
    pub fn of_new(self, call: &'static str, errno: Errno) -> FetchError {
        match errno {
            // Names that differ in the list may be equal on this file system.
            Errno::EXIST if self.is_fresh => FetchError::listed(TWICE),
            errno => failed(call)(errno).into(),
        }
    }

    /// Opens the file for writing.
    pub fn open(self, wanted: &WantedFile) -> Result<FileSink<'_>, FetchError> {
        let (dir, name) = (wanted.directory.fd.as_fd(), &*wanted.name);
        if !self.is_staged {
            let file = AtomicFile::create(dir, name, 0o600)?;
            return Ok(FileSink::Hidden(file));
        }
        if wanted.replaces.is_some() {
            // An earlier run left an incomplete file in the staging directory.
            match unlinkat(dir, name, AtFlags::empty()) {
                // `ENOENT`: this run tried before, and removed its file.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("unlinkat")(errno).into()),
            }
        }
        // The staging directory is invisible, so the file may have its final mode from the start, as far as the umask
        // allows.
        let access = if self.verify { OFlags::RDWR } else { OFlags::WRONLY };
        let made = create_new(dir, name, access, wanted.attributes.mode & 0o777);
        made.map(FileSink::Own).map_err(|errno| self.of_new("openat", errno))
    }

    /// Removes a file that was opened and not completed. The directory may be published without it, or a retry creates
    /// it again.
    pub fn take_back(self, wanted: &WantedFile) {
        if self.is_staged {
            let _ = unlinkat(&wanted.directory.fd, &*wanted.name, AtFlags::empty());
        }
    }
}

/// Returns the destination of a file that is fetched separately and can be resumed.
pub fn destination(wanted: &WantedFile) -> Result<Destination, FetchError> {
    let dir = wanted.directory.fd.try_clone().map_err(|_| failed("fcntl")(Errno::MFILE))?;
    let name = OsStr::from_bytes(wanted.name.to_bytes());
    Ok(Destination::at(dir, name, wanted.replaces.is_some(), Until::Part)?)
}

impl WantedFile {
    /// Returns the list's description of the file.
    pub fn listed(&self) -> ListedFile<'_> {
        let Self { size, is_sparse, ref etag, ref attributes, .. } = *self;
        let may_continue_base = false;
        ListedFile { size, etag, attributes, is_sparse, kept: None, base: None, may_continue_base }
    }

    /// Opens the local file to read its content. Returns `None` if it is not the compared one, or cannot be opened.
    pub fn open_compared(&self) -> Option<OwnedFd> {
        self.replaces?.open(self.directory.fd.as_fd(), &self.name).ok()
    }

    /// Keeps the local file, because its content is as listed, and sets its attributes. Returns the number of extended
    /// attributes that the file system refused.
    pub fn keep(&self) -> Result<u64, FetchError> {
        let there = self.replaces.ok_or(failed("openat")(Errno::NOENT))?;
        give(self.directory.fd.as_fd(), &self.name, there, &self.attributes)
    }
}

/// A complete file that received its attributes.
pub struct PublishedFile {
    /// The complete file, if it still has to be renamed to its final name.
    pub parked: Option<Parked>,
    /// Extended attributes that the file system refused.
    pub refused_xattrs: u64,
}

impl FileSink<'_> {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Hidden(file) => file.fd.as_fd(),
        }
    }

    /// Sets the final attributes of the complete file and publishes it under its name. `waits`: `true` to return it
    /// without a name, if possible, so that several files share one sync.
    pub fn publish(
        mut self,
        wanted: &WantedFile,
        install: InstallPolicy<'_>,
        whole: Option<&WholeSync>,
        waits: bool,
    ) -> Result<PublishedFile, FetchError> {
        if let Self::Hidden(file) = &self
            && wanted.replaces.is_some()
        {
            inherit_from_replaced(file, InheritFrom::Own);
        }
        let refused_xattrs = wanted.attributes.give(self.fd())?;
        if install.close_may_fail {
            io::flush(self.fd()).map_err(failed("close"))?;
        }
        let parked = match &mut self {
            Self::Hidden(file) if waits => file.park(),
            _ => None,
        };
        match self {
            Self::Hidden(file) if parked.is_none() => {
                publish(file, wanted, install, install.fsync, whole)?;
            }
            Self::Own(fd) if install.fsync != Fsync::Never => {
                WholeSync::settle(whole, io::sync(&fd).map_err(failed("fsync")))?;
            }
            Self::Hidden(..) | Self::Own(_) => {}
        }
        Ok(PublishedFile { parked, refused_xattrs })
    }
}

/// Sets the attributes of the file that was compared with the list.
fn give(
    directory: BorrowedFd<'_>,
    name: &CStr,
    compared: ComparedFile,
    attributes: &EntryAttributes,
) -> Result<u64, FetchError> {
    Ok(attributes.give(compared.open(directory, name)?.as_fd())?)
}

/// Publishes a file under its name, and syncs it first as `fsync` requires. `whole` is the file system of the tree.
pub fn publish(
    mut file: AtomicFile<BorrowedFd<'_>, &CStr>,
    wanted: &WantedFile,
    install: InstallPolicy<'_>,
    fsync: Fsync,
    whole: Option<&WholeSync>,
) -> Result<(), FetchError> {
    // Syncs the data before the file gets its name, even if the file is new. A later fetch treats a file with the
    // listed size and time as complete, because it cannot compare the bytes with those of the server.
    let synced = match fsync {
        Fsync::Never => Ok(()),
        Fsync::Auto => io::sync_data(&file.fd).map_err(failed("fdatasync")),
        Fsync::Always => io::sync(&file.fd).map_err(failed("fsync")),
    };
    WholeSync::settle(whole, synced)?;
    if let Some(kept) = install.kept(&wanted.path).filter(|_| wanted.replaces.is_some()) {
        kept.keep(file.folder(), file.name())?;
    }
    Ok(file.publish(wanted.replaces.is_none())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::statat;

    use super::*;

    #[test]
    fn a_file_that_was_exchanged_after_its_comparison_keeps_its_attributes() {
        let place = tempfile::tempdir().unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        for name in ["compared", "other"] {
            fs::write(place.path().join(name), name).unwrap();
        }
        let stat = |name: &CStr| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let compared = stat(c"compared");
        let attributes = EntryAttributes { mode: 0o741, owner: None, mtime: (1, 7), xattrs: None };
        fs::rename(place.path().join("other"), place.path().join("compared")).unwrap();
        let (before, fd) = (stat(c"compared"), directory.as_fd());
        let set = |compared| give(fd, c"compared", ComparedFile::of(compared), &attributes);
        let error = set(&compared).unwrap_err();
        assert!(error.to_string().contains("ESTALE"), "{error}");
        assert_eq!(stat(c"compared").st_mode, before.st_mode);
        fs::hard_link(place.path().join("compared"), place.path().join("second")).unwrap();
        let error = set(&before).unwrap_err();
        assert!(error.to_string().contains("ESTALE"), "{error}");
        assert_eq!(stat(c"second").st_mode, before.st_mode);
        set(&stat(c"compared")).unwrap();
        assert_eq!(stat(c"compared").st_mode & 0o777, 0o741);
    }
}
