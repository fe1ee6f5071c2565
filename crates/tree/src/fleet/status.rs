//! Reports the progress of a fleet to an observer. It changes nothing.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use super::{
    fleet_directory::{self, EPOCH, FINISHER, FULL, PLAN, TREE, no_plan},
    journals::Journals,
    plan::FleetPlan,
    record::WorkerRecord,
};
use crate::{Error, error::at_path};

/// The current phase of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetPhase {
    /// The plan does not exist yet.
    Survey,
    /// Workers are processing tasks.
    Move,
    /// All tasks are done, but no worker has started to finish the tree.
    Moved,
    /// One worker is completing the tree.
    Finish,
    /// The destination is full, and the workers have stopped. Workers that are started later continue the work.
    Full,
}

/// The status of a fleet.
#[derive(Clone, Debug)]
pub struct FleetStatus {
    /// The path of the fleet's directory.
    pub folder: PathBuf,
    /// Its current phase.
    pub phase: FleetPhase,
    /// Number of tasks in the plan.
    pub tasks: u64,
    /// Number of completed tasks.
    pub done: u64,
    /// Number of bytes in the plan.
    pub bytes: u64,
    /// Number of bytes of the completed tasks.
    pub done_bytes: u64,
    /// Number of files of the completed tasks, without files that are split into several tasks.
    pub done_files: u64,
    /// The workers, sorted by rank.
    pub workers: Vec<WorkerRecord>,
}

/// The plan of a fleet and the state of its tasks.
pub(crate) struct FleetProgress {
    pub plan: FleetPlan,
    pub journals: Journals,
}

impl FleetProgress {
    /// Reads the plan and the journals in this directory; `None` if the plan does not exist.
    pub fn of(fd: BorrowedFd<'_>, folder: &Path) -> Result<Option<Self>, Error> {
        let call = |call| at_path(folder, call);
        let Some(plan) = fleet_directory::open(fd, PLAN).map_err(call("openat"))? else {
            return Ok(None);
        };
        let plan = FleetPlan::read(plan).map_err(|why| no_plan(folder, why))?;
        let mut journals = Journals::new(plan.id, &plan.index);
        journals.refresh(fd, &plan.index).map_err(call("openat"))?;
        Ok(Some(Self { plan, journals }))
    }
}

/// Returns the status of the fleet for `path`, which may also be the fleet's directory. Returns `None` if no fleet
/// exists, or if it has finished and its directory is being removed.
pub fn status(path: &Path) -> Result<Option<FleetStatus>, Error> {
    let Some((fd, folder)) = fleet_directory::find(path)? else { return Ok(None) };
    let mut status = FleetStatus {
        phase: FleetPhase::Survey,
        tasks: 0,
        done: 0,
        bytes: 0,
        done_bytes: 0,
        done_files: 0,
        workers: Vec::new(),
        folder: folder.clone(),
    };
    let has = |name| fleet_directory::has(fd.as_fd(), name);
    let Some(FleetProgress { plan, journals }) = FleetProgress::of(fd.as_fd(), &folder)? else {
        // The plan is missing: either the survey is still running, or the fleet is over and its directory is being
        // removed. The removal deletes the plan, then the tree, then `FINISHER`. So if the fleet is over, `FINISHER`
        // still exists or the tree is already gone.
        let is_over = has(FINISHER) || !has(TREE);
        return Ok((!is_over).then_some(status));
    };
    if !has(PLAN) {
        // The plan, and perhaps some journals, were removed while this function read them.
        return Ok(None);
    }
    let done = plan.index.iter().enumerate().filter(|(n, _)| journals.done.has(*n));
    for (_, task) in done {
        status.done_bytes = status.done_bytes.saturating_add(task.bytes);
        status.done_files += u64::from(task.files);
    }
    status.tasks = plan.index.len() as u64;
    status.done = journals.done.count() as u64;
    status.bytes = plan.bytes();
    status.workers = journals.workers(fd.as_fd());
    status.phase = if has(FULL) {
        FleetPhase::Full
    } else if !journals.are_all_done(&plan.index) {
        FleetPhase::Move
    } else if has(FINISHER) || !has(EPOCH) {
        FleetPhase::Finish
    } else {
        FleetPhase::Moved
    };
    Ok(Some(status))
}
