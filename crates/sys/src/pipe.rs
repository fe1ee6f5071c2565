//! Pipes, and the calls that move pages through them: splice, tee, vmsplice.
//!
//! Pages that are moved instead of copied stay shared. Later writes to a spliced file or to vmspliced memory change the
//! bytes that readers of the pipe get.

use crate::Errno;
use crate::fault::{Call, counted};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

/// Both ends of a pipe, closed on exec.
#[derive(Debug)]
pub struct Pipe {
    /// The end to read from.
    pub reader: OwnedFd,
    /// The end to write to.
    pub writer: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// Creates a pipe with a capacity of `wanted` bytes, or the nearest that the kernel grants. 0 keeps the default
    /// capacity.
    ///
    /// Makes several calls. On EBUSY, ENOMEM or EPERM, requests half as much (EPERM: above pipe-max-size, or the user's
    /// pipe pages are used up). The kernel may also grant more than requested, because it rounds up.
    pub fn new(wanted: usize) -> Result<Self, Errno> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut wish = wanted;
        while wish > 0 {
            match set_size(&writer, wish) {
                Ok(_) => break,
                Err(Errno::PERM | Errno::BUSY | Errno::NOMEM) => wish /= 2,
                Err(errno) => return Err(errno),
            }
        }
        let capacity = size(&writer)?;
        Ok(Self { reader, writer, capacity })
    }

    /// Returns the capacity that the kernel granted.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// `F_SETPIPE_SZ` (fcntl(2)): requests a capacity of `wanted` bytes. Returns the granted capacity, which is at least
/// `wanted`. EPERM above `/proc/sys/fs/pipe-max-size` or the user's share; EBUSY if the waiting data does not fit.
pub fn set_size(fd: impl AsFd, wanted: usize) -> Result<usize, Errno> {
    rustix::pipe::fcntl_setpipe_size(fd, wanted)
}

/// `F_GETPIPE_SZ` (fcntl(2)): returns the pipe's capacity in bytes. A partly used page counts as a whole one, so a pipe
/// can be full with fewer bytes in it.
pub fn size(fd: impl AsFd) -> Result<usize, Errno> {
    rustix::pipe::fcntl_getpipe_size(fd)
}

/// The behaviour of a call if the pipe is empty or full. The other descriptor is not affected: the call waits for that
/// one unless it was opened with O_NONBLOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpliceMode {
    /// Waits.
    Block,
    /// Returns EAGAIN.
    NonBlock,
}

impl SpliceMode {
    fn flags(self) -> SpliceFlags {
        match self {
            Self::Block => SpliceFlags::empty(),
            Self::NonBlock => SpliceFlags::NONBLOCK,
        }
    }
}

/// `splice(2)`: moves up to `len` bytes between a pipe and another descriptor, or between two pipes. Only a side that
/// is not a pipe may have an offset (otherwise ESPIPE). The call then leaves that descriptor's own offset unchanged.
///
/// 0 means the end of the source. EINVAL: neither side is a pipe, the sink was opened with O_APPEND, or a side does not
/// support splice (`/dev/full`, many `/proc` files).
pub fn splice(
    source: impl AsFd,
    source_at: Option<u64>,
    sink: impl AsFd,
    sink_at: Option<u64>,
    len: usize,
    mode: SpliceMode,
) -> Result<usize, Errno> {
    let (mut source_at, mut sink_at) = (source_at, sink_at);
    counted(Call::Splice, len, |len| {
        let (from, to) = (source_at.as_mut(), sink_at.as_mut());
        rustix::pipe::splice(source, from, sink, to, len, mode.flags())
    })
}

/// `tee(2)`: duplicates up to `len` bytes of one pipe into another, and leaves them in the first pipe. Every call
/// starts at the first unread byte.
pub fn tee(
    source: impl AsFd,
    sink: impl AsFd,
    len: usize,
    mode: SpliceMode,
) -> Result<usize, Errno> {
    counted(Call::Tee, len, |len| rustix::pipe::tee(source, sink, len, mode.flags()))
}

/// `vmsplice(2)`: puts the pages of `memory` into a pipe. SPLICE_F_GIFT is never used.
///
/// The pages stay shared until they are read *and* no other pipe or socket holds them any more. Until then, later
/// writes to this memory change the bytes that the reader gets. Only memory that is never written again satisfies the
/// guarantee `stable`. Later writes do not violate memory safety, because the kernel holds the pages.
///
/// Makes two calls. With the *read* end of a pipe, vmsplice would write into `memory`. This function therefore first
/// checks the end with F_GETFL, and returns EBADF for the read end. It also checks O_NONBLOCK, because vmsplice ignores
/// that flag, unlike splice and write.
pub fn vmsplice(fd: impl AsFd, memory: &[u8], mode: SpliceMode) -> Result<usize, Errno> {
    counted(Call::Vmsplice, memory.len(), |len| {
        let fd = fd.as_fd();
        let opened = rustix::fs::fcntl_getfl(fd)?;
        if (opened & OFlags::RWMODE) == OFlags::RDONLY {
            return Err(Errno::BADF);
        }
        let mode = if opened.contains(OFlags::NONBLOCK) { SpliceMode::NonBlock } else { mode };
        let slices = [IoSliceRaw::from_slice(&memory[..len])];
        // SAFETY: the fd can be written (checked above), so the kernel only reads the memory;
        // GIFT is not among the flags.
        unsafe { rustix::pipe::vmsplice(fd, &slices, mode.flags()) }
    })
}

/// `vmsplice(2)` in the other direction: fills `memory` from a pipe. Despite the name, the kernel copies the bytes.
///
/// Makes two calls. With the *write* end of a pipe, vmsplice would put `memory` into the pipe. This function therefore
/// first checks the end with F_GETFL, and returns EBADF for the write end.
pub fn vmsplice_out(fd: impl AsFd, memory: &mut [u8], mode: SpliceMode) -> Result<usize, Errno> {
    counted(Call::Vmsplice, memory.len(), |len| {
        let fd = fd.as_fd();
        if (rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE) != OFlags::RDONLY {
            return Err(Errno::BADF);
        }
        let slices = [IoSliceRaw::from_slice_mut(&mut memory[..len])];
        // SAFETY: the fd can be read and not written (checked above), so the kernel fills the memory and keeps no page
        // of it. The memory is mutably borrowed during the call.
        unsafe { rustix::pipe::vmsplice(fd, &slices, mode.flags()) }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io::{read, write};
    use std::io::{Seek, Write};

    fn taken(pipe: &Pipe) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let count = read(&pipe.reader, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn a_pipe_has_what_the_kernel_granted() {
        assert!(Pipe::new(1 << 16).unwrap().capacity() >= 1 << 16);
        let huge = Pipe::new(usize::MAX).unwrap();
        assert_eq!(huge.capacity(), size(&huge.reader).unwrap());
        let default = Pipe::new(0).unwrap();
        assert!(default.capacity() > 0);
        assert!(set_size(&default.writer, 8192).unwrap() >= 8192);
    }

    #[test]
    fn splice_moves_file_to_pipe_to_file_by_offset() {
        let pipe = Pipe::new(0).unwrap();
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(b"0123456789").unwrap();
        let sink = tempfile::tempfile().unwrap();
        let mode = SpliceMode::NonBlock;
        assert_eq!(splice(&pipe.reader, None, &sink, None, 1, mode), Err(Errno::AGAIN));
        assert_eq!(splice(&source, Some(3), &pipe.writer, None, 4, mode), Ok(4));
        assert_eq!(source.stream_position().unwrap(), 10);
        assert_eq!(rustix::io::ioctl_fionread(&pipe.reader), Ok(4));
        assert_eq!(splice(&pipe.reader, None, &sink, Some(2), 9, mode), Ok(4));
        let mut bytes = [9; 8];
        assert_eq!(crate::io::pread(&sink, &mut bytes, 0), Ok(6));
        assert_eq!(&bytes[..6], b"\0\x003456");
        assert_eq!(splice(&source, Some(10), &pipe.writer, None, 4, SpliceMode::Block), Ok(0));
    }

    #[test]
    fn tee_leaves_the_bytes_where_they_were() {
        let (first, second) = (Pipe::new(0).unwrap(), Pipe::new(0).unwrap());
        write(&first.writer, b"twice").unwrap();
        assert_eq!(tee(&first.reader, &second.writer, 9, SpliceMode::NonBlock), Ok(5));
        assert_eq!((taken(&first), taken(&second)), (b"twice".to_vec(), b"twice".to_vec()));
    }

    #[test]
    fn vmsplice_feeds_the_write_end_and_refuses_the_read_end() {
        static MEMORY: &[u8] = b"pages";
        let pipe = Pipe::new(0).unwrap();
        assert_eq!(vmsplice(&pipe.writer, MEMORY, SpliceMode::NonBlock), Ok(5));
        assert_eq!(taken(&pipe), MEMORY);
        write(&pipe.writer, b"enemy").unwrap();
        assert_eq!(vmsplice(&pipe.reader, MEMORY, SpliceMode::NonBlock), Err(Errno::BADF));
        assert_eq!(MEMORY, b"pages");
        rustix::io::ioctl_fionbio(&pipe.writer, true).unwrap();
        while vmsplice(&pipe.writer, MEMORY, SpliceMode::Block) == Ok(5) {}
        assert_eq!(vmsplice(&pipe.writer, MEMORY, SpliceMode::Block), Err(Errno::AGAIN));
    }

    #[test]
    fn vmsplice_out_empties_the_read_end_and_refuses_the_write_end() {
        let pipe = Pipe::new(0).unwrap();
        let mut memory = *b"........";
        write(&pipe.writer, b"pages").unwrap();
        let mode = SpliceMode::NonBlock;
        assert_eq!(vmsplice_out(&pipe.writer, &mut memory, mode), Err(Errno::BADF));
        assert_eq!(vmsplice_out(&pipe.reader, &mut memory, mode), Ok(5));
        assert_eq!(&memory, b"pages...");
        assert_eq!(vmsplice_out(&pipe.reader, &mut memory, mode), Err(Errno::AGAIN));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn faults_reach_every_call_here() {
        use crate::fault::{Effect, Rule, Script};
        let (first, second) = (Pipe::new(0).unwrap(), Pipe::new(0).unwrap());
        write(&first.writer, b"0123456789").unwrap();
        let mode = SpliceMode::NonBlock;
        let rules = [Call::Splice, Call::Tee, Call::Vmsplice];
        let rules = rules.map(|call| Rule::always(call, Effect::Short(2)));
        let outcome = Script::new(rules.to_vec()).run(|| {
            assert_eq!(tee(&first.reader, &second.writer, 9, mode), Ok(2));
            assert_eq!(splice(&first.reader, None, &second.writer, None, 9, mode), Ok(2));
            assert_eq!(vmsplice(&second.writer, b"pages", mode), Ok(2));
        });
        assert_eq!(outcome.fired, 3);
        assert_eq!(taken(&second), b"0101pa");
    }
}
