//! Output during a copy. The copier calls the functions of this module from several threads.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use thalweg_core::{
    Cancelled, cadence::CANCEL_CHECK, error::errno_name, failed::quoted, quantity::exact, shown,
};
use thalweg_sys::{Errno, io};
use thalweg_tree::{Event, Events, Progress, Skip};

use super::args::CopyArgs;
use crate::{
    exit::{INPUT, advice},
    interrupt,
    output::text::{complain, hint, note, print_line},
    progress::{Counting, ProgressMeter},
    stdio::expect_open,
};

/// Number of bytes that are kept of a user's answer. The rest of the line is read and discarded.
const LONGEST: usize = 64;

/// Prints problems (all events with `-v`), shows progress, and asks the user.
pub struct CopyWatcher<'w> {
    args: &'w CopyArgs,
    meter: Mutex<ProgressMeter>,
    is_unlinked: AtomicBool,
    is_undressed: AtomicBool,
    is_unlisted: AtomicBool,
    /// `true` if the user answered no to `-i` at least once.
    has_declined: AtomicBool,
    counting: Mutex<Counting>,
    /// The hints that were printed. Each is printed once, because many files may fail for one reason.
    hints: Mutex<Vec<&'static str>>,
}

impl<'w> CopyWatcher<'w> {
    pub fn new(args: &'w CopyArgs, meter: ProgressMeter, counting: Counting) -> Self {
        let (meter, counting) = (Mutex::new(meter), Mutex::new(counting));
        let [is_unlinked, is_undressed, is_unlisted, has_declined] =
            [const { AtomicBool::new(false) }; 4];
        let hints = Mutex::default();
        Self { args, meter, is_unlinked, is_undressed, is_unlisted, has_declined, counting, hints }
    }

    /// Removes the progress display.
    pub fn finish(&self, bytes: u64) {
        self.with_meter(|meter| meter.finish(bytes, false));
    }

    /// Returns `true` if the user declined to replace a file.
    pub fn has_declined(&self) -> bool {
        self.has_declined.load(Ordering::Relaxed)
    }

    fn with_meter<R>(&self, act: impl FnOnce(&mut ProgressMeter) -> R) -> R {
        act(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prints a line that the user requested: on standard output, or on standard error with `--json`.
    fn result(&self, line: &str) {
        if self.args.shown.quiet {
            return;
        }
        self.with_meter(|meter| {
            meter.suspend(|| {
                if self.args.shown.json {
                    note(line);
                } else {
                    print_line(line);
                }
            });
        });
    }

    /// Prints the first message of a kind of problem, or all messages with `-v`. The summary contains the number of
    /// problems.
    fn complain_once(&self, was_printed: &AtomicBool, message: impl FnOnce() -> String) {
        if self.args.is_verbose() || !was_printed.swap(true, Ordering::Relaxed) {
            self.complain(&message());
        }
    }

    /// Runs `print` while the progress display is hidden.
    pub fn beside_progress(&self, print: impl FnOnce()) {
        self.with_meter(|meter| meter.suspend(print));
    }

    fn remark(&self, line: &str) {
        if !self.args.shown.quiet {
            self.with_meter(|meter| meter.suspend(|| note(line)));
        }
    }

    fn complain(&self, message: &str) {
        self.with_meter(|meter| meter.suspend(|| complain(message)));
    }

    fn hint_once(&self, text: &'static str) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() && !hints.contains(&text) {
            hints.push(text);
            self.with_meter(|meter| meter.suspend(|| hint(text)));
        }
    }

    /// Prints a message about a copy that failed or differs from the request.
    fn warn(&self, event: &Event<'_>) {
        match event {
            Event::NotLinked { destination, errno } => {
                self.complain_once(&self.is_unlinked, || {
                    let (path, why) = (shown(*destination), errno_name(*errno));
                    format!("'{path}': cannot create hard link (linkat: {why}); copied instead")
                });
            }
            Event::AttributeDropped { destination, name, errno } => {
                self.complain_once(&self.is_undressed, || {
                    let (path, why) = (quoted(destination), errno_name(*errno));
                    let name = shown(OsStr::from_bytes(name.to_bytes()));
                    format!(
                        "{path}: cannot set attribute {name} (fsetxattr: {why}); copied without it"
                    )
                });
            }
            Event::NoRoom { destination, needed, free } => {
                let (path, needed, free) = (quoted(destination), exact(*needed), exact(*free));
                self.complain(&format!(
                    "warning: {path}: the copy needs {needed}, but only {free} are free there"
                ));
            }
            Event::LeftAlone { path, why } => {
                let path = quoted(path);
                self.complain(&format!("warning: {path} {why}: not used and not removed"));
            }
            Event::Failed(error) => {
                self.complain(&error.to_string());
                self.hint_once(error.errno().map_or("", advice));
            }
            Event::Incomplete(error) => {
                let message = || format!("{error}; copied without it");
                if error.is_list_refused() {
                    self.complain_once(&self.is_unlisted, message);
                } else {
                    self.complain(&message());
                }
            }
            Event::Changed { source } => {
                let path = shown(*source);
                self.complain(&format!("'{path}' changed while it was copied"));
                self.hint_once("run the same command again to copy changed files again");
            }
            Event::Again { destination } => {
                let path = shown(*destination);
                self.complain(&format!(
                    "'{path}' differed from its source despite equal size and times; copied again"
                ));
            }
            Event::NamedTwice { source } => {
                self.complain(&format!(
                    "warning: '{}' is given twice; copied once",
                    shown(*source)
                ));
            }
            _ => {}
        }
    }
}

impl Events for CopyWatcher<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Copied { source, destination, backup } => {
                let would = if self.args.dry_run { "would copy " } else { "" };
                let kept =
                    backup.map_or(String::new(), |kept| format!(" (backup: '{}')", shown(kept)));
                self.result(&format!(
                    "{would}'{}' -> '{}'{kept}",
                    shown(*source),
                    shown(*destination)
                ));
            }
            Event::Removed { destination } => {
                let would = if self.args.dry_run { "would remove" } else { "removed" };
                self.result(&format!("{would} '{}'", shown(*destination)));
            }
            Event::Skipped { reason: Skip::Linked, .. } => {}
            Event::Skipped { .. } | Event::LeftOut { .. } if !self.args.names_skipped() => {}
            Event::Skipped { destination, reason } => {
                let reason = match reason {
                    Skip::Exists | Skip::Linked => "exists",
                    Skip::Newer => "not older than its source",
                    Skip::Declined => "declined",
                    Skip::Done => "already copied",
                };
                // This line goes to standard error, because standard output lists only copied files.
                self.remark(&format!("skipped '{}': {reason}", shown(*destination)));
            }
            Event::LeftOut { source } => {
                self.remark(&format!("excluded '{}'", shown(*source)));
            }
            Event::WrittenInto { destination, refusal } => {
                let path = shown(*destination);
                self.result(&format!(
                    "overwrote '{path}' in place, because it cannot be replaced: {refusal}"
                ));
            }
            event => self.warn(event),
        }
    }

    fn progress(&self, progress: Progress) {
        self.with_meter(|meter| {
            // A short copy ends before its progress is shown, so it needs no threads for progress.
            if meter.is_lasting() {
                meter.listen();
                self.counting.lock().unwrap_or_else(PoisonError::into_inner).begin(meter);
            }
            meter.show_tree(progress);
        });
    }

    fn current(&self, source: &Path) {
        let name = shown(source).to_string();
        self.with_meter(|meter| {
            meter.know(|state| state.tree.get_or_insert_default().current = name);
        });
    }

    fn ask(&self, path: &Path) -> bool {
        let may_replace = self.with_meter(|meter| {
            meter.suspend(|| {
                if let Err(failure) = expect_open(0, INPUT) {
                    complain(&format!("'{}': not overwritten: {}", shown(path), failure.message));
                    return false;
                }
                let mut stderr = std::io::stderr().lock();
                let _ = write!(stderr, "thalweg: overwrite '{}'? ", shown(path));
                let _ = stderr.flush();
                answer().trim_ascii_start().first().is_some_and(|first| b"yY".contains(first))
            })
        });
        if !may_replace {
            self.has_declined.store(true, Ordering::Relaxed);
        }
        may_replace
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        interrupt::check()
    }
}

/// Reads a line from standard input. Stops at the end of the line or of the input, or at an interrupt. The standard
/// library's functions would retry after EINTR.
fn answer() -> Vec<u8> {
    let (stdin, mut line, mut byte) = (rustix::stdio::stdin(), Vec::new(), [0_u8]);
    while !interrupt::is_interrupted() {
        let read = match io::wait_readable(stdin, Some(CANCEL_CHECK)) {
            Ok(true) => io::read(stdin, &mut byte),
            Ok(false) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        };
        match read {
            Ok(1) if byte != *b"\n" => {
                if line.len() < LONGEST {
                    line.push(byte[0]);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    line
}
