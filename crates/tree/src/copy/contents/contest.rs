//! Which of two ways moves small files faster here: read and write, or one call that keeps the bytes
//! in the kernel. The files themselves decide: the ways take turns until it is clear.
//!
//! No planner is asked, for a plan costs more than a small file; nor is anything kept for the next
//! run, for finding out again costs a few hundred files their worse way.

use rustix::fs::Stat;
use std::{os::fd::BorrowedFd, time::Duration};
use thalweg_core::profile::LEAST_NOISE;
use thalweg_sys::host::filesystem;

use crate::{CopyOptions, When, copy::contents::small::SINGLE, identity::size};

/// The mechanism that competes with plain reading and writing.
pub(crate) const IN_KERNEL: &str = "copy-file-range";

/// The contests of one worker, on the pair of file systems it met last.
#[derive(Debug, Default)]
pub(crate) struct Contests {
    seen: u32,
    devices: (u64, u64),
    classes: [Contest; CLASSES.len()],
}

/// Files before the first contest: a copy of a few need not be asked anything.
const PRELUDE: u32 = 32;

// The upper bounds of what is compared with each other: the ways differ in how they grow.
const CLASSES: [u64; 3] = [SINGLE as u64 / 16, SINGLE as u64 / 4, SINGLE as u64];

/// One contest.
#[derive(Clone, Copy, Debug)]
enum Contest {
    /// Still going: per way, the number of samples and the sum of their logarithms.
    Open([(u32, f64); 2]),
    /// Whether the kernel's way has won.
    Closed(bool),
}

impl Default for Contest {
    fn default() -> Self {
        Self::Open([(0, 0.0); 2])
    }
}

/// Samples of each way. They scatter by about a third, so the mean is known to about 3 %.
const SAMPLES: u32 = 128;
// What a call costs beyond its bytes is about what a page costs: makes sizes comparable.
const CALL: f64 = 4096.0;

/// Whether the contest is held at all: the options must leave the choice to us.
pub(crate) fn is_held(options: &CopyOptions) -> bool {
    let request = &options.request;
    request.only.is_none()
        && !request.without.iter().any(|name| name == IN_KERNEL)
        && options.reflink != When::Never
}

impl Contests {
    /// Whether the next file, of this source, should go by the kernel's way. `dir` is where it goes.
    pub fn chooses_kernel(&mut self, source: &Stat, (dir, device): (BorrowedFd<'_>, u64)) -> bool {
        // Across file systems the kernel has no such way, and an empty file may be one that lies.
        if source.st_dev != device || source.st_size == 0 {
            return false;
        }
        if self.seen < PRELUDE {
            self.seen += 1;
            return false;
        }
        if self.devices != (source.st_dev, device) {
            self.devices = (source.st_dev, device);
            // Elsewhere a size is only a claim, and this way believes it.
            let is_honest = filesystem(dir)
                .is_ok_and(|fs| !fs.remote && !fs.name.starts_with("fuse") && fs.name != "overlay");
            let start = if is_honest { Contest::default() } else { Contest::Closed(false) };
            self.classes = [start; CLASSES.len()];
        }
        match self.class(size(source)) {
            Contest::Open([(plain, _), (kernel, _)]) => kernel < plain,
            Contest::Closed(kernel) => *kernel,
        }
    }

    /// Whether times are still wanted for files of this size.
    pub fn is_open(&mut self, size: u64) -> bool {
        self.seen == PRELUDE && matches!(self.class(size), Contest::Open(_))
    }

    /// Takes the time of one file.
    pub fn note(&mut self, kernel: bool, size: u64, took: Duration) {
        let contest = self.class(size);
        let Contest::Open(sums) = contest else { return };
        let sum = &mut sums[usize::from(kernel)];
        // Logarithms, so that one interrupted file does not decide.
        let cost = took.as_nanos().max(1) as f64 / (size as f64 + CALL);
        *sum = (sum.0 + 1, sum.1 + cost.ln());
        let [plain, kernel] = *sums;
        if plain.0 >= SAMPLES && kernel.0 >= SAMPLES {
            let ratio = (kernel.1 / f64::from(kernel.0) - plain.1 / f64::from(plain.0)).exp();
            *contest = Contest::Closed(ratio < 1.0 - LEAST_NOISE);
        }
    }

    /// The kernel refused: it does not take part any more.
    pub fn refused(&mut self) {
        self.classes = [Contest::Closed(false); CLASSES.len()];
    }

    fn class(&mut self, size: u64) -> &mut Contest {
        let n = CLASSES.iter().position(|bound| size <= *bound).unwrap_or(CLASSES.len() - 1);
        &mut self.classes[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn after(kernel: u64, plain: u64) -> bool {
        let mut contests = Contests { seen: PRELUDE, ..Contests::default() };
        for n in 0..SAMPLES {
            let jitter = u64::from(n % 7) * 100;
            contests.note(false, 1000, Duration::from_nanos(plain + jitter));
            contests.note(true, 1000, Duration::from_nanos(kernel + jitter));
        }
        assert!(!contests.is_open(1000) && contests.is_open(100_000));
        let Contest::Closed(won) = contests.class(1000) else { return false };
        *won
    }

    #[test]
    fn the_kernel_wins_only_by_more_than_noise() {
        assert!(after(4000, 5000));
        assert!(!after(5000, 4000));
        assert!(!after(4950, 5000));
    }

    #[test]
    fn nothing_is_tried_across_file_systems_or_on_request() {
        let file = tempfile::tempfile().unwrap();
        rustix::fs::ftruncate(&file, 10).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let mut contests = Contests { seen: PRELUDE, ..Contests::default() };
        assert!(!contests.chooses_kernel(&stat, (file.as_fd(), stat.st_dev + 1)));
        let options = CopyOptions { reflink: When::Never, ..CopyOptions::default() };
        assert!(!is_held(&options) && is_held(&CopyOptions::default()));
    }
}
