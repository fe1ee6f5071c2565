//! Scratch folders that go away by themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

use thalweg_testing::executable;

/// A folder of one test.
pub struct Scratch(TempDir);

impl Scratch {
    /// On the file system of the build output: a disk on most machines.
    pub fn new() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// On the file system of `folder`, by the path that the kernel names: tests compare what a program
    /// or /proc says with it, and the build output may be behind a symbolic link.
    pub fn within(folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap();
        Self(tempfile::Builder::new().prefix("scenario-").tempdir_in(folder).unwrap())
    }

    /// Where a user without rights can get to, which the build output may not be.
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

    /// A copy of the command, for users who cannot get to the build output.
    pub fn binary(&self) -> PathBuf {
        let path = self.join("thalweg");
        executable(Path::new(env!("CARGO_BIN_EXE_thalweg")), &path);
        path
    }

    /// A new folder inside.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// Lets every user read, write and enter.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Everything in a folder by name, sorted: what was left behind cannot hide.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The names anywhere below a folder that belong to unfinished work.
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
