//! A lock for updates of the profile. Without it, two processes that read, change and write the profile at once would
//! lose each other's cells (measurements).

use super::{Profile, ProfileError, file::unusable};
use crate::{
    cadence::{Deadline, HANG, RETRY_PAUSE},
    trusted_file::{lock_file, make_directory},
};
use rustix::fs::{FlockOperation, flock};
use std::{ffi::OsString, os::fd::OwnedFd, path::Path, thread};
use thalweg_sys::Errno;

/// The lock on a profile. It is released when the value is dropped or the process ends.
#[derive(Debug)]
pub struct ProfileLock(#[allow(dead_code, reason = "held")] Option<OwnedFd>);

impl Profile {
    /// Waits until no other process of this user changes the profile at this path, for at most [`HANG`]. Read the
    /// profile only after this call. Fails in a directory of another user. If the lock file belongs to another user,
    /// returns without a lock.
    pub fn turn(path: &Path) -> Result<ProfileLock, ProfileError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        make_directory(folder).map_err(|error| unusable(path, error))?;
        // The lock is on a separate file, because every writer replaces the profile's file.
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        let lock = lock_file(&folder.join(name)).map_err(|error| unusable(path, error))?;
        let Some(lock) = lock else { return Ok(ProfileLock(None)) };
        let deadline = Deadline::after(HANG);
        while !deadline.passed() {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(ProfileLock(Some(lock))),
                Err(Errno::WOULDBLOCK) => thread::sleep(RETRY_PAUSE),
                Err(Errno::INTR) => {}
                // The file system does not support locks.
                Err(_) => return Ok(ProfileLock(None)),
            }
        }
        let source = Errno::WOULDBLOCK.into();
        Err(ProfileError::Io { path: path.to_owned(), call: "flock", source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::cell;
    use std::{env, process::Command};

    const EACH: u64 = 30;
    const PLACE: &str = "THALWEG_TEST_TURN";

    /// Adds cells to the profile, with sizes that no other process of the test uses.
    fn learn(path: &Path, first: u64) {
        for n in first..first + EACH {
            let _turn = Profile::turn(path).unwrap();
            let mut profile = Profile::load(path).unwrap().unwrap_or_default();
            profile.merge(vec![cell::tests::cell("splice", 4096 * n, 0.8)]);
            profile.save(path).unwrap();
        }
    }

    #[test]
    fn two_processes_that_learn_at_once_lose_no_cell() {
        let name = "profile::turn::tests::two_processes_that_learn_at_once_lose_no_cell";
        if let (Some(place), Ok(first)) = (env::var_os(PLACE), env::var("THALWEG_TEST_FIRST")) {
            return learn(Path::new(&place), first.parse().unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/profile.json");
        let started: Vec<_> = (0..2)
            .map(|n| {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["--exact", name]).env(PLACE, &path);
                command.env("THALWEG_TEST_FIRST", (1 + n * EACH).to_string());
                command.stdout(std::process::Stdio::null()).spawn().unwrap()
            })
            .collect();
        for mut process in started {
            assert!(process.wait().unwrap().success());
        }
        assert_eq!(Profile::load(&path).unwrap().unwrap().cells.len() as u64, 2 * EACH);
    }
}
