//! A Unix stream socket through io_uring with registered buffers. The kernel transfers one buffer
//! while this process fills the next. Needs two more copies than a plain send, and exists only for
//! measurements.

use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{
    Errno, io,
    uring::{CURRENT, Uring},
};

use super::unix_stream;
use crate::bulk::control::{BulkControl, Note, Say};
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::bulk::stream;
use crate::shared::liveness::Gone;
use crate::shared::stop::{WaitStop, unfit};

/// Moves bytes by reads and writes of a socket through io_uring.
pub struct IoUringMechanism;

static INFO: Info = Info {
    name: "io-uring",
    summary: "a unix stream socket by io_uring with registered buffers",
    calls: &["io_uring_enter", "IORING_OP_READ", "IORING_OP_WRITE"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        unix_stream::SEND_BUFFER,
        Knob {
            name: "piece",
            summary: "bytes of one operation",
            unit: Unit::Bytes,
            values: &[256 << 10, 1 << 20],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

/// Two buffers: the kernel transfers one while this process uses the other.
const SLOTS: u32 = 2;
/// Maximum size of a buffer in bytes. The limit is needed because buffers are locked in memory and
/// the peer chooses their size.
const MOST: usize = 16 << 20;
const ALIGN: usize = 4096;

struct UringEnd {
    ring: Uring<'static>,
    socket: Arc<OwnedFd>,
    piece: usize,
}

impl UringEnd {
    fn new(socket: OwnedFd, tuning: &Tuning) -> Result<Self, Unfit> {
        let piece = INFO.length(tuning, "piece").unwrap_or(ALIGN);
        if piece > MOST {
            return Err(Unfit::because(format!(
                "piece={piece} is too large: at most {MOST} bytes"
            )));
        }
        let ring = Uring::new(SLOTS, piece, ALIGN).map_err(|e| unfit("io_uring_setup", e))?;
        Ok(Self { ring, socket: Arc::new(socket), piece })
    }

    /// Waits for the operation in flight and returns its byte count.
    fn finish(&mut self, control: &mut BulkControl) -> Result<usize, WaitStop> {
        let mut silent = control.is_timed();
        loop {
            if silent {
                // Check the peer before polling, because the peer may write its data and die
                // between the two checks.
                let going = control.check();
                let news = io::wait_readable(self.ring.as_fd(), Some(Duration::ZERO));
                if !news.map_err(|errno| WaitStop::refused("poll", errno))? {
                    going?;
                    control.await_ready(self.ring.as_fd(), PollFlags::IN)?;
                    continue;
                }
            }
            match self.ring.wait() {
                Ok(done) => {
                    return done
                        .result
                        .map(|count| count as usize)
                        .map_err(|errno| WaitStop::refused("io_uring", errno));
                }
                // A signal arrived, or nothing completed for a while. From now on, also check if
                // the peer lives.
                Err(Errno::INTR) => silent = true,
                Err(errno) => return Err(WaitStop::refused("io_uring_enter", errno)),
            }
        }
    }

    /// Submits the queued operation.
    fn submit(&mut self) -> Result<(), WaitStop> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(WaitStop::refused("io_uring_enter", errno)),
            }
        }
    }

    fn write(&mut self, slot: u32, from: usize, to: usize) -> Result<(), WaitStop> {
        let socket = Arc::clone(&self.socket);
        let queued = self.ring.write(slot, socket, CURRENT, from..to);
        queued.map_err(|errno| WaitStop::refused("IORING_OP_WRITE", errno))?;
        self.submit()
    }

    /// Waits until the socket has taken all `len` bytes of a slot.
    fn settle(&mut self, slot: u32, len: usize, control: &mut BulkControl) -> Result<(), WaitStop> {
        let mut put = 0;
        loop {
            match self.finish(control)? {
                0 => return Err(WaitStop::refused("IORING_OP_WRITE", Errno::PIPE)),
                count => put += count,
            }
            if put >= len {
                return Ok(());
            }
            self.write(slot, put, len)?;
        }
    }

    fn read(&mut self, slot: u32, len: usize) -> Result<(), WaitStop> {
        let socket = Arc::clone(&self.socket);
        let queued = self.ring.read(slot, socket, CURRENT, len);
        queued.map_err(|errno| WaitStop::refused("IORING_OP_READ", errno))?;
        self.submit()
    }
}

impl Mechanism for IoUringMechanism {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        Uring::new(1, ALIGN, ALIGN).map(drop).map_err(|errno| unfit("io_uring_setup", errno))
    }

    fn offer(&self, tuning: &Tuning, _: &TransferEnds) -> OfferResult {
        let (near, far) = unix_stream::pair(&INFO, tuning, false)?;
        Ok((Box::new(UringSender(UringEnd::new(near, tuning)?)), Parcel::of(&[], vec![far])))
    }

    fn accept(&self, tuning: &Tuning, mut parcel: Parcel, _: &TransferEnds) -> AcceptResult {
        let end = UringEnd::new(parcel.fd()?, tuning)?;
        Ok((Box::new(UringReceiver(end)), Parcel::default()))
    }
}

struct UringSender(UringEnd);

struct UringReceiver(UringEnd);

impl Outgoing for UringSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let end = &mut self.0;
        control.watch_with(&end.socket);
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
        match end.write_all(bytes, control) {
            Err(WaitStop::Refused(why))
                if matches!(why.errno, Some(Errno::PIPE | Errno::CONNRESET)) =>
            {
                Err(stream::deserted(control))
            }
            Err(stop) => Err(stop),
            Ok(()) => control.expect(Say::Done).map(drop),
        }
    }
}

impl UringEnd {
    fn write_all(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let mut under_way = None;
        for (n, piece) in bytes.chunks(self.piece).enumerate() {
            let slot = n as u32 % SLOTS;
            let busy = || WaitStop::refused("io_uring", Errno::BUSY);
            let buffer = self.ring.buffer_mut(slot).ok_or_else(busy)?;
            buffer[..piece.len()].copy_from_slice(piece);
            // Never have two writes in flight: on a stream, one could overtake the other.
            if let Some((slot, len)) = under_way.take() {
                self.settle(slot, len, control)?;
            }
            self.write(slot, 0, piece.len())?;
            under_way = Some((slot, piece.len()));
        }
        under_way.map_or(Ok(()), |(slot, len)| self.settle(slot, len, control))
    }
}

impl Incoming for UringReceiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        let end = &mut self.0;
        control.watch_with(&end.socket);
        let (mut filled, mut slot) = (0, 0);
        end.read(slot, end.piece.min(into.len()))?;
        while filled < into.len() {
            let broken = |stop| Broken { delivered: filled as u64, stop };
            let count = end.finish(control).map_err(broken)?.min(into.len() - filled);
            if count == 0 {
                return Err(broken(WaitStop::Gone(Gone::Died)));
            }
            let rest = into.len() - filled - count;
            if rest > 0 {
                end.read(1 - slot, end.piece.min(rest)).map_err(broken)?;
            }
            let buffer = end.ring.buffer(slot).unwrap_or_default();
            let got = buffer.get(..count);
            let got = got.ok_or_else(|| broken(WaitStop::refused("io_uring", Errno::BUSY)))?;
            into[filled..filled + count].copy_from_slice(got);
            filled += count;
            slot = 1 - slot;
        }
        Ok(())
    }
}
