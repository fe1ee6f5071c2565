//! Files and links of a tree, from what the list says of them to their names here.

use std::{
    ffi::{CStr, CString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    rc::Rc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, symlinkat, unlinkat};
use thalweg_core::atomic_file::{
    AtomicFile, Destination, Fsync, Parked, Until, create_new, failed, name::unique,
    ownership::is_own, rename, unlink,
};
use thalweg_sys::{Errno, io};
use thalweg_tree::foreign::{Attributes, InheritFrom, inherit_from_replaced};

use super::{
    entry::{Entry, stays_inside},
    folders::{Folder, TWICE},
};
use crate::{client::Error, manifest::Meta};

/// How entries are put in.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Nothing was there before this run.
    pub is_fresh: bool,
    /// Nobody sees it before all is in.
    pub is_staged: bool,
    /// Owners are kept.
    pub owner: bool,
    /// Files of the same size are compared by their hashes.
    pub by_hash: bool,
    /// What of each file is synced before it gets its name.
    pub fsync: Fsync,
    /// One call at the end syncs all names.
    pub is_synced_whole: bool,
    /// Closing a file may still tell of bytes that were not kept.
    pub tells_at_close: bool,
}

/// A file that comes.
pub struct Wanted {
    pub path: Vec<u8>,
    pub folder: Rc<Folder>,
    pub name: CString,
    pub size: u64,
    pub etag: String,
    pub attributes: Attributes,
    /// Something else has its name.
    pub replaces: bool,
    /// That may be this file: it comes if its hash is another.
    pub is_doubted: bool,
}

/// An open file that gets its name when it is whole, or has it where nobody looks.
pub enum Sink<'a> {
    Own(OwnedFd),
    Hidden(AtomicFile<BorrowedFd<'a>, &'a CStr>, bool),
}

impl Manner {
    /// What an entry gets in the end.
    pub fn attributes(self, meta: &Meta) -> Attributes {
        let owner = self.owner.then_some((meta.uid, meta.gid));
        Attributes { mode: meta.mode, owner, mtime: (meta.mtime, meta.nanos) }
    }

    /// Whether a file has to come; one that is there gets its attributes at once.
    pub fn wanted(
        self,
        entry: &Entry,
        (size, etag): (u64, &str),
        folder: Rc<Folder>,
    ) -> Result<Option<Wanted>, Error> {
        let (name, attributes) = (entry.name(), self.attributes(&entry.meta));
        let there = if self.is_fresh { None } else { folder.look(&name)? };
        let mut is_doubted = false;
        if let Some(there) = &there {
            let is_file = match FileType::from_raw_mode(there.st_mode) {
                FileType::Directory => return Err(Error::listed("there already, and a folder")),
                kind => kind == FileType::RegularFile,
            };
            let mtime = (there.st_mtime, there.st_mtime_nsec as u32);
            // A file of another user is not taken for what an earlier run brought.
            let owner = attributes.owner.map(|(uid, _)| uid);
            let is_own = Some(there.st_uid) == owner || is_own(folder.fd.as_fd(), there);
            let is_alike = is_file && is_own && there.st_size as u64 == size;
            is_doubted = is_alike && self.by_hash;
            if is_alike && !self.by_hash && mtime == attributes.mtime {
                let is_as_listed = there.st_mode & 0o7777 == attributes.mode
                    && attributes.owner.is_none_or(|owner| owner == (there.st_uid, there.st_gid));
                if !is_as_listed {
                    give(&folder, &name, &attributes)?;
                }
                return Ok(None);
            }
        }
        Ok(Some(Wanted {
            path: entry.path.clone(),
            folder,
            name,
            size,
            etag: etag.to_owned(),
            attributes,
            replaces: there.is_some(),
            is_doubted,
        }))
    }

    /// Makes a link; whether it was not there before.
    pub fn link(self, entry: &Entry, target: &CStr, folder: &Folder) -> Result<bool, Error> {
        if !stays_inside(entry.folder(), target) {
            return Err(Error::listed("a link that may lead out of the folder"));
        }
        let (name, attributes) = (entry.name(), self.attributes(&entry.meta));
        let there = if self.is_fresh { None } else { folder.look(&name)? };
        let fd = folder.fd.as_fd();
        match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
            None => {
                let made = symlinkat(target, fd, &name);
                made.map_err(|errno| self.of_new("symlinkat", errno))?;
                attributes.give_to_link(fd, &name)?;
                return Ok(true);
            }
            Some(FileType::Directory) => return Err(Error::listed("there already, and a folder")),
            Some(FileType::Symlink) => {
                let has = readlinkat(fd, &name, Vec::new()).map_err(failed("readlinkat"))?;
                if *has == *target {
                    attributes.give_to_link(fd, &name)?;
                    return Ok(false);
                }
            }
            Some(_) => {}
        }
        let temporary = unique(&name);
        symlinkat(target, fd, &temporary).map_err(failed("symlinkat"))?;
        let given = attributes.give_to_link(fd, &temporary);
        let done =
            given.and_then(|()| rename(fd, &temporary, &name, false).map_err(failed("renameat2")));
        done.inspect_err(|_| {
            let _ = unlink(fd, &temporary);
        })?;
        Ok(true)
    }

    fn of_new(self, call: &'static str, errno: Errno) -> Error {
        match errno {
            // Names that differ in the list may be one name here.
            Errno::EXIST if self.is_fresh => Error::listed(TWICE),
            errno => failed(call)(errno).into(),
        }
    }

    /// Opens the file that is written.
    pub fn open(self, wanted: &Wanted) -> Result<Sink<'_>, Error> {
        let (dir, name) = (wanted.folder.fd.as_fd(), &*wanted.name);
        if !self.is_staged {
            let file = AtomicFile::create(dir, name, 0o600)?;
            return Ok(Sink::Hidden(file, wanted.replaces));
        }
        if wanted.replaces {
            // An earlier run left it unfinished, in a place nobody can see.
            match unlinkat(dir, name, AtFlags::empty()) {
                // Or this one tried before, and took back what it had.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("unlinkat")(errno).into()),
            }
        }
        // Nobody looks here: it may have its mode from the start, as far as the umask leaves that.
        let made = create_new(dir, name, OFlags::WRONLY, wanted.attributes.mode & 0o777);
        made.map(Sink::Own).map_err(|errno| self.of_new("openat", errno))
    }

    /// Removes what was opened and did not get whole: the folder may become visible without it, and it may be tried again.
    pub fn take_back(self, wanted: &Wanted) {
        if self.is_staged {
            let _ = unlinkat(&wanted.folder.fd, &*wanted.name, AtFlags::empty());
        }
    }
}

/// The destination of a file that is fetched by itself, and can be gone on with.
pub fn destination(wanted: &Wanted) -> Result<Destination, Error> {
    let dir = wanted.folder.fd.try_clone().map_err(|_| failed("fcntl")(Errno::MFILE))?;
    let name = std::ffi::OsStr::from_bytes(wanted.name.to_bytes());
    Ok(Destination::at(dir, name, wanted.replaces, Until::Part)?)
}

impl Wanted {
    /// What is there is this file already: it gets what the list says of it.
    pub fn keep(&self) -> Result<(), Error> {
        give(&self.folder, &self.name, &self.attributes)
    }
}

impl Sink<'_> {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Hidden(file, _) => file.fd.as_fd(),
        }
    }

    /// Gives the file, which is whole, what it gets in the end, and its name. `waits`: without the name, if it can be
    /// returned to wait for that.
    pub fn publish(
        mut self,
        attributes: &Attributes,
        (manner, waits): (Manner, bool),
    ) -> Result<Option<Parked>, Error> {
        if let Self::Hidden(file, true) = &self {
            inherit_from_replaced(file, InheritFrom::Own);
        }
        attributes.give(self.fd())?;
        if manner.tells_at_close {
            io::flush(self.fd()).map_err(failed("close"))?;
        }
        let parked = match &mut self {
            Self::Hidden(file, _) if waits => file.park(),
            _ => None,
        };
        match self {
            Self::Hidden(file, replaces) if parked.is_none() => {
                publish(file, replaces, Some(manner.fsync))?;
            }
            Self::Own(fd) if manner.fsync != Fsync::Never => {
                io::sync(&fd).map_err(failed("fsync"))?;
            }
            Self::Hidden(..) | Self::Own(_) => {}
        }
        Ok(parked)
    }
}

fn give(folder: &Folder, name: &CStr, attributes: &Attributes) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(&folder.fd, name, flags, Mode::empty()).map_err(failed("openat"))?;
    Ok(attributes.give(fd.as_fd())?)
}

/// Gives a file its name, synced before if it is not yet.
pub fn publish(
    mut file: AtomicFile<BorrowedFd<'_>, &CStr>,
    replaces: bool,
    fsync: Option<Fsync>,
) -> Result<(), Error> {
    // No name without its data, also of new files: a later fetch takes a file of the listed size and time for whole,
    // whenever it was fetched, as the server's bytes cannot be compared.
    match fsync {
        None | Some(Fsync::Never) => {}
        Some(Fsync::Auto) => io::sync_data(&file.fd).map_err(failed("fdatasync"))?,
        Some(Fsync::Always) => io::sync(&file.fd).map_err(failed("fsync"))?,
    }
    Ok(file.publish(!replaces)?)
}
