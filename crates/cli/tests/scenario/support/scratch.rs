//! Scratch directories, which are removed automatically.

use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

use thalweg_testing::executable;

/// A directory of one test.
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory on the file system of the build output, which is a disk on most machines.
    pub fn new() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Creates a directory in `folder`. Resolves symbolic links in the path, because tests compare it with paths from
    /// programs and /proc.
    pub fn within(folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap();
        Self(tempfile::Builder::new().prefix("scenario-").tempdir_in(folder).unwrap())
    }

    /// Creates a directory that every user can enter; the build output may be private.
    pub fn public() -> Self {
        let scratch = Self::within(&std::env::temp_dir());
        open_to_all(scratch.path());
        scratch
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies the binary into the directory, for users without access to the build output.
    pub fn binary(&self) -> PathBuf {
        let path = self.join("thalweg");
        executable(Path::new(env!("CARGO_BIN_EXE_thalweg")), &path);
        path
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// Permits every user to read, write and enter a directory.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Returns the paths below a directory that belong to unfinished work.
pub fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().contains("thalweg-") {
                found.push(entry.path());
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}
