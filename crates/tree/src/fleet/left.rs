//! A fleet from outside, by who looks after its workers: to stop them, and to say what they have left.

use std::{
    collections::HashSet,
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::unlink;

use super::{
    mover::Grounds,
    place::{self, EPOCH, failed},
    plan::Task,
    status::Known,
};
use crate::Error;

/// Tells the workers of the fleet that makes `path` to stop, which they do at their next step. Others go on later.
pub fn stop(path: &Path) -> Result<(), Error> {
    let Some((fd, folder)) = place::find(path)? else { return Ok(()) };
    unlink(fd.as_fd(), EPOCH).map_err(failed(&folder, "unlinkat"))
}

/// The files, below the source, that no worker has moved whole: the first `most` of them. Without those that no task has.
pub fn left(path: &Path, most: usize) -> Result<Vec<PathBuf>, Error> {
    let Some((fd, folder)) = place::find(path)? else { return Ok(Vec::new()) };
    let Some(Known { plan, journals }) = Known::of(fd.as_fd(), &folder)? else {
        return Ok(Vec::new());
    };
    let (mut files, mut large) = (Vec::new(), HashSet::new());
    for n in (0..plan.index.len()).filter(|n| !journals.done.has(*n)) {
        if files.len() >= most {
            break;
        }
        let of = |entry| Grounds::path_of(Path::new(""), entry);
        match plan.task(n).map_err(|why| place::no_plan(&folder, why))? {
            Task::Files(some) => files.extend(some.iter().map(of)),
            Task::Stretch { file, entry, .. } => {
                files.extend(large.insert(file).then(|| of(&entry)));
            }
        }
    }
    files.truncate(most);
    Ok(files)
}
