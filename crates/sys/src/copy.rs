//! System calls by which the kernel moves bytes from a file to another descriptor without user
//! memory.
//! With an offset, a call leaves the descriptor's own offset unchanged. Without one, it uses and
//! advances that offset. A count of 0 means that the source has ended, or that the file system
//! cannot report the end. Verify it with a read.

use crate::Errno;
use crate::fault::{Call, counted, uncounted};
use rustix::fd::{AsFd, AsRawFd};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `copy_file_range(2)`: from a regular file to a regular file. Errors for unsupported cases: EXDEV
/// across file systems (5.19 and later), EINVAL for pipes, devices and overlap, EBADF for an
/// O_APPEND sink.
pub fn copy_file_range(
    source: impl AsFd,
    source_at: Option<u64>,
    sink: impl AsFd,
    sink_at: Option<u64>,
    len: usize,
) -> Result<usize, Errno> {
    let (mut source_at, mut sink_at) = (source_at, sink_at);
    counted(Call::CopyFileRange, len, |len| {
        rustix::fs::copy_file_range(source, source_at.as_mut(), sink, sink_at.as_mut(), len)
    })
}

/// `sendfile(2)`: from a file that can be mapped to any descriptor, at most 2^31 - 4096 bytes per
/// call. Pages sent to a pipe or socket stay shared with the file, so the reader sees later writes
/// to it.
pub fn sendfile(
    sink: impl AsFd,
    source: impl AsFd,
    source_at: Option<u64>,
    len: usize,
) -> Result<usize, Errno> {
    let mut source_at = source_at;
    counted(Call::Sendfile, len, |len| rustix::fs::sendfile(sink, source, source_at.as_mut(), len))
}

/// The kernel's `struct file_clone_range` (linux/fs.h).
#[repr(C)]
struct CloneRange {
    source: i64,
    source_at: u64,
    len: u64,
    sink_at: u64,
}

const FICLONERANGE: Opcode = opcode::write::<CloneRange>(0x94, 13);

/// `FICLONERANGE` (ioctl_ficlonerange(2)): makes the sink share the source's blocks until either
/// file is written. `len` 0 means "to the end". Offsets and `len` must be multiples of the file
/// system's block size, except at the end of the source; otherwise EINVAL. EOPNOTSUPP or EXDEV if
/// cloning is not possible. Clones the whole range or nothing.
pub fn clone_range(
    source: impl AsFd,
    source_at: u64,
    len: u64,
    sink: impl AsFd,
    sink_at: u64,
) -> Result<(), Errno> {
    let source = i64::from(source.as_fd().as_raw_fd());
    let range = CloneRange { source, source_at, len, sink_at };
    uncounted(Call::Clone, || {
        // SAFETY: FICLONERANGE reads one file_clone_range, and CloneRange has its layout.
        let setter = unsafe { Setter::<FICLONERANGE, CloneRange>::new(range) };
        // SAFETY: the setter above is the whole argument; the call writes no user memory.
        unsafe { ioctl(sink, setter) }
    })
}

/// `FICLONE` (ioctl_ficlone(2)): like [`clone_range`] for the whole source, from its byte 0.
pub fn clone_file(source: impl AsFd, sink: impl AsFd) -> Result<(), Errno> {
    uncounted(Call::Clone, || rustix::fs::ioctl_ficlone(sink, source))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    fn file_with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    fn all_of(file: &mut File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn copy_file_range_obeys_offsets_and_leaves_the_fds_alone() {
        let (mut source, mut sink) = (file_with(b"0123456789"), file_with(b"abcdef"));
        assert_eq!(copy_file_range(&source, Some(4), &sink, Some(1), 3), Ok(3));
        assert_eq!(source.stream_position().unwrap(), 0);
        assert_eq!(sink.stream_position().unwrap(), 0);
        assert_eq!(all_of(&mut sink), b"a456ef");
        sink.rewind().unwrap();
        assert_eq!(copy_file_range(&source, None, &sink, None, 2), Ok(2));
        assert_eq!(source.stream_position().unwrap(), 2);
        assert_eq!(all_of(&mut sink), b"0156ef");
        assert_eq!(copy_file_range(&source, Some(10), &sink, Some(0), 2), Ok(0));
    }

    #[test]
    fn sendfile_takes_from_an_offset_or_from_the_fd() {
        let (mut source, mut sink) = (file_with(b"0123456789"), file_with(b""));
        assert_eq!(sendfile(&sink, &source, Some(7), 100), Ok(3));
        assert_eq!(source.stream_position().unwrap(), 0);
        assert_eq!(sendfile(&sink, &source, None, 2), Ok(2));
        assert_eq!(source.stream_position().unwrap(), 2);
        assert_eq!(all_of(&mut sink), b"78901");
    }

    #[test]
    fn a_clone_is_the_whole_file_or_a_known_refusal() {
        let bytes = vec![7; 8192];
        let (source, mut sink) = (file_with(&bytes), file_with(b""));
        for outcome in
            [clone_file(&source, &sink), clone_range(&source, 4096, 4096, &sink, 4096), {
                clone_range(&source, 0, 0, &sink, 0)
            }]
        {
            match outcome {
                Ok(()) => assert_eq!(all_of(&mut sink), bytes),
                Err(errno) => assert!(matches!(errno, Errno::OPNOTSUPP | Errno::NOTTY)),
            }
        }
        assert_eq!(FICLONERANGE, libc::FICLONERANGE as Opcode);
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(clone_range(&pipe, 0, 0, &sink, 0).is_err());
    }

    #[cfg(feature = "faults")]
    #[test]
    fn faults_reach_every_call_here() {
        use crate::fault::{Effect, Rule, Script};
        let (source, mut sink) = (file_with(b"0123456789"), file_with(b""));
        let script = Script::new(vec![
            Rule::always(Call::CopyFileRange, Effect::Short(2)),
            Rule::always(Call::Sendfile, Effect::Zero),
            Rule::always(Call::Clone, Effect::Errno(Errno::XDEV)),
        ]);
        let outcome = script.run(|| {
            assert_eq!(copy_file_range(&source, Some(0), &sink, Some(0), 9), Ok(2));
            assert_eq!(sendfile(&sink, &source, Some(0), 9), Ok(0));
            assert_eq!(clone_file(&source, &sink), Err(Errno::XDEV));
            assert_eq!(clone_range(&source, 0, 0, &sink, 0), Err(Errno::XDEV));
        });
        assert_eq!(outcome.fired, 4);
        assert_eq!(all_of(&mut sink), b"01");
    }
}
