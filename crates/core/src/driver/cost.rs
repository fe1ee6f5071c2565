//! The cost of a step to the calling thread.

use std::time::{Duration, Instant};

use thalweg_sys::usage::Usage;

/// The cost of moving some bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCost {
    /// Wall time, without the time in which the thread was preempted.
    pub wall: Duration,
    pub cpu: Duration,
    /// Bytes read from a disk: file data and metadata of the file system.
    pub read: u64,
}

impl StepCost {
    pub fn add(&mut self, more: Self) {
        self.wall += more.wall;
        self.cpu += more.cpu;
        self.read += more.read;
    }
}

/// Start of a cost measurement.
pub(super) struct CostClock {
    began: Instant,
    used: Usage,
}

impl CostClock {
    pub fn start() -> Self {
        Self { used: Usage::now_thread(), began: Instant::now() }
    }

    pub fn stop(self) -> StepCost {
        let wall = self.began.elapsed();
        let used = Usage::now_thread().since(&self.used);
        // The thread was preempted and never slept. The wall time beyond its CPU time was used by other processes.
        let was_ousted = used.involuntary_switches > 0 && used.voluntary_switches == 0;
        let wall = if was_ousted { used.cpu().min(wall) } else { wall };
        StepCost { wall, cpu: used.cpu(), read: used.blocks_read * 512 }
    }
}
