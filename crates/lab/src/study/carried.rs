//! The studies embedded in the binary, for machines without the repository. Programs of a study are built and run
//! from files, so the embedded files are first written to the cache directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::write_file;

use thalweg_measure::scratch::cache;

/// Embedded files: path relative to the root of the repository, and content.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Writes the embedded studies and their programs to `$XDG_CACHE_HOME/thalweg` and returns the directory of the
/// studies. Files that already have the embedded content are not rewritten.
pub fn folder() -> Result<PathBuf, String> {
    let cache = cache("studies");
    let cache = cache.ok_or(
        "neither $XDG_CACHE_HOME nor ~/.cache is a directory of this user that no other user can write",
    )?;
    // The directory name contains a hash of the content, so two versions do not overwrite each other's files.
    let root = cache.join(format!("{:016x}", hash()));
    for (name, bytes) in FILES {
        let path = root.join(name);
        put(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(root.join("studies"))
}

/// Returns the ids of the embedded studies, taken from the file names.
pub fn ids() -> impl Iterator<Item = &'static str> {
    let studies = FILES.iter().filter(|(name, _)| is_study(name));
    studies.filter_map(|(name, _)| name.strip_prefix("studies/")?.split('-').next())
}

/// Returns the content of the embedded program with this file name.
pub fn program(name: &str) -> Option<&'static [u8]> {
    let named = |path: &str| path.strip_prefix("studies/programs/") == Some(name);
    FILES.iter().find(|(path, _)| named(path)).map(|(_, bytes)| *bytes)
}

fn is_study(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "toml")
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    write_file(path, bytes).map_err(io::Error::from)
}

fn hash() -> u64 {
    let mut all = Vec::new();
    for (name, bytes) in FILES {
        all.extend(name.as_bytes());
        all.extend((bytes.len() as u64).to_le_bytes());
        all.extend(*bytes);
    }
    thalweg_kernels::xxh3(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::CATALOGUE;

    #[test]
    fn every_study_that_is_carried_is_read_and_its_programs_are_named_beside_it() {
        let ids: Vec<&str> = ids().collect();
        assert!(["000", "001", "002", "003", "004"].iter().all(|id| ids.contains(id)), "{ids:?}");
        assert!(program("worker.h").is_some() && program("none.h").is_none());
        for (name, bytes) in FILES.iter().filter(|(name, _)| is_study(name)) {
            let text = std::str::from_utf8(bytes).unwrap();
            let study = crate::study::file::StudyFile::parse(text, &CATALOGUE).unwrap();
            assert!(ids.contains(&study.id.as_str()), "{name}");
        }
    }

    #[test]
    fn what_was_changed_or_lost_is_put_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        put(&path, b"one").unwrap();
        fs::write(&path, "two").unwrap();
        put(&path, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
