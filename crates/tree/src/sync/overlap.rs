//! Finds out whether a source and the destination of a sync overlap.

use rustix::fs::{Mode, OFlags, openat, stat};
use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use thalweg_sys::Errno;

use super::local::LocalSource;
use crate::{Error, error::at_path, fs::list::ancestors, identity::Id, names::os};

/// Returns the first source that is the destination, contains it, or is inside it. Directories are compared by device
/// and inode number, so symbolic links and bind mounts are recognized.
pub(super) fn overlapping<'s>(
    sources: &'s [LocalSource],
    destination: &Path,
    has_entries: bool,
) -> Result<Option<&'s Path>, Error> {
    let above = nearest_ancestors(destination)?;
    let there = stat(destination).ok().map(|stat| Id::of(&stat));
    for source in sources {
        let Some(beneath) = &source.beneath else { continue };
        let own = ancestors(beneath.root().as_fd()).map_err(at_path(&source.path, "openat"))?;
        // If the sources become entries of the destination, a source may be another entry there. Only its own copy must
        // not contain it.
        let copy = if has_entries {
            let name = os(&source.name);
            stat(destination.join(name)).ok().map(|stat| Id::of(&stat))
        } else {
            there
        };
        let is_inside = copy.is_some_and(|copy| own.contains(&copy))
            || !has_entries && there.is_some_and(|there| own.contains(&there));
        if above.contains(&source.id) || is_inside {
            return Ok(Some(&source.path));
        }
    }
    Ok(None)
}

/// Returns the identities of the destination, or of its nearest existing ancestor, and of all directories above.
fn nearest_ancestors(destination: &Path) -> Result<Vec<Id>, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut path: PathBuf = destination.to_owned();
    loop {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        match openat(rustix::fs::CWD, name, flags, Mode::empty()) {
            Ok(fd) => return ancestors(fd.as_fd()).map_err(at_path(&path, "openat")),
            Err(Errno::NOENT | Errno::NOTDIR) if path.pop() => {}
            Err(errno) => return Err(at_path(&path, "openat")(errno)),
        }
    }
}
