//! The sender seals a memfd against all writes, and the receiver maps it copy-on-write. Afterwards, the receiver no
//! longer depends on the sender, and the kernel copies only pages that the receiver writes. This is fastest if the
//! receiver wants the bytes in new memory.

use rustix::fd::AsFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Nature, Role, Tuning, Unfit};
use thalweg_sys::memfd;
use thalweg_sys::region::{Region, SealFlags, Sharing, is_sealed, seal};

use crate::bulk::control::{BulkControl, Note, ReceivedControl, Say};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::joint::NAME;
use crate::bulk::mechanism::{
    AcceptResult, Broken, FillResult, Incoming, LentBack, Mechanism, OfferResult, Outgoing, Parcel,
    TransferEnds,
};
use crate::bulk::memory::{Handing, LentRegion, MappedBytes, STREAM, Stores, copy_out};
use crate::shared::stop::{WaitStop, unfit};
use thalweg_sys::io;

/// Passes a sealed memfd to the receiver.
pub struct Snapshot;

static INFO: Info = Info {
    name: "snapshot",
    summary: "seal the memory forever and map it copy-on-write in the receiver",
    calls: &["memfd_create", "F_ADD_SEALS", "mmap"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[STREAM],
    role: Role::OnRequest("--method, because the receiver keeps the sender's memory"),
    nature: Nature { wants_loan: true, ..Nature::PLAIN },
};

const FOR_GOOD: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

struct SnapshotSender;

struct SnapshotReceiver(u64);

impl Mechanism for Snapshot {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let fd = memfd::create(NAME, 1).map_err(|failed| unfit(failed.call, failed.errno))?;
        seal(&fd, FOR_GOOD).map_err(|errno| unfit("F_ADD_SEALS", errno))?;
        Region::of_file(&fd, 1, Sharing::Private).map(drop).map_err(|errno| unfit("mmap", errno))
    }

    fn offer(&self, _: &Tuning, _: &TransferEnds) -> OfferResult {
        self.probe()?;
        Ok((Box::new(SnapshotSender), Parcel::default()))
    }

    fn accept(&self, tuning: &Tuning, _: Parcel, _: &TransferEnds) -> AcceptResult {
        let stream = INFO.knob(tuning, STREAM.name);
        Ok((Box::new(SnapshotReceiver(stream)), Parcel::default()))
    }
}

/// Seals the memory and passes it to the receiver, which confirms it.
fn give(fd: impl AsFd, len: usize, control: &mut BulkControl) -> Result<(), WaitStop> {
    seal(&fd, FOR_GOOD).map_err(|errno| WaitStop::refused("F_ADD_SEALS", errno))?;
    control.send(&ControlMessage::new(ControlKind::Memory).words(&[len as u64]), &[fd.as_fd()])?;
    control.tell(Note::new(Say::Begin, &[len as u64]))?;
    control.expect(Say::Done).map(drop)
}

impl Outgoing for SnapshotSender {
    fn send(&mut self, bytes: &[u8], control: &mut BulkControl) -> Result<(), WaitStop> {
        let fd = memfd::create(NAME, bytes.len() as u64)
            .map_err(|failed| WaitStop::refused(failed.call, failed.errno))?;
        let mut at = 0;
        while at < bytes.len() {
            match io::pwrite(&fd, &bytes[at..], at as u64) {
                Ok(0) => return Err(WaitStop::refused("pwrite", thalweg_sys::Errno::NOSPC)),
                Ok(count) => at += count,
                Err(thalweg_sys::Errno::INTR) => control.wanted()?,
                Err(errno) => return Err(WaitStop::refused("pwrite", errno)),
            }
        }
        give(&fd, bytes.len(), control)
    }

    fn lend(&mut self, len: usize) -> Option<Result<LentRegion, Unfit>> {
        Some(LentRegion::sealable(len))
    }

    fn send_lent(&mut self, lent: LentRegion, control: &mut BulkControl) -> LentBack {
        let len = lent.len();
        let Handing::Sealable(fd) = lent.handing else {
            let outcome = self.send(lent.bytes(), control);
            return (Some(lent), outcome);
        };
        // Unmap the memory first: the write seal fails with EBUSY while a writable mapping exists.
        drop(lent.region);
        let outcome = give(&fd, len, control);
        let again = outcome.is_err().then(|| LentRegion::of_sealed(&fd, len)).flatten();
        (again, outcome)
    }
}

/// Receives the memfd of the announced buffer. Checks that it is sealed against writing and shrinking.
fn taken(len: u64, control: &mut BulkControl) -> Result<(rustix::fd::OwnedFd, usize), WaitStop> {
    let ReceivedControl { message, mut fds } = control.message()?;
    let fd = fds.pop().filter(|_| message.kind == ControlKind::Memory && message.word(0) == len);
    let fd = fd.ok_or_else(|| {
        WaitStop::corrupt("the peer announced memory but passed no file descriptor")
    })?;
    // Reject holes, because their pages would be charged to this process. The write seal prevents later holes.
    if !is_sealed(&fd, SealFlags::WRITE | SealFlags::SHRINK, len) || !memfd::is_whole(&fd) {
        let what = "the memory that the peer passed could change, or has unallocated pages";
        return Err(WaitStop::corrupt(what));
    }
    let len = usize::try_from(len)
        .map_err(|_| WaitStop::corrupt("memory larger than the address space"))?;
    Ok((fd, len))
}

impl Incoming for SnapshotReceiver {
    fn receive(&mut self, begin: Note, into: &mut [u8], control: &mut BulkControl) -> FillResult {
        let (fd, len) = taken(begin.words[0], control)?;
        let region = Region::of_file(&fd, len, Sharing::Read);
        let region = region.map_err(|errno| WaitStop::refused("mmap", errno))?;
        // Errors are ignored, because this call only avoids page faults.
        let _ = region.populate();
        let stores = Stores::of(self.0, into.len());
        // SAFETY: `len` bytes are mapped, which is the length of `into`. The file is sealed, so no process can write to
        // it or shorten it.
        unsafe { copy_out(into, region.as_ptr(), stores) };
        Ok(())
    }

    fn receive_as_memory(
        &mut self,
        begin: Note,
        control: &mut BulkControl,
    ) -> Option<Result<MappedBytes, Broken>> {
        let memory = taken(begin.words[0], control).and_then(|(fd, len)| {
            let region = Region::of_file(&fd, len, Sharing::Private);
            let region = region.map_err(|errno| WaitStop::refused("mmap", errno))?;
            // The file is sealed and the mapping is private, so no other process can change these bytes.
            Ok(MappedBytes::over(region, len))
        });
        Some(memory.map_err(Broken::from))
    }
}
