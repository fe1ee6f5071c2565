//! Filter files in directories of a source: no input may crash a sync, and the file nearest to an entry decides.

use std::{
    fs,
    path::{Path, PathBuf},
};

use thalweg_tree::{
    CopyOptions, ExcludePatterns,
    sync::{SyncOptions, sync},
};

const DIRECTORIES: [&str; 3] = ["", "a", "a/b"];
const NAMES: [&str; 5] = ["x", "[y", "a ", "\u{e9}", "x\\"];

/// Runs one input: the filter files of three directories, separated by NUL.
pub fn run(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    let mut lists = Vec::new();
    let texts = bytes.split(|byte| *byte == 0).map(Some).chain(std::iter::repeat(None));
    for (directory, text) in DIRECTORIES.iter().zip(texts) {
        fs::create_dir_all(from.join(directory)).expect("a directory");
        for name in NAMES {
            fs::write(from.join(directory).join(name), "").expect("a file");
        }
        let mut list = ExcludePatterns::default();
        if let Some(text) = text {
            fs::write(from.join(directory).join(".f"), text).expect("a file");
            list.add_file(text);
        }
        lists.push((Path::new(directory), list));
    }
    let copy = CopyOptions { jobs: 1, ..CopyOptions::default() };
    let filter_file = Some(".f".into());
    let options = SyncOptions { copy, filter_file, ..SyncOptions::default() };
    let report = sync(std::slice::from_ref(&from), &to, &options, &()).expect("a sync");
    assert_eq!(report.tree.error_count, 0);
    for directory in DIRECTORIES {
        for name in NAMES {
            let path = Path::new(directory).join(name);
            assert_eq!(to.join(&path).exists(), is_kept(&path, &lists), "{}", path.display());
        }
    }
}

/// Returns `true` if neither a file nor a directory above it is excluded.
fn is_kept(path: &Path, lists: &[(&Path, ExcludePatterns)]) -> bool {
    let is_out = |path: &Path, is_directory: bool| {
        let nearest = lists.iter().rev().filter_map(|(directory, list)| {
            let below = path.strip_prefix(directory).ok().filter(|below| *below != Path::new(""));
            list.decide(below?, is_directory)
        });
        nearest.into_iter().next().unwrap_or(false)
    };
    let above: Vec<PathBuf> = path.ancestors().skip(1).map(PathBuf::from).collect();
    let mut above = above.iter().filter(|above| !above.as_os_str().is_empty());
    !is_out(path, false) && !above.any(|above| is_out(above, true))
}
