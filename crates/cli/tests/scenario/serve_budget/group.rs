//! A group of processes whose memory is limited (cgroups).

use std::{fs, path::PathBuf};

/// A group. It is removed when this is dropped, once its processes have ended.
pub struct MemoryGroup {
    path: PathBuf,
    peak: &'static str,
}

impl MemoryGroup {
    /// One of at most this many bytes; `None` where none can be made.
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
            // `write` would create a file where a group has none of this name.
            let file = group.path.join(limit);
            if file.exists() && fs::write(file, bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Moves a process into it.
    pub fn add(&self, process: u32) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// The most memory that it has had; 0 where the kernel does not say.
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
