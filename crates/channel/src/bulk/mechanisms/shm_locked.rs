//! The common method: copy the buffer into shared memory under a lock, unlock, and let the other process copy the
//! buffer out under the lock. One side waits while the other copies. The shared memory is as large as the buffer,
//! unless the buffer is split into chunks.
//!
//! The lock is robust: if its owner dies, the other side takes it over. The lock contains no pointers, so a hostile
//! peer can corrupt the bytes but not this process.

use rustix::fd::AsFd;
use std::sync::atomic::Ordering;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};

use crate::bulk::control::{BulkControl, Note, ReceivedControl, Say};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::joint::{Joint, PAGE};
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::bulk::memory::{Stores, copy_in, copy_out};
use crate::shared::stop::{WaitStop, unfit};

/// Copies whole buffers into and out of shared memory, under a lock.
pub struct ShmLocked;

static INFO: Info = Info {
    name: "shm-locked",
    summary: "copy into shared memory and out of it under one lock",
    calls: &["memfd_create", "futex"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        Knob {
            name: "chunk",
            summary: "bytes copied per turn, 0 for the whole buffer",
            unit: Unit::Bytes,
            values: &[0, 256 << 10, 16 << 20],
        },
        Knob {
            name: "fresh",
            summary: "1 to create new shared memory for every buffer",
            unit: Unit::Count,
            values: &[0, 1],
        },
    ],
    role: Role::OnRequest("--method, because it exists for studies"),
    nature: Nature::PLAIN,
};

const LOCK: usize = 0;
const TURN: usize = 256;
/// Values of the words at TURN (the side that may copy next) and at LOCK (the side that holds the lock).
const SENDER: u32 = 1;
const RECEIVER: u32 = 2;
const NOBODY: u32 = 0;

/// Shared memory. The words at `LOCK` and `TURN` are on the first page, and the data follows.
struct ShmState {
    page: Joint,
    room: usize,
}

struct ShmSender {
    chunk: Option<usize>,
    fresh: bool,
    shared: Option<ShmState>,
}

struct ShmReceiver {
    chunk: Option<usize>,
    shared: Option<ShmState>,
}

impl Mechanism for ShmLocked {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        Joint::create(PAGE).map(drop).map_err(|failed| unfit(failed.call, failed.errno))
    }

    fn offer(&self, tuning: &Tuning, ends: &TransferEnds) -> OfferResult {
        ends.shares.clone()?;
        let chunk = INFO.length(tuning, "chunk");
        self.probe()?;
        let sender = ShmSender { chunk, fresh: INFO.knob(tuning, "fresh") > 0, shared: None };
        Ok((Box::new(sender), Parcel::default()))
    }

    fn accept(&self, tuning: &Tuning, _: Parcel, ends: &TransferEnds) -> AcceptResult {
        ends.shares.clone()?;
        let receiver = ShmReceiver { chunk: INFO.length(tuning, "chunk"), shared: None };
        Ok((Box::new(receiver), Parcel::default()))
    }
}

impl ShmState {
    fn data(&self) -> *mut u8 {
        // SAFETY: The mapping has `PAGE + room` bytes.
        unsafe { self.page.as_ptr().add(PAGE) }
    }

    /// Waits for our turn and takes the lock. If the owner of the lock has died, takes over the lock.
    fn enter(&self, me: u32, control: &mut BulkControl) -> Result<(), WaitStop> {
        let turn = self.page.u32(TURN);
        // PAIRS WITH: `leave`. Everything that the other side copied before it passed the turn is visible.
        control.wait(|_| Ok((turn.load(Ordering::Acquire) == me).then_some(())))?;
        let lock = self.page.u32(LOCK);
        let take = || {
            let free = lock.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Acquire);
            free.is_ok().then_some(())
        };
        match control.wait(|_| Ok(take())) {
            // The peer passed the turn and then died before it released the lock. Its copy is complete, because a side
            // passes the turn only after its copy.
            Err(WaitStop::Gone(_)) => {
                lock.store(me, Ordering::Release);
                Ok(())
            }
            answer => answer,
        }
    }

    fn leave(&self, next: u32, control: &mut BulkControl) {
        self.page.u32(TURN).store(next, Ordering::Release);
        self.page.u32(LOCK).store(NOBODY, Ordering::Release);
        control.announce();
    }
}

impl ShmSender {
    /// Provides shared memory for at least `room` bytes of data. If the memory is new, announces it to the receiver and
    /// also returns `true`.
    fn prepare(
        &mut self,
        room: usize,
        control: &mut BulkControl,
    ) -> Result<(ShmState, bool), WaitStop> {
        let old = self.shared.take().filter(|shared| shared.room >= room && !self.fresh);
        if let Some(shared) = old {
            return Ok((shared, false));
        }
        let len = PAGE.checked_add(room).ok_or_else(|| {
            WaitStop::Refused(Unfit::because("the buffer is larger than the address space"))
        })?;
        let made = Joint::create(len);
        let (page, fd) = made.map_err(|failed| WaitStop::refused(failed.call, failed.errno))?;
        page.u32(TURN).store(SENDER, Ordering::Release);
        let packet = ControlMessage::new(ControlKind::Memory).words(&[len as u64]);
        control.send(&packet, &[fd.as_fd()])?;
        Ok((ShmState { page, room }, true))
    }
}

impl Outgoing for ShmSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let room = self.chunk.unwrap_or(bytes.len()).min(bytes.len());
        let (shared, is_new) = self.prepare(room, control)?;
        let shared = self.shared.insert(shared);
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64, u64::from(is_new)]))?;
        for piece in bytes.chunks(self.chunk.unwrap_or(bytes.len())) {
            shared.enter(SENDER, control)?;
            // SAFETY: The memory has room for a piece, and only the side whose turn it is writes.
            unsafe { copy_in(shared.data(), piece) };
            shared.leave(RECEIVER, control);
        }
        control.expect(Say::Done).map(drop)
    }
}

impl ShmReceiver {
    fn learn(control: &mut BulkControl) -> Result<ShmState, WaitStop> {
        let ReceivedControl { message, mut fds } = control.message()?;
        let len = usize::try_from(message.word(0)).unwrap_or(0);
        if message.kind != ControlKind::Memory || len <= PAGE {
            return Err(WaitStop::corrupt(
                "the peer announced memory but sent no description of it",
            ));
        }
        let fd =
            fds.pop().ok_or_else(|| WaitStop::corrupt("the peer passed no file descriptor"))?;
        let page = Joint::adopt(fd, len).map_err(|errno| WaitStop::refused("mmap", errno))?;
        Ok(ShmState { page, room: len - PAGE })
    }
}

impl Incoming for ShmReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        if begin.words[1] != 0 || self.shared.is_none() {
            self.shared = None;
            self.shared = Some(Self::learn(control)?);
        }
        let chunk = self.chunk.unwrap_or(into.len());
        let shared = self.shared.as_ref().filter(|shared| shared.room >= chunk.min(into.len()));
        let Some(shared) = shared else {
            return Err(
                WaitStop::corrupt("the announced buffer is outside the shared memory").into()
            );
        };
        let mut delivered = 0;
        for piece in into.chunks_mut(chunk) {
            shared.enter(RECEIVER, control).map_err(|stop| Broken { delivered, stop })?;
            // SAFETY: The mapping has room for a piece and cannot shrink, and it is our turn.
            unsafe { copy_out(piece, shared.data(), Stores::Plain) };
            shared.leave(SENDER, control);
            delivered += piece.len() as u64;
        }
        Ok(())
    }
}
