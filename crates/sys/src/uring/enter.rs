//! `io_uring_enter(2)`, and a workaround for completions that do not arrive.
//!
//! Linux 6.18 was observed to leave linked writes to ext4 in the queue of its workers (io-wq). No
//! worker was running and the kernel started none, so the ring waited for ever. Another operation
//! that needs a worker makes the kernel start one, which then processes the whole queue. If a wait
//! returns nothing for a second, this module therefore submits such an operation (a nudge). Further
//! nudges follow at growing intervals, because a slow device causes the same silence.

use super::{Uring, entry};
use crate::Errno;
use io_uring::types::CancelBuilder;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const RAREST: Duration = Duration::from_secs(64);

/// State of the nudges of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nudges {
    /// The longest time to wait for a completion before the next nudge.
    pub(super) patience: Duration,
    /// The value to which every completion resets `patience`.
    pub(super) first: Duration,
    /// `true` while a nudge is in flight. Only one is submitted at a time, because the completion
    /// queue has no room for many.
    pub(super) under_way: bool,
}

impl Default for Nudges {
    fn default() -> Self {
        Self { patience: FIRST, first: FIRST, under_way: false }
    }
}

impl Nudges {
    pub(super) fn restart(&mut self) {
        self.patience = self.first;
    }
}

/// The kernel's `struct io_uring_getevents_arg`.
#[repr(C)]
struct Arg {
    sigmask: u64,
    sigmask_len: u32,
    pad: u32,
    timeout: u64,
}

/// The kernel's `struct __kernel_timespec`.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

impl Uring<'_> {
    /// Submits queued entries and waits for `want` completions. EINTR: a signal arrived, or no
    /// completion arrived in time.
    pub(super) fn enter(&mut self, want: usize) -> Result<usize, Errno> {
        let queued = self.ring.submission().len();
        if self.torn && (want == 0 || queued == self.pushed) {
            return Err(Errno::IO);
        }
        let submit = if self.torn { 0 } else { queued };
        match self.raw_enter(submit, want) {
            Ok(taken) => {
                self.torn |= taken < submit;
                Ok(taken)
            }
            Err(Errno::TIME) => {
                self.nudge();
                Err(Errno::INTR)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Calls `io_uring_enter`. ETIME: no completion arrived within `patience`, and nothing was
    /// submitted.
    pub(super) fn raw_enter(&self, submit: usize, want: usize) -> Result<usize, Errno> {
        const GETEVENTS: u32 = 1;
        const EXT_ARG: u32 = 1 << 3;
        let ring = self.ring.submitter();
        crate::tally::one();
        let answer = if want > 0 && self.ring.params().is_feature_ext_arg() {
            let patience = self.nudges.patience;
            let nanoseconds = i64::from(patience.subsec_nanos());
            let timeout = Timespec { seconds: patience.as_secs() as i64, nanoseconds };
            let timeout = (&raw const timeout).expose_provenance() as u64;
            let arg = Arg { sigmask: 0, sigmask_len: 0, pad: 0, timeout };
            let flags = GETEVENTS | EXT_ARG;
            // SAFETY: at most `submit` queued entries, whose fds and buffers outlive them (see
            // `push`); the argument and its timeout live until the call returns.
            unsafe { ring.enter(submit as u32, want as u32, flags, Some(&arg)) }
        } else {
            let flags = if want > 0 { GETEVENTS } else { 0 };
            // SAFETY: as above; there is no argument.
            unsafe { ring.enter::<libc::sigset_t>(submit as u32, want as u32, flags, None) }
        };
        answer.map_err(|error| super::errno(&error))
    }

    /// Submits an operation that needs a kernel worker. If the submission queue has no room, the
    /// next timeout tries again.
    fn nudge(&mut self) {
        self.nudges.patience = (self.nudges.patience * 2).min(RAREST);
        if !self.nudges.under_way && !self.torn && self.push(&[entry::nudge()]).is_ok() {
            self.nudges.under_way = true;
        }
    }

    pub(super) fn cancel_all(&self) -> Result<(), Errno> {
        let ring = self.ring.submitter();
        ring.register_sync_cancel(None, CancelBuilder::any()).map_err(|error| super::errno(&error))
    }
}
