//! Output while files are compared or hashed. The library calls the functions of this module from several threads.

use rustix::fs::FileType;
use serde_json::{Value, json};
use std::{
    io::IsTerminal,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use thalweg_core::{Cancelled, shown};
use thalweg_tree::{
    CopyOptions, Event, Events, Progress,
    compare::{DifferenceKind, Finding},
};

use crate::{
    args::ProgressArgs,
    exit::advice,
    interrupt,
    output::text::{complain, hint, print_line},
    progress::{Counting, ProgressMeter},
};

/// Prints findings on standard output and problems on standard error, and shows progress.
///
/// Findings arrive in the order of directories and threads. A terminal shows each finding at once. A file or a pipe
/// receives all findings at the end, sorted by path, so that two logs can be compared.
pub struct Findings {
    shown: ProgressArgs,
    /// Findings to be printed at the end; `None` if they are printed at once.
    unsorted: Option<Mutex<Unsorted>>,
    meter: Mutex<ProgressMeter>,
    counting: Option<Mutex<Counting>>,
}

/// Lines to be sorted.
#[derive(Default)]
struct Unsorted {
    lines: Vec<(PathBuf, String)>,
    bytes: usize,
}

/// Bytes of findings that are kept in memory for sorting: enough for a few hundred thousand files.
const MOST_UNSORTED: usize = 64 << 20;

impl Unsorted {
    /// Stores a line. If the lines exceed the memory limit, prints all of them sorted.
    fn add(&mut self, path: &Path, line: String) {
        self.bytes += path.as_os_str().len() + line.len() + size_of::<(PathBuf, String)>();
        self.lines.push((path.to_owned(), line));
        if self.bytes > MOST_UNSORTED {
            self.print();
        }
    }

    fn print(&mut self) {
        let mut lines = std::mem::take(self).lines;
        lines.sort_unstable();
        for (_, line) in &lines {
            print_line(line);
        }
    }
}

impl Findings {
    /// Creates the output for a command that reads the files below these paths. The files are counted if the command
    /// takes long.
    pub fn of(shown: ProgressArgs, below: &[PathBuf]) -> Self {
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let counting = Some(Mutex::new(Counting::of(below, &options)));
        Self { counting, ..Self::new(shown) }
    }

    /// Creates the output for a command with an unknown amount of work.
    pub fn new(shown: ProgressArgs) -> Self {
        let unsorted = (!std::io::stdout().is_terminal()).then(Mutex::default);
        Self {
            shown,
            unsorted,
            meter: Mutex::new(ProgressMeter::new(shown, None, None)),
            counting: None,
        }
    }

    /// Removes the progress display, and prints the stored findings.
    pub fn finish(&self, bytes: u64) {
        self.with_meter(|meter| meter.finish(bytes, false));
        self.flush();
    }

    /// Prints the stored findings.
    pub fn flush(&self) {
        if let Some(unsorted) = &self.unsorted {
            unsorted.lock().unwrap_or_else(PoisonError::into_inner).print();
        }
    }

    fn with_meter<R>(&self, act: impl FnOnce(&mut ProgressMeter) -> R) -> R {
        act(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Events for Findings {
    fn event(&self, event: &Event<'_>) {
        if let Event::Failed(error) = event {
            let advice = error.errno().map_or("", advice);
            self.with_meter(|meter| {
                meter.suspend(|| {
                    complain(&error.to_string());
                    hint(advice);
                });
            });
        }
    }

    fn finding(&self, finding: &Finding<'_>) {
        if self.shown.quiet && !self.shown.json {
            return;
        }
        let line = if self.shown.json { as_json(finding).to_string() } else { in_words(finding) };
        match &self.unsorted {
            Some(unsorted) => {
                unsorted.lock().unwrap_or_else(PoisonError::into_inner).add(finding.path(), line);
            }
            None => self.with_meter(|meter| meter.suspend(|| print_line(&line))),
        }
    }

    fn progress(&self, progress: Progress) {
        self.with_meter(|meter| {
            if meter.is_lasting() {
                meter.listen();
                if let Some(counting) = &self.counting {
                    counting.lock().unwrap_or_else(PoisonError::into_inner).begin(meter);
                }
            }
            meter.show_tree(progress);
        });
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        interrupt::check()
    }
}

fn noun(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        FileType::Unknown => "a file of unknown type",
    }
}

fn in_words(finding: &Finding<'_>) -> String {
    let name = shown(finding.path());
    match finding {
        Finding::Differs { how, .. } => format!("differs '{name}': {}", difference(how)),
        Finding::Missing { kind: FileType::RegularFile, .. } => format!("missing '{name}'"),
        Finding::Missing { kind, .. } => format!("missing '{name}': {}", noun(*kind)),
        Finding::Extra { kind: FileType::RegularFile, .. } => format!("extra '{name}'"),
        Finding::Extra { kind, .. } => format!("extra '{name}': {}", noun(*kind)),
    }
}

fn difference(how: &DifferenceKind) -> String {
    match how {
        DifferenceKind::Kind(source, here) => {
            format!("{} in the source, {} in the copy", noun(*source), noun(*here))
        }
        DifferenceKind::Size(source, here) => {
            format!("{source} bytes in the source, {here} in the copy")
        }
        DifferenceKind::Byte(at) => format!("first difference at byte {at}"),
        DifferenceKind::Hash(line) => format!("hash differs from line {line} of the manifest"),
        DifferenceKind::Target => "different link target".to_owned(),
        DifferenceKind::Device => "different device number".to_owned(),
        DifferenceKind::Attributes(which) => format!("different {}", which.join(", ")),
    }
}

fn as_json(finding: &Finding<'_>) -> Value {
    let mut object = match finding {
        Finding::Differs { how, .. } => {
            let byte = if let DifferenceKind::Byte(at) = how { Some(at) } else { None };
            json!({ "finding": "differs", "how": difference(how), "byte": byte })
        }
        Finding::Missing { .. } => json!({ "finding": "missing" }),
        Finding::Extra { .. } => json!({ "finding": "extra" }),
    };
    object["path"] = finding.path().to_string_lossy().into();
    object["path_hex"] = hex_if_no_text(finding.path()).into();
    object
}

/// Returns the path as hexadecimal bytes if it is not valid UTF-8.
fn hex_if_no_text(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let hex = || halves.filter_map(|half| char::from_digit(half.into(), 16)).collect();
    path.to_str().is_none().then(hex)
}
