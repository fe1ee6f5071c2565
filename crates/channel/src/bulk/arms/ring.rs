//! Pipelined slots in shared memory: the sender fills one while the receiver empties another, so
//! both cores copy at once and the first copy stays in the cache. Two copies, one page of words.

use std::sync::atomic::Ordering;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};

use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::memory::{Stores, copy_in, copy_out};
use crate::bulk::page::{PAGE, Page};
use crate::bulk::talk::{Note, Say, Stop, Talk, unfit};

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

// Words of the first page, each side's on lines of its own.
const FILLED: usize = 0;
const ON_FILLED: usize = 128;
const EMPTIED: usize = 2048;
const ON_EMPTIED: usize = 2048 + 128;

/// The ring as one side sees it. Its own counter is kept here: the shared one is for the other.
struct Slots {
    page: Page,
    slot: usize,
    number: u64,
    count: u64,
}

impl Slots {
    /// The place of slot number `n`.
    fn place(&self, n: u64) -> *mut u8 {
        let at = PAGE + (n % self.number) as usize * self.slot;
        // SAFETY: the page has PAGE + slots * slot bytes, and n % number < number.
        unsafe { self.page.as_ptr().add(at) }
    }
}

struct Sender(Slots);

struct Receiver {
    slots: Slots,
    stores: Stores,
}

/// Bytes of the whole ring, if that is a size anybody wants.
fn size(slot: u64, slots: u64) -> Result<usize, Unfit> {
    let bytes = slot.checked_mul(slots).filter(|bytes| (1..=MOST).contains(bytes));
    let bytes = bytes.ok_or_else(|| {
        Unfit::because(format!("{slots} slots of {slot} bytes are no ring (at most {MOST} bytes)"))
    })?;
    Ok(PAGE + bytes as usize)
}

impl Arm for Ring {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        Page::create(PAGE).map(drop).map_err(|errno| unfit("memfd_create", errno))
    }

    fn offer(&self, tuning: &Tuning, _: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        let (slot, slots) = (INFO.knob(tuning, "slot"), INFO.knob(tuning, "slots"));
        let (page, fd) =
            Page::create(size(slot, slots)?).map_err(|errno| unfit("memfd_create", errno))?;
        page.populate();
        let slots = Slots { page, slot: slot as usize, number: slots, count: 0 };
        Ok((Box::new(Sender(slots)), Parcel::of(&[], vec![fd])))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        _: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        let (slot, slots) = (INFO.knob(tuning, "slot"), INFO.knob(tuning, "slots"));
        let page = Page::adopt(parcel.fd()?, size(slot, slots)?)
            .map_err(|errno| unfit("mapping the sender's memory", errno))?;
        page.populate();
        let slots = Slots { page, slot: slot as usize, number: slots, count: 0 };
        let stores = Stores::of(INFO.knob(tuning, "stream"));
        Ok((Box::new(Receiver { slots, stores }), Parcel::default()))
    }
}

impl Outgoing for Sender {
    fn send(&mut self, bytes: &[u8], talk: &mut Talk) -> Result<(), Stop> {
        talk.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
        let ring = &mut self.0;
        for piece in bytes.chunks(ring.slot) {
            let emptied = ring.page.u64(EMPTIED);
            // PAIRS WITH: the receiver's Release: it has read the slot before we fill it again.
            let is_free = || {
                let behind = ring.count.wrapping_sub(emptied.load(Ordering::Acquire));
                (behind < ring.number).then_some(())
            };
            talk.wait(ring.page.event(ON_EMPTIED), is_free)?;
            // SAFETY: the slot has room for a chunk, and the receiver is done with it: it said so.
            // One that lied sees other bytes, no more.
            unsafe { copy_in(ring.place(ring.count), piece) };
            ring.count = ring.count.wrapping_add(1);
            ring.page.u64(FILLED).store(ring.count, Ordering::Release);
            ring.page.event(ON_FILLED).notify();
        }
        talk.expect(Say::Done).map(drop)
    }
}

impl Incoming for Receiver {
    fn receive(&mut self, _: Note, into: &mut [u8], talk: &mut Talk) -> Result<(), Broken> {
        let ring = &mut self.slots;
        let mut delivered = 0;
        for piece in into.chunks_mut(ring.slot) {
            let filled = ring.page.u64(FILLED);
            // PAIRS WITH: the sender's Release: the bytes are there before the count says so.
            let is_there = || (filled.load(Ordering::Acquire) != ring.count).then_some(());
            talk.wait(ring.page.event(ON_FILLED), is_there)
                .map_err(|stop| Broken { delivered, stop })?;
            // SAFETY: the slot is mapped and as long as a chunk. Only a sender that breaks the
            // protocol writes there now; then the bytes are wrong, which is its own loss.
            unsafe { copy_out(piece, ring.place(ring.count), self.stores) };
            ring.count = ring.count.wrapping_add(1);
            ring.page.u64(EMPTIED).store(ring.count, Ordering::Release);
            ring.page.event(ON_EMPTIED).notify();
            delivered += piece.len() as u64;
        }
        Ok(())
    }
}
