//! What is said while a copy runs. The copier calls from several threads.

use std::{
    io::{BufRead, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};
use thalweg_sys::signal;
use thalweg_tree::{Event, Events, Progress, Skip};

use crate::{
    args::CopyArgs,
    exit::advice,
    output::text::{complain, note, print},
    progress::Meter,
};

/// Prints problems, and with `-v` everything; shows how far it is; asks.
pub struct Watcher<'w> {
    args: &'w CopyArgs,
    meter: Mutex<Meter>,
}

impl<'w> Watcher<'w> {
    /// One for this command.
    pub fn new(args: &'w CopyArgs, meter: Meter) -> Self {
        Self { args, meter: Mutex::new(meter) }
    }

    /// Takes the progress away.
    pub fn finish(&self, bytes: u64) {
        self.with_meter(|meter| meter.finish(bytes, false));
    }

    fn with_meter<R>(&self, act: impl FnOnce(&mut Meter) -> R) -> R {
        act(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For those who asked for it: on standard output, unless that is for programs.
    fn tell(&self, line: &str) {
        if self.args.shown.quiet {
            return;
        }
        self.with_meter(|meter| {
            meter.suspend(|| {
                if self.args.shown.json {
                    note(line);
                } else {
                    // Nobody reads it: the copy goes on, and the end of it says so.
                    let _ = print(&format!("{line}\n"));
                }
            });
        });
    }

    fn complain(&self, message: &str) {
        self.with_meter(|meter| meter.suspend(|| complain(message)));
    }
}

impl Events for Watcher<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Copied { source, destination, backup } => {
                let would = if self.args.dry_run { "would copy " } else { "" };
                let kept =
                    backup.map_or(String::new(), |kept| format!(" (backup: '{}')", kept.display()));
                self.tell(&format!(
                    "{would}'{}' -> '{}'{kept}",
                    source.display(),
                    destination.display()
                ));
            }
            Event::Skipped { destination, reason } => {
                let reason = match reason {
                    Skip::Exists => "it exists",
                    Skip::Newer => "it is not older than its source",
                    Skip::Declined => "declined",
                    Skip::Done => "an earlier run finished it",
                };
                self.tell(&format!("skipped '{}': {reason}", destination.display()));
            }
            Event::Failed(error) => {
                let advice = error.errno().map_or("", advice);
                self.complain(&format!("{error}{advice}"));
            }
            Event::Incomplete(error) => {
                self.complain(&format!("{error}; copied without it"));
            }
            Event::Changed { source } => {
                let path = source.display();
                self.complain(&format!("'{path}' changed while it was copied; copy it again"));
            }
            Event::NamedTwice { source } => {
                self.complain(&format!(
                    "'{}' was named twice; it is copied once",
                    source.display()
                ));
            }
            _ => {}
        }
    }

    fn progress(&self, progress: Progress) {
        self.with_meter(|meter| meter.show(progress.bytes));
    }

    fn ask(&self, path: &Path) -> bool {
        self.with_meter(|meter| {
            meter.suspend(|| {
                let mut stderr = std::io::stderr().lock();
                let _ = write!(stderr, "thalweg: overwrite '{}'? ", path.display());
                let _ = stderr.flush();
                let mut answer = String::new();
                let read = std::io::stdin().lock().read_line(&mut answer);
                read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
            })
        })
    }

    fn stop(&self) -> bool {
        signal::interrupted()
    }
}
