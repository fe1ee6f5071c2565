//! Which worker of a fleet this is.

use std::time::Duration;

use super::place::How;

/// Bytes of a task, if nothing else is asked for: much more than a task costs beside them, and little enough to do twice.
pub const TASK_BYTES: u64 = 128 << 20;
/// Files of a task at most: small ones cost by their number.
pub const TASK_FILES: u32 = 1000;
/// Stretches of large files begin at multiples of this.
const ALIGNED: u64 = 64 << 10;

/// Which part of the work a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// All of it: the plan, if it is rank 0; tasks; and the end, if it finds all of them done.
    All,
    /// The plan, if there is none, and room for others to work by it.
    Plan,
    /// Tasks of this plan, and none is begun after a while. What is not there is not made: neither folder nor plan.
    Move {
        /// The number of the plan.
        plan: u64,
        /// How long.
        within: Duration,
    },
    /// The end, if all tasks are done.
    Finish,
}

/// A worker, as it is told.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number, from 0 on. Two of one number do the same work twice, and no harm; number 0 makes the plan. From `size`
    /// on it has no share of its own, and helps the others.
    pub rank: u32,
    /// How many there are. What fewer do takes longer.
    pub size: u32,
    /// Bytes of a task, about.
    pub task_bytes: u64,
    /// How long to wait for a plan.
    pub wait: Duration,
    /// What it is to do.
    pub duty: Duty,
    /// By which number it is known, beside its process and rank: one that comes back with it goes on with its journal.
    /// Only one at a time may have it.
    pub began: Option<u64>,
}

impl Member {
    /// A worker of a fleet of `size`, with tasks of the usual size.
    pub fn new(rank: u32, size: u32, wait: Duration) -> Self {
        Self { rank, size: size.max(1), task_bytes: TASK_BYTES, wait, duty: Duty::All, began: None }
    }

    /// Whether it does tasks.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.duty, Duty::All | Duty::Move { .. })
    }

    /// Whether it may make what is not there.
    pub(crate) fn makes(&self) -> bool {
        !matches!(self.duty, Duty::Move { .. })
    }

    /// What it finds of a tree that is to be new, or makes.
    pub(crate) fn how(&self) -> How {
        if self.makes() { How::New } else { How::Open }
    }

    /// Bytes of a task, aligned.
    pub(crate) fn task_size(&self) -> u64 {
        self.task_bytes.clamp(ALIGNED, 1 << 50).next_multiple_of(ALIGNED)
    }
}
