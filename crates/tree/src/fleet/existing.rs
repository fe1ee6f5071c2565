//! Copies into an existing directory (`-T`). The workers complete the tree in the fleet's directory, as usual. Then
//! each file is linked into the destination, where it replaces an existing file of that name. The tree stays complete
//! in the fleet's directory until all files are linked, so a killed fleet can always be resumed.

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
    fleet_directory::{FleetDirectory, FleetTarget, FoundFleet, LINKED},
    member::Member,
};
use crate::{
    Becomes, CopyOptions, Error, Events, Refusal, Target, TreeReport,
    copy::{run::Concurrency, start::copy_among},
    error::at_path,
    times,
};

/// Maximum time to wait for the fleet's directory if the destination has the modification time of the source. The fleet
/// has then probably finished. If it has not, it continues without this worker.
const LATE: Duration = Duration::from_secs(10);

/// Opens the fleet's directory. Rank 0 creates it. The other workers wait for it, because an existing destination does
/// not prove that the fleet has finished.
pub(crate) fn join(
    source: &Path,
    destination: &Path,
    member: &Member,
    events: &dyn Events,
) -> Result<FoundFleet, Error> {
    let (began, mut pauses) = (Instant::now(), Pauses::new());
    while member.rank != 0 && events.go_on().is_ok() {
        let found = FleetDirectory::make(source, destination, FleetTarget::Join)?;
        if !matches!(found, FoundFleet::Nothing) {
            return Ok(found);
        }
        let stats = [source, destination].map(stat);
        let fs = || statfs(destination);
        let is_alike =
            matches!(&stats, [Ok(source), Ok(there)] if times::is_same(there, source, fs));
        if is_alike && began.elapsed() >= member.wait.min(LATE) {
            return Ok(FoundFleet::Published);
        }
        if began.elapsed() >= member.wait {
            let reason = Refusal::NoPlanYet;
            return Err(Error::Refused { path: destination.to_owned(), reason });
        }
        pauses.next();
    }
    FleetDirectory::make(source, destination, FleetTarget::Into)
}

/// Checks, before anything is copied, that the file system supports hard links.
pub(crate) fn expect_links(place: &FleetDirectory, file: &CStr) -> Result<(), Error> {
    let twin = CString::new([c"twin.".to_bytes(), file.to_bytes()].concat()).unwrap_or_default();
    io::link(&place.fd, file, &place.fd, &*twin).map_err(at_path(&place.path, "linkat"))?;
    unlink(place.fd.as_fd(), &twin).map_err(at_path(&place.path, "unlinkat"))
}

/// Links the completed tree into the destination. A file that cannot be linked remains in the tree.
pub(crate) fn link_in(
    place: &FleetDirectory,
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
        copy_among(slice::from_ref(&tree), destination, &options, events, Concurrency::Linkers)?;
    if linked.error_count == 0 && linked.halted.is_none() {
        place.flag(LINKED)?;
    }
    Ok(linked)
}
