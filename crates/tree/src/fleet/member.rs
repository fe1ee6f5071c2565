//! Which worker of a fleet this is.

use std::time::Duration;

/// Bytes of a task, if nothing else is asked for: much more than a task costs beside them, and little enough to do twice.
pub const TASK_BYTES: u64 = 128 << 20;
/// Files of a task at most: small ones cost by their number.
pub const TASK_FILES: u32 = 1000;
/// Stretches of large files begin at multiples of this.
const ALIGNED: u64 = 64 << 10;

/// A worker, as it is told.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number, from 0 on. Two of one number do the same work twice, and no harm; number 0 makes the plan.
    pub rank: u32,
    /// How many there are. What fewer do takes longer.
    pub size: u32,
    /// Bytes of a task, about.
    pub task_bytes: u64,
    /// How long to wait for a plan.
    pub wait: Duration,
}

impl Member {
    /// A worker of a fleet of `size`, with tasks of the usual size.
    pub fn new(rank: u32, size: u32, wait: Duration) -> Self {
        Self { rank, size: size.max(1), task_bytes: TASK_BYTES, wait }
    }

    /// Bytes of a task, aligned.
    pub(crate) fn task_size(&self) -> u64 {
        self.task_bytes.clamp(ALIGNED, 1 << 50).next_multiple_of(ALIGNED)
    }
}
