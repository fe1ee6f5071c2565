//! An ordinary pipe: write on one side, read on the other, two copies by the kernel. Works wherever
//! two processes can share a descriptor.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{io, pipe};

use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::control::{Control, Note};
use crate::bulk::stream;
use crate::shared::stop::{Stop, unfit};

/// `write` and `read` through a pipe.
pub struct ThroughPipe;

pub(super) const PIPE: Knob = Knob {
    name: "pipe",
    summary: "bytes asked of the pipe, 0 for the kernel's default",
    unit: Unit::Bytes,
    values: &[1 << 20, 0, 64 << 10],
};

static INFO: Info = Info {
    name: "pipe",
    summary: "write into a pipe and read from it",
    calls: &["write", "read"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        PIPE,
        Knob {
            name: "piece",
            summary: "most bytes of one call",
            unit: Unit::Bytes,
            values: &[1 << 20, 4096, 64 << 10],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct Sender(OwnedFd, usize);

struct Receiver(OwnedFd, usize);

/// A pipe for an arm: the end to keep, which does not wait, and the end to hand over.
pub(super) fn made(info: &Info, tuning: &Tuning) -> Result<(OwnedFd, Parcel), Unfit> {
    let wished = info.knob(tuning, "pipe") as usize;
    let made = pipe::Pipe::new(wished).map_err(|errno| unfit("pipe2", errno))?;
    Ok((patient(made.writer)?, Parcel::of(&[], vec![made.reader])))
}

/// The end that was handed over, which does not wait either: nothing but a pipe keeps to that.
pub(super) fn taken(parcel: &mut Parcel) -> Result<OwnedFd, Unfit> {
    let fd = parcel.fd()?;
    let found = fstat(&fd).map_err(|errno| unfit("fstat", errno))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
        return Err(Unfit::because("the peer handed over something that is no pipe"));
    }
    patient(fd)
}

/// Calls on it answer EAGAIN, and the waiting is done where the peer's life is watched as well.
fn patient(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| unfit("FIONBIO", errno))?;
    Ok(fd)
}

impl Arm for ThroughPipe {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let pipe = pipe::Pipe::new(0).map_err(|errno| unfit("pipe2", errno))?;
        io::write(&pipe.writer, b"x").map_err(|errno| unfit("write", errno))?;
        io::read(&pipe.reader, &mut [0]).map(drop).map_err(|errno| unfit("read", errno))
    }

    fn offer(&self, tuning: &Tuning, _: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        let (writer, parcel) = made(&INFO, tuning)?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(Sender(writer, piece)), parcel))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        _: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(Receiver(taken(&mut parcel)?, piece)), Parcel::default()))
    }
}

impl Outgoing for Sender {
    fn send(&mut self, bytes: &[u8], control: &mut Control) -> Result<(), Stop> {
        let writer = self.0.as_fd();
        stream::push(
            bytes,
            self.1,
            control,
            ("write", writer, |part: &[u8]| io::write(writer, part)),
        )
    }
}

impl Incoming for Receiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut Control) -> Result<(), Broken> {
        let reader = self.0.as_fd();
        let get = |part: &mut [u8]| io::read(reader, part);
        stream::pull(into, self.1, control, ("read", reader, get))
    }
}
