//! Pipelined slots in shared memory: the sender fills one slot while the receiver empties another. Both cores copy
//! simultaneously, and the data of the first copy is still in the cache at the second. Each byte is copied twice.

use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::param::page_size;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::memfd;
use thalweg_sys::region::{Region, SealFlags, Sharing, is_sealed, seal};

use crate::bulk::control::{BulkControl, Note, Say};
use crate::bulk::joint::NAME;
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::bulk::memory::{STREAM, Stores, copy_in, copy_out};
use crate::error::Error;
use crate::shared::stop::{WaitStop, unfit};
use crate::shared::wait::steps;

/// Moves a buffer through a ring of slots in shared memory.
pub struct RingMechanism;

static INFO: Info = Info {
    name: "ring",
    summary: "copy through slots of shared memory, both processes at once",
    calls: &["memfd_create", "futex"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        Knob {
            name: "slot",
            summary: "maximum bytes of a slot; a buffer that fits the ring is divided among all slots",
            unit: Unit::Bytes,
            values: &[256 << 10, 16 << 10, 64 << 10, 1 << 20],
        },
        // The default is seven, so that the ring and all other shared memory stay below 2 MiB.
        Knob {
            name: "slots",
            summary: "slots of the ring",
            unit: Unit::Count,
            values: &[7, 4, 2, 8],
        },
        STREAM,
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

/// Flag in the first word of the receiver's parcel: the receiver reads the number of bytes per slot from the Begin
/// note.
const SHARES: u64 = 1;

/// Maximum memory, in bytes, that a peer can make us map.
const MOST: u64 = 1 << 30;

/// The ring, as seen by one side. The words [`SideWords::slots`](crate::layout::SideWords) count the filled and the
/// emptied slots. Only the sender writes to the slots.
struct Slots {
    region: Region,
    slot: usize,
    number: u64,
    /// Number of slots that this side has filled or emptied since the beginning.
    count: u64,
}

impl Slots {
    /// Returns the share, which is the number of bytes per slot, for a buffer of `len` bytes. The buffer is divided
    /// among all slots, so that both sides copy simultaneously. Small shares stay in a fast cache.
    fn share(&self, len: usize) -> usize {
        let page = page_size();
        len.div_ceil(self.number as usize).next_multiple_of(page).min(self.slot)
    }

    /// Returns the share that the sender announced, after a check. A sender that fills every slot announces 0.
    fn told(&self, share: u64) -> Result<usize, WaitStop> {
        match share {
            0 => Ok(self.slot),
            share if share <= self.slot as u64 => Ok(share as usize),
            _ => Err(WaitStop::corrupt("the sender announced more bytes than fit into a slot")),
        }
    }

    /// Returns the address of a piece of at most `share` bytes in slot number `n`. In each round of the ring, a piece
    /// goes to the next part of its slot. It therefore overwrites the bytes that were read longest ago, which have left
    /// the reader's caches.
    fn place(&self, n: u64, share: usize) -> *mut u8 {
        let (slot, round) = (n % self.number, n / self.number);
        let within = round % (self.slot / share) as u64;
        let at = slot as usize * self.slot + within as usize * share;
        // SAFETY: The region has `number * slot` bytes; the slot index is below `number`, and
        // `(within + 1) * share <= slot`.
        unsafe { self.region.as_ptr().add(at) }
    }
}

struct SlotSender {
    slots: Slots,
    /// Number of slots known to be emptied. The receiver's count is read only if these slots are not enough, because
    /// reading it fetches a cache line from the receiver's processor.
    emptied: u64,
    /// The memory file; `None` after it was sealed against other writers.
    file: Option<OwnedFd>,
    /// `true` if the receiver accepts slots that are filled only in part.
    shares: bool,
}

struct SlotReceiver {
    slots: Slots,
    stream: u64,
}

/// The sizes of a ring, as a tuning requests them.
struct SlotSize {
    slot: usize,
    number: u64,
    /// Size of the whole ring in bytes.
    bytes: usize,
}

impl SlotSize {
    fn of(tuning: &Tuning) -> Result<Self, Unfit> {
        let (slot, number) = (INFO.knob(tuning, "slot"), INFO.knob(tuning, "slots"));
        let bytes = slot.checked_mul(number).filter(|bytes| (1..=MOST).contains(bytes));
        let bytes = bytes.ok_or_else(|| {
            let why =
                format!("invalid ring of {number} slots of {slot} bytes (at most {MOST} bytes)");
            Unfit::because(why)
        })?;
        Ok(Self { slot: slot as usize, number, bytes: bytes as usize })
    }

    fn slots(&self, region: Region) -> Slots {
        Slots { region, slot: self.slot, number: self.number, count: 0 }
    }
}

/// Creates memory of a fixed size. Also returns its descriptor.
fn made(bytes: usize) -> Result<(Region, OwnedFd), Unfit> {
    let fd =
        memfd::create(NAME, bytes as u64).map_err(|failed| unfit(failed.call, failed.errno))?;
    let region = Region::of_file(&fd, bytes, Sharing::Write).map_err(|e| unfit("mmap", e))?;
    seal(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(|errno| unfit("F_ADD_SEALS", errno))?;
    Ok((region, fd))
}

/// Seals the file. Afterwards no process can remove its pages, and only processes that have already mapped it can
/// write.
fn seal_mapped(fd: &OwnedFd) -> Result<(), Unfit> {
    memfd::seal_for_one_writer(fd).map_err(|errno| unfit("F_ADD_SEALS", errno))?;
    // The receiver could punch holes before the file was sealed. Their pages would be charged to this process.
    if memfd::is_whole(fd) {
        Ok(())
    } else {
        Err(Unfit::because("the receiver punched holes into the shared memory"))
    }
}

/// Maps the sender's memory. This process only reads it, but maps it writable if the sender allows that: some
/// processors (AMD Zen 4) then fetch lines faster that another core has written. A receiver that writes there harms
/// only itself, because the sender never reads this memory.
fn taken(fd: &OwnedFd, bytes: usize) -> Result<Region, Unfit> {
    // Reject holes, because `populate` would allocate all their pages at once, charged to this process.
    if !is_sealed(fd, SealFlags::SHRINK, bytes as u64) || !memfd::is_whole(fd) {
        return Err(Unfit::because("the sender's memory could shrink, or has unallocated pages"));
    }
    let region = Region::of_file(fd, bytes, Sharing::Write);
    let region = region.or_else(|_| Region::of_file(fd, bytes, Sharing::Read));
    region.map_err(|errno| unfit("mmap", errno))
}

impl Mechanism for RingMechanism {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        seal_mapped(&made(1)?.1)
    }

    fn offer(&self, tuning: &Tuning, ends: &TransferEnds) -> OfferResult {
        ends.shares.clone()?;
        let size = SlotSize::of(tuning)?;
        let (region, fd) = made(size.bytes)?;
        // Errors are ignored, because this call only avoids page faults.
        let _ = region.populate();
        let kept = fcntl_dupfd_cloexec(&fd, 0).map_err(|errno| unfit("F_DUPFD_CLOEXEC", errno))?;
        let slots = size.slots(region);
        let sender = SlotSender { slots, emptied: 0, file: Some(kept), shares: false };
        Ok((Box::new(sender), Parcel::of(&[], vec![fd])))
    }

    fn accept(&self, tuning: &Tuning, mut parcel: Parcel, ends: &TransferEnds) -> AcceptResult {
        ends.shares.clone()?;
        let size = SlotSize::of(tuning)?;
        let region = taken(&parcel.fd()?, size.bytes)?;
        // Errors are ignored, because this call only avoids page faults.
        let _ = region.populate();
        let stream = INFO.knob(tuning, STREAM.name);
        let receiver = SlotReceiver { slots: size.slots(region), stream };
        Ok((Box::new(receiver), Parcel::of(&[SHARES], Vec::new())))
    }
}

impl Outgoing for SlotSender {
    fn agreed(&mut self, parcel: Parcel, _: &TransferEnds) -> Result<(), Unfit> {
        self.shares = parcel.word(0) & SHARES != 0;
        self.file.take().map_or(Ok(()), |fd| seal_mapped(&fd))
    }

    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let share = if self.shares { self.slots.share(bytes.len()) } else { self.slots.slot };
        let begin = Note::new(Say::Begin, &[bytes.len() as u64, share as u64]);
        if control.has_free_core() {
            control.tell(begin)?;
        } else {
            // Both sides share one processor. Do not wake the receiver before the first slot is full, because it could
            // only wait and delay this process.
            control.tell_quietly(begin)?;
        }
        let ring = &mut self.slots;
        for piece in bytes.chunks(share) {
            if ring.count - self.emptied == ring.number {
                self.emptied = control.wait(|theirs| {
                    // The receiver counts a slot as emptied only after it has read the slot.
                    let emptied = steps::seen(&theirs.slots.0);
                    match ring.count.checked_sub(emptied) {
                        Some(full) if full < ring.number => Ok(Some(emptied)),
                        Some(full) if full == ring.number => Ok(None),
                        _ => Err(Error::corrupt("the peer's slot counter is out of range")),
                    }
                })?;
            }
            // SAFETY: The slot has room for a piece, and the receiver has reported that it has emptied the slot. If it
            // reported this too early, only its own bytes are wrong.
            unsafe { copy_in(ring.place(ring.count, share), piece) };
            ring.count += 1;
            control.publish_slots(ring.count, false);
        }
        control.expect(Say::Done)?;
        self.emptied = ring.count;
        Ok(())
    }
}

impl Incoming for SlotReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        let ring = &mut self.slots;
        let share = ring.told(begin.words[1])?;
        let stores = Stores::of(self.stream, into.len());
        let (mut delivered, end) = (0, ring.count + into.len().div_ceil(share) as u64);
        for piece in into.chunks_mut(share) {
            let found = control.wait(|theirs| {
                // The sender counts a slot as filled only after it has written the slot.
                match steps::seen(&theirs.slots.0).checked_sub(ring.count) {
                    Some(0) => Ok(None),
                    Some(full) if full <= ring.number => Ok(Some(())),
                    _ => Err(Error::corrupt("the peer's slot counter is out of range")),
                }
            });
            found.map_err(|stop| Broken { delivered, stop })?;
            // SAFETY: The slot is mapped and has room for a piece. Only a sender that violates the protocol writes
            // there now. Then the bytes are wrong, which harms only that sender's data.
            unsafe { copy_out(piece, ring.place(ring.count, share), stores) };
            ring.count += 1;
            // The sender waits for an empty slot only while more pieces remain than the ring has slots. After that it
            // waits for the Done note, so the last slots need no wake-up.
            control.publish_slots(ring.count, ring.count + ring.number > end);
            delivered += piece.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use thalweg_sys::Errno;

    #[test]
    fn every_piece_lies_within_the_slot_whose_turn_it_is() {
        let (slot, number) = (4 * page_size(), 3);
        let (region, _fd) = made(3 * slot).unwrap();
        let slots = Slots { region, slot, number, count: 0 };
        for share in [1, page_size(), page_size() + 1, slot] {
            for n in 0..40 {
                let at = slots.place(n, share) as usize - slots.region.as_ptr() as usize;
                assert_eq!(at / slot, (n % number) as usize, "{share} {n}");
                assert!(at % slot + share <= slot, "{share} {n}");
            }
        }
        assert_eq!((slots.told(0).unwrap(), slots.told(1).unwrap()), (slot, 1));
        assert!(slots.told(slot as u64 + 1).is_err() && slots.told(u64::MAX).is_err());
        for len in [1, slot, 3 * slot - 1, 3 * slot, 100 * slot] {
            let share = slots.share(len);
            assert!((1..=slot).contains(&share) && (share == slot || 3 * share >= len), "{len}");
        }
    }

    #[test]
    fn memory_that_both_have_mapped_gets_no_other_writer_and_keeps_its_pages() {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (_mine, fd) = made(8192).unwrap();
        assert!(taken(&fd, 8192).unwrap().is_writable());
        seal_mapped(&fd).unwrap();
        assert!(!taken(&fd, 8192).unwrap().is_writable(), "the peer of an older sender reads");
        assert_eq!(fallocate(&fd, hole, 0, 4096), Err(Errno::PERM));
        let (_mine, fd) = made(8192).unwrap();
        fallocate(&fd, hole, 0, 4096).unwrap();
        assert!(seal_mapped(&fd).is_err());
    }
}
