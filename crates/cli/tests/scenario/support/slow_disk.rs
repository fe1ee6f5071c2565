//! A disk that gives next to nothing to the processes of one control group.

use rustix::fs::{Advice, fadvise, major, minor, stat};
use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use super::skip;

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
const LIMIT: &str = "blkio.throttle.read_bps_device";

/// The group, with a limit for the disk of one folder, until it is dropped.
pub struct SlowDisk {
    group: PathBuf,
    device: String,
}

impl SlowDisk {
    /// Gives that disk so many bytes a second; skips where control groups cannot.
    pub fn under(test: &str, folder: &Path, bytes_a_second: u64) -> Option<Self> {
        let device = stat(folder).unwrap().st_dev;
        let group = Path::new(CONTROLLER).join(format!("thalweg-{}", std::process::id()));
        let device = format!("{}:{}", major(device), minor(device));
        let limit = format!("{device} {bytes_a_second}");
        let made = fs::create_dir(&group);
        let slow = Self { group, device };
        match made.and_then(|()| fs::write(slow.group.join(LIMIT), limit)) {
            Ok(()) => Some(slow),
            Err(error) => {
                skip(test, &format!("no limit for a disk by {CONTROLLER}: {error}"));
                None
            }
        }
    }

    /// The words of a command that runs another one in the group.
    pub fn words(&self) -> [&str; 4] {
        let group = self.group.to_str().unwrap();
        ["sh", "-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"", group]
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What waits is let through before the group goes.
        let _ = fs::write(self.group.join(LIMIT), format!("{} 0", self.device));
        let _ = fs::remove_dir(&self.group);
    }
}

/// A file of which nothing is in memory.
pub fn write_to_disk(path: &Path, bytes: &[u8]) {
    let mut file = File::create_new(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
}
