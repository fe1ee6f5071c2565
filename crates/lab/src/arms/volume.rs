//! Finds the directory in which an arm (a compared variant) keeps its files: the session's temporary directory, or one
//! on a file system of the type that the study requests.

use std::{
    ffi::{CString, OsStr},
    fs::{DirBuilder, File},
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};
use thalweg_core::{Unfit, atomic_file::name::is_reserved, trusted_file::check_directory};
use thalweg_sys::host::filesystem;

use thalweg_measure::scratch::{ScratchFolder, remove};

const MEMORY: &str = "/dev/shm";

/// A directory for the files of one arm. If it was created for the arm, it is removed when this value is dropped.
#[derive(Debug)]
pub(crate) enum Volume {
    Scratch(PathBuf),
    /// A directory created on another file system.
    Own(ScratchFolder),
}

impl Volume {
    /// Returns a directory on the file system `name`. The name `scratch` means the session's own directory. A type such
    /// as `ext4`, `xfs` or `tmpfs` means the mount that `THALWEG_MOUNTS="xfs=/path:btrfs=/path"` names; otherwise the
    /// session's directory or `/dev/shm`, if it has that type.
    pub fn find(name: &str, scratch: &Path) -> Result<Self, Unfit> {
        let mounts = std::env::var("THALWEG_MOUNTS").unwrap_or_default();
        Self::find_among(name, scratch, &mounts)
    }

    fn find_among(name: &str, scratch: &Path, mounts: &str) -> Result<Self, Unfit> {
        let own = |folder: &Path| {
            let all = beside(folder, scratch).ok_or_else(|| {
                Unfit::because(format!("{name}: {} has no name", scratch.display()))
            })?;
            // Another user may have created a directory of this name in a directory such as /dev/shm, and could then
            // replace the files of the arm by links.
            let made = match DirBuilder::new().mode(0o700).create(&all) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    check_directory(&all).map_err(io::Error::other)
                }
                made => made,
            };
            let failed = |e| Unfit::because(format!("{name}: {}: {e}", folder.display()));
            made.and_then(|()| ScratchFolder::inside(&all)).map(Self::Own).map_err(failed)
        };
        if let Some((_, path)) = named(mounts).find(|(mount, _)| *mount == name) {
            return own(path);
        }
        if name == "scratch" || kind_of(scratch).as_deref() == Some(name) {
            return Ok(Self::Scratch(scratch.to_owned()));
        }
        let memory = Path::new(MEMORY);
        if kind_of(memory).as_deref() == Some(name) {
            return own(memory);
        }
        let scratch = kind_of(scratch).unwrap_or_else(|| "unknown".to_owned());
        Err(Unfit::because(format!(
            "no {name} here: the scratch directory is on {scratch}; set THALWEG_MOUNTS=\"{name}=/path\""
        )))
    }

    /// Removes the directories that the session with this temporary directory created on other file systems. A session
    /// that was killed cannot remove them itself.
    pub fn remove_all_beside(scratch: &Path) {
        Self::remove_among(scratch, &std::env::var("THALWEG_MOUNTS").unwrap_or_default());
    }

    fn remove_among(scratch: &Path, mounts: &str) {
        for folder in named(mounts).map(|(_, path)| path).chain([Path::new(MEMORY)]) {
            if let Some(all) = beside(folder, scratch) {
                remove(&all);
            }
        }
    }

    /// Returns an error if this number of bytes would fill the file system.
    pub fn room_for(&self, bytes: u64) -> Result<(), Unfit> {
        let Ok(stat) = rustix::fs::statvfs(self.path()) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes <= free {
            return Ok(());
        }
        let (bytes, free) = (bytes >> 20, free >> 20);
        let place = self.path().display();
        Err(Unfit::because(format!(
            "the variant needs {bytes} MiB of files, but only {free} MiB are free in {place}"
        )))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Scratch(path) => path,
            Self::Own(folder) => folder.path(),
        }
    }
}

/// Parses names and directories from `xfs=/path:btrfs=/path`.
fn named(mounts: &str) -> impl Iterator<Item = (&str, &Path)> {
    let each = mounts.split(':').filter_map(|mount| mount.split_once('='));
    each.map(|(name, path)| (name, Path::new(path)))
}

/// Returns the directory in `folder` for everything that the session creates there. Its name is that of the session's
/// temporary directory, in which `scratch` lies. Never returns `folder` itself, because callers remove the result.
fn beside(folder: &Path, scratch: &Path) -> Option<PathBuf> {
    let is_of_session =
        |name: &&OsStr| CString::new(name.as_bytes()).is_ok_and(|name| is_reserved(&name));
    let name = scratch.ancestors().filter_map(Path::file_name).find(is_of_session);
    name.or(scratch.file_name()).map(|name| folder.join(name))
}

/// Returns the type of the file system of a directory.
fn kind_of(folder: &Path) -> Option<String> {
    let folder = File::open(folder).ok()?;
    filesystem(&folder).ok().map(|found| found.name)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_place_is_scratch_or_a_named_mount_or_missing_with_a_reason() {
        let (scratch, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let session = ScratchFolder::named(scratch.path(), "study").unwrap();
        let scratch = session.file("arm-0");
        fs::create_dir(&scratch).unwrap();
        let find = |name, mounts: &str| Volume::find_among(name, &scratch, mounts);
        assert_eq!(find("scratch", "").unwrap().path(), scratch);
        let kind = kind_of(&scratch).unwrap();
        assert_eq!(find(&kind, "").unwrap().path(), scratch);
        let mounts = format!("odd:nofs={}", mount.path().display());
        let place = find("nofs", &mounts).unwrap();
        assert!(place.path().starts_with(mount.path()) && place.path().is_dir());
        // Simulates a process that was killed before it could drop the value.
        fs::write(place.path().join("from"), "bytes").unwrap();
        std::mem::forget(place);
        Volume::remove_among(session.path(), &mounts);
        assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
        Volume::remove_among(Path::new("/"), &mounts);
        assert!(mount.path().is_dir(), "a directory that no session created");
        // Another process created the name first, and all users can write it.
        let all = beside(mount.path(), &scratch).unwrap();
        fs::create_dir(&all).unwrap();
        fs::set_permissions(&all, fs::Permissions::from_mode(0o777)).unwrap();
        let reason = find("nofs", &mounts).unwrap_err().reason;
        assert!(reason.contains("can be written by other users"), "{reason}");
        let reason = find("nofs", "").unwrap_err().reason;
        assert!(reason.contains("no nofs here") && reason.contains("THALWEG_MOUNTS"), "{reason}");
        assert!(find("gone", "gone=/no/such/folder").is_err());
    }
}
