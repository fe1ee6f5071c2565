//! The folder of a fleet, beside the destination: `.NAME.thalweg-fleet`. It holds the plan, the journals and the
//! reports of the workers, parts of large files, and in `tree` what will become the destination.
//!
//! Not `.NAME.thalweg-part`: an ordinary copy removes or takes over what has that name and no lock that it can see.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, fstatfs, mkdirat, openat, stat, statat,
    unlinkat,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::{
    create_new,
    name::{FLEET, beside, is_reserved, short},
    ownership::distrust,
    sync_directory, unlink,
};
use thalweg_sys::{Errno, io};
use xxhash_rust::xxh3::xxh3_64;

use super::{plan::PlanError, room::expect_room};
use crate::{
    Error, Refusal,
    copy::{
        name_at::NameAt,
        staged_dir::{open_new, remove_contents},
    },
    error::{Attempt, Failure, at_sink},
    evidence,
    identity::{Id, kind},
    listing::{DIRECTORY, ancestors, each_entry, listing_buffer},
    names::{c_string, cut, os},
    times,
};

/// How often something is tried again that others have got in the way of.
const TRIES: usize = 100;

pub(crate) const PLAN: &CStr = c"plan";
/// Workers go on while it is there.
pub(crate) const EPOCH: &CStr = c"epoch";
/// The destination is full: all stop.
pub(crate) const FULL: &CStr = c"full";
/// A sync failed in a fleet whose caller asked for `--fsync`: the kernel may have dropped bytes of any task, so the next
/// fleet begins from nothing.
pub(crate) const SYNC_FAILED: &CStr = c"sync-failed";
/// Who finishes holds its lock.
pub(crate) const FINISHER: &CStr = c"finisher";
/// All of the tree is in a destination that was there: only this folder is left to remove.
pub(crate) const LINKED: &CStr = c"linked";
pub(crate) const TREE: &CStr = c"tree";
pub(crate) const PARTS: &CStr = c"parts";

/// The folder, open.
#[derive(Debug)]
pub(crate) struct Place {
    above: OwnedFd,
    // Of the destination, and of the folder.
    name: CString,
    own: CString,
    pub fd: OwnedFd,
    /// Its path, for people.
    pub path: PathBuf,
    /// That of the destination.
    pub destination: PathBuf,
    pub tree: OwnedFd,
    pub parts: OwnedFd,
    /// The destination was there before.
    pub is_there: bool,
}

/// What becomes of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It gets the name of the destination, which must be free.
    New,
    /// The same, and somebody else has made the folder of the fleet.
    Open,
    /// It goes into the destination, a folder.
    Into,
    /// Into the destination too, and somebody else makes the folder of the fleet.
    Join,
}

/// What there is where a fleet is to work.
pub(crate) enum Found {
    /// Its folder.
    Place(Box<Place>),
    /// No folder of it, or not yet.
    Nothing,
    /// The destination, with the time of the source: another worker has finished it.
    Published,
}

impl Place {
    /// Opens the folder of earlier workers, or makes it where that is this one's to do.
    pub fn make(source: &Path, destination: &Path, how: How) -> Result<Found, Error> {
        let mut tries = 0..TRIES;
        loop {
            match Self::make_once(source, destination, how) {
                // It was removed while it was opened: then the destination is there.
                Err(error) if error.errno() == Some(Errno::NOENT) && tries.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    fn make_once(source: &Path, destination: &Path, how: How) -> Result<Found, Error> {
        let (above, name) = cut(destination);
        let failed = |call| failed(destination, call);
        if name == "." {
            let why = format!("'{}' is no name for a new folder", destination.display());
            return Err(Error::Usage(why));
        }
        let above_path = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let above_fd = openat(CWD, above_path, DIRECTORY - OFlags::NOFOLLOW, Mode::empty());
        let above_fd = above_fd.map_err(failed("openat"))?;
        let name = c_string(name)?;
        let from = stat(source).map_err(self::failed(source, "stat"))?;
        let up = ancestors(above_fd.as_fd()).map_err(failed("openat"))?;
        if up.contains(&Id::of(&from)) {
            let reason = Refusal::IntoItself(destination.to_owned());
            return Err(Error::Refused { path: source.to_owned(), reason });
        }
        let is_there = matches!(how, How::Into | How::Join);
        let is_published = if is_there {
            expect_room((&above_fd, &name), (source, destination))?;
            false
        } else {
            let there = there(above_fd.as_fd(), &name, source).map_err(failed("newfstatat"))?;
            if let Some(reason) = there.refusal() {
                return Err(Error::Refused { path: destination.to_owned(), reason });
            }
            there == There::Copy
        };
        let makes = !is_published && matches!(how, How::New | How::Into);
        let Some((own, fd)) = open_own(above_fd.as_fd(), &name, makes).map_err(failed("openat"))?
        else {
            return Ok(if is_published { Found::Published } else { Found::Nothing });
        };
        let path = above.join(os(&own));
        expect_own(above_fd.as_fd(), &fd, &path)?;
        if is_published {
            // Who published it was killed before it removed the folder.
            if matches!(statat(&fd, TREE, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
                let _ = remove(above_fd.as_fd(), &own, &fd);
            }
            return Ok(Found::Published);
        }
        if makes && has(fd.as_fd(), SYNC_FAILED) {
            let removed = remove(above_fd.as_fd(), &own, &fd);
            removed.map_err(|failure| failure.at(|| path.clone(), || path.clone()))?;
            return Self::make_once(source, destination, how);
        }
        let below = |name| folder(fd.as_fd(), name).map_err(self::failed(&path, "mkdirat"));
        let (tree, parts) = (below(TREE)?, below(PARTS)?);
        let destination = destination.to_owned();
        let place =
            Self { above: above_fd, name, own, fd, path, destination, tree, parts, is_there };
        if place.has(LINKED) {
            // Who put up that flag was killed before it removed the folder.
            place.remove()?;
            return Ok(Found::Published);
        }
        Ok(Found::Place(Box::new(place)))
    }

    /// Opens a file of the folder to be read; `None` if it is not there.
    pub fn open_file(&self, name: &CStr) -> Result<Option<OwnedFd>, Error> {
        self.open_as(name, OFlags::RDONLY)
    }

    /// The same for other access.
    pub fn open_as(&self, name: &CStr, access: OFlags) -> Result<Option<OwnedFd>, Error> {
        open_as(self.fd.as_fd(), name, access).map_err(failed(&self.path, "openat"))
    }

    /// A plan that cannot be used.
    pub fn no_plan(&self, why: PlanError) -> Error {
        no_plan(&self.path, why)
    }

    /// Makes a file that must not be there.
    pub fn create(&self, name: &CStr, access: OFlags) -> Result<OwnedFd, Error> {
        create_new(self.fd.as_fd(), name, access, 0o600).map_err(failed(&self.path, "openat"))
    }

    /// Gives a file its final name; false if another has it.
    pub fn claim(&self, from: &CStr, to: &CStr) -> Result<bool, Error> {
        match io::rename_new(&self.fd, from, &self.fd, to) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(failed(&self.path, "renameat2")(errno)),
        }
    }

    /// Puts up a flag: an empty file.
    pub fn flag(&self, name: &CStr) -> Result<(), Error> {
        match create_new(self.fd.as_fd(), name, OFlags::WRONLY, 0o600) {
            Ok(_) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(&self.path, "openat")(errno)),
        }
    }

    /// Takes a file or a flag away.
    pub fn take_away(&self, name: &CStr) -> Result<(), Error> {
        unlink(self.fd.as_fd(), name).map_err(failed(&self.path, "unlinkat"))
    }

    /// Whether something of that name is there.
    pub fn has(&self, name: &CStr) -> bool {
        has(self.fd.as_fd(), name)
    }

    /// Whether another worker has published the tree.
    pub fn is_published(&self, source: &Path) -> bool {
        if self.is_there {
            return !self.is_in_place();
        }
        let there = there(self.above.as_fd(), &self.name, source);
        matches!(there, Ok(There::Copy | There::EarlierCopy))
    }

    /// Whether the folder has its name still.
    fn is_in_place(&self) -> bool {
        let named = statat(&self.above, &*self.own, AtFlags::SYMLINK_NOFOLLOW);
        let own = fstat(&self.fd).map(|stat| Id::of(&stat));
        own.is_ok_and(|own| named.is_ok_and(|named| Id::of(&named) == own))
    }

    /// Gives the tree the name of the destination, which must still be free, and brings that name to the disk if asked to.
    pub fn publish(&self, sync: bool) -> Result<(), Error> {
        let failed = |call| failed(&self.destination, call);
        let mode = fstat(&self.tree).map_err(failed("fstat"))?.st_mode & 0o7777;
        let rename = || io::rename_new(&self.fd, TREE, &self.above, &*self.name);
        let renamed = match rename() {
            // Who moves a folder writes its `..`: for that its owner needs the right to write it.
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
            // The name may be lost, and a second sync need not say so: neither this tree nor this fleet is to be trusted.
            let _ = io::rename_new(&self.above, &*self.name, &self.fd, TREE);
            let _ = self.flag(SYNC_FAILED);
            return Err(failed(error.call)(error.errno));
        }
        Ok(())
    }

    /// Removes the folder: nothing is left to do.
    pub fn remove(&self) -> Result<(), Error> {
        if self.is_there && !self.is_in_place() {
            return Ok(());
        }
        remove(self.above.as_fd(), &self.own, &self.fd)
            .map_err(|failure| failure.at(|| self.path.clone(), || self.path.clone()))
    }
}

/// Brings the name of a published tree to the disk.
pub(crate) fn sync_name(destination: &Path) -> Result<(), Error> {
    let tree = openat(CWD, destination, DIRECTORY, Mode::empty());
    let tree = tree.map_err(failed(destination, "openat"))?;
    let above = openat(&tree, c"..", DIRECTORY, Mode::empty());
    let above = above.map_err(failed(destination, "openat"))?;
    let synced = sync_directory(above.as_fd(), tree.as_fd());
    synced.map_err(|error| failed(destination, error.call)(error.errno))
}

/// Refuses the folder of a fleet that another user may have made or may change. All workers belong to one user, and no
/// other has ever been able to enter the folder: what is below it needs no such look. No other name will do, as workers
/// that start later look for this one.
fn expect_own(above: BorrowedFd<'_>, fd: &OwnedFd, path: &Path) -> Result<(), Error> {
    let stat = fstat(fd).map_err(failed(path, "fstat"))?;
    match distrust(above, &stat, FileType::Directory) {
        None => Ok(()),
        Some(why) => Err(Error::Refused { path: path.to_owned(), reason: Refusal::Foreign(why) }),
    }
}

/// What has the name of the destination.
#[derive(PartialEq, Eq, Debug)]
enum There {
    Nothing,
    /// A folder that was last modified when the source was, and holds the same names: nobody makes such a one but a copy.
    Copy,
    /// The same, last changed before this machine started. Its name and times may have outlived its data.
    EarlierCopy,
    SomethingElse,
}

impl There {
    /// Returns why no fleet makes a tree there.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Nothing | Self::Copy => None,
            Self::EarlierCopy => Some(Refusal::NotSince),
            Self::SomethingElse => Some(Refusal::NotNew),
        }
    }
}

fn there(above: BorrowedFd<'_>, name: &CStr, source: &Path) -> Result<There, Errno> {
    let there = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(There::Nothing),
        Err(errno) => return Err(errno),
    };
    // Two folders that were made within one tick of the kernel's clock have one time.
    let is_copy = kind(&there) == FileType::Directory
        && times::is_same(&there, &stat(source)?, || fstatfs(above))
        && names(openat(above, name, DIRECTORY, Mode::empty())?)?
            == names(openat(CWD, source, DIRECTORY, Mode::empty())?)?;
    Ok(match is_copy {
        true if evidence::is_from_before_this_boot(&there) => There::EarlierCopy,
        true => There::Copy,
        false => There::SomethingElse,
    })
}

/// How many names a folder has that a copy would take, and a sum of their hashes: their order says nothing.
fn names(folder: OwnedFd) -> Result<(u64, u64), Errno> {
    let (mut count, mut sum) = (0, 0_u64);
    each_entry(folder, &mut listing_buffer(), |entry| {
        if !is_reserved(entry.file_name()) {
            count += 1;
            sum = sum.wrapping_add(xxh3_64(entry.file_name().to_bytes()));
        }
        true
    })?;
    Ok((count, sum))
}

/// Opens the folder of the fleet that makes `name`, or makes it.
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

/// Opens the folder of the fleet that makes this destination, or that has this path itself.
pub(crate) fn find(path: &Path) -> Result<Option<(OwnedFd, PathBuf)>, Error> {
    let (above, name) = cut(path);
    let is_own = name.as_encoded_bytes().ends_with(FLEET);
    let failed = |call| failed(path, call);
    if is_own {
        let fd = openat(CWD, path, DIRECTORY, Mode::empty());
        return fd.map(|fd| Some((fd, path.to_owned()))).map_err(failed("openat"));
    }
    let above_path = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let fd = openat(CWD, above_path, DIRECTORY - OFlags::NOFOLLOW, Mode::empty());
    let fd = fd.map_err(failed("openat"))?;
    let found = open_own(fd.as_fd(), &c_string(name)?, false).map_err(failed("openat"))?;
    Ok(found.map(|(own, fd)| (fd, above.join(os(&own)))))
}

/// A plan, in this folder, that cannot be used.
pub(crate) fn no_plan(folder: &Path, why: PlanError) -> Error {
    Error::Refused { path: folder.join("plan"), reason: Refusal::NoPlan(why.to_string()) }
}

/// Opens a file of the folder; `None` if it is not there.
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

/// Whether something of that name is there. Of a folder that is gone, nothing is.
pub(crate) fn has(folder: BorrowedFd<'_>, name: &CStr) -> bool {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Makes or opens a folder that nobody else may look into.
fn folder(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match mkdirat(above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_new(NameAt { dir: above, name }),
        Err(errno) => Err(errno),
    }
}

fn remove(above: BorrowedFd<'_>, own: &CStr, fd: &OwnedFd) -> Attempt<()> {
    // Nobody may come back while it is emptied.
    for name in [EPOCH, PLAN] {
        unlink(fd.as_fd(), name).map_err(at_sink("unlinkat"))?;
    }
    let empty = |fd: &OwnedFd| {
        let copy = fd.try_clone().map_err(|_| at_sink("fcntl")(Errno::MFILE));
        copy.and_then(remove_contents)
    };
    let mut tries = 0..TRIES;
    loop {
        // The tree before the flag that says that it is linked: who comes later must not take a part of it for the whole.
        let emptied = match openat(fd, TREE, DIRECTORY, Mode::empty()) {
            Ok(tree) => {
                // It has the mode of the source by now, which need not let us in.
                let _ = fchmod(&tree, Mode::RWXU);
                let emptied = empty(&tree);
                let _ = unlinkat(fd, TREE, AtFlags::REMOVEDIR);
                emptied
            }
            Err(_) => Ok(()),
        };
        let removed = emptied
            .and_then(|()| empty(fd))
            .and_then(|()| unlinkat(above, own, AtFlags::REMOVEDIR).map_err(at_sink("unlinkat")));
        match removed {
            Err(Failure::Sink(_, Errno::NOENT, _)) if !has(above, own) => return Ok(()),
            // A worker that ends just now says so in there, and one that comes late removes it too.
            Err(Failure::Sink(_, Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST, _))
                if tries.next().is_some() => {}
            answer => return answer,
        }
    }
}

/// A call on a path.
pub(crate) fn failed(path: &Path, call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { path: path.to_owned(), call, errno, bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn make(place: &Path) -> Result<Found, Error> {
        Place::make(&place.join("src"), &place.join("dst"), How::New)
    }

    #[test]
    fn what_is_there_already_is_refused_unless_it_is_the_copy() {
        let here = tempfile::tempdir().unwrap();
        let (src, dst) = (here.path().join("src"), here.path().join("dst"));
        fs::create_dir(&src).unwrap();
        assert!(matches!(make(here.path()), Ok(Found::Place(_))));
        assert!(here.path().join(".dst.thalweg-fleet/tree").is_dir());
        fs::create_dir(&dst).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        fs::File::open(&dst).unwrap().set_modified(time).unwrap();
        let refused = make(here.path()).err().unwrap().to_string();
        assert!(refused.contains("exists"), "{refused}");
        fs::write(src.join("file"), "").unwrap();
        fs::File::open(&src).unwrap().set_modified(time).unwrap();
        // The time alone says nothing.
        assert!(make(here.path()).is_err());
        fs::write(dst.join("file"), "").unwrap();
        fs::File::open(&dst).unwrap().set_modified(time).unwrap();
        assert!(matches!(make(here.path()), Ok(Found::Published)));
        // It is not known whose tree that is.
        assert!(here.path().join(".dst.thalweg-fleet/tree").is_dir());
        fs::remove_dir(here.path().join(".dst.thalweg-fleet/tree")).unwrap();
        assert!(matches!(make(here.path()), Ok(Found::Published)));
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_destination_inside_the_source_is_refused() {
        let here = tempfile::tempdir().unwrap();
        let src = here.path().join("src");
        fs::create_dir_all(src.join("sub")).unwrap();
        let error = Place::make(&src, &src.join("sub/dst"), How::New).err().unwrap().to_string();
        assert!(error.contains("into itself"), "{error}");
        assert_eq!(fs::read_dir(src.join("sub")).unwrap().count(), 0);
    }
}
