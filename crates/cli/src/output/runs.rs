//! How far a row of runs is, on standard error: a line that changes, or one line where no person looks.

use indicatif::ProgressBar;
use std::{
    cell::OnceCell,
    io::IsTerminal,
    time::{Duration, Instant},
};

use super::{
    quantity,
    text::note,
    ticking::{new_bar, style},
};

/// What is over sooner needs no line.
const LONG: Duration = Duration::from_secs(2);

pub struct Runs {
    speaks: bool,
    seen: bool,
    began: OnceCell<Instant>,
    bar: OnceCell<ProgressBar>,
}

impl Runs {
    /// Nothing is shown yet; never a line if it does not speak.
    pub fn new(speaks: bool) -> Self {
        let seen = std::io::stderr().is_terminal();
        Self { speaks, seen, began: OnceCell::new(), bar: OnceCell::new() }
    }

    /// So many are done of so many; of none while it is not known of how many.
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
            // The time of the first run is not known: it is over when this is first called.
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
