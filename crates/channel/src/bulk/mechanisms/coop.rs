//! Both sides copy simultaneously with system calls. The receiver reads pieces from the front and the sender writes
//! pieces from the back, until they meet. This divides the page faults of a fresh destination between two cores. Both
//! sides must trust each other.

use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{Errno, remote};

use super::process_vm::{callable, read_all, readable};
use crate::bulk::control::{BulkControl, Note, Say};
use crate::bulk::joint::{Joint, PAGE};
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    PeerToken, TransferEnds,
};
use crate::shared::stop::{WaitStop, unfit};

/// Copies with `process_vm_readv` in the receiver and `process_vm_writev` in the sender, from opposite ends of the
/// buffer.
pub struct Coop;

static INFO: Info = Info {
    name: "coop",
    summary: "both processes copy through the kernel, from opposite ends, until they meet",
    calls: &["process_vm_readv", "process_vm_writev"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[Knob {
        name: "piece",
        summary: "bytes that each process copies at a time",
        unit: Unit::Bytes,
        values: &[4 << 20, 256 << 10, 1 << 20, 64 << 20],
    }],
    role: Role::Mover,
    nature: Nature { wants_trust: true, ..Nature::PLAIN },
};

/// Offset of the word that counts the pieces taken. Its low half counts pieces from the front, and its high half those
/// from the back.
const TAKEN: usize = 0;

struct CoopSender {
    page: Joint,
    pid: i32,
    piece: usize,
}

struct CoopReceiver {
    page: Joint,
    pid: i32,
    piece: usize,
}

enum CoopSource {
    Front,
    Back,
}

/// Takes the next piece from one end of the buffer. Returns its number, counted from that end, or `None` if all pieces
/// are taken.
fn take(taken: &AtomicU64, pieces: u64, from: &CoopSource) -> Option<u64> {
    let mut now = taken.load(Ordering::Acquire);
    loop {
        let (front, back) = (now & 0xffff_ffff, now >> 32);
        if front + back >= pieces {
            return None;
        }
        let (mine, next) = match from {
            CoopSource::Front => (front, now + 1),
            CoopSource::Back => (back, now + (1 << 32)),
        };
        match taken.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(mine),
            Err(other) => now = other,
        }
    }
}

/// Returns the piece size and the number of pieces for `len` bytes. Enlarges the size if half a word could not count
/// the pieces.
fn piece_for(asked: usize, len: usize) -> (usize, u64) {
    let piece = asked.max(len / (1 << 30) + 1);
    (piece, len.div_ceil(piece) as u64)
}

impl Mechanism for Coop {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        callable()?;
        let (mut place, word) = (0_u64, 7_u64.to_ne_bytes());
        let (pid, at) = (std::process::id() as i32, (&raw mut place) as u64);
        // SAFETY: `place` belongs to this function, and no reference to it exists until the call has returned.
        let answer = unsafe { remote::write(pid, at, &word) };
        answer.map_err(|errno| unfit("process_vm_writev", errno))?;
        Joint::create(PAGE).map(drop).map_err(|failed| unfit(failed.call, failed.errno))
    }

    fn shares_faults(&self, size: Option<u64>) -> bool {
        // Only one side copies a buffer that consists of a single piece.
        size.is_none_or(|size| size > INFO.knob(&Tuning::default(), "piece"))
    }

    fn offer(&self, tuning: &Tuning, ends: &TransferEnds) -> OfferResult {
        ends.trusted.clone()?;
        let (page, fd) = Joint::create(PAGE).map_err(|failed| unfit(failed.call, failed.errno))?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(CoopSender { page, pid: ends.pid, piece }), Parcel::of(&[], vec![fd])))
    }

    fn accept(&self, tuning: &Tuning, mut parcel: Parcel, ends: &TransferEnds) -> AcceptResult {
        readable(ends)?;
        let page = Joint::adopt(parcel.fd()?, PAGE).map_err(|errno| unfit("mmap", errno))?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        let place: &'static PeerToken = ends.own_token;
        let word = place.load(Ordering::Relaxed);
        let parcel = Parcel::of(&[place.as_ptr() as u64, word], Vec::new());
        Ok((Box::new(CoopReceiver { page, pid: ends.pid, piece }), parcel))
    }
}

impl Outgoing for CoopSender {
    fn agreed(&mut self, parcel: Parcel, ends: &TransferEnds) -> Result<(), Unfit> {
        readable(ends)?;
        // Write the word's current value. This changes nothing, but shows that writing is allowed.
        let (at, word) = (parcel.word(0), parcel.word(1));
        // SAFETY: The peer provides this word for such writes, and reads it only as an atomic.
        let answer = unsafe { remote::write(self.pid, at, &word.to_ne_bytes()) };
        answer.map(drop).map_err(|errno| unfit("process_vm_writev", errno))
    }

    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let (piece, pieces) = piece_for(self.piece, bytes.len());
        let taken = self.page.u64(TAKEN);
        taken.store(0, Ordering::Release);
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64, bytes.as_ptr() as u64]))?;
        let to = control.expect(Say::Ready)?.words[0];
        let mut failed = 0;
        while let Some(n) = take(taken, pieces, &CoopSource::Back) {
            let at = (pieces - 1 - n) as usize * piece;
            let part = &bytes[at..bytes.len().min(at + piece)];
            if let Err(errno) = write_all(self.pid, to.wrapping_add(at as u64), part, control) {
                failed = errno.raw_os_error();
                break;
            }
        }
        // Send this note even after a failure: the receiver must know that no process writes to its memory any more.
        control.tell(Note::new(Say::Finished, &[failed as u64]))?;
        control.expect(Say::Done).map(drop)
    }
}

/// Writes a piece to its place in the receiver's buffer.
fn write_all(pid: i32, at: u64, part: &[u8], control: &BulkControl) -> Result<(), Errno> {
    let mut put = 0;
    while put < part.len() {
        // The pid may be reused after the peer's death, so check before every call that the peer lives.
        control.link().peer_is_alive().then_some(()).ok_or(Errno::SRCH)?;
        // SAFETY: The receiver has reserved the announced number of bytes. Until this process sends `Finished`, the
        // receiver does not touch pieces that this process has taken.
        match unsafe { remote::write(pid, at.wrapping_add(put as u64), &part[put..]) } {
            Ok(0) => return Err(Errno::FAULT),
            Ok(count) => put += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl CoopReceiver {
    /// Reads pieces from the front until all pieces are taken or an error occurs.
    fn read(
        &self,
        at: u64,
        into: &mut [u8],
        control: &mut BulkControl,
    ) -> Result<(), (u64, WaitStop)> {
        let (piece, pieces) = piece_for(self.piece, into.len());
        let mut delivered = 0;
        while let Some(n) = take(self.page.u64(TAKEN), pieces, &CoopSource::Front) {
            let start = n as usize * piece;
            let end = into.len().min(start + piece);
            let part = into.get_mut(start..end);
            let part = part.ok_or_else(|| {
                (delivered, WaitStop::corrupt("the shared counter points outside the buffer"))
            })?;
            read_all(self.pid, at.wrapping_add(start as u64), part, control)
                .map_err(|(more, stop)| (delivered + more, stop))?;
            delivered = end as u64;
        }
        Ok(())
    }
}

impl Incoming for CoopReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        control.check()?;
        control.tell(Note::new(Say::Ready, &[into.as_mut_ptr() as u64]))?;
        let outcome = self.read(begin.words[1], into, control);
        if outcome.is_err() {
            // Mark all pieces as taken, so that the sender writes no further ones.
            self.page.u64(TAKEN).fetch_or(0xffff_ffff, Ordering::AcqRel);
        }
        let own = match &outcome {
            Ok(()) => self.page.u64(TAKEN).load(Ordering::Acquire) & 0xffff_ffff,
            Err(_) => 0,
        };
        // The sender may write to `into` until it reports the end of its part, or its process ends. Until then this
        // function must not return, not even at a timeout.
        let finished = loop {
            match control.hear() {
                Err(WaitStop::Interrupted | WaitStop::Late) if control.link().peer_is_alive() => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                other => break other,
            }
        };
        if !matches!(&finished, Ok(note) if note.say == Say::Finished) {
            control.outlive();
        }
        let (piece, _) = piece_for(self.piece, into.len());
        let front = (own.min(1 << 31) as usize).saturating_mul(piece).min(into.len()) as u64;
        outcome.map_err(|(delivered, stop)| Broken { delivered, stop })?;
        let note = finished.map_err(|stop| Broken { delivered: front, stop })?;
        match (note.say, note.words[0]) {
            (Say::Finished, 0) => Ok(()),
            (Say::Finished, errno) => Err(WaitStop::told("process_vm_writev", errno).into()),
            (other, _) => Err(WaitStop::corrupt(format!(
                "unexpected message during the transfer of a buffer: {other:?}"
            ))
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_taken_once() {
        let taken = AtomicU64::new(0);
        let fronts: Vec<_> = (0..3).map_while(|_| take(&taken, 5, &CoopSource::Front)).collect();
        let backs: Vec<_> = (0..9).map_while(|_| take(&taken, 5, &CoopSource::Back)).collect();
        assert_eq!((fronts, backs), (vec![0, 1, 2], vec![0, 1]));
        assert_eq!(take(&taken, 5, &CoopSource::Front), None);
        let (piece, pieces) = piece_for(1, 1 << 40);
        assert!(pieces < 1 << 31 && piece as u64 * pieces >= 1 << 40);
    }
}
