//! `--files-from`: names in a directory.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};
use thalweg_core::shown;
use thalweg_tree::Dereference;

use crate::{
    args::ListFile,
    commands::copy::CopyArgs,
    exit::{CommandFailure, Exit},
};

/// Returns the names in the list, in order and without duplicates. Omits names below a listed directory that is copied
/// recursively. Otherwise two threads could copy the same file at the same time.
pub fn of(list: &Path, args: &CopyArgs, folder: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let list = ListFile::read(list, args.chosen.from0)?;
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    for (place, line) in list.lines() {
        let name = inside(line).map_err(|why| {
            let (line, folder) = (shown(OsStr::from_bytes(line)), shown(folder));
            let why = format!("{place}: '{line}' {why} '{folder}'; nothing was copied");
            CommandFailure::new(Exit::Usage, why)
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

/// Returns the path on a line without `.` components; empty for the directory itself. If the path may lead out of the
/// directory, returns the reason as an error.
fn inside(line: &[u8]) -> Result<PathBuf, &'static str> {
    if line.contains(&0) {
        return Err("contains NUL (use -0 for lines that end with NUL); expected a path in");
    }
    let mut name = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(line)).components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => {
                return Err("is absolute; expected a path in");
            }
            Component::ParentDir => return Err("contains '..', which may lead outside"),
        }
    }
    Ok(name)
}
