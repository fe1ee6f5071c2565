//! A cgroup with a limit of memory.

use std::{fs, path::PathBuf};

/// A cgroup. Dropping this removes it after its processes have ended.
pub struct MemoryGroup {
    path: PathBuf,
    peak: &'static str,
}

impl MemoryGroup {
    /// Creates a cgroup with this limit in bytes. Returns `None` if that fails.
    pub fn new(bytes: u64) -> Option<Self> {
        let versions = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        for (parent, limit, peak) in versions {
            let path = PathBuf::from(format!("{parent}/thalweg-test-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { path, peak };
            // Checks that the file exists, because `write` would create it.
            let file = group.path.join(limit);
            if file.exists() && fs::write(file, bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Moves a process into the cgroup.
    pub fn add(&self, process: u32) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// Returns the peak memory in bytes; 0 if the kernel does not report it.
    pub fn peak(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.peak)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its processes may take a moment to end.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
