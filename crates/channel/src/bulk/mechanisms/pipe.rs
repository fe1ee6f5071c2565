//! An ordinary pipe: the sender writes, the receiver reads, and the kernel copies twice. Works wherever one process can
//! pass a descriptor to the other.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, fstat};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{io, pipe};

use crate::bulk::stream::StreamMechanism;
use crate::shared::stop::unfit;

/// Knobs of all mechanisms that use a pipe.
pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "pipe",
        summary: "requested capacity of the pipe, 0 for the kernel's default",
        unit: Unit::Bytes,
        values: &[1 << 20, 0, 64 << 10],
    },
    Knob {
        name: "piece",
        summary: "maximum bytes per call",
        unit: Unit::Bytes,
        values: &[1 << 20, 4096, 64 << 10],
    },
];

static INFO: Info = Info {
    name: "pipe",
    summary: "write into a pipe and read from it",
    calls: &["write", "read"],
    pairs: BETWEEN_PROCESSES,
    knobs: KNOBS,
    role: Role::Mover,
    nature: Nature::PLAIN,
};

/// Moves bytes with `write` and `read` through a pipe.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: |tuning| made(&INFO, tuning),
    take: taken,
    write: |fd, part| io::write(fd, part),
    read: |fd, part| io::read(fd, part),
    shares_pages: false,
};

fn probe() -> Result<(), Unfit> {
    let pipe = pipe::Pipe::new(0).map_err(|errno| unfit("pipe2", errno))?;
    io::write(&pipe.writer, b"x").map_err(|errno| unfit("write", errno))?;
    io::read(&pipe.reader, &mut [0]).map(drop).map_err(|errno| unfit("read", errno))
}

/// Creates a pipe. Returns the end to keep, made nonblocking, and the end for the peer.
pub(super) fn made(info: &Info, tuning: &Tuning) -> Result<(OwnedFd, OwnedFd), Unfit> {
    let wished = info.knob(tuning, "pipe") as usize;
    let made = pipe::Pipe::new(wished).map_err(|errno| unfit("pipe2", errno))?;
    Ok((without_waiting(made.writer)?, made.reader))
}

/// Checks the end that the peer sent, and makes it nonblocking. Accepts only a pipe, because calls on other files may
/// block nevertheless.
pub(super) fn taken(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    let found = fstat(&fd).map_err(|errno| unfit("fstat", errno))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
        return Err(Unfit::because("the peer passed a descriptor that is not a pipe"));
    }
    without_waiting(fd)
}

/// Makes the descriptor nonblocking. Its calls then return EAGAIN instead of blocking, and the caller waits in a poll
/// that also watches the peer.
fn without_waiting(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| unfit("FIONBIO", errno))?;
    Ok(fd)
}
