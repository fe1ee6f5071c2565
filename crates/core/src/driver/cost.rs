//! What a step cost the calling thread.

use std::time::{Duration, Instant};

use thalweg_sys::usage::Usage;

/// What some bytes cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// On the clock, without the time that others had the processor.
    pub wall: Duration,
    pub cpu: Duration,
    /// Bytes read from a disk, of files and of what the file system keeps about them.
    pub read: u64,
}

impl Cost {
    pub fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.cpu += more.cpu;
        self.read += more.read;
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
        // The processor was taken away, and it never gave it up itself: what is above its processor time
        // was somebody else's.
        let was_ousted = used.involuntary_switches > 0 && used.voluntary_switches == 0;
        let wall = if was_ousted { used.cpu().min(wall) } else { wall };
        Cost { wall, cpu: used.cpu(), read: used.blocks_read * 512 }
    }
}
