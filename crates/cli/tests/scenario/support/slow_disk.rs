//! Limits the read rate of a disk for the processes of one cgroup.

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

/// A cgroup with a read limit for the disk of one directory. Dropping this removes it.
pub struct SlowDisk {
    group: PathBuf,
    device: String,
}

impl SlowDisk {
    /// Limits the disk of `folder` to this rate. Records a skip if cgroups do not support this.
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

    /// Returns the start of a command line that runs a command in the cgroup.
    pub fn words(&self) -> [&str; 4] {
        let group = self.group.to_str().unwrap();
        ["sh", "-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"", group]
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Removes the limit first, so that waiting reads complete before the cgroup is removed.
        let _ = fs::write(self.group.join(LIMIT), format!("{} 0", self.device));
        let _ = fs::remove_dir(&self.group);
    }
}

/// Writes a file, and removes its pages from the page cache.
pub fn write_to_disk(path: &Path, bytes: &[u8]) {
    let mut file = File::create_new(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
}
