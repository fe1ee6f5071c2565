//! Selects the worker that finishes the tree. That worker writes to its file at intervals as a sign of life. A lock
//! would reveal a dead worker sooner, but some file systems have no locks, and a lock of another machine may be
//! invisible here.

use rustix::fs::{FlockOperation, OFlags, flock};
use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};
use thalweg_core::{
    Cancelled,
    cadence::{CANCEL_CHECK, Deadline, HANG, LIVENESS},
};
use thalweg_sys::{Errno, io};

use super::{
    fleet_directory::{FINISHER, FleetDirectory},
    record::WorkerName,
};
use crate::{Error, Event, Events, Progress, threads::locked};

/// Maximum size of the finisher's file in bytes.
const MOST: usize = 512;
const FINISH: &str = "finish";

/// The right to finish the tree.
pub(crate) struct Finisher<'f> {
    // This file is locked if the file system supports locks.
    file: OwnedFd,
    name: &'f WorkerName,
    events: &'f dyn Events,
    beats: AtomicU64,
    last: Mutex<Instant>,
}

impl<'f> Finisher<'f> {
    /// Takes the right to finish, also from a dead process. Returns `None` if a live process has it.
    pub fn claim(
        place: &FleetDirectory,
        name: &'f WorkerName,
        events: &'f dyn Events,
    ) -> Result<Option<Self>, Error> {
        let own = name.file(FINISH);
        // This worker may have the name of an earlier worker that left a file.
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
        // This worker measures the time with its own clock only, so clocks need not be synchronized.
        let deadline = Deadline::after(HANG);
        let mut seen = None;
        while events.go_on().is_ok() {
            // Only an open makes a network file system ask the server again, so the file is opened each time. It is
            // opened for writing, because network file systems lock only such files.
            let Some(theirs) = place.open_as(FINISHER, OFlags::RDWR)? else { return Ok(None) };
            let mut text = vec![0; MOST];
            let len = io::pread_full(theirs.as_fd(), &mut text, 0).unwrap_or(0);
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
            if deadline.passed() {
                return Ok(Some(alive(theirs)));
            }
            drop(theirs);
            thread::sleep(CANCEL_CHECK);
        }
        Ok(None)
    }

    /// Writes a sign of life. If this fails, another worker may start to finish too, which is harmless.
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

/// Returns the machine of the worker that wrote this text.
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
            let mut last = locked(&self.last);
            if last.elapsed() >= LIVENESS {
                *last = Instant::now();
                self.beat();
            }
        }
        self.events.go_on()
    }
}
