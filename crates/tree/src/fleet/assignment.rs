//! What one worker is told, and who it is.

use std::path::Path;

use super::{member::Member, place::Place, record::WorkerName};
use crate::{CopyOptions, Events};

/// How often who waits for a plan looks for it, and how often a worker looks what the others have done.
pub(crate) const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// One worker's orders.
pub(crate) struct Assignment<'a> {
    pub source: &'a Path,
    pub place: &'a Place,
    pub options: &'a CopyOptions,
    pub member: &'a Member,
    pub events: &'a dyn Events,
    pub name: WorkerName,
}
