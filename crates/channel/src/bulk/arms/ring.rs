//! Pipelined slots in shared memory: the sender fills one while the receiver empties another, so
//! both cores copy at once and the first copy stays in the cache. Two copies.

use rustix::fd::OwnedFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::memfd;
use thalweg_sys::region::{Region, SealFlags, Sharing, is_sealed};

use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::control::{Control, Note, Say};
use crate::bulk::joint::NAME;
use crate::bulk::memory::{Stores, copy_in, copy_out};
use crate::error::Error;
use crate::shared::stop::{Stop, unfit};
use crate::shared::wait::steps;

/// A ring of slots.
pub struct Ring;

static INFO: Info = Info {
    name: "ring",
    summary: "copy through a few slots of shared memory, both processes at once",
    calls: &["memfd_create", "futex"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        Knob {
            name: "slot",
            summary: "bytes of a slot",
            unit: Unit::Bytes,
            values: &[256 << 10, 16 << 10, 64 << 10, 1 << 20],
        },
        Knob { name: "slots", summary: "slots of the ring", unit: Unit::Count, values: &[4, 2, 8] },
        Knob {
            name: "stream",
            summary: "whether to store past the caches on the way out",
            unit: Unit::Count,
            values: &[1, 0],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

/// The most memory a peer can make us map.
const MOST: u64 = 1 << 30;

/// The ring as one side sees it. What is filled and emptied is counted in the words that the sides
/// share (`Words::slots`); the sender alone writes the slots.
struct Slots {
    region: Region,
    slot: usize,
    number: u64,
    /// Slots that this side is done with since the beginning.
    count: u64,
}

impl Slots {
    /// The place of slot number `n`.
    fn place(&self, n: u64) -> *mut u8 {
        let at = (n % self.number) as usize * self.slot;
        // SAFETY: the region has number * slot bytes, and n % number < number.
        unsafe { self.region.as_ptr().add(at) }
    }
}

struct Sender(Slots);

struct Receiver {
    slots: Slots,
    stores: Stores,
}

/// The sizes that a tuning asks for.
struct Size {
    slot: usize,
    number: u64,
    /// Of the whole ring.
    bytes: usize,
}

impl Size {
    fn of(tuning: &Tuning) -> Result<Self, Unfit> {
        let (slot, number) = (INFO.knob(tuning, "slot"), INFO.knob(tuning, "slots"));
        let bytes = slot.checked_mul(number).filter(|bytes| (1..=MOST).contains(bytes));
        let bytes = bytes.ok_or_else(|| {
            let why = format!("{number} slots of {slot} bytes are no ring (at most {MOST} bytes)");
            Unfit::because(why)
        })?;
        Ok(Self { slot: slot as usize, number, bytes: bytes as usize })
    }

    fn slots(&self, region: Region) -> Slots {
        Slots { region, slot: self.slot, number: self.number, count: 0 }
    }
}

/// Memory that this process alone can write, and the descriptor to hand over.
fn made(bytes: usize) -> Result<(Region, OwnedFd), Unfit> {
    let fd = memfd::create(NAME, bytes as u64).map_err(|errno| unfit("memfd_create", errno))?;
    let region = Region::of_file(&fd, bytes, Sharing::Write).map_err(|e| unfit("mmap", e))?;
    memfd::seal_for_one_writer(&fd).map_err(|errno| unfit("F_ADD_SEALS", errno))?;
    Ok((region, fd))
}

/// The sender's memory, to be read.
fn taken(fd: &OwnedFd, bytes: usize) -> Result<Region, Unfit> {
    // Holes would be filled at our expense, all of them at once by `populate`.
    if !is_sealed(fd, SealFlags::SHRINK, bytes as u64) || !memfd::is_whole(fd) {
        return Err(Unfit::because("the sender's memory may shrink, or is not there"));
    }
    Region::of_file(fd, bytes, Sharing::Read).map_err(|errno| unfit("mmap", errno))
}

impl Arm for Ring {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        made(1).map(drop)
    }

    fn offer(&self, tuning: &Tuning, ends: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        ends.shares.clone()?;
        let size = Size::of(tuning)?;
        let (region, fd) = made(size.bytes)?;
        // It only saves faults.
        let _ = region.populate();
        Ok((Box::new(Sender(size.slots(region))), Parcel::of(&[], vec![fd])))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        ends: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        ends.shares.clone()?;
        let size = Size::of(tuning)?;
        let region = taken(&parcel.fd()?, size.bytes)?;
        // It only saves faults.
        let _ = region.populate();
        let stores = Stores::of(INFO.knob(tuning, "stream"));
        Ok((Box::new(Receiver { slots: size.slots(region), stores }), Parcel::default()))
    }
}

impl Outgoing for Sender {
    fn send(&mut self, bytes: &[u8], control: &mut Control) -> Result<(), Stop> {
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
        let ring = &mut self.0;
        for piece in bytes.chunks(ring.slot) {
            control.wait(|theirs| {
                // The receiver has read a slot before it counts it as emptied.
                match ring.count.checked_sub(steps::seen(&theirs.slots.0)) {
                    Some(full) if full < ring.number => Ok(Some(())),
                    Some(full) if full == ring.number => Ok(None),
                    _ => Err(Error::corrupt("a count of slots that cannot be")),
                }
            })?;
            // SAFETY: the slot has room for a chunk, and the receiver is done with it: it said so.
            // One that lied sees other bytes, no more.
            unsafe { copy_in(ring.place(ring.count), piece) };
            ring.count += 1;
            control.publish_slots(ring.count, false);
        }
        control.expect(Say::Done).map(drop)
    }
}

impl Incoming for Receiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut Control) -> Result<(), Broken> {
        let ring = &mut self.slots;
        let (mut delivered, end) = (0, ring.count + into.len().div_ceil(ring.slot) as u64);
        for piece in into.chunks_mut(ring.slot) {
            let found = control.wait(|theirs| {
                // The sender has written a slot before it counts it as filled.
                match steps::seen(&theirs.slots.0).checked_sub(ring.count) {
                    Some(0) => Ok(None),
                    Some(full) if full <= ring.number => Ok(Some(())),
                    _ => Err(Error::corrupt("a count of slots that cannot be")),
                }
            });
            found.map_err(|stop| Broken { delivered, stop })?;
            // SAFETY: the slot is mapped and as long as a chunk. Only a sender that breaks the
            // protocol writes there now; then the bytes are wrong, which is its own loss.
            unsafe { copy_out(piece, ring.place(ring.count), self.stores) };
            ring.count += 1;
            // The sender waits for a slot only while it has more pieces than fit; for the last
            // ones it waits for a note.
            control.publish_slots(ring.count, ring.count + ring.number > end);
            delivered += piece.len() as u64;
        }
        Ok(())
    }
}
