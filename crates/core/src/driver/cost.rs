//! What a step cost the calling thread.

use std::time::{Duration, Instant};

use thalweg_sys::usage::Usage;

/// What some bytes cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub wall: Duration,
    pub cpu: Duration,
    /// Some of it was read from a disk, and not from the page cache.
    pub from_disk: bool,
}

impl Cost {
    pub fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.cpu += more.cpu;
        self.from_disk |= more.from_disk;
    }
}

/// The moment from which on costs count.
pub(super) struct Clock {
    began: Instant,
    used: Usage,
}

impl Clock {
    pub fn start() -> Self {
        Self { used: Usage::now_thread(), began: Instant::now() }
    }

    pub fn stop(self) -> Cost {
        let wall = self.began.elapsed();
        let used = Usage::now_thread().since(&self.used);
        Cost { wall, cpu: used.cpu(), from_disk: used.blocks_read > 0 }
    }
}
