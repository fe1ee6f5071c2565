//! An ordinary pipe: the sender writes, the receiver reads, and the kernel copies twice. Works wherever one process can
//! pass a descriptor to the other.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{Errno, io, pipe};

use crate::bulk::stream::{StreamMechanism, StreamSource};
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
    // Calls then return EAGAIN instead of blocking, and the caller waits in a poll that also watches the peer.
    rustix::io::ioctl_fionbio(&made.writer, true).map_err(|errno| unfit("FIONBIO", errno))?;
    Ok((made.writer, made.reader))
}

/// Checks that the peer sent a pipe, because calls on other files may block nevertheless.
pub(super) fn checked(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    // Unlike fstat, this call does not ask the file system, so the server of a FUSE file system cannot delay it.
    match pipe::size(&fd) {
        Ok(_) => Ok(fd),
        Err(_) => Err(Unfit::because("the peer passed a descriptor that is not a pipe")),
    }
}

/// Checks the end that the peer sent, and returns an end to read without blocking. Uses preadv2 with RWF_NOWAIT. If the
/// kernel does not support that flag for pipes (before Linux 6.4), opens the pipe again.
pub(super) fn taken(fd: OwnedFd) -> Result<StreamSource, Unfit> {
    let fd = checked(fd)?;
    match io::read_now(&fd, &mut [0]) {
        Err(Errno::AGAIN) => Ok(StreamSource { fd, read: |fd, part| io::read_now(fd, part) }),
        Err(errno) => reopened(&fd).ok_or_else(|| unfit("preadv2", errno)),
        Ok(_) => Err(Unfit::because("the peer passed a pipe that it has already used")),
    }
}

/// Opens the pipe again, with an open file description of our own. Returns `None` if that fails, for example because the
/// pipe belongs to another user or `/proc` is not mounted.
fn reopened(fd: &OwnedFd) -> Option<StreamSource> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // A FIFO with a name is not opened, because the server of a FUSE file system could delay that call.
    let name = rustix::fs::readlink(&*path, Vec::new()).ok()?;
    if !name.as_bytes().starts_with(b"pipe:") {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&*path, flags, Mode::empty()).ok()?;
    Some(StreamSource { fd, read: |fd, part| io::read(fd, part) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fd::AsFd;

    fn read(source: &StreamSource) -> Result<usize, Errno> {
        (source.read)(source.fd.as_fd(), &mut [0; 8])
    }

    #[test]
    fn reads_of_a_passed_pipe_do_not_block_with_and_without_a_description_of_our_own() {
        let ways: [fn(OwnedFd) -> StreamSource; 2] =
            [|fd| taken(fd).unwrap(), |fd| reopened(&fd).unwrap()];
        for way in ways {
            let pipe = pipe::Pipe::new(0).unwrap();
            let duplicate = pipe.reader.try_clone().unwrap();
            let source = way(pipe.reader);
            rustix::io::ioctl_fionbio(&duplicate, false).unwrap();
            assert_eq!(read(&source), Err(Errno::AGAIN));
            io::write(&pipe.writer, b"some").unwrap();
            assert_eq!(read(&source), Ok(4));
            drop(pipe.writer);
            assert_eq!(read(&source), Ok(0));
        }
    }

    #[test]
    fn a_descriptor_that_is_not_a_pipe_is_refused() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let (socket, _other) = thalweg_sys::net::unix_pair(false).unwrap();
        for fd in [file, socket] {
            assert!(taken(fd).is_err());
        }
    }
}
