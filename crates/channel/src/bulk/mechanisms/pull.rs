//! The sender writes its data into memory that it can pass to the receiver. The receiver maps that memory and copies
//! once, which takes half the CPU time of two copies. Data in other memory must first be copied into such memory.

use rustix::fd::AsFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Nature, Role, Tuning, Unfit};
use thalweg_sys::memfd;
use thalweg_sys::region::{Region, SealFlags, Sharing, is_sealed};

use crate::bulk::control::{BulkControl, Note, ReceivedControl, Say};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::mechanism::{
    AcceptResult, FillResult, Incoming, LentBack, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::bulk::memory::{Handing, LentRegion, STREAM, Stores, copy_out};
use crate::shared::stop::{WaitStop, unfit};

/// Copies once, in the receiver, out of memory that the sender has lent.
pub struct PullMechanism;

static INFO: Info = Info {
    name: "pull",
    summary: "the receiver copies from the sender's lent memory",
    calls: &["memfd_create", "mmap"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[STREAM],
    role: Role::Mover,
    nature: Nature { wants_loan: true, ..Nature::PLAIN },
};

#[derive(Default)]
struct PullSender {
    /// Ids of the memories that the receiver has mapped.
    told: Vec<u64>,
    /// Buffer into which data that is not in lent memory is copied.
    own: Option<LentRegion>,
}

struct PullReceiver {
    stream: u64,
    known: Vec<(u64, Region)>,
}

/// Number of mappings that a receiver keeps. It drops the oldest one first, and a sender must not rely on more.
const KEPT: usize = 8;

impl Mechanism for PullMechanism {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let lent = LentRegion::shared(1)?;
        let Handing::Shared(fd, _) = &lent.handing else { return Ok(()) };
        Region::of_file(fd, 1, Sharing::Read).map(drop).map_err(|errno| unfit("mmap", errno))
    }

    fn offer(&self, _: &Tuning, _: &TransferEnds) -> OfferResult {
        self.probe()?;
        Ok((Box::new(PullSender::default()), Parcel::default()))
    }

    fn accept(&self, tuning: &Tuning, _: Parcel, _: &TransferEnds) -> AcceptResult {
        let stream = INFO.knob(tuning, STREAM.name);
        Ok((Box::new(PullReceiver { stream, known: Vec::new() }), Parcel::default()))
    }
}

impl PullSender {
    /// Announces a buffer in lent memory. If the receiver has not mapped that memory, first sends its descriptor.
    fn push(
        &mut self,
        lent: &LentRegion,
        len: usize,
        control: &mut BulkControl,
    ) -> Result<(), WaitStop> {
        let Handing::Shared(fd, id) = &lent.handing else {
            return Err(WaitStop::Refused(Unfit::because("this memory cannot be shared")));
        };
        if !self.told.contains(id) {
            let packet = ControlMessage::new(ControlKind::Memory).words(&[*id, lent.len() as u64]);
            control.send(&packet, &[fd.as_fd()])?;
            self.told.push(*id);
            if self.told.len() > KEPT {
                self.told.remove(0);
            }
        }
        control.tell(Note::new(Say::Begin, &[len as u64, *id]))?;
        control.expect(Say::Done).map(drop)
    }
}

impl Outgoing for PullSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let mut lent = match self.own.take().filter(|own| own.len() >= bytes.len()) {
            Some(own) => own,
            None => LentRegion::shared(bytes.len()).map_err(WaitStop::Refused)?,
        };
        lent.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let outcome = self.push(&lent, bytes.len(), control);
        self.own = Some(lent);
        outcome
    }

    fn lend(&mut self, len: usize) -> Option<Result<LentRegion, Unfit>> {
        Some(LentRegion::shared(len))
    }

    fn send_lent(&mut self, lent: LentRegion, control: &mut BulkControl) -> LentBack {
        let outcome = match lent.handing {
            Handing::Shared(..) => self.push(&lent, lent.len(), control),
            _ => self.send(lent.bytes(), control),
        };
        (Some(lent), outcome)
    }
}

impl PullReceiver {
    /// Maps the memory that the sender passed.
    fn learn(&mut self, control: &mut BulkControl) -> Result<u64, WaitStop> {
        let ReceivedControl { message, mut fds } = control.message()?;
        let (id, len) = (message.word(0), message.word(1));
        let fd = fds.pop().filter(|_| message.kind == ControlKind::Memory);
        let fd = fd.ok_or_else(|| {
            WaitStop::corrupt("the peer announced memory but passed no file descriptor")
        })?;
        // Reject holes, because `populate` would allocate all their pages at once, charged to this process.
        if len == 0 || !is_sealed(&fd, SealFlags::SHRINK, len) || !memfd::is_whole(&fd) {
            let what = "the memory that the peer passed could shrink, or has unallocated pages";
            return Err(WaitStop::corrupt(what));
        }
        let len = usize::try_from(len)
            .map_err(|_| WaitStop::corrupt("memory larger than the address space"))?;
        let region = Region::of_file(&fd, len, Sharing::Read);
        let region = region.map_err(|errno| WaitStop::refused("mmap", errno))?;
        // Errors are ignored, because this call only avoids page faults.
        let _ = region.populate();
        if self.known.len() >= KEPT {
            self.known.remove(0);
        }
        self.known.push((id, region));
        Ok(id)
    }
}

impl Incoming for PullReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        let wanted = begin.words[1];
        if !self.known.iter().any(|(id, _)| *id == wanted) && self.learn(control)? != wanted {
            return Err(WaitStop::corrupt("the peer passed memory other than announced").into());
        }
        let region = self.known.iter().find(|(id, _)| *id == wanted).map(|(_, region)| region);
        let region = region.filter(|region| region.len() >= into.len());
        let region = region.ok_or_else(|| {
            WaitStop::corrupt("the announced buffer is outside the shared memory")
        })?;
        let stores = Stores::of(self.stream, into.len());
        // SAFETY: At least `into.len()` bytes are mapped, and the memory is sealed against shrinking. Only the sender
        // can write there, and it waits for our reply.
        unsafe { copy_out(into, region.as_ptr(), stores) };
        Ok(())
    }
}
