//! What is in a folder, as far as it is served.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use serde::Serialize;
use thalweg_sys::Errno;

use super::{
    open::{Root, kind},
    version::Version,
};
use crate::manifest::encoded;

/// A folder that can be read.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// What is in it, sorted by bytes, hidden names among them only if they are served.
    pub names: Vec<OsString>,
}

impl Folder {
    /// Reads a folder that was found.
    pub fn read(found: impl AsFd, with_hidden: bool) -> Result<Self, Errno> {
        let fd = open(found, OsStr::new("."))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && (with_hidden || !name.starts_with(b".")) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        Ok(Self { fd, names })
    }

    /// Whether a folder in it may be read. What else may be wrong with it is found out when it is.
    pub fn may_be_read(&self, name: &OsStr) -> bool {
        !matches!(open(&self.fd, name), Err(Errno::ACCESS | Errno::PERM))
    }

    /// What a name stands for, itself and not where it leads.
    pub fn stat(&self, name: &OsStr) -> Result<Stat, Errno> {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What a link holds.
    pub fn link(&self, name: &OsStr) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }
}

/// Opens a folder so that what is in it can be read.
pub fn open(at: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// A line of a folder's page.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// For people: what is no UTF-8 is replaced.
    pub name: String,
    /// As in the folder's address, with a slash behind a folder.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Last modified, in seconds since 1970.
    pub mtime: i64,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Folder,
    File,
}

/// The files and folders of a folder that a request for them would find, folders first. Links are what they
/// lead to.
pub fn entries(root: &Root, path: &Path, folder: &Folder) -> Vec<Entry> {
    let entry = |name: &OsString| {
        let stat = folder.stat(name).ok()?;
        let is_link = kind(&stat) == FileType::Symlink;
        let stat = if is_link { root.stat(&path.join(name)).ok()? } else { stat };
        let (is, slash) = match kind(&stat) {
            FileType::Directory => (Kind::Folder, "/"),
            FileType::RegularFile => (Kind::File, ""),
            _ => return None,
        };
        let version = Version::of(&stat);
        Some(Entry {
            name: name.to_string_lossy().into_owned(),
            path: encoded(Path::new(name)) + slash,
            kind: is,
            size: (is == Kind::File).then_some(version.size),
            mtime: version.seconds(),
        })
    };
    let mut entries: Vec<Entry> = folder.names.iter().filter_map(entry).collect();
    entries.sort_by_key(|entry| entry.kind == Kind::File);
    entries
}
