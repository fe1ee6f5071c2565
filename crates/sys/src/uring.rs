//! Reads and writes through io_uring, with its own buffers.
//!
//! Each slot has one buffer. While an operation is in flight, it owns the slot's buffer, and the
//! caller cannot access the bytes. The kernel may access a buffer as long as an operation runs.
//! Dropping the ring therefore cancels the operations and waits for their end. If the ring cannot
//! wait, it leaks the buffers, because the kernel may still use them.

use crate::Errno;
use crate::fault::Call;
use io_uring::IoUring;
use io_uring::squeue::{Entry, Flags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

mod area;
mod enter;
mod entry;
use area::Area;
use enter::Nudges;
use entry::{Leg, NUDGE, leg};

/// Value of `at` for a descriptor without offsets (pipe, socket). For other descriptors, it selects
/// the descriptor's own offset.
pub const CURRENT: u64 = u64::MAX;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fills the slot's buffer from its byte 0.
    Read,
    /// Writes from the slot's buffer.
    Write,
}

/// The completion of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the operation.
    pub slot: u32,
    /// The kind of operation.
    pub op: Op,
    /// Bytes moved; 0 from a read means the end of the file. CANCELED: the write was linked to a
    /// read that failed or was short.
    pub result: Result<u32, Errno>,
}

/// A descriptor of an operation.
#[derive(Clone, Debug)]
pub enum RingFd<'fd> {
    /// The caller keeps the descriptor open longer than the ring exists.
    Borrowed(BorrowedFd<'fd>),
    /// The ring shares the descriptor with the caller, and keeps it open.
    Shared(Arc<OwnedFd>),
}

impl<'fd> From<BorrowedFd<'fd>> for RingFd<'fd> {
    fn from(fd: BorrowedFd<'fd>) -> Self {
        Self::Borrowed(fd)
    }
}

impl From<Arc<OwnedFd>> for RingFd<'_> {
    fn from(fd: Arc<OwnedFd>) -> Self {
        Self::Shared(fd)
    }
}

/// The result of a pair's write that the fault seam injects after the pair's real read.
#[derive(Clone, Copy, Debug)]
struct AfterEnter {
    result: Result<u32, Errno>,
    /// The read's full length. After a shorter read, the write is cancelled, as in the kernel.
    needs: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct UringSlot {
    /// Completions not yet returned to the caller: 0, 1, or 2 for a pair.
    busy: u8,
    after: Option<AfterEnter>,
}

/// An io_uring with `depth` slots. Borrowed descriptors (`'fd`) must outlive the ring.
pub struct Uring<'fd> {
    ring: IoUring,
    area: Area,
    slots: Vec<UringSlot>,
    ready: VecDeque<Completion>,
    /// Number of pushed entries whose completions have not been taken off the ring.
    pushed: usize,
    registered: bool,
    /// `true` if the kernel took only some of the queued entries. The kernel may have split a pair,
    /// so nothing more is submitted.
    torn: bool,
    nudges: Nudges,
    /// Shared descriptors used by any operation so far.
    kept: Vec<Arc<OwnedFd>>,
    fds: PhantomData<BorrowedFd<'fd>>,
}

impl AsFd for Uring<'_> {
    /// Returns the descriptor to poll: it is readable when there is a completion.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns this descriptor and closes it when it is dropped.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl<'fd> Uring<'fd> {
    /// Creates a ring with `depth` slots (1 to 4096) of `buffer` bytes (up to 1 GiB). Each buffer
    /// is aligned to `align`, a power of two.
    ///
    /// Makes several calls. Registers the buffers with the kernel. If the memory-lock limit forbids
    /// this (ENOMEM, EPERM), the ring uses plain reads and writes. ENOSYS, EPERM: io_uring is not
    /// available here. ENOMEM: even the ring exceeds the memory-lock limit, which counts all rings
    /// of the user.
    pub fn new(depth: u32, buffer: usize, align: usize) -> Result<Self, Errno> {
        if !(1..=4096).contains(&depth) || !(1..=1 << 30).contains(&buffer) {
            return Err(Errno::INVAL);
        }
        let area = Area::new(depth as usize, buffer, align)?;
        // Two entries per slot, because a slot may hold a pair. The kernel makes the completion
        // queue twice as long, so neither queue can overflow.
        let ring = IoUring::new(depth * 2).map_err(|error| errno(&error))?;
        let vectors = area.vectors();
        // SAFETY: the vectors are inside `area`, which Drop keeps until the kernel no longer uses
        // it.
        let registered = match unsafe { ring.submitter().register_buffers(&vectors) } {
            Ok(()) => true,
            Err(error) => match errno(&error) {
                Errno::NOMEM | Errno::PERM => false,
                other => return Err(other),
            },
        };
        Ok(Self {
            ring,
            area,
            slots: vec![UringSlot::default(); depth as usize],
            ready: VecDeque::new(),
            pushed: 0,
            registered,
            torn: false,
            nudges: Nudges::default(),
            kept: Vec::new(),
            fds: PhantomData,
        })
    }

    /// Returns `true` if the buffers are registered (READ_FIXED, WRITE_FIXED).
    pub fn registered(&self) -> bool {
        self.registered
    }

    /// Returns the number of slots.
    pub fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the number of completions that [`Uring::wait`] has not returned yet.
    pub fn in_flight(&self) -> u32 {
        self.slots.iter().map(|slot| u32::from(slot.busy)).sum()
    }

    /// Returns the buffer of a slot; `None` while it is in flight, or if the slot does not exist.
    pub fn buffer(&self, slot: u32) -> Option<&[u8]> {
        self.idle(slot).ok()?;
        // SAFETY: nothing is in flight for the slot, and starting an operation takes &mut self.
        Some(unsafe { self.area.bytes(slot as usize) })
    }

    /// Like [`Uring::buffer`], for writing.
    pub fn buffer_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        self.idle(slot).ok()?;
        // SAFETY: nothing is in flight for the slot, and &mut self excludes other references.
        Some(unsafe { self.area.bytes_mut(slot as usize) })
    }

    /// Queues a read of `len` bytes from offset `at` of the file into the slot's buffer. Makes no
    /// call; [`Uring::submit`] does. EBUSY: the slot is in flight. EINVAL: invalid slot or length.
    pub fn read(
        &mut self,
        slot: u32,
        fd: impl Into<RingFd<'fd>>,
        at: u64,
        len: usize,
    ) -> Result<(), Errno> {
        self.check(slot, &(0..len))?;
        let fd = self.keep(fd);
        match leg(Call::UringRead, len) {
            Leg::Real(len) => self.push(&[self.read_entry(slot, fd, at, len)])?,
            Leg::Made(result) => self.ready.push_back(Completion { slot, op: Op::Read, result }),
        }
        self.slots[slot as usize].busy = 1;
        Ok(())
    }

    /// Queues a write of the bytes `range` of the slot's buffer to offset `at` of the file. The
    /// errors are those of [`Uring::read`].
    pub fn write(
        &mut self,
        slot: u32,
        fd: impl Into<RingFd<'fd>>,
        at: u64,
        range: Range<usize>,
    ) -> Result<(), Errno> {
        self.check(slot, &range)?;
        let fd = self.keep(fd);
        match leg(Call::UringWrite, range.len()) {
            Leg::Real(len) => self.push(&[self.write_entry(slot, fd, at, range.start, len)])?,
            Leg::Made(result) => self.ready.push_back(Completion { slot, op: Op::Write, result }),
        }
        self.slots[slot as usize].busy = 1;
        Ok(())
    }

    /// Queues a read and, linked to it, a write of the bytes read. Two completions follow. If the
    /// read fails or is short, the write is cancelled. The bytes read are then in the buffer.
    pub fn read_then_write(
        &mut self,
        slot: u32,
        source: impl Into<RingFd<'fd>>,
        source_at: u64,
        sink: impl Into<RingFd<'fd>>,
        sink_at: u64,
        len: usize,
    ) -> Result<(), Errno> {
        self.check(slot, &(0..len))?;
        let (source, sink) = (self.keep(source), self.keep(sink));
        let canceled = Err(Errno::CANCELED);
        let needs = len as u32;
        match leg(Call::UringRead, len) {
            Leg::Made(result) => {
                self.ready.push_back(Completion { slot, op: Op::Read, result });
                self.ready.push_back(Completion { slot, op: Op::Write, result: canceled });
            }
            Leg::Real(short) if short < needs => {
                self.push(&[self.read_entry(slot, source, source_at, short)])?;
                self.slots[slot as usize].after = Some(AfterEnter { result: canceled, needs });
            }
            Leg::Real(_) => {
                let read = self.read_entry(slot, source, source_at, needs);
                match leg(Call::UringWrite, len) {
                    Leg::Real(len) => {
                        let write = self.write_entry(slot, sink, sink_at, 0, len);
                        self.push(&[read.flags(Flags::IO_LINK), write])?;
                    }
                    Leg::Made(result) => {
                        self.push(&[read])?;
                        self.slots[slot as usize].after = Some(AfterEnter { result, needs });
                    }
                }
            }
        }
        self.slots[slot as usize].busy = 2;
        Ok(())
    }

    /// `io_uring_enter(2)`: submits the queued operations, and returns the number that the kernel
    /// took. In rare cases, the kernel takes fewer than were queued. Every later operation then
    /// fails with EIO, because the kernel may have split a pair.
    pub fn submit(&mut self) -> Result<usize, Errno> {
        self.enter(0)
    }

    /// Returns the next completion. If none is ready, submits the queued operations and waits.
    /// EINTR: a signal arrived first, or no completion arrived for a while; call again. EINVAL:
    /// nothing is in flight.
    pub fn wait(&mut self) -> Result<Completion, Errno> {
        if let Some(done) = self.next_ready() {
            return Ok(done);
        }
        if self.in_flight() == 0 {
            return Err(Errno::INVAL);
        }
        self.enter(1)?;
        // If a signal arrives after entries were submitted, the kernel reports success, not EINTR.
        self.next_ready().ok_or(Errno::INTR)
    }

    fn next_ready(&mut self) -> Option<Completion> {
        while self.ready.is_empty() && self.reap() {}
        let done = self.ready.pop_front()?;
        self.slots[done.slot as usize].busy -= 1;
        Some(done)
    }

    /// Takes one completion off the ring. Returns `false` if there is none.
    fn reap(&mut self) -> bool {
        let Some(entry) = self.ring.completion().next() else { return false };
        self.pushed -= 1;
        if entry.user_data() == NUDGE {
            self.nudges.under_way = false;
            return true;
        }
        self.nudges.restart();
        let slot = (entry.user_data() / 2) as u32;
        let op = if entry.user_data() % 2 == 0 { Op::Read } else { Op::Write };
        let result =
            u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()));
        self.ready.push_back(Completion { slot, op, result });
        if let Some(after) = self.slots[slot as usize].after.take() {
            let whole = result == Ok(after.needs);
            let result = if whole { after.result } else { Err(Errno::CANCELED) };
            self.ready.push_back(Completion { slot, op: Op::Write, result });
        }
        true
    }

    fn idle(&self, slot: u32) -> Result<(), Errno> {
        match self.slots.get(slot as usize) {
            Some(UringSlot { busy: 0, .. }) => Ok(()),
            Some(_) => Err(Errno::BUSY),
            None => Err(Errno::INVAL),
        }
    }

    fn check(&self, slot: u32, range: &Range<usize>) -> Result<(), Errno> {
        if self.torn {
            return Err(Errno::IO);
        }
        self.idle(slot)?;
        let inside = range.start <= range.end && range.end <= self.area.len();
        if inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Returns the number of a descriptor that stays open as long as the ring exists.
    fn keep(&mut self, fd: impl Into<RingFd<'fd>>) -> RawFd {
        match fd.into() {
            RingFd::Borrowed(fd) => fd.as_raw_fd(),
            RingFd::Shared(fd) => {
                let number = fd.as_raw_fd();
                if !self.kept.iter().any(|kept| Arc::ptr_eq(kept, &fd)) {
                    self.kept.push(fd);
                }
                number
            }
        }
    }

    /// Pushes all entries or none.
    fn push(&mut self, entries: &[Entry]) -> Result<(), Errno> {
        // SAFETY: each entry's buffer is a part of `area`: `check` has checked its bounds, and Drop
        // keeps it until the kernel no longer uses it. Each fd lives for 'fd, which outlives self,
        // or is in `kept`.
        unsafe { self.ring.submission().push_multiple(entries) }.map_err(|_| Errno::BUSY)?;
        self.pushed += entries.len();
        Ok(())
    }
}

impl Drop for Uring<'_> {
    fn drop(&mut self) {
        // Queued entries are not submitted now, because a dropped ring must write nothing more.
        let queued = self.ring.submission().len();
        while self.reap() {}
        if self.pushed > queued {
            // Cancelling needs Linux 6.0. On older kernels, the loop below waits until the
            // operations end by themselves. ENOENT means that all are complete.
            while self.cancel_all() == Err(Errno::INTR) {}
        }
        while self.pushed > queued {
            match self.raw_enter(0, 1) {
                Ok(_) | Err(Errno::INTR | Errno::TIME) => while self.reap() {},
                Err(_) => return self.area.leak(),
            }
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
