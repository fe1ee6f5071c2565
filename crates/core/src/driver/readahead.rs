//! Read-ahead for a slow source file: on a network, on a file system in user space, or on a busy disk.
//!
//! The kernel reads ahead by one or two requests of `read_ahead_kb`, usually 128 KiB, however long each of them takes.
//! If a step mostly waits, the engine makes many requests at a time, for a longer range. It stops if they do not raise
//! the rate, because the sink may be the slow side, or reads may not use the page cache.

use std::{num::NonZeroU64, os::fd::BorrowedFd, time::Duration};

use rustix::{
    fs::{Advice, fadvise},
    time::{ClockId, clock_gettime},
};

/// The rest of a source file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceRest<'a> {
    pub fd: BorrowedFd<'a>,
    /// Offset of the next byte.
    pub at: u64,
    /// Number of bytes to move; `u64::MAX` if the transfer ends at the end of the file.
    pub len: u64,
}

/// Length of a request. The kernel would shorten a longer request to its own read-ahead.
const REQUEST: u64 = 128 << 10;
/// First and largest length of the range to request ahead. The largest is limited, because each file that is copied at
/// the same time occupies that much memory.
const FIRST: u64 = 2 << 20;
const LARGEST: u64 = 8 << 20;
/// The requests must have raised the rate after `TRIAL` steps, at least by the factor `HELP`.
const TRIAL: u32 = 4;
const HELP: f64 = 1.25;

/// The requests for bytes of one source file.
#[derive(Debug, Default)]
pub(super) struct SourceReadahead {
    /// CPU time of the process before the current step; `None` in the first step.
    cpu: Option<Duration>,
    /// Number of bytes to request ahead; 0 until a step has waited, and after requests have not helped.
    window: u64,
    /// Offset after the last requested byte.
    requested: u64,
    /// Rate of the step before the first request, in bytes per second, to compare with later rates.
    rate_before: f64,
    /// Number of steps since the first request.
    steps: u32,
    /// `true` if a request failed or the requests did not raise the rate. No further request is then made.
    is_useless: bool,
}

impl SourceReadahead {
    /// Requests bytes for the next steps. Returns the largest number of bytes that the next step may move: half of the
    /// requested range. The kernel reads the other half ahead during that step.
    pub fn before_step(&mut self, rest: SourceRest<'_>) -> u64 {
        if self.window == 0 {
            return u64::MAX;
        }
        let end = rest.at.saturating_add(self.window.min(rest.len));
        self.requested = self.requested.max(rest.at);
        while self.requested < end {
            let len = REQUEST.min(end - self.requested);
            // posix_fadvise(2) only gives advice, so an error is not a failure.
            if fadvise(rest.fd, self.requested, NonZeroU64::new(len), Advice::WillNeed).is_err() {
                self.stop();
                return u64::MAX;
            }
            self.requested += len;
        }
        self.window / 2
    }

    /// Decides whether to request bytes ahead, after a step that moved `bytes` in `took`.
    pub fn after_step(&mut self, bytes: u64, took: Duration) {
        if self.is_useless {
            return;
        }
        // CPU time of the whole process, which includes a mechanism's threads. The CPU time of other transfers can hide
        // that this transfer waits.
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::try_from(cpu).unwrap_or_default();
        let Some(before) = self.cpu.replace(cpu) else { return };
        let has_waited = cpu.saturating_sub(before) < took / 2;
        let rate = bytes as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE);
        if self.window == 0 {
            if has_waited {
                (self.window, self.rate_before) = (FIRST, rate);
            }
            return;
        }
        self.steps += 1;
        if self.steps == TRIAL && rate < HELP * self.rate_before {
            self.stop();
        } else if has_waited {
            self.window = (self.window * 2).min(LARGEST);
        }
    }

    fn stop(&mut self) {
        (self.is_useless, self.window) = (true, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsFd};

    /// Simulates steps that move these numbers of MiB. Each takes 1000 s, much longer than the CPU time that other tests
    /// of this process use in between. Returns the permitted length of each step.
    fn steps(rates: &[u64]) -> Vec<u64> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let mut readahead = SourceReadahead::default();
        let step = |mib: &u64| step(&mut readahead, &file, *mib << 20, Duration::from_secs(1000));
        rates.iter().map(step).collect()
    }

    fn step(readahead: &mut SourceReadahead, file: &File, bytes: u64, took: Duration) -> u64 {
        let most = readahead.before_step(SourceRest { fd: file.as_fd(), at: 0, len: u64::MAX });
        readahead.after_step(bytes, took);
        most
    }

    #[test]
    fn steps_that_wait_are_requested_ahead_as_long_as_that_helps() {
        let all = steps(&[1, 1, 4, 4, 4, 4, 4, 4]);
        assert_eq!(all[..3], [u64::MAX, u64::MAX, FIRST / 2]);
        assert_eq!(all[7], LARGEST / 2);
        let none = steps(&[1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(none[..3], [u64::MAX, u64::MAX, FIRST / 2]);
        assert_eq!(none[6..], [u64::MAX, u64::MAX]);
    }

    #[test]
    fn steps_that_compute_are_not_requested_ahead() {
        let file = tempfile::tempfile().unwrap();
        let mut readahead = SourceReadahead::default();
        // The steps claim to take 1 ns. Their CPU time is longer than that, so they did not wait.
        for _ in 0..8 {
            assert_eq!(step(&mut readahead, &file, 1 << 20, Duration::from_nanos(1)), u64::MAX);
        }
    }

    #[test]
    fn nothing_is_requested_beyond_the_end_of_the_transfer() {
        let file = tempfile::tempfile().unwrap();
        let mut readahead = SourceReadahead { window: FIRST, ..SourceReadahead::default() };
        readahead.before_step(SourceRest { fd: file.as_fd(), at: 100, len: 5000 });
        assert_eq!(readahead.requested, 5100);
        readahead.before_step(SourceRest { fd: file.as_fd(), at: u64::MAX - 10, len: u64::MAX });
        assert_eq!(readahead.requested, u64::MAX);
    }
}
