//! What one worker is told, and who it is.

use std::{path::Path, thread, time::Duration};

use super::{member::Member, place::Place, record::WorkerName};
use crate::{CopyOptions, Events};

/// How often who waits for a plan looks for it, and how often a worker looks what the others have done.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The pauses of who waits: short at first, for what comes at once in a small tree, and [`LOOK`] in the end.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub const fn new() -> Self {
        Self(Duration::from_millis(1))
    }

    /// Sleeps, twice as long as the last time.
    pub fn next(&mut self) {
        thread::sleep(self.0);
        self.0 = (self.0 * 2).min(LOOK);
    }
}

/// One worker's orders.
pub(crate) struct Assignment<'a> {
    pub source: &'a Path,
    pub place: &'a Place,
    pub options: &'a CopyOptions,
    pub member: &'a Member,
    pub events: &'a dyn Events,
    pub name: WorkerName,
}
