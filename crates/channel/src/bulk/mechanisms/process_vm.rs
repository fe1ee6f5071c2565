//! The receiver reads the sender's memory with process_vm_readv: the kernel copies once, page by page. MPI libraries
//! call this method CMA (cross memory attach). Both sides must trust each other.

use std::sync::atomic::Ordering;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{Errno, remote};

use crate::bulk::control::{BulkControl, Note, Say};
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::shared::stop::{WaitStop, unfit};

/// Reads the sender's memory with `process_vm_readv`.
pub struct ProcessVm;

static INFO: Info = Info {
    name: "process-vm",
    summary: "the receiver reads the sender's memory through the kernel",
    calls: &["process_vm_readv"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[Knob {
        name: "chunk",
        summary: "maximum bytes per process_vm_readv call",
        unit: Unit::Bytes,
        values: &[16 << 20, 1 << 20, 1 << 30],
    }],
    role: Role::Mover,
    nature: Nature { wants_trust: true, ..Nature::PLAIN },
};

struct ProcessVmSender;

struct ProcessVmReceiver {
    pid: i32,
    chunk: usize,
}

/// Checks that this process can read the peer's memory, and that the pid really refers to the peer: the memory must
/// contain the token at the address that the peer sent.
pub(super) fn readable(ends: &TransferEnds) -> Result<(), Unfit> {
    ends.trusted.clone()?;
    let (at, word) = ends.token;
    let mut found = [0; 8];
    match remote::read(ends.pid, at, &mut found) {
        Ok(8) if u64::from_ne_bytes(found) == word => Ok(()),
        Ok(_) => Err(Unfit::because(format!(
            "process {} is not the peer, because its memory lacks the peer's token",
            ends.pid
        ))),
        Err(errno) => Err(unfit("process_vm_readv", errno)),
    }
}

/// Tries the call on our own memory. If a seccomp filter forbids the call, it fails here too.
pub(super) fn callable() -> Result<(), Unfit> {
    let (word, mut found) = (7_u64, [0; 8]);
    let pid = std::process::id() as i32;
    let answer = remote::read(pid, (&raw const word) as u64, &mut found);
    answer.map(drop).map_err(|errno| unfit("process_vm_readv", errno))
}

/// Reads the sender's memory piece by piece. The data is valid if the sender still lives afterwards, because then no
/// other process has got its pid.
pub(super) fn read_all(
    pid: i32,
    at: u64,
    into: &mut [u8],
    control: &mut BulkControl,
) -> Result<(), (u64, WaitStop)> {
    let mut filled = 0;
    while filled < into.len() {
        let outcome = remote::read(pid, at.wrapping_add(filled as u64), &mut into[filled..]);
        control.check().map_err(|stop| (filled as u64, stop))?;
        match outcome {
            Ok(0) => {
                return Err((filled as u64, WaitStop::refused("process_vm_readv", Errno::FAULT)));
            }
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => {
                return Err((filled as u64, WaitStop::refused("process_vm_readv", errno)));
            }
        }
    }
    Ok(())
}

impl Mechanism for ProcessVm {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        callable()
    }

    fn offer(&self, _: &Tuning, ends: &TransferEnds) -> OfferResult {
        ends.trusted.clone()?;
        // Relaxed, because no other data depends on the word. The receiver compares the word that it reads with this
        // value.
        let word = ends.own_token.load(Ordering::Relaxed);
        Ok((Box::new(ProcessVmSender), Parcel::of(&[word], Vec::new())))
    }

    fn accept(&self, tuning: &Tuning, _: Parcel, ends: &TransferEnds) -> AcceptResult {
        readable(ends)?;
        let chunk = INFO.length(tuning, "chunk").unwrap_or(usize::MAX);
        Ok((Box::new(ProcessVmReceiver { pid: ends.pid, chunk }), Parcel::default()))
    }
}

impl Outgoing for ProcessVmSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        control.tell(Note::new(Say::Begin, &[bytes.len() as u64, bytes.as_ptr() as u64]))?;
        control.expect(Say::Done).map(drop)
    }
}

impl Incoming for ProcessVmReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        control.check()?;
        let mut delivered = 0;
        for piece in into.chunks_mut(self.chunk) {
            let at = begin.words[1].wrapping_add(delivered);
            read_all(self.pid, at, piece, control)
                .map_err(|(more, stop)| Broken { delivered: delivered + more, stop })?;
            delivered += piece.len() as u64;
        }
        Ok(())
    }
}
