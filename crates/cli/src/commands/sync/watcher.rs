//! Output during a sync: the lines of the changes, and everything that a copy prints.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};
use thalweg_core::{Cancelled, shown};
use thalweg_tree::{Event, Events, Progress};

use super::args::SyncArgs;
use crate::{
    commands::copy::CopyWatcher,
    exit::CommandFailure,
    output::{
        itemized,
        text::{keep, print_line},
    },
};

/// Prints and logs changes. Leaves all other events to the watcher of a copy.
pub struct SyncWatcher<'w> {
    args: &'w SyncArgs,
    copy: CopyWatcher<'w>,
    log: Option<Mutex<File>>,
}

impl<'w> SyncWatcher<'w> {
    /// Creates the watcher, and opens the log.
    pub fn new(args: &'w SyncArgs, copy: CopyWatcher<'w>) -> Result<Self, CommandFailure> {
        let open = |path: &Path| {
            let opened = File::options().create(true).append(true).open(path);
            opened.map_err(|e| CommandFailure::of_io("open", &shown(path).to_string(), &e))
        };
        let log = args.log.as_deref().map(open).transpose()?.map(Mutex::new);
        Ok(Self { args, copy, log })
    }

    /// Removes the progress display.
    pub fn finish(&self, bytes: u64) {
        self.copy.finish(bytes);
    }

    /// Appends a line with the time to the log. A failure is reported when the command ends.
    pub fn log(&self, line: &str) {
        let (Some(log), Some(path)) = (&self.log, &self.args.log) else { return };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let written = log.write_all(format!("{now} {line}\n").as_bytes());
        let name = shown(path).to_string();
        keep(written.map_err(|e| CommandFailure::of_io("write", &name, &e)));
    }
}

impl Events for SyncWatcher<'_> {
    fn event(&self, event: &Event<'_>) {
        let Event::Sync(change) = event else { return self.copy.event(event) };
        if self.args.shown.json {
            self.copy.beside_progress(|| print_line(&itemized::object(change).to_string()));
        } else if self.args.prints_changes() && !self.args.shown.quiet {
            self.copy.beside_progress(|| print_line(&itemized::line(change)));
        }
        if self.log.is_some() {
            self.log(&itemized::line(change));
        }
    }

    fn progress(&self, progress: Progress) {
        self.copy.progress(progress);
    }

    fn current(&self, source: &Path) {
        self.copy.current(source);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.copy.go_on()
    }
}
