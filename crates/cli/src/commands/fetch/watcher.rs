//! Output while a file is fetched.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use thalweg_core::{Cancelled, shown};
use thalweg_serve::client::{FetchProgress, FetchWatcher};

use super::FetchArgs;
use crate::{interrupt, output::text::complain, progress::ProgressMeter};

/// Shows progress and messages.
pub struct FileProgress {
    meter: Mutex<ProgressMeter>,
    is_quiet: bool,
}

impl FileProgress {
    pub fn new(args: &FetchArgs, path: &Path) -> Self {
        let name = path.file_name().filter(|_| args.split().0.len() > 1);
        let name = name.map(|name| shown(name).to_string());
        let mut meter = ProgressMeter::new(args.shown, name.as_deref(), None);
        meter.listen();
        Self { meter: Mutex::new(meter), is_quiet: args.shown.quiet }
    }

    pub fn finish(&self, moved: u64) {
        self.meter().finish(moved, false);
    }

    fn meter(&self) -> MutexGuard<'_, ProgressMeter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FetchWatcher for FileProgress {
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled> {
        let mut meter = self.meter();
        meter.know(|state| (state.before, state.expected) = (now.resumed, now.size));
        meter.show(now.there.saturating_sub(now.resumed));
        interrupt::check()
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        interrupt::check()
    }

    fn report(&self, message: &str) {
        if !self.is_quiet {
            self.meter().suspend(|| complain(&shown(message).to_string()));
        }
    }
}
