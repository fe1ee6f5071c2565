//! Contents of a directory as `find` and `sha256sum` report them, independent of the code under test.

use std::{collections::BTreeMap, path::Path, process::Command};

use crate::support::run;

/// The hash of each regular file, by its path below the directory. Hidden names of unfinished work are left out.
pub type Hashes = BTreeMap<String, String>;

const HASHES: &str =
    "find . -type f ! -path '*thalweg-*' -print0 | LC_ALL=C sort -z | xargs -0r sha256sum";
/// Omits the link count and the size of directories, which depend on the file system, and the state file of a sync.
const ENTRIES: &str = r"find . ! -name .thalweg-sync \( -type d -printf '%p %y %m %T@\n' -o -printf '%p %y %m %T@ %n %l %s\n' \) | LC_ALL=C sort";
const NAMES: &str = r"find . -printf '%p %y %l\n' | LC_ALL=C sort";

/// Hashes all files below a directory. Returns no hashes if the directory does not exist.
pub fn hashes(folder: &Path) -> Result<Hashes, String> {
    if !folder.exists() {
        return Ok(Hashes::new());
    }
    let text = output(folder, HASHES)?;
    let pair = |line: &str| line.split_once("  ").map(|(hash, path)| (path.into(), hash.into()));
    Ok(text.lines().filter_map(pair).collect())
}

/// Returns each entry with its kind, mode, time, links, target and size.
pub fn entries(folder: &Path) -> Result<String, String> {
    output(folder, ENTRIES)
}

/// Returns each name with its kind and target.
pub fn names(folder: &Path) -> Result<String, String> {
    output(folder, NAMES)
}

/// Returns the first line in which two texts differ.
pub fn first_difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let lost = expected.lines().find(|line| !found.lines().any(|other| other == *line));
    let more = found.lines().find(|line| !expected.lines().any(|other| other == *line));
    Some(format!("expected {lost:?}, found {more:?}"))
}

fn output(folder: &Path, line: &str) -> Result<String, String> {
    let mut command = Command::new("bash");
    let ran = run(command.args(["-o", "pipefail", "-c", line]).current_dir(folder));
    match ran.code() {
        0 => Ok(String::from_utf8(ran.stdout).map_err(|error| error.to_string())?),
        _ => Err(format!("cannot be read: {}", ran.stderr.trim())),
    }
}
