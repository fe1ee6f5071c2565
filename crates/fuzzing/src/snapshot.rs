//! The entries of a directory, to find out whether an input changed any.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Returns the paths below a directory, each with the content of the file, the target of the link, or nothing.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let entry = entry.expect("an entry");
            let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
            let content = if kind.is_file() {
                fs::read(&path).unwrap_or_default()
            } else if kind.is_symlink() {
                fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            if kind.is_dir() {
                directories.push(path.clone());
            }
            found.insert(path, content);
        }
    }
    found
}

/// Checks that a directory has only these names, and names that begin with `prefix`.
pub fn expect_names(place: &Path, names: &[&str], prefix: &str) {
    for entry in fs::read_dir(place).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        let is_known = names.iter().any(|known| *OsStr::new(known) == name);
        assert!(is_known || name.as_bytes().starts_with(prefix.as_bytes()), "{}", name.display());
    }
}
