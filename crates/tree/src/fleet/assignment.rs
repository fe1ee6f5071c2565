//! The options and the identity of one worker.

use std::{path::Path, thread, time::Duration};
use thalweg_core::cadence::CANCEL_CHECK;

use super::{fleet_directory::FleetDirectory, member::Member, record::WorkerName};
use crate::{CopyOptions, Events};

/// Pauses between polls. They start short, so that small trees are fast, and double up to [`CANCEL_CHECK`].
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub const fn new() -> Self {
        Self(Duration::from_millis(1))
    }

    /// Sleeps, and doubles the pause for the next time.
    pub fn next(&mut self) {
        thread::sleep(self.0);
        self.0 = (self.0 * 2).min(CANCEL_CHECK);
    }
}

/// The options and the identity of one worker.
pub(crate) struct Assignment<'a> {
    pub source: &'a Path,
    pub place: &'a FleetDirectory,
    pub options: &'a CopyOptions,
    pub member: &'a Member,
    pub events: &'a dyn Events,
    pub name: WorkerName,
}
