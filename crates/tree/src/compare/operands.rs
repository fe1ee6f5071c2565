//! Resolves the caller's paths to pairs of entries to compare.

use rustix::fs::{AtFlags, CWD, FileType, statat};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_core::shown;

use super::{
    CompareOptions, Comparison, Into, entry::ComparisonWalk, links::HardLinkPairs, run::CompareRun,
};
use crate::{
    Error, Events,
    error::at_path,
    fs::walk::{WalkRoot, WalkTask, walk},
    identity,
    names::{c_string, cut},
    threads::for_reading,
};

/// Compares every source with its copy. An error means that nothing was compared. A missing source or copy is an error
/// in the returned [`Comparison`].
///
/// With several sources, the copies are entries of the destination. With one source, the copy is normally the
/// destination itself. If the destination is a directory, the copy may instead be its entry with the name of the
/// source. `compare` chooses this entry if the source is not a directory. It also chooses the entry if the entry is a
/// directory and the source contains no entry of that name.
pub fn compare(
    sources: &[PathBuf],
    destination: &Path,
    options: &CompareOptions,
    events: &dyn Events,
) -> Result<Comparison, Error> {
    let compare =
        ComparisonWalk { options, run: CompareRun::new(events), links: HardLinkPairs::default() };
    let mut tasks = Vec::new();
    // The queue is last in, first out, so the sources are queued in reverse order.
    for source in sources.iter().rev() {
        let copy = copy_of(source, sources.len(), destination, options.into)?;
        match task(source, &copy) {
            Ok(task) => tasks.push(task),
            Err(error) => compare.run.failed(error),
        }
    }
    let hands = walk(&compare, tasks, for_reading(options.jobs));
    Ok(compare.run.conclude(hands))
}

/// Returns the path of the copy of a source.
fn copy_of(
    source: &Path,
    sources: usize,
    destination: &Path,
    into: Into,
) -> Result<PathBuf, Error> {
    let name = cut(source).1;
    let inside = || destination.join(name);
    let is_folder = destination.is_dir();
    if into == Into::Itself || !is_folder {
        if sources > 1 || into == Into::Folder {
            let message = format!("'{}' is not a directory", shown(destination));
            return Err(Error::Usage(message));
        }
        return Ok(destination.to_owned());
    }
    let was_copied_into = || {
        !source.is_dir()
            || (name != "." && inside().is_dir() && source.join(name).symlink_metadata().is_err())
    };
    let inside_it = sources > 1 || into == Into::Folder || was_copied_into();
    Ok(if inside_it { inside() } else { destination.to_owned() })
}

/// Returns the task to compare two existing entries.
fn task<W>(source: &Path, copy: &Path) -> Result<WalkTask<W>, Error> {
    let names = [c_string(source.as_os_str())?, c_string(copy.as_os_str())?];
    let look = |side: usize, flags| {
        let path = if side == 0 { source } else { copy };
        let stat = statat(CWD, &*names[side], flags).map_err(at_path(path, "newfstatat"))?;
        Ok(identity::kind(&stat))
    };
    let itself = AtFlags::SYMLINK_NOFOLLOW;
    let mut kinds = [look(0, itself)?, look(1, itself)?];
    // Two symbolic links are compared as links. A symbolic link on only one side is followed.
    if kinds.contains(&FileType::Symlink) && kinds != [FileType::Symlink; 2] {
        kinds = [look(0, AtFlags::empty())?, look(1, AtFlags::empty())?];
    }
    if kinds == [FileType::Directory; 2] {
        let paths = names.each_ref().map(|name| Some(name.as_c_str()));
        return Ok(WalkTask::Tree(Arc::new(WalkRoot::open(paths)?)));
    }
    Ok(WalkTask::Named(names, kinds.map(Some)))
}
