//! From what the caller typed to pairs of things to compare.

use rustix::fs::{AtFlags, CWD, FileType, statat};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_core::shown;

use super::{CompareOptions, Comparison, Into, entry::Compare, links::Links, run::Run};
use crate::{
    Error, Events, identity,
    names::{c_string, cut},
    threads::for_reading,
    walk::{Root, Task, failed_call, walk},
};

/// Compares every source with its copy. An error means that nothing was begun; a source or a copy that
/// is missing is a problem of the comparison.
///
/// With one source, the destination is its copy. If it is a folder, the copy may lie in it under the
/// source's name: so it is taken if the source is no folder, or is one that has no entry of its own
/// name while the destination has a folder of that name. Several sources lie in the destination.
pub fn compare(
    sources: &[PathBuf],
    destination: &Path,
    options: &CompareOptions,
    events: &dyn Events,
) -> Result<Comparison, Error> {
    let compare = Compare { options, run: Run::new(events), links: Links::default() };
    let mut tasks = Vec::new();
    // Last in, first out: the first source is to be first.
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

/// Where the copy of a source is.
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
            let message = format!("'{}' is no folder with copies in it", shown(destination));
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

/// Two things that are there, to be compared.
fn task<W>(source: &Path, copy: &Path) -> Result<Task<W>, Error> {
    let names = [c_string(source.as_os_str())?, c_string(copy.as_os_str())?];
    let look = |side: usize, flags| {
        let stat = statat(CWD, &*names[side], flags).map_err(|errno| {
            let path = if side == 0 { source } else { copy };
            failed_call(path.to_owned(), "newfstatat", errno)
        })?;
        Ok(identity::kind(&stat))
    };
    let itself = AtFlags::SYMLINK_NOFOLLOW;
    let mut kinds = [look(0, itself)?, look(1, itself)?];
    // Two links are compared as such; one alone is another name of what it leads to.
    if kinds.contains(&FileType::Symlink) && kinds != [FileType::Symlink; 2] {
        kinds = [look(0, AtFlags::empty())?, look(1, AtFlags::empty())?];
    }
    if kinds == [FileType::Directory; 2] {
        let paths = names.each_ref().map(|name| Some(name.as_c_str()));
        return Ok(Task::Tree(Arc::new(Root::open(paths)?)));
    }
    Ok(Task::Named(names, kinds.map(Some)))
}
