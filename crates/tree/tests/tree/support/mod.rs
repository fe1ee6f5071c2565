//! Helpers of the tests: a walker that shares no code with the code under test, and short functions
//! that create and copy files.
#![allow(dead_code, clippy::unwrap_used)]

pub mod trees;
#[allow(unused_imports, reason = "each test binary uses its part")]
pub use thalweg_testing::{names, noise, skip};

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thalweg_core::{Cancelled, Tuning, mechanisms::LAST_RESORT};
use thalweg_tree::{CopyOptions, Event, Events, Progress, TreeReport};

/// Returns the size of the largest file that is read into one buffer. It depends on the processor's cache.
pub fn largest_small() -> usize {
    LAST_RESORT.info().bytes(&Tuning::default(), "buffer")
}

/// Returns the size of a file that is not small.
pub fn large() -> usize {
    largest_small() + 44_321
}

/// The visible properties of one entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: char,
    pub mode: u32,
    pub mtime: (i64, i64),
    pub contents: Vec<u8>,
    /// The first path of the same file, for files with several names.
    pub same_as: Option<Vec<u8>>,
}

/// Returns all entries under `root`, by their path relative to it.
pub fn walk(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut entries = BTreeMap::new();
    let mut paths = vec![PathBuf::new()];
    while let Some(relative) = paths.pop() {
        let path = root.join(&relative);
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let (letter, contents) = if kind.is_symlink() {
            ('l', fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
        } else if kind.is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                paths.push(relative.join(entry.unwrap().file_name()));
            }
            ('d', Vec::new())
        } else if kind.is_fifo() {
            ('p', Vec::new())
        } else {
            ('f', fs::read(&path).unwrap())
        };
        let entry = Entry {
            kind: letter,
            mode: meta.mode() & 0o7777,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            contents,
            same_as: None,
        };
        entries.insert(relative.as_os_str().as_bytes().to_vec(), entry);
    }
    let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let names: Vec<_> = entries.keys().cloned().collect();
    for name in names {
        let path = root.join(Path::new(std::ffi::OsStr::from_bytes(&name)));
        let meta = fs::symlink_metadata(path).unwrap();
        if meta.nlink() > 1 && !meta.is_dir() {
            let one = first.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
            entries.get_mut(&name).unwrap().same_as = Some(one);
        }
    }
    entries
}

/// Returns the types and contents of all entries under `root`, without their other attributes.
pub fn contents(root: &Path) -> BTreeMap<Vec<u8>, (char, Vec<u8>)> {
    walk(root).into_iter().map(|(path, e)| (path, (e.kind, e.contents))).collect()
}

/// Creates a directory for many files, in memory if possible.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies one source and ignores all events.
pub fn copy(source: &Path, destination: &Path, options: &CopyOptions) -> TreeReport {
    thalweg_tree::copy(&[source.to_owned()], destination, options, &()).unwrap()
}

/// Returns options that only set `recursive`.
pub fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

/// Returns the messages of all errors.
pub fn problems(report: &TreeReport) -> String {
    report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Records events, answers questions, and cancels a run. `stop_after` is the number of complete files and calls of
/// `go_on` before the cancellation.
#[derive(Default)]
pub struct Listener {
    pub told: Mutex<Vec<String>>,
    pub answer: AtomicBool,
    pub stop_after: Option<u64>,
    pub files: AtomicU64,
    pub asked: AtomicU64,
}

impl Events for Listener {
    fn event(&self, event: &Event<'_>) {
        let text = match event {
            Event::Copied { source, destination, .. } => {
                format!("'{}' -> '{}'", source.display(), destination.display())
            }
            Event::Skipped { destination, reason } => {
                format!("skipped '{}' {reason:?}", destination.display())
            }
            other => format!("{other:?}"),
        };
        self.told.lock().unwrap().push(text);
    }

    fn progress(&self, progress: Progress) {
        self.files.store(progress.files, Ordering::Relaxed);
    }

    fn ask(&self, _: &Path) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answer.load(Ordering::Relaxed)
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        let is_over = |limit| self.files.fetch_add(1, Ordering::Relaxed) >= limit;
        if self.stop_after.is_some_and(is_over) { Err(Cancelled) } else { Ok(()) }
    }
}

/// Creates a hard link to a symbolic link itself.
pub fn hard_link_of_link(link: &Path, name: &Path) {
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::empty());
    rustix::fs::linkat(cwd, link, cwd, name, flags).unwrap();
}
