//! The names of local sources.

use rustix::fs::{AtFlags, CWD, FileType, Mode, fstat, openat, statat};
use std::{
    collections::HashMap,
    ffi::CString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};
use thalweg_sys::Errno;

use super::{
    listing::{SourceListing, SourceNames},
    state::file_system_of,
};
use crate::{
    Error,
    error::at_path,
    fs::{
        beneath::{Beneath, FollowLinks},
        list::{directory_flags, each_entry, listing_buffer, type_of},
    },
    identity::Id,
    names::os_bytes,
};

/// A source that stays open during the sync, so that its file system cannot be unmounted.
#[derive(Debug)]
pub(super) struct LocalSource {
    /// The name in the destination; empty if the content of the source is the content of the destination.
    pub name: CString,
    pub path: PathBuf,
    /// `None` if the source is not a directory.
    pub beneath: Option<Beneath<OwnedFd>>,
    pub id: Id,
}

/// The sources of a local sync.
#[derive(Debug)]
pub(super) struct LocalNames {
    pub sources: Vec<LocalSource>,
    /// `true` if the sources are entries of the destination.
    pub has_entries: bool,
    /// `true` if symbolic links in the source are followed.
    pub follows: bool,
    /// `true` if the sync stays on the file system of each source.
    pub one_file_system: bool,
}

impl LocalSource {
    /// Opens a source. `follows`: `true` if a symbolic link is followed. `links`: the links in it that are followed.
    pub fn open(
        path: PathBuf,
        name: CString,
        follows: bool,
        links: FollowLinks,
    ) -> Result<Self, Error> {
        let opened = openat(CWD, &path, directory_flags(follows), Mode::empty());
        let failed = |call| at_path(&path, call);
        let (beneath, id) = match opened {
            Ok(fd) => {
                let id = Id::of(&fstat(&fd).map_err(failed("fstat"))?);
                (Some(Beneath::new(fd, links)), id)
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let stat = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW);
                (None, Id::of(&stat.map_err(failed("newfstatat"))?))
            }
            Err(errno) => return Err(failed("openat")(errno)),
        };
        Ok(Self { name, path, beneath, id })
    }

    fn list(&self, names: &LocalNames, below: &[u8]) -> Result<SourceListing, Error> {
        let path = self.path.join(os_bytes(below));
        let failed = |call| at_path(&path, call);
        let Some(beneath) = &self.beneath else { return Err(failed("openat")(Errno::NOTDIR)) };
        let opened = beneath.open(below, directory_flags(names.follows));
        let fd = opened.map_err(failed("openat"))?;
        let stat = fstat(&fd).map_err(failed("fstat"))?;
        if names.one_file_system && stat.st_dev != self.id.dev {
            return Ok(SourceListing::keep_all());
        }
        let mut listed = HashMap::new();
        let end = each_entry(&fd, &mut listing_buffer(), |entry| {
            let kind = type_of(&fd, entry.file_name(), entry.file_type(), names.follows);
            // If the type is unknown, the name still counts as existing. It counts as a directory, because it may have
            // been one, such as the target of a link that now dangles. Listing it fails later, so nothing below it is
            // deleted.
            let is_directory = kind.unwrap_or(FileType::Directory) == FileType::Directory;
            listed.insert(entry.file_name().to_bytes().into(), is_directory);
            true
        });
        end.map_err(failed("getdents64"))?;
        Ok(SourceListing { names: listed, device: Some(stat.st_dev), ..SourceListing::default() })
    }
}

impl SourceNames for LocalNames {
    fn list(&self, directory: &[u8]) -> Result<SourceListing, Error> {
        if !self.has_entries {
            let [source] = &self.sources[..] else { return Ok(SourceListing::keep_all()) };
            return source.list(self, directory);
        }
        if directory.is_empty() {
            let name =
                |source: &LocalSource| (source.name.to_bytes().into(), source.beneath.is_some());
            let names = self.sources.iter().map(name).collect();
            return Ok(SourceListing { names, ..SourceListing::keep_all() });
        }
        let cut = directory.iter().position(|byte| *byte == b'/').unwrap_or(directory.len());
        let (first, below) = directory.split_at(cut);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match self.sources.iter().find(|source| source.name.to_bytes() == first) {
            Some(source) => source.list(self, below),
            None => Ok(SourceListing::keep_all()),
        }
    }

    fn identity(&self) -> Option<String> {
        let of = |source: &LocalSource| file_system_of(source.beneath.as_ref()?.root().as_fd());
        let all: Vec<String> = self.sources.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    fn contains(&self, device: u64, inode: u64) -> bool {
        self.sources.iter().any(|source| {
            source.beneath.is_some() && (source.id.dev, source.id.ino) == (device, inode)
        })
    }
}

/// Returns the path of a directory with a slash at its end, so that a symbolic link is followed.
pub(super) fn with_slash(path: &std::path::Path) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_owned();
    if !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    PathBuf::from(os_bytes(&bytes))
}
