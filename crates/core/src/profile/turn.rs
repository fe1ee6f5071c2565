//! One process at a time reads the profile, changes it and writes it back: of two, each would lose the
//! other's cells.

use super::{Profile, ProfileError, file::unusable};
use crate::trusted_file::{lock_file, make_directory};
use rustix::{
    fs::{FlockOperation, flock},
    thread::{Timespec, nanosleep},
};
use std::{ffi::OsString, os::fd::OwnedFd, path::Path};
use thalweg_sys::Errno;

/// Between two looks whether the other is done, and how many: who holds it that long hangs.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const LOOKS: u32 = 2000;

/// The right to change a profile; it ends with the value, and with the process.
#[derive(Debug)]
pub struct Turn(#[allow(dead_code, reason = "held")] Option<OwnedFd>);

impl Profile {
    /// Waits until no other process of this user changes the profile at this path. Read it anew after that. Fails in a
    /// directory of another user; where another user has the name of the lock, there is none.
    pub fn turn(path: &Path) -> Result<Turn, ProfileError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        make_directory(folder).map_err(|error| unusable(path, error))?;
        // A file of its own: the profile's is replaced by every writer.
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        let lock = lock_file(&folder.join(name)).map_err(|error| unusable(path, error))?;
        let Some(lock) = lock else { return Ok(Turn(None)) };
        for _ in 0..LOOKS {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Turn(Some(lock))),
                Err(Errno::WOULDBLOCK) => drop(nanosleep(&NAP)),
                Err(Errno::INTR) => {}
                // There are no locks here.
                Err(_) => return Ok(Turn(None)),
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

    /// What each of the processes does, with sizes that no other has.
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
