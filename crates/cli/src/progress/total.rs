//! Counts the files of a tree while it is copied.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use thalweg_core::Cancelled;
use thalweg_tree::{CopyOptions, count, sync::SyncOptions};

use super::ProgressMeter;

/// A count of files. [`begin`](Self::begin) starts it in a thread of its own. Dropping this stops the count.
pub struct Counting {
    sources: Vec<PathBuf>,
    options: CopyOptions,
    begun: bool,
    stop: Arc<AtomicBool>,
}

impl Counting {
    /// Creates the count of the files that a copy with these options processes.
    pub fn of(sources: &[PathBuf], options: &CopyOptions) -> Self {
        let (sources, options) = (sources.to_vec(), options.clone());
        Self { sources, options, begun: false, stop: Arc::default() }
    }

    /// Creates the count of the files that a sync with these options processes.
    pub fn of_sync(sources: &[PathBuf], options: &SyncOptions) -> Self {
        // The files cannot be counted beforehand, because the sync reads the filter files only while it runs.
        if options.filter_file.is_some() {
            return Self::none();
        }
        let copy = CopyOptions { recursive: true, ..options.copy.clone() };
        match sources {
            // The slash follows a symbolic link to the directory, as the sync does.
            [source] if source.is_dir() => Self::of(&[source.join("")], &copy),
            _ => Self::of(sources, &copy),
        }
    }

    /// Creates an empty count, for a worker of a sharded copy, which cannot know its share beforehand.
    pub fn none() -> Self {
        let (sources, options) = (Vec::new(), CopyOptions::default());
        Self { sources, options, begun: true, stop: Arc::default() }
    }

    /// Starts the count on the first call, if progress is shown. Short copies are never counted.
    pub fn begin(&mut self, meter: &ProgressMeter) {
        if self.begun || !meter.is_seen() {
            return;
        }
        self.begun = true;
        let (sources, options) = (std::mem::take(&mut self.sources), self.options.clone());
        let (state, stop) = (meter.state.clone(), Arc::clone(&self.stop));
        let work = move || {
            let go_on = || if stop.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) };
            let total = count(&sources, &options, &go_on);
            let mut state = state.get();
            let tree = state.tree.get_or_insert_default();
            (tree.total, tree.counting) = (total, false);
        };
        meter.know(|state| state.tree.get_or_insert_default().counting = true);
        if thread::Builder::new().name("count".to_owned()).spawn(work).is_err() {
            meter.know(|state| state.tree.get_or_insert_default().counting = false);
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
