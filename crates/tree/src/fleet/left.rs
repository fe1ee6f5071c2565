//! Controls a fleet from outside: stops its workers, and lists the files that are not copied yet.

use std::{
    collections::HashSet,
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::unlink;

use super::{
    fleet_directory::{self, EPOCH},
    plan::FleetTask,
    status::FleetProgress,
    task_runner::FleetPaths,
};
use crate::{Error, error::at_path};

/// Makes the workers of the fleet for `path` stop at their next step. Workers started later continue the work.
pub fn stop(path: &Path) -> Result<(), Error> {
    let Some((fd, folder)) = fleet_directory::find(path)? else { return Ok(()) };
    unlink(fd.as_fd(), EPOCH).map_err(at_path(&folder, "unlinkat"))
}

/// Returns the first `most` files of tasks, relative to the source, that no worker has copied completely.
pub fn left(path: &Path, most: usize) -> Result<Vec<PathBuf>, Error> {
    let Some((fd, folder)) = fleet_directory::find(path)? else { return Ok(Vec::new()) };
    let Some(FleetProgress { plan, journals }) = FleetProgress::of(fd.as_fd(), &folder)? else {
        return Ok(Vec::new());
    };
    let (mut files, mut large) = (Vec::new(), HashSet::new());
    for n in (0..plan.index.len()).filter(|n| !journals.done.has(*n)) {
        if files.len() >= most {
            break;
        }
        let of = |entry| FleetPaths::path_of(Path::new(""), entry);
        match plan.task(n).map_err(|why| fleet_directory::no_plan(&folder, why))? {
            FleetTask::Files(some) => files.extend(some.iter().map(of)),
            FleetTask::Stretch { file, entry, .. } => {
                files.extend(large.insert(file).then(|| of(&entry)));
            }
        }
    }
    files.truncate(most);
    Ok(files)
}
