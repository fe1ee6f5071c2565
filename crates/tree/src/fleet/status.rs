//! How far a fleet is, for who looks from outside. It changes nothing.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use super::{
    journals::Journals,
    place::{self, EPOCH, FINISHER, FULL, PLAN, TREE, failed, no_plan},
    plan::Plan,
    record::WorkerRecord,
};
use crate::Error;

/// What a fleet is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is no plan yet.
    Survey,
    /// Tasks are done.
    Move,
    /// All are done, and nobody has begun to finish.
    Moved,
    /// One worker completes the tree.
    Finish,
    /// The destination is full: workers have stopped, and go on when they are started again.
    Full,
}

/// How far a fleet is.
#[derive(Clone, Debug)]
pub struct FleetStatus {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is doing.
    pub phase: Phase,
    /// Tasks in the plan, and how many are done.
    pub tasks: u64,
    /// How many are done.
    pub done: u64,
    /// Bytes in the plan.
    pub bytes: u64,
    /// Bytes of the tasks that are done.
    pub done_bytes: u64,
    /// Files of the tasks that are done, without those that are several tasks.
    pub done_files: u64,
    /// The workers, by their ranks.
    pub workers: Vec<WorkerRecord>,
}

/// What there is to do, and what of it is done.
pub(crate) struct Known {
    pub plan: Plan,
    pub journals: Journals,
}

impl Known {
    /// Of the fleet in this folder; `None` if it has no plan.
    pub fn of(fd: BorrowedFd<'_>, folder: &Path) -> Result<Option<Self>, Error> {
        let call = |call| failed(folder, call);
        let Some(plan) = place::open(fd, PLAN).map_err(call("openat"))? else { return Ok(None) };
        let plan = Plan::read(plan).map_err(|why| no_plan(folder, why))?;
        let mut journals = Journals::new(plan.id, &plan.index);
        journals.refresh(fd, &plan.index).map_err(call("openat"))?;
        Ok(Some(Self { plan, journals }))
    }
}

/// Looks at the fleet that makes `path`, or whose folder that is; `None` if there is none, or if it has finished and its folder
/// is being removed.
pub fn status(path: &Path) -> Result<Option<FleetStatus>, Error> {
    let Some((fd, folder)) = place::find(path)? else { return Ok(None) };
    let mut status = FleetStatus {
        phase: Phase::Survey,
        tasks: 0,
        done: 0,
        bytes: 0,
        done_bytes: 0,
        done_files: 0,
        workers: Vec::new(),
        folder: folder.clone(),
    };
    let has = |name| place::has(fd.as_fd(), name);
    let Some(Known { plan, journals }) = Known::of(fd.as_fd(), &folder)? else {
        // A worker that removes the folder removes the plan before all else, and the tree before the flags.
        let is_over = has(FINISHER) || !has(TREE);
        return Ok((!is_over).then_some(status));
    };
    if !has(PLAN) {
        // The journals may have been removed while they were read.
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
        Phase::Full
    } else if !journals.are_all_done(&plan.index) {
        Phase::Move
    } else if has(FINISHER) || !has(EPOCH) {
        Phase::Finish
    } else {
        Phase::Moved
    };
    Ok(Some(status))
}
