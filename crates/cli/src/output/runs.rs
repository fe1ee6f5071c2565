//! Progress of a series of runs on standard error: a bar on a terminal, otherwise one line.

use indicatif::ProgressBar;
use std::{
    cell::OnceCell,
    time::{Duration, Instant},
};

use super::{
    quantity,
    text::note,
    ticking::{new_bar, style},
};
use crate::stdio;

/// Expected time above which a series of runs prints a line.
const LONG: Duration = Duration::from_secs(2);

pub struct Runs {
    speaks: bool,
    seen: bool,
    began: OnceCell<Instant>,
    bar: OnceCell<ProgressBar>,
}

impl Runs {
    /// Creates the display without showing anything. Without a terminal, it prints a line only if `speaks` is `true`.
    pub fn new(speaks: bool) -> Self {
        Self {
            speaks,
            seen: stdio::is_error_terminal(),
            began: OnceCell::new(),
            bar: OnceCell::new(),
        }
    }

    /// Shows that `done` of `all` runs are complete. `all` is 0 while unknown.
    pub fn show(&self, done: usize, all: usize) {
        if all == 0 {
            return;
        }
        let began = *self.began.get_or_init(Instant::now);
        if self.seen {
            let look = || style("{wide_bar} run {pos} of {len}, {eta} left");
            let bar = self.bar.get_or_init(|| new_bar(Some(all as u64), look()));
            bar.set_position(done as u64);
        } else if done == 2 && self.speaks && began.elapsed() * (all as u32) > LONG {
            // The clock started at the end of the first run, so it has measured only the second run.
            let about = began.elapsed() * (all as u32).saturating_sub(2);
            note(&format!("{all} runs, about {}", quantity::duration(about)));
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
