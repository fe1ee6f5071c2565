//! The role of one worker in a fleet.

use std::time::Duration;

use super::fleet_directory::FleetTarget;

/// Default number of bytes of a task. The overhead of a task is small compared to it, and repeating it costs little.
pub const TASK_BYTES: u64 = 128 << 20;
/// Maximum number of files of a task. The cost of small files depends on their number and not on their bytes.
pub const TASK_FILES: u32 = 1000;
/// Ranges of large files start at multiples of this number of bytes.
const ALIGNED: u64 = 64 << 10;

/// The part of the work that a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Everything: do tasks, and complete the tree if all tasks are done. Rank 0 also creates the plan.
    All,
    /// Create the plan if it does not exist, and prepare the fleet's directory for other workers (remove `full`,
    /// create `epoch`).
    Plan,
    /// Do tasks of this plan, but start none after a time limit, and create no missing directory or plan.
    Move {
        /// The ID of the plan.
        plan: u64,
        /// The time limit.
        within: Duration,
    },
    /// Complete the tree, if all tasks are done.
    Finish,
}

/// The configuration of one worker.
#[derive(Clone, Debug)]
pub struct Member {
    /// The number of the worker, from 0. Number 0 creates the plan. Two workers with one number do some tasks twice,
    /// which is harmless. A worker with a number of `size` or more has no tasks of its own and does tasks of other
    /// workers.
    pub rank: u32,
    /// Number of workers. If fewer are running, the copy only takes longer.
    pub size: u32,
    /// Approximate number of bytes of a task.
    pub task_bytes: u64,
    /// Maximum time to wait for a plan.
    pub wait: Duration,
    /// The part of the work to do.
    pub duty: Duty,
    /// Part of the worker's name, with its host, process ID and rank. `None` uses the start time. A worker that starts
    /// with the name of an ended worker continues its journal. Only one worker at a time may have a name.
    pub began: Option<u64>,
}

impl Member {
    /// Creates a worker of a fleet of `size` workers, with tasks of the default size.
    pub fn new(rank: u32, size: u32, wait: Duration) -> Self {
        Self { rank, size: size.max(1), task_bytes: TASK_BYTES, wait, duty: Duty::All, began: None }
    }

    /// Returns `true` if the worker does tasks.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.duty, Duty::All | Duty::Move { .. })
    }

    /// Returns `true` if the worker may create missing directories and the plan.
    pub(crate) fn makes(&self) -> bool {
        !matches!(self.duty, Duty::Move { .. })
    }

    /// Returns how the worker opens or creates the fleet's directory for a new tree.
    pub(crate) fn how(&self) -> FleetTarget {
        if self.makes() { FleetTarget::New } else { FleetTarget::Open }
    }

    /// Returns the number of bytes of a task, aligned.
    pub(crate) fn task_size(&self) -> u64 {
        self.task_bytes.clamp(ALIGNED, 1 << 50).next_multiple_of(ALIGNED)
    }
}
