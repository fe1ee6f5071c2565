//! How far a fleet is, for who looks from outside. It changes nothing.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use super::{
    journals::Journals,
    place::{self, EPOCH, FINISHER, FULL, PLAN, failed},
    plan::Plan,
    record::WorkerRecord,
};
use crate::{Error, Refusal};

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
    /// The workers, by their ranks.
    pub workers: Vec<WorkerRecord>,
}

/// Looks at the fleet that makes `path`, or whose folder that is; `None` if there is none.
pub fn status(path: &Path) -> Result<Option<FleetStatus>, Error> {
    let Some((fd, folder)) = place::find(path)? else { return Ok(None) };
    let call = |call| failed(&folder, call);
    let mut status = FleetStatus {
        phase: Phase::Survey,
        tasks: 0,
        done: 0,
        bytes: 0,
        done_bytes: 0,
        workers: Vec::new(),
        folder: folder.clone(),
    };
    let Some(plan) = place::open(fd.as_fd(), PLAN).map_err(call("openat"))? else {
        return Ok(Some(status));
    };
    let plan = Plan::read(plan).map_err(|why| {
        let reason = Refusal::NoPlan(why.to_string());
        Error::Refused { path: folder.join("plan"), reason }
    })?;
    let mut journals = Journals::new(plan.id, &plan.index);
    journals.refresh(fd.as_fd(), &plan.index).map_err(call("openat"))?;
    let done = plan.index.iter().enumerate().filter(|(n, _)| journals.done.has(*n));
    status.done_bytes = done.fold(0, |sum, (_, task)| sum.saturating_add(task.bytes));
    status.tasks = plan.index.len() as u64;
    status.done = journals.done.count() as u64;
    status.bytes = plan.bytes();
    status.workers = journals.workers(fd.as_fd());
    let has = |name| place::has(fd.as_fd(), name);
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
