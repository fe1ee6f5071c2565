//! Into a folder that is there (`-T`). The tree is completed apart, as any other, and then each of its files gets a
//! second name in the destination, in the place of what had that name: so it stays whole in the folder of the fleet
//! until nothing is left to do, and a kill at any moment leaves all that is needed to go on.

use rustix::fs::{stat, statfs};
use std::{
    ffi::{CStr, CString},
    os::fd::AsFd,
    path::Path,
    slice,
    time::{Duration, Instant},
};
use thalweg_core::atomic_file::unlink;
use thalweg_sys::io;

use super::{
    assignment::Pauses,
    member::Member,
    place::{Found, How, LINKED, Place, failed},
};
use crate::{
    Becomes, CopyOptions, Error, Events, Refusal, Target, TreeReport,
    copy::{run::Concurrency, start::copy_among},
    times,
};

/// How long a worker waits for the folder of the fleet where the destination has the time of the source: most likely it
/// came when all was done, and else rank 0 has fewer to help it.
const LATE: Duration = Duration::from_secs(10);

/// The folder of the fleet, which rank 0 makes and the others wait for: a destination that was there before does not
/// tell for sure whether all is done.
pub(crate) fn join(
    (source, destination): (&Path, &Path),
    member: &Member,
    events: &dyn Events,
) -> Result<Found, Error> {
    let (began, mut pauses) = (Instant::now(), Pauses::new());
    while member.rank != 0 && events.go_on().is_ok() {
        let found = Place::make(source, destination, How::Join)?;
        if !matches!(found, Found::Nothing) {
            return Ok(found);
        }
        let stats = [source, destination].map(stat);
        let fs = || statfs(destination);
        let is_alike =
            matches!(&stats, [Ok(source), Ok(there)] if times::is_same(there, source, fs));
        if is_alike && began.elapsed() >= member.wait.min(LATE) {
            return Ok(Found::Published);
        }
        if began.elapsed() >= member.wait {
            let reason = Refusal::NoPlanYet;
            return Err(Error::Refused { path: destination.to_owned(), reason });
        }
        pauses.next();
    }
    Place::make(source, destination, How::Into)
}

/// Refuses a file system where no file can have a second name, before anything is copied.
pub(crate) fn expect_links(place: &Place, file: &CStr) -> Result<(), Error> {
    let twin = CString::new([c"twin.".to_bytes(), file.to_bytes()].concat()).unwrap_or_default();
    io::link(&place.fd, file, &place.fd, &*twin).map_err(failed(&place.path, "linkat"))?;
    unlink(place.fd.as_fd(), &twin).map_err(failed(&place.path, "unlinkat"))
}

/// Links the completed tree into the destination. Where that fails for some files, they stay where they are.
pub(crate) fn link_in(
    place: &Place,
    options: &CopyOptions,
    events: &dyn Events,
) -> Result<TreeReport, Error> {
    let options = CopyOptions {
        becomes: Becomes::HardLink,
        force: true,
        target: Target::Exact,
        verify: None,
        ..options.clone()
    };
    let (tree, destination) = (place.path.join("tree"), &*place.destination);
    let linked =
        copy_among((slice::from_ref(&tree), destination), &options, events, Concurrency::Linkers)?;
    if linked.error_count == 0 && linked.halted.is_none() {
        place.flag(LINKED)?;
    }
    Ok(linked)
}
