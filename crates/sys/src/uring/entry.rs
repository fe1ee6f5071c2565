//! Entries of the submission queue, and the effect of the fault seam on them.

use super::Uring;
use crate::Errno;
use crate::fault::{Call, gate};
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd;
use rustix::fd::RawFd;

/// The fault seam's decision about an operation: make it with the permitted length, or report a
/// result without making it.
pub(super) enum Leg {
    Real(u32),
    Made(Result<u32, Errno>),
}

/// The user data of a nudge, which no slot uses.
pub(super) const NUDGE: u64 = u64::MAX;

/// Creates a no-op that a kernel worker executes.
pub(super) fn nudge() -> Entry {
    opcode::Nop::new().build().flags(Flags::ASYNC).user_data(NUDGE)
}

/// Asks the fault seam. Lengths fit in 32 bits, because no buffer is longer than 1 GiB.
pub(super) fn leg(call: Call, len: usize) -> Leg {
    match gate(call, len) {
        Ok(Some(len)) => Leg::Real(len as u32),
        Ok(None) => Leg::Made(Ok(0)),
        Err(errno) => Leg::Made(Err(errno)),
    }
}

/// Returns the user data of an entry: slot and operation. The lowest bit is set for a write.
pub(super) fn tag(slot: u32, write: bool) -> u64 {
    u64::from(slot) * 2 + u64::from(write)
}

impl Uring<'_> {
    /// Creates a read into the slot's buffer from its byte 0.
    pub(super) fn read_entry(&self, slot: u32, fd: RawFd, at: u64, len: u32) -> Entry {
        let (fd, to) = (Fd(fd), self.area.at(slot as usize, 0));
        let entry = if self.registered {
            opcode::ReadFixed::new(fd, to, len, slot as u16).offset(at).build()
        } else {
            opcode::Read::new(fd, to, len).offset(at).build()
        };
        entry.user_data(tag(slot, false))
    }

    /// Creates a write from byte `from` of the slot's buffer.
    pub(super) fn write_entry(
        &self,
        slot: u32,
        fd: RawFd,
        at: u64,
        from: usize,
        len: u32,
    ) -> Entry {
        let (fd, from) = (Fd(fd), self.area.at(slot as usize, from));
        let entry = if self.registered {
            opcode::WriteFixed::new(fd, from, len, slot as u16).offset(at).build()
        } else {
            opcode::Write::new(fd, from, len).offset(at).build()
        };
        entry.user_data(tag(slot, true))
    }
}
