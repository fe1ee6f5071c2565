//! Checks whether a tree can be copied into an existing directory.

use rustix::fs::{AtFlags, CWD, FileType, Mode, fstat, openat, statat};
use std::{os::fd::AsFd, path::Path};
use thalweg_sys::Errno;

use crate::{
    Error,
    copy::name_at::NameAt,
    error::at_path,
    fs::list::{DIRECTORY, ancestors},
    identity::{Id, kind},
    names::c_string,
};

/// Returns an error if the destination is not a directory, contains the source, or is on another file system than its
/// parent. In the last case, files beside the destination could not be linked into it.
pub(crate) fn expect_room(
    NameAt { dir: above, name }: NameAt<'_>,
    source: &Path,
    destination: &Path,
) -> Result<(), Error> {
    let shown = destination.display();
    let refused = |why: String| Err(Error::Usage(format!("-T: {why}")));
    let there = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if kind(&there) == FileType::Directory => there,
        Ok(_) | Err(Errno::NOENT) => {
            return refused(format!("'{shown}' is not an existing directory"));
        }
        Err(errno) => return Err(at_path(destination, "newfstatat")(errno)),
    };
    let beside = fstat(above).map_err(at_path(destination, "fstat"))?;
    if beside.st_dev != there.st_dev {
        return refused(format!("'{shown}' is on another file system than its parent directory"));
    }
    let from = openat(CWD, &*c_string(source.as_os_str())?, DIRECTORY, Mode::empty());
    let from = from.map_err(at_path(source, "openat"))?;
    let up = ancestors(from.as_fd()).map_err(at_path(source, "openat"))?;
    if up.contains(&Id::of(&there)) {
        return refused(format!(
            "the source '{}' is inside the destination '{shown}'",
            source.display()
        ));
    }
    Ok(())
}
