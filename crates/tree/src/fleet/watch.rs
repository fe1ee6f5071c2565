//! Forwards the events of a worker to its caller, and stops the worker if other workers have finished or failed.

use std::{
    ffi::CStr,
    os::fd::BorrowedFd,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use thalweg_core::{Cancelled, cadence::CANCEL_CHECK};

use super::fleet_directory::{FULL, SYNC_FAILED, has};
use crate::{Event, Events, Progress, threads::locked};

/// The reason why a worker stops before all tasks are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetStop {
    /// The caller cancelled it.
    Cancelled,
    /// Other workers have found all tasks done, so the data that this worker would write already exists. Or a sync
    /// failed, so the work of the fleet will be discarded.
    Over,
    /// Another worker found that the destination is full.
    Full,
}

/// The events of one worker.
pub(crate) struct FleetWatch<'w> {
    events: &'w dyn Events,
    folder: BorrowedFd<'w>,
    // The worker continues only while this file exists.
    sign: &'w CStr,
    began: Instant,
    // Time of the next check, in milliseconds.
    due: AtomicU64,
    stop: Mutex<Option<FleetStop>>,
}

impl<'w> FleetWatch<'w> {
    /// Creates a watch that lets the worker continue while `sign` exists in the directory.
    pub fn new(events: &'w dyn Events, folder: BorrowedFd<'w>, sign: &'w CStr) -> Self {
        let (began, due, stop) = (Instant::now(), AtomicU64::new(0), Mutex::new(None));
        Self { events, folder, sign, began, due, stop }
    }

    /// Returns the reason why the worker was stopped.
    pub fn stopped(&self) -> Option<FleetStop> {
        *locked(&self.stop)
    }

    /// Checks the directory now.
    pub fn look(&self) -> Result<(), Cancelled> {
        if has(self.folder, FULL) {
            return self.because(FleetStop::Full);
        }
        let is_over = has(self.folder, SYNC_FAILED) || !has(self.folder, self.sign);
        if is_over { self.because(FleetStop::Over) } else { Ok(()) }
    }

    fn because(&self, why: FleetStop) -> Result<(), Cancelled> {
        locked(&self.stop).get_or_insert(why);
        Err(Cancelled)
    }
}

impl Events for FleetWatch<'_> {
    fn event(&self, event: &Event<'_>) {
        self.events.event(event);
    }

    fn progress(&self, progress: Progress) {
        self.events.progress(progress);
    }

    fn current(&self, source: &Path) {
        self.events.current(source);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        if self.events.go_on().is_err() {
            return self.because(FleetStop::Cancelled);
        }
        // After a long suspension, the time of the next check has passed, so the worker checks immediately.
        let now = self.began.elapsed().as_millis() as u64;
        if now < self.due.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.due.store(now + CANCEL_CHECK.as_millis() as u64, Ordering::Relaxed);
        self.look()
    }
}
