//! `--files-from`: names in a folder.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};
use thalweg_core::shown;
use thalweg_tree::Dereference;

use super::lines::List;
use crate::{
    commands::copy::CopyArgs,
    exit::{Exit, Failure},
};

/// The names of a list, each once, in its order. What lies in a folder that is named too comes with
/// that: two copies of it at the same time would be in each other's way.
pub fn of(list: &Path, args: &CopyArgs, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let list = List::read(list, args.chosen.from0)?;
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    for (place, line) in list.lines() {
        let name = inside(line).map_err(|why| {
            let (line, folder) = (shown(OsStr::from_bytes(line)), shown(folder));
            let why = format!("{place}: '{line}' {why} '{folder}'; nothing was copied");
            Failure::new(Exit::Usage, why)
        })?;
        if seen.insert(name.clone()) {
            names.push(name);
        }
    }
    let recursive = args.recursive || args.kept.archive;
    let follows = matches!(args.kept.dereference, Some(d) if d != Dereference::Never);
    let is_folder = |name: &Path| {
        let path = folder.join(name);
        let there = if follows { path.metadata() } else { path.symlink_metadata() };
        there.is_ok_and(|there| there.is_dir())
    };
    let comes_along = |name: &PathBuf| {
        name.ancestors().skip(1).any(|above| seen.contains(above) && is_folder(above))
    };
    names.retain(|name| !recursive || !comes_along(name));
    let all = |name: PathBuf| if name.as_os_str().is_empty() { ".".into() } else { name };
    Ok(names.into_iter().map(all).collect())
}

/// A path without what says nothing in it; empty for the folder itself. Or why it is none in there.
fn inside(line: &[u8]) -> Result<PathBuf, &'static str> {
    if line.contains(&0) {
        return Err("has a NUL in it (-0 if NULs end the names); expected are paths in");
    }
    let mut name = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(line)).components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => {
                return Err("is absolute; expected are paths in");
            }
            Component::ParentDir => return Err("has '..' in it, which may lead out of"),
        }
    }
    Ok(name)
}
