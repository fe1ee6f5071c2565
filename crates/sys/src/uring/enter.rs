//! `io_uring_enter(2)`, and what to do when nothing comes back from it.
//!
//! Linux 6.18 was seen to leave linked writes to ext4 queued for its workers (io-wq) with no worker
//! left and none started: the ring waited for ever. One more operation that needs a worker starts
//! one, which then does all that is queued. So a wait that brought nothing for a second is followed
//! by such a nudge, and by further ones ever more rarely, for a slow device looks the same.

use super::{Uring, entry};
use crate::Errno;
use io_uring::types::CancelBuilder;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const RAREST: Duration = Duration::from_secs(64);

/// How long the ring has been silent, in waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nudges {
    /// How long the next wait may bring nothing.
    pub(super) patience: Duration,
    /// Where it starts again with each completion.
    pub(super) first: Duration,
    /// One is enough: the completion queue has no room for many.
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
    /// EINTR also after a wait that brought nothing.
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

    /// ETIME: nothing came within the patience there is, and nothing was submitted.
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
            // `push`); the argument and its time live until the call returns.
            unsafe { ring.enter(submit as u32, want as u32, flags, Some(&arg)) }
        } else {
            let flags = if want > 0 { GETEVENTS } else { 0 };
            // SAFETY: as above; there is no argument.
            unsafe { ring.enter::<libc::sigset_t>(submit as u32, want as u32, flags, None) }
        };
        answer.map_err(|error| super::errno(&error))
    }

    /// Gives the kernel's workers something to do. Without room for it, the next time.
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
