//! Output during a sync: the lines of the changes, and everything that a copy prints.

use std::path::Path;
use thalweg_core::Cancelled;
use thalweg_tree::{Event, Events, Progress};

use super::args::SyncArgs;
use crate::{
    commands::copy::CopyWatcher,
    exit::CommandFailure,
    output::{change_log::ChangeLog, itemized, text::print_line},
};

/// Prints and logs changes. Leaves all other events to the watcher of a copy.
pub struct SyncWatcher<'w> {
    args: &'w SyncArgs,
    copy: CopyWatcher<'w>,
    log: Option<ChangeLog>,
}

impl<'w> SyncWatcher<'w> {
    /// Creates the watcher, and opens the log.
    pub fn new(args: &'w SyncArgs, copy: CopyWatcher<'w>) -> Result<Self, CommandFailure> {
        let log = args.log.as_deref().map(ChangeLog::open).transpose()?;
        Ok(Self { args, copy, log })
    }

    /// Removes the progress display.
    pub fn finish(&self, bytes: u64) {
        self.copy.finish(bytes);
    }

    /// Appends a line to the log.
    pub fn log(&self, line: &str) {
        if let Some(log) = &self.log {
            log.line(line);
        }
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
