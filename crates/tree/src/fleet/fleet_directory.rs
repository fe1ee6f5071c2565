//! The fleet's directory beside the destination: `.NAME.thalweg-fleet`. The directory contains the plan, the journals
//! and reports of the workers, and partial files. Its subdirectory `tree` becomes the destination.
//!
//! The name is not `.NAME.thalweg-part`, because an ordinary copy removes or adopts such a directory if it sees no
//! lock.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, stat, statat, unlinkat,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_core::{
    atomic_file::{
        create_new,
        name::{FLEET, beside, short},
        ownership::distrust,
        sync_directory, unlink,
    },
    cadence::ATTEMPTS,
};
use thalweg_sys::{Errno, io};

use super::{
    plan::PlanError,
    published::{There, there},
    room::expect_room,
};
use crate::{
    Error, Refusal,
    copy::name_at::NameAt,
    error::{Attempt, CopyFailure, at_path, at_sink},
    fs::{
        beneath::open_by_force,
        list::{DIRECTORY, NAMED_DIRECTORY, ancestors},
        remove::remove_contents,
    },
    identity::Id,
    names::{c_string, cut, os},
};

pub(crate) const PLAN: &CStr = c"plan";
/// Workers continue while this file exists.
pub(crate) const EPOCH: &CStr = c"epoch";
/// The destination is full: all workers stop.
pub(crate) const FULL: &CStr = c"full";
/// A sync with `--fsync` failed and may have lost bytes of any task. The next fleet copies everything again.
pub(crate) const SYNC_FAILED: &CStr = c"sync-failed";
/// The lock of this file belongs to the finisher, which is the worker that completes the tree.
pub(crate) const FINISHER: &CStr = c"finisher";
/// All files are linked into an existing destination: only this directory remains to be removed.
pub(crate) const LINKED: &CStr = c"linked";
pub(crate) const TREE: &CStr = c"tree";
pub(crate) const PARTS: &CStr = c"parts";

/// The fleet's directory, opened.
#[derive(Debug)]
pub(crate) struct FleetDirectory {
    above: OwnedFd,
    // Name of the destination in `above`, and name of the fleet's directory.
    name: CString,
    own: CString,
    pub fd: OwnedFd,
    /// The path of the fleet's directory, for messages.
    pub path: PathBuf,
    /// The path of the destination.
    pub destination: PathBuf,
    pub tree: OwnedFd,
    pub parts: OwnedFd,
    /// `true` if the destination existed before the fleet.
    pub is_there: bool,
}

/// The method by which the tree becomes the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetTarget {
    /// The tree is renamed to the destination, which must not exist.
    New,
    /// Like `New`, but this worker does not create the fleet's directory.
    Open,
    /// The files of the tree are linked into the destination, an existing directory.
    Into,
    /// Like `Into`, but this worker does not create the fleet's directory.
    Join,
}

/// The existing state at the destination of a fleet.
pub(crate) enum FoundFleet {
    /// The fleet's directory.
    Place(Box<FleetDirectory>),
    /// The fleet's directory does not exist. Another worker may still create it.
    Nothing,
    /// The destination is a complete copy of the source: another worker has published it.
    Published,
}

impl FleetDirectory {
    /// Opens the fleet's directory, or creates it if `how` permits that.
    pub fn make(source: &Path, destination: &Path, how: FleetTarget) -> Result<FoundFleet, Error> {
        let mut tries = 0..ATTEMPTS;
        loop {
            match Self::make_once(source, destination, how) {
                // Another worker removed the directory after it was opened, so the destination exists now.
                Err(error) if error.errno() == Some(Errno::NOENT) && tries.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    fn make_once(source: &Path, destination: &Path, how: FleetTarget) -> Result<FoundFleet, Error> {
        let (above, name) = cut(destination);
        let failed = |call| at_path(destination, call);
        if name == "." {
            let why = format!("'{}': does not end with a directory name", destination.display());
            return Err(Error::Usage(why));
        }
        let above_path = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let above_fd = openat(CWD, above_path, NAMED_DIRECTORY, Mode::empty());
        let above_fd = above_fd.map_err(failed("openat"))?;
        let name = c_string(name)?;
        let from = stat(source).map_err(at_path(source, "stat"))?;
        let up = ancestors(above_fd.as_fd()).map_err(failed("openat"))?;
        if up.contains(&Id::of(&from)) {
            let reason = Refusal::IntoItself(destination.to_owned());
            return Err(Error::Refused { path: source.to_owned(), reason });
        }
        let is_there = matches!(how, FleetTarget::Into | FleetTarget::Join);
        let is_published = if is_there {
            let name_at = NameAt { dir: above_fd.as_fd(), name: &name };
            expect_room(name_at, source, destination)?;
            false
        } else {
            let there = there(above_fd.as_fd(), &name, source).map_err(failed("newfstatat"))?;
            if let Some(reason) = there.refusal() {
                return Err(Error::Refused { path: destination.to_owned(), reason });
            }
            there == There::Copy
        };
        let makes = !is_published && matches!(how, FleetTarget::New | FleetTarget::Into);
        let Some((own, fd)) = open_own(above_fd.as_fd(), &name, makes).map_err(failed("openat"))?
        else {
            return Ok(if is_published { FoundFleet::Published } else { FoundFleet::Nothing });
        };
        let path = above.join(os(&own));
        expect_own(above_fd.as_fd(), &fd, &path)?;
        if is_published {
            // The worker that published the tree was killed before it removed this directory.
            if matches!(statat(&fd, TREE, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
                let _ = remove(above_fd.as_fd(), &own, &fd);
            }
            return Ok(FoundFleet::Published);
        }
        if makes && has(fd.as_fd(), SYNC_FAILED) {
            let removed = remove(above_fd.as_fd(), &own, &fd);
            removed.map_err(|failure| failure.on(&path))?;
            return Self::make_once(source, destination, how);
        }
        let below = |name| folder(fd.as_fd(), name).map_err(at_path(&path, "mkdirat"));
        let (tree, parts) = (below(TREE)?, below(PARTS)?);
        let destination = destination.to_owned();
        let place =
            Self { above: above_fd, name, own, fd, path, destination, tree, parts, is_there };
        if place.has(LINKED) {
            // The worker that set this flag was killed before it removed the directory.
            place.remove()?;
            return Ok(FoundFleet::Published);
        }
        Ok(FoundFleet::Place(Box::new(place)))
    }

    /// Opens a file of the directory for reading; `None` if it does not exist.
    pub fn open_file(&self, name: &CStr) -> Result<Option<OwnedFd>, Error> {
        self.open_as(name, OFlags::RDONLY)
    }

    /// Opens a file of the directory with this access mode; `None` if it does not exist.
    pub fn open_as(&self, name: &CStr, access: OFlags) -> Result<Option<OwnedFd>, Error> {
        open_as(self.fd.as_fd(), name, access).map_err(at_path(&self.path, "openat"))
    }

    /// Returns the error for an invalid plan.
    pub fn no_plan(&self, why: PlanError) -> Error {
        no_plan(&self.path, why)
    }

    /// Creates a file that must not exist.
    pub fn create(&self, name: &CStr, access: OFlags) -> Result<OwnedFd, Error> {
        create_new(self.fd.as_fd(), name, access, 0o600).map_err(at_path(&self.path, "openat"))
    }

    /// Gives a file its final name. Returns `false` if that name exists.
    pub fn claim(&self, from: &CStr, to: &CStr) -> Result<bool, Error> {
        match io::rename_new(&self.fd, from, &self.fd, to) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(at_path(&self.path, "renameat2")(errno)),
        }
    }

    /// Sets a flag by creating an empty file.
    pub fn flag(&self, name: &CStr) -> Result<(), Error> {
        match create_new(self.fd.as_fd(), name, OFlags::WRONLY, 0o600) {
            Ok(_) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(at_path(&self.path, "openat")(errno)),
        }
    }

    /// Removes a file or a flag.
    pub fn take_away(&self, name: &CStr) -> Result<(), Error> {
        unlink(self.fd.as_fd(), name).map_err(at_path(&self.path, "unlinkat"))
    }

    /// Returns `true` if an entry of this name exists.
    pub fn has(&self, name: &CStr) -> bool {
        has(self.fd.as_fd(), name)
    }

    /// Returns `true` if another worker has published the tree.
    pub fn is_published(&self, source: &Path) -> bool {
        if self.is_there {
            return !self.is_in_place();
        }
        let there = there(self.above.as_fd(), &self.name, source);
        matches!(there, Ok(There::Copy | There::EarlierCopy))
    }

    /// Returns `true` if the directory still has its name.
    fn is_in_place(&self) -> bool {
        let named = statat(&self.above, &*self.own, AtFlags::SYMLINK_NOFOLLOW);
        let own = fstat(&self.fd).map(|stat| Id::of(&stat));
        own.is_ok_and(|own| named.is_ok_and(|named| Id::of(&named) == own))
    }

    /// Renames the tree to the destination, which must not exist. If `sync` is `true`, also syncs the parent directory,
    /// so that the name survives a power failure.
    pub fn publish(&self, sync: bool) -> Result<(), Error> {
        let failed = |call| at_path(&self.destination, call);
        let mode = fstat(&self.tree).map_err(failed("fstat"))?.st_mode & 0o7777;
        let rename = || io::rename_new(&self.fd, TREE, &self.above, &*self.name);
        let renamed = match rename() {
            // A directory can be moved only with write permission to it, because the move changes its `..` entry.
            Err(Errno::ACCESS | Errno::PERM) if mode & 0o200 == 0 => {
                let mode = Mode::from_raw_mode(mode);
                let opened = fchmod(&self.tree, mode | Mode::RWXU);
                let renamed = opened.and_then(|()| rename());
                fchmod(&self.tree, mode).map_err(failed("fchmod"))?;
                renamed
            }
            answer => answer,
        };
        renamed.map_err(failed("renameat2"))?;
        if sync && let Err(error) = sync_directory(self.above.as_fd(), self.tree.as_fd()) {
            // The final name may be lost. A second sync may not report that loss. The tree is therefore renamed back,
            // and the next fleet copies everything again.
            let _ = io::rename_new(&self.above, &*self.name, &self.fd, TREE);
            let _ = self.flag(SYNC_FAILED);
            return Err(failed(error.call)(error.errno));
        }
        Ok(())
    }

    /// Removes the directory after all work is done.
    pub fn remove(&self) -> Result<(), Error> {
        if self.is_there && !self.is_in_place() {
            return Ok(());
        }
        remove(self.above.as_fd(), &self.own, &self.fd).map_err(|failure| failure.on(&self.path))
    }
}

/// Refuses a fleet's directory that another user may have created or may change. All workers run as one user. No other
/// user can ever have entered the directory, so its contents need no check. The worker cannot use another name, because
/// later workers look for this one.
fn expect_own(above: BorrowedFd<'_>, fd: &OwnedFd, path: &Path) -> Result<(), Error> {
    let stat = fstat(fd).map_err(at_path(path, "fstat"))?;
    match distrust(above, &stat, FileType::Directory) {
        None => Ok(()),
        Some(why) => Err(Error::Refused { path: path.to_owned(), reason: Refusal::Foreign(why) }),
    }
}

/// Opens the fleet's directory for `name`, or creates it if `make` is set.
fn open_own(
    above: BorrowedFd<'_>,
    name: &CStr,
    make: bool,
) -> Result<Option<(CString, OwnedFd)>, Errno> {
    let mut own = beside(name, FLEET);
    loop {
        let opened = if make {
            folder(above, &own).map(Some)
        } else {
            match openat(above, &*own, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) => Ok(None),
                answer => answer.map(Some),
            }
        };
        match opened {
            Err(Errno::NAMETOOLONG) if own != short(name, FLEET) => own = short(name, FLEET),
            answer => return Ok(answer?.map(|fd| (own, fd))),
        }
    }
}

/// Opens the fleet's directory for this destination, or at this path.
pub(crate) fn find(path: &Path) -> Result<Option<(OwnedFd, PathBuf)>, Error> {
    let (above, name) = cut(path);
    let is_own = name.as_encoded_bytes().ends_with(FLEET);
    let failed = |call| at_path(path, call);
    if is_own {
        let fd = openat(CWD, path, DIRECTORY, Mode::empty());
        return fd.map(|fd| Some((fd, path.to_owned()))).map_err(failed("openat"));
    }
    let above_path = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let fd = openat(CWD, above_path, NAMED_DIRECTORY, Mode::empty());
    let fd = fd.map_err(failed("openat"))?;
    let found = open_own(fd.as_fd(), &c_string(name)?, false).map_err(failed("openat"))?;
    Ok(found.map(|(own, fd)| (fd, above.join(os(&own)))))
}

/// Returns the error for an invalid plan in this directory.
pub(crate) fn no_plan(folder: &Path, why: PlanError) -> Error {
    Error::Refused { path: folder.join("plan"), reason: Refusal::NoPlan(why.to_string()) }
}

/// Opens a file of the directory for reading; `None` if it does not exist.
pub(crate) fn open(folder: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    open_as(folder, name, OFlags::RDONLY)
}

fn open_as(folder: BorrowedFd<'_>, name: &CStr, access: OFlags) -> Result<Option<OwnedFd>, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns `true` if an entry of this name exists; `false` if the directory was removed.
pub(crate) fn has(folder: BorrowedFd<'_>, name: &CStr) -> bool {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Opens or creates a directory. Mode 0700 keeps other users out until the tree is complete.
pub(super) fn folder(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match mkdirat(above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_by_force(above, name),
        Err(errno) => Err(errno),
    }
}

fn remove(above: BorrowedFd<'_>, own: &CStr, fd: &OwnedFd) -> Attempt<()> {
    // These files are removed first, so that no worker can start while the directory is emptied.
    for name in [EPOCH, PLAN] {
        unlink(fd.as_fd(), name).map_err(at_sink("unlinkat"))?;
    }
    let mut tries = 0..ATTEMPTS;
    loop {
        // The tree is removed before the `LINKED` flag. Otherwise a later worker could take a partly removed tree for a
        // complete one.
        let emptied = match openat(fd, TREE, DIRECTORY, Mode::empty()) {
            Ok(tree) => {
                // The tree has the mode of the source by now, which may deny access.
                let _ = fchmod(&tree, Mode::RWXU);
                let emptied = remove_contents(&tree);
                let _ = unlinkat(fd, TREE, AtFlags::REMOVEDIR);
                emptied
            }
            Err(_) => Ok(()),
        };
        let removed = emptied
            .and_then(|()| remove_contents(fd))
            .and_then(|()| unlinkat(above, own, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat")));
        match removed {
            Err(CopyFailure::Sink(_, Errno::NOENT, _)) if !has(above, own) => return Ok(()),
            // Between two calls, another worker wrote its report here or removed an entry. The loop tries again.
            Err(CopyFailure::Sink(_, Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST, _))
                if tries.next().is_some() => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn make(place: &Path) -> Result<FoundFleet, Error> {
        FleetDirectory::make(&place.join("src"), &place.join("dst"), FleetTarget::New)
    }

    #[test]
    fn what_is_there_already_is_refused_unless_it_is_the_copy() {
        let here = tempfile::tempdir().unwrap();
        let (src, dst) = (here.path().join("src"), here.path().join("dst"));
        fs::create_dir(&src).unwrap();
        assert!(matches!(make(here.path()), Ok(FoundFleet::Place(_))));
        assert!(here.path().join(".dst.thalweg-fleet/tree").is_dir());
        fs::create_dir(&dst).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        fs::File::open(&dst).unwrap().set_modified(time).unwrap();
        let refused = make(here.path()).err().unwrap().to_string();
        assert!(refused.contains("exists"), "{refused}");
        fs::write(src.join("file"), "").unwrap();
        fs::File::open(&src).unwrap().set_modified(time).unwrap();
        // Apart from the modification time the directories differ, so it is not a result of the fleet.
        assert!(make(here.path()).is_err());
        fs::write(dst.join("file"), "").unwrap();
        fs::File::open(&dst).unwrap().set_modified(time).unwrap();
        assert!(matches!(make(here.path()), Ok(FoundFleet::Published)));
        // The tree may belong to another fleet, so it stays.
        assert!(here.path().join(".dst.thalweg-fleet/tree").is_dir());
        fs::remove_dir(here.path().join(".dst.thalweg-fleet/tree")).unwrap();
        assert!(matches!(make(here.path()), Ok(FoundFleet::Published)));
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_destination_inside_the_source_is_refused() {
        let here = tempfile::tempdir().unwrap();
        let src = here.path().join("src");
        fs::create_dir_all(src.join("sub")).unwrap();
        let error = FleetDirectory::make(&src, &src.join("sub/dst"), FleetTarget::New)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("into itself"), "{error}");
        assert_eq!(fs::read_dir(src.join("sub")).unwrap().count(), 0);
    }
}
