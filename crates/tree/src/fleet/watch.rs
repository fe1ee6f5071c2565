//! Listens for a worker: what it tells goes on to its caller, and whether it goes on is also the others' to say.

use std::{
    ffi::CStr,
    os::fd::BorrowedFd,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;

use super::place::{FULL, SYNC_FAILED, has};
use crate::{Event, Events, Progress};

/// How often the folder is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Why a worker stops before there is nothing left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its caller wants it.
    Cancelled,
    /// Others have found everything done: what it is about to write is there already. Or a sync has failed, and nothing of
    /// this fleet will be used.
    Over,
    /// The destination is full, as another worker found.
    Full,
}

/// Events of one worker.
pub(crate) struct Watch<'w> {
    events: &'w dyn Events,
    folder: BorrowedFd<'w>,
    // What has to be there.
    sign: &'w CStr,
    began: Instant,
    // When to look next, in milliseconds.
    due: AtomicU64,
    stop: Mutex<Option<Stop>>,
}

impl<'w> Watch<'w> {
    /// Goes on as long as `sign` is in the folder.
    pub fn new(events: &'w dyn Events, folder: BorrowedFd<'w>, sign: &'w CStr) -> Self {
        let (began, due, stop) = (Instant::now(), AtomicU64::new(0), Mutex::new(None));
        Self { events, folder, sign, began, due, stop }
    }

    /// Why it was stopped.
    pub fn stopped(&self) -> Option<Stop> {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the folder, now.
    pub fn look(&self) -> Result<(), Cancelled> {
        if has(self.folder, FULL) {
            return self.because(Stop::Full);
        }
        let is_over = has(self.folder, SYNC_FAILED) || !has(self.folder, self.sign);
        if is_over { self.because(Stop::Over) } else { Ok(()) }
    }

    fn because(&self, why: Stop) -> Result<(), Cancelled> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        Err(Cancelled)
    }
}

impl Events for Watch<'_> {
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
            return self.because(Stop::Cancelled);
        }
        // A worker that stood still for long finds the moment past.
        let now = self.began.elapsed().as_millis() as u64;
        if now < self.due.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.due.store(now + LOOK.as_millis() as u64, Ordering::Relaxed);
        self.look()
    }
}
