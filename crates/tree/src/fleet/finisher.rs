//! Who finishes. One worker has the right to, and shows that it lives: it writes into its file now and then. A lock
//! would tell sooner that it is dead, but not where there are none, and none of another machine need be seen here.

use rustix::fs::{FlockOperation, OFlags, flock};
use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::{Errno, io};

use super::{
    assignment::LOOK,
    place::{FINISHER, Place},
    record::WorkerName,
};
use crate::{Error, Event, Events, Progress, read::fill};

/// How often it shows that it lives.
const PULSE: Duration = Duration::from_secs(1);
/// After so long without a sign of life it is taken for dead: by the clock of who waits, so that none are compared.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than is in its file.
const MOST: usize = 512;
const FINISH: &str = "finish";

/// The right to finish, as long as it is held.
pub(crate) struct Finisher<'f> {
    // Locked, where there are locks.
    file: OwnedFd,
    name: &'f WorkerName,
    events: &'f dyn Events,
    beats: AtomicU64,
    last: Mutex<Instant>,
}

impl<'f> Finisher<'f> {
    /// Takes the right to finish; `None` if another process has it, and lives. That of a dead one is taken over.
    pub fn claim(
        place: &Place,
        name: &'f WorkerName,
        events: &'f dyn Events,
    ) -> Result<Option<Self>, Error> {
        let own = name.file(FINISH);
        // What a worker of the same name has left, if it comes back.
        place.take_away(&own)?;
        let file = place.create(&own, OFlags::RDWR)?;
        let alive = |file| {
            let last = Mutex::new(Instant::now());
            let finisher = Self { file, name, events, beats: AtomicU64::new(0), last };
            finisher.beat();
            finisher
        };
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let finisher = alive(file);
        if place.claim(&own, FINISHER)? {
            return Ok(Some(finisher));
        }
        place.take_away(&own)?;
        let began = Instant::now();
        let mut seen = None;
        while events.go_on().is_ok() {
            // Opened each time: only then a server is asked again. Network file systems lock only what is open to be
            // written.
            let Some(theirs) = place.open_as(FINISHER, OFlags::RDWR)? else { return Ok(None) };
            let mut text = vec![0; MOST];
            let len = fill(theirs.as_fd(), &mut text, 0).unwrap_or(0);
            text.truncate(len);
            let lock = flock(&theirs, FlockOperation::NonBlockingLockExclusive);
            let is_neighbour = host_of(&text).is_some_and(|host| host == name.host);
            match lock {
                Ok(()) if is_neighbour => return Ok(Some(alive(theirs))),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                _ => {}
            }
            let first = seen.get_or_insert_with(|| text.clone());
            if *first != text {
                return Ok(None);
            }
            if began.elapsed() >= PATIENCE {
                return Ok(Some(alive(theirs)));
            }
            drop(theirs);
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Shows that it lives. Where that cannot be written another may begin to finish too, which does no harm.
    fn beat(&self) {
        let beats = self.beats.fetch_add(1, Ordering::Relaxed);
        let owner = self.name.file(FINISH);
        let mut text = format!("{beats:016x} ").into_bytes();
        text.extend_from_slice(owner.to_bytes());
        text.push(b'\n');
        let _ = io::pwrite(&self.file, &text, 0);
        let _ = io::flush(self.file.as_fd());
    }
}

/// The machine of who wrote this.
fn host_of(text: &[u8]) -> Option<String> {
    let line = text.split(|byte| *byte == b'\n').next()?;
    let owner = CString::new(line.splitn(2, |byte| *byte == b' ').nth(1)?).ok()?;
    WorkerName::parse(&owner, FINISH).map(|name| name.host)
}

impl Events for Finisher<'_> {
    fn event(&self, event: &Event<'_>) {
        self.events.event(event);
    }

    fn progress(&self, progress: Progress) {
        self.events.progress(progress);
    }

    fn ask(&self, path: &Path) -> bool {
        self.events.ask(path)
    }

    fn current(&self, source: &Path) {
        self.events.current(source);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= PULSE {
                *last = Instant::now();
                self.beat();
            }
        }
        self.events.go_on()
    }
}
