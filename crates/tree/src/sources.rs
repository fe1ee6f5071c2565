//! Resolves the caller's paths to a base directory and a destination name for every source.

use rustix::fs::{AtFlags, CWD, FileType, OFlags, stat, statat};
use std::{
    collections::HashSet,
    ffi::{CStr, CString, OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};
use thalweg_core::{atomic_file::followed::open_directory, shown};
use thalweg_sys::Errno;

use crate::{
    Backup, CopyOptions, Error, Refusal, Target,
    error::at_path,
    fs::list::ancestors,
    identity::{Id, kind},
    names::{c_string, cut, os},
};

/// The directory that receives all copies.
#[derive(Debug)]
pub(crate) struct Base {
    pub fd: OwnedFd,
    /// Its path, for messages; empty for the current directory.
    pub path: PathBuf,
}

/// A source, and the name that it gets in the base directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedSource {
    pub source: CString,
    pub name: CString,
}

impl CopyOptions {
    /// Returns `true` if the filter excludes a source that the caller named, or a directory on its path.
    pub(crate) fn leaves_out_source(&self, source: &NamedSource, is_directory: bool) -> bool {
        let Some(filter) = &self.filter else { return false };
        if self.inside.is_none() {
            let path = os(&source.source);
            let name = cut(Path::new(path)).1;
            // For `a/` or `.` the caller named the contents of the directory, so its name is not filtered.
            let is_contents = path.as_bytes().ends_with(b"/") || name == ".";
            return !is_contents && filter.leaves_out(&Path::new("..").join(name), is_directory);
        }
        let path = Path::new(os(&source.name));
        let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        path != Path::new(".")
            && (filter.leaves_out(path, is_directory)
                || above.any(|above| filter.leaves_out(above, true)))
    }
}

/// Opens the base directory and determines the name of every source in it.
pub(crate) fn resolve(
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
) -> Result<(Base, Vec<NamedSource>), Error> {
    // With `inside`, the list of names may be empty.
    if sources.is_empty() && options.inside.is_none() {
        return Err(Error::Usage("missing source operand".to_owned()));
    }
    if destination.as_os_str().is_empty() {
        return Err(at_path(destination, "openat")(Errno::NOENT));
    }
    if options.inplace && options.backup != Backup::None {
        let why = "--inplace cannot be combined with a backup";
        return Err(Error::Usage(why.to_owned()));
    }
    let shown = shown(destination);
    let there = stat(destination);
    let is_directory = there.is_ok_and(|stat| kind(&stat) == FileType::Directory);
    if options.keeps_paths() && !is_directory {
        let why = "with --parents or --files-from, the destination must be a directory";
        return Err(Error::Usage(format!("'{shown}': not a directory; {why}")));
    }
    let into = match options.target {
        _ if options.keeps_paths() => true,
        Target::Directory if !is_directory => {
            return Err(there.err().map_or_else(
                || Error::Usage(format!("target '{shown}' is not a directory")),
                at_path(destination, "stat"),
            ));
        }
        Target::Directory => true,
        Target::Exact if sources.len() > 1 => {
            return Err(Error::Usage(format!("cannot copy several sources to '{shown}'")));
        }
        Target::Exact => false,
        Target::Guess if sources.len() > 1 && !is_directory => {
            return Err(Error::Usage(format!("target '{shown}' is not a directory")));
        }
        Target::Guess => is_directory,
    };
    if into {
        let base = open(destination)?;
        let named = sources.iter().map(|source| in_folder(source, options));
        return Ok((base, named.collect::<Result<_, Error>>()?));
    }
    let (above, name) = cut(destination);
    let source = &sources[0];
    let ends_in_slash = destination.as_os_str().as_bytes().ends_with(b"/");
    let is_tree = || options.recursive && source.is_dir();
    if ends_in_slash && !is_directory && !is_tree() {
        return Err(at_path(destination, "openat")(Errno::NOTDIR));
    }
    let named = NamedSource { source: c_string(source.as_os_str())?, name: c_string(name)? };
    Ok((open(above)?, vec![named]))
}

/// Returns a source and its name in the base directory. An empty path is accepted, and fails when it is copied.
pub(crate) fn in_folder(source: &Path, options: &CopyOptions) -> Result<NamedSource, Error> {
    if source.as_os_str().is_empty() {
        return Ok(NamedSource { source: CString::default(), name: c".".to_owned() });
    }
    if options.keeps_paths() {
        return keeping_its_path(source, options.inside.as_deref());
    }
    Ok(NamedSource { source: c_string(source.as_os_str())?, name: c_string(cut(source).1)? })
}

/// Returns a source that keeps its normalized path as its name below the destination.
fn keeping_its_path(path: &Path, inside: Option<&Path>) -> Result<NamedSource, Error> {
    let mut name = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::ParentDir => {
                let path = shown(path);
                return Err(Error::Usage(format!(
                    "'{path}': a path that contains '..' cannot be kept below the destination"
                )));
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let before = match inside {
        Some(folder) => folder,
        None if path.is_absolute() => Path::new("/"),
        None => Path::new(""),
    };
    let mut source = before.join(if name.as_os_str().is_empty() { Path::new(".") } else { &name });
    if path.as_os_str().as_bytes().ends_with(b"/") {
        // The trailing slash makes the kernel follow a symbolic link.
        source.push("");
    }
    let name = if name.as_os_str().is_empty() { OsStr::new(".") } else { name.as_os_str() };
    Ok(NamedSource { source: c_string(source.as_os_str())?, name: c_string(name)? })
}

fn open(path: &Path) -> Result<Base, Error> {
    let real = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let fd = match open_directory(real, OFlags::RDONLY) {
        // A user may have write permission to a directory without read permission.
        Err(Errno::ACCESS) => open_directory(real, OFlags::PATH),
        opened => opened,
    };
    let fd = fd.map_err(at_path(real, "openat"))?;
    Ok(Base { fd, path: path.to_owned() })
}

/// Splits the sources into waves, in the given order. Two sources with one destination name must not be copied
/// concurrently, so a new wave starts when a name repeats. A source whose destination is a symbolic link
/// (`is_link`) gets a separate wave. The link may lead to the copy of another source.
pub(crate) fn waves(
    named: Vec<NamedSource>,
    is_link: impl Fn(&CStr) -> bool,
) -> Vec<Vec<NamedSource>> {
    let mut waves = vec![Vec::new()];
    let mut names = HashSet::new();
    let (is_alone, mut was_link) = (named.len() < 2, false);
    for source in named {
        let is_link = !is_alone && is_link(&source.name);
        let is_cut = (is_link || was_link) && !names.is_empty();
        was_link = is_link;
        if !names.insert(source.name.clone()) || is_cut {
            names = HashSet::from([source.name.clone()]);
            waves.push(Vec::new());
        }
        if let Some(wave) = waves.last_mut() {
            wave.push(source);
        }
    }
    waves
}

/// Result of the inspection of the caller's sources.
#[derive(Default)]
pub(crate) struct Inspection {
    /// `true` if at least one source is a directory to walk.
    pub has_trees: bool,
    /// Sources that the filter excludes.
    pub left_out: Vec<NamedSource>,
    /// Sources that are refused, with the reason.
    pub refused: Vec<(NamedSource, Refusal)>,
    /// Sources that the caller named more than once.
    pub repeated: Vec<NamedSource>,
    /// Accepted sources with a destination name that an earlier source also has. They may not replace the copy of that
    /// source.
    pub second: HashSet<CString>,
    /// The accepted sources, in order.
    pub accepted: Vec<NamedSource>,
}

/// Examines every source once before anything is created.
pub(crate) fn inspect(named: Vec<NamedSource>, base: &Base, options: &CopyOptions) -> Inspection {
    let mut found = Inspection::default();
    let follow = if options.follows(true) { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let mut above = None;
    let mut directories = HashSet::new();
    let mut same = HashSet::new();
    let mut files = HashSet::new();
    let count = named.len();
    for source in named {
        let stat = statat(CWD, &*source.source, follow);
        let is_directory = stat.is_ok_and(|stat| kind(&stat) == FileType::Directory);
        if options.leaves_out_source(&source, is_directory) {
            found.left_out.push(source);
            continue;
        }
        // A source that cannot be examined is accepted, and fails when it is copied.
        let Ok(stat) = stat else {
            found.accepted.push(source);
            continue;
        };
        if !is_directory {
            let is_again = count > 1 && !same.insert((Id::of(&stat), place(&source.source)));
            if is_again && options.backup == Backup::None {
                found.repeated.push(source);
                continue;
            }
            // Numbered backups keep the copy of the earlier source, so it may be replaced.
            if !files.insert(source.name.clone()) && options.backup != Backup::Numbered {
                // If the options may skip this source because of the existing copy of the earlier one, it is accepted.
                if !(options.may_skip() && options.backup == Backup::None) {
                    found.refused.push((source, Refusal::JustCreated));
                    continue;
                }
                found.second.insert(source.source.clone());
            }
        } else if options.recursive {
            let id = Id::of(&stat);
            found.has_trees = true;
            if !directories.insert((id, source.name.clone())) {
                found.repeated.push(source);
                continue;
            }
            let above = above.get_or_insert_with(|| ancestors(base.fd.as_fd()).unwrap_or_default());
            // A single source needs no check, because its walk meets only its own copy in the destination.
            if count > 1 && above.contains(&id) && source.name.as_c_str() != c"." {
                let into = base.path.join(os(&source.name));
                found.refused.push((source, Refusal::IntoItself(into)));
                continue;
            }
        }
        found.accepted.push(source);
    }
    found
}

/// Returns the directory and the name of a source, so that `a` and `./a` have equal results. If the directory cannot be
/// examined, its path is used.
fn place(source: &CStr) -> (Result<Id, PathBuf>, OsString) {
    let (above, name) = cut(Path::new(os(source)));
    let directory = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    (stat(directory).map(|stat| Id::of(&stat)).map_err(|_| directory.to_owned()), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_before_their_last_name() {
        let cases = [
            ("a", "", "a"),
            ("a/b//", "a/", "b"),
            ("/a", "/", "a"),
            ("/", "/", "."),
            ("..", "..", "."),
            ("a/..", "a/..", "."),
            ("a/.", "a/.", "."),
        ];
        for (path, above, name) in cases {
            assert_eq!(cut(Path::new(path)), (Path::new(above), OsStr::new(name)), "{path}");
        }
    }

    #[test]
    fn a_name_that_comes_again_begins_a_new_wave() {
        let named = |name: &str| NamedSource {
            source: CString::new(name).unwrap(),
            name: CString::new(name).unwrap(),
        };
        let waves = waves(["a", "b", "a", "c"].map(named).to_vec(), |_| false);
        assert_eq!(waves.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        let of = |names: &[&str]| {
            let named = names.iter().copied().map(named).collect();
            let waves = super::waves(named, |name| name.to_bytes()[0] == b'l');
            waves.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(of(&["a", "b", "l", "c", "d"]), [2, 1, 2]);
        assert_eq!(of(&["l", "l2", "a"]), [1, 1, 1]);
        assert_eq!(of(&["l"]), [1]);
    }
}
