//! Plain reads and writes, waiting, and calls that allocate, sync, rename and link files.

use crate::Errno;
use crate::fault::{Call, counted, uncounted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::ReadWriteFlags;
use rustix::path::Arg;
use std::io::IoSliceMut;
use std::time::Duration;

/// `read(2)` at the descriptor's own offset. Returns 0 at the end, even of a file that may grow later.
pub fn read(fd: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    counted(Call::Read, into.len(), |len| rustix::io::read(fd, &mut into[..len]))
}

/// `pread(2)` at offset `at`; the descriptor's own offset does not change. ESPIPE for pipes and sockets.
pub fn pread(fd: impl AsFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    counted(Call::Pread, into.len(), |len| rustix::io::pread(fd, &mut into[..len], at))
}

/// Reads until the buffer is full or the file ends; EINTR is retried. Returns the number of bytes read.
pub fn pread_full(fd: impl AsFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut len = 0;
    while let Some(rest) = into.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match pread(&fd, rest, at + len as u64) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(len)
}

/// A write that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortWrite {
    /// The error.
    pub errno: Errno,
    /// Offset of the first byte that was not written.
    pub at: u64,
}

/// Writes all bytes at offset `at`; EINTR is retried.
pub fn pwrite_all(fd: impl AsFd, mut from: &[u8], mut at: u64) -> Result<(), ShortWrite> {
    while !from.is_empty() {
        match pwrite(&fd, from, at) {
            Ok(0) => return Err(ShortWrite { errno: Errno::IO, at }),
            Ok(put) => {
                from = from.get(put..).unwrap_or_default();
                at += put as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ShortWrite { errno, at }),
        }
    }
    Ok(())
}

/// `preadv2(2)` with RWF_NOWAIT: like [`pread`], but returns only bytes in the page cache. EAGAIN if the first byte is
/// not cached; EOPNOTSUPP if the file system does not support the flag. A short count does not mean the end.
pub fn pread_cached(fd: impl AsFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    counted(Call::Pread, into.len(), |len| {
        let mut one = [IoSliceMut::new(&mut into[..len])];
        rustix::io::preadv2(fd, &mut one, at, ReadWriteFlags::NOWAIT)
    })
}

/// `preadv2(2)` with RWF_NOWAIT at the descriptor's own offset: like [`read`], but returns EAGAIN instead of waiting, with
/// and without O_NONBLOCK. EOPNOTSUPP for pipes before Linux 6.4.
pub fn read_now(fd: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    /// -1, the value for the descriptor's own offset.
    const OWN: u64 = u64::MAX;
    counted(Call::Read, into.len(), |len| {
        let mut one = [IoSliceMut::new(&mut into[..len])];
        rustix::io::preadv2(fd, &mut one, OWN, ReadWriteFlags::NOWAIT)
    })
}

/// `write(2)` at the descriptor's own offset. EPIPE, and SIGPIPE unless ignored, if a pipe's reading end is closed.
pub fn write(fd: impl AsFd, from: &[u8]) -> Result<usize, Errno> {
    counted(Call::Write, from.len(), |len| rustix::io::write(fd, &from[..len]))
}

/// `pwrite(2)` at offset `at`; the descriptor's own offset does not change. If the descriptor was opened with O_APPEND,
/// the kernel appends and ignores `at` (pwrite(2), BUGS).
pub fn pwrite(fd: impl AsFd, from: &[u8], at: u64) -> Result<usize, Errno> {
    counted(Call::Pwrite, from.len(), |len| rustix::io::pwrite(fd, &from[..len], at))
}

/// Waits until a read would not block. Returns `true`, or `false` after `timeout`; `None` means no limit. A hang-up or
/// an error counts as ready, because a read then returns at once.
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> Result<bool, Errno> {
    wait(fd, PollFlags::IN, timeout)
}

/// Waits until a write would not block, like [`wait_readable`]. A pipe counts as ready if one page is free, so a longer
/// write may still block.
pub fn wait_writable(fd: impl AsFd, timeout: Option<Duration>) -> Result<bool, Errno> {
    wait(fd, PollFlags::OUT, timeout)
}

fn wait(fd: impl AsFd, events: PollFlags, timeout: Option<Duration>) -> Result<bool, Errno> {
    // A timeout that the kernel cannot represent counts as no limit.
    let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    crate::tally::one();
    let mut watched = [PollFd::new(&fd, events)];
    Ok(poll(&mut watched, limit.as_ref())? > 0)
}

/// `fsync(2)`: brings data and attributes to stable storage. After an error, the kernel may have dropped the pages, so
/// a later success proves nothing.
pub fn fsync(fd: impl AsFd) -> Result<(), Errno> {
    uncounted(Call::Fsync, || rustix::fs::fsync(fd))
}

/// Like [`fsync`], repeated on EINTR. After EINTR it is unknown whether the bytes are stored; repeating is safe.
pub fn sync(fd: impl AsFd) -> Result<(), Errno> {
    let fd = fd.as_fd();
    until_answered(|| fsync(fd))
}

/// Like [`fdatasync`], repeated on EINTR.
pub fn sync_data(fd: impl AsFd) -> Result<(), Errno> {
    let fd = fd.as_fd();
    until_answered(|| fdatasync(fd))
}

fn until_answered(call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// `fdatasync(2)`: brings the data, and the metadata needed to read it, to stable storage.
pub fn fdatasync(fd: impl AsFd) -> Result<(), Errno> {
    uncounted(Call::Fsync, || rustix::fs::fdatasync(fd))
}

/// `syncfs(2)`, repeated on EINTR: brings everything on the file system of `fd` to stable storage. It reports every
/// write-back that failed since `fd` was opened (Linux 5.8). Open `fd` before the bytes are written.
pub fn sync_filesystem(fd: impl AsFd) -> Result<(), Errno> {
    let fd = fd.as_fd();
    until_answered(|| uncounted(Call::Syncfs, || rustix::fs::syncfs(fd)))
}

/// Closes a duplicate of the descriptor and returns the result; the descriptor itself stays open. A network file system
/// or a FUSE server may report only here that it could not store the bytes written. Makes two calls.
///
/// After an error, the bytes may be lost, and a later success proves nothing.
pub fn flush(fd: impl AsFd) -> Result<(), Errno> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(fd, 0)?.into_raw_fd();
    // SAFETY: `into_raw_fd` above gave up ownership, and no other code has the number. The kernel closes it even if the
    // call fails.
    match unsafe { libc::close(duplicate) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// `fallocate(2)` with FALLOC_FL_KEEP_SIZE: allocates disk blocks for `len` bytes from `at`. The file keeps its size. If
/// the process dies, the file then has no zeros at its end. EOPNOTSUPP if the file system does not support it.
pub fn reserve(fd: impl AsFd, at: u64, len: u64) -> Result<(), Errno> {
    uncounted(Call::Fallocate, || rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, at, len))
}

/// `fallocate(2)` with FALLOC_FL_PUNCH_HOLE: makes `len` bytes from `at` read as zeros, and frees the whole blocks
/// among them. The file keeps its size. EOPNOTSUPP if the file system does not support it.
pub fn punch_hole(fd: impl AsFd, at: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    uncounted(Call::Fallocate, || rustix::fs::fallocate(fd, flags, at, len))
}

/// `ftruncate(2)`: sets the length of the file to `len` bytes.
pub fn ftruncate(fd: impl AsFd, len: u64) -> Result<(), Errno> {
    uncounted(Call::Ftruncate, || rustix::fs::ftruncate(fd, len))
}

/// `renameat2(2)`: renames atomically. With `no_replace`, returns EEXIST if the new name exists, and EINVAL if the file
/// system cannot guarantee that check. Without `no_replace`, falls back to `renameat(2)` if `renameat2` is refused.
pub fn rename(
    old_dir: impl AsFd,
    old_name: impl Arg + Copy,
    new_dir: impl AsFd,
    new_name: impl Arg + Copy,
    no_replace: bool,
) -> Result<(), Errno> {
    let (old_dir, new_dir) = (old_dir.as_fd(), new_dir.as_fd());
    let flags = if no_replace { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    let renamed = uncounted(Call::Rename, || {
        rustix::fs::renameat_with(old_dir, old_name, new_dir, new_name, flags)
    });
    match renamed {
        Err(errno) if !no_replace && may_be_unknown(errno) => {
            uncounted(Call::Rename, || rustix::fs::renameat(old_dir, old_name, new_dir, new_name))
        }
        answer => answer,
    }
}

/// Opens `/dev/null` for writing. Returns `None` unless it is a device: a regular file would store the bytes.
pub fn open_null() -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&null).ok()?;
    FileType::from_raw_mode(stat.st_mode).is_char_device().then_some(null)
}

/// Returns `true` if the errno may mean that the kernel, the file system or a seccomp filter does not support the call
/// or a flag. EINVAL and EPERM may also have other causes.
pub fn may_be_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
}

/// Renames a file or directory to a new name. EEXIST if the name exists.
///
/// If RENAME_NOREPLACE is refused, falls back to `linkat(2)` and `unlinkat(2)`. If a link is not possible either, as
/// for a directory, checks the name and then renames. Another process may create the name between these two calls.
pub fn rename_new(
    old_dir: impl AsFd,
    old_name: impl Arg + Copy,
    new_dir: impl AsFd,
    new_name: impl Arg + Copy,
) -> Result<(), Errno> {
    let (old_dir, new_dir) = (old_dir.as_fd(), new_dir.as_fd());
    match rename(old_dir, old_name, new_dir, new_name, true) {
        Err(errno) if may_be_unknown(errno) => {}
        answer => return answer,
    }
    match link(old_dir, old_name, new_dir, new_name) {
        Ok(()) => return rustix::fs::unlinkat(old_dir, old_name, AtFlags::empty()),
        Err(errno) if may_be_unknown(errno) || errno == Errno::MLINK => {}
        Err(errno) => return Err(errno),
    }
    match rustix::fs::statat(new_dir, new_name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rename(old_dir, old_name, new_dir, new_name, false),
        Err(errno) => Err(errno),
    }
}

/// `linkat(2)`: creates another name for a file. Does not follow a symbolic link. EEXIST if the new name exists.
pub fn link(
    old_dir: impl AsFd,
    old_name: impl Arg,
    new_dir: impl AsFd,
    new_name: impl Arg,
) -> Result<(), Errno> {
    uncounted(Call::Link, || {
        rustix::fs::linkat(old_dir, old_name, new_dir, new_name, AtFlags::empty())
    })
}

/// `linkat(2)`: gives a name to a file that was opened with O_TMPFILE. EEXIST if the name exists.
///
/// Makes up to two calls. On older kernels, AT_EMPTY_PATH requires CAP_DAC_READ_SEARCH, and fails with ENOENT or EPERM
/// without it. The second call then makes the link through `/proc/self/fd` (open(2), O_TMPFILE).
pub fn link_tmpfile(fd: impl AsFd, dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    let (fd, dir) = (fd.as_fd(), dir.as_fd());
    let name = name.into_c_str()?;
    uncounted(Call::Link, || match rustix::fs::linkat(fd, c"", dir, &*name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            rustix::fs::linkat(rustix::fs::CWD, path, dir, &*name, AtFlags::SYMLINK_FOLLOW)
        }
        answer => answer,
    })
}

/// Returns errno after a failed libc call.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::open;
    use std::fs;
    use std::io::Seek;

    #[test]
    fn reads_and_writes_move_the_offset_and_the_p_calls_do_not() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(write(&file, b"river"), Ok(5));
        assert_eq!(pwrite(&file, b"V", 2), Ok(1));
        assert_eq!(file.stream_position().unwrap(), 5);
        let mut buffer = [0; 8];
        assert_eq!(pread(&file, &mut buffer, 1), Ok(4));
        assert_eq!(&buffer[..4], b"iVer");
        assert_eq!(read(&file, &mut buffer), Ok(0));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_name_that_must_be_free_is_not_taken_from_anybody_where_noreplace_is_unknown() {
        use crate::fault::{Effect, Rule, Script};
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let dir = fs::File::open(place.path()).unwrap();
        fs::write(at("file"), "ours").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let unknown = || Rule::once(Call::Rename, 1, Effect::Errno(Errno::INVAL));
        let rename = |from: &str, to: &str| {
            Script::new(vec![unknown()]).run(|| rename_new(&dir, from, &dir, to)).value
        };
        assert_eq!(rename("file", "folder"), Err(Errno::EXIST));
        assert_eq!(rename("folder", "file"), Err(Errno::EXIST));
        assert_eq!((rename("file", "f"), rename("folder", "d")), (Ok(()), Ok(())));
        assert!(at("f").is_file() && at("d").is_dir() && !at("file").exists());
        // Another process takes the name after the rename was refused.
        let rival = at("new");
        let script = Script::new(vec![unknown()])
            .meanwhile(Call::Link, 1, move || fs::write(&rival, "theirs").unwrap());
        let outcome = script.run(|| rename_new(&dir, "f", &dir, "new"));
        assert_eq!(outcome.value, Err(Errno::EXIST));
        assert_eq!(fs::read(at("new")).unwrap(), b"theirs");
        assert_eq!(fs::read(at("f")).unwrap(), b"ours");
    }

    #[test]
    fn waiting_sees_bytes_room_a_closed_end_and_the_clock() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let moment = Some(Duration::from_millis(1));
        assert_eq!(wait_readable(&reader, moment), Ok(false));
        assert_eq!(wait_writable(&writer, None), Ok(true));
        write(&writer, b"x").unwrap();
        assert_eq!(wait_readable(&reader, None), Ok(true));
        read(&reader, &mut [0; 1]).unwrap();
        drop(writer);
        assert_eq!(wait_readable(&reader, Some(Duration::MAX)), Ok(true));
    }

    #[test]
    fn a_read_now_never_waits_and_moves_the_offset() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut buffer = [0; 3];
        match read_now(&reader, &mut buffer) {
            // Linux before 6.4.
            Err(Errno::OPNOTSUPP) => {}
            answer => {
                assert_eq!(answer, Err(Errno::AGAIN));
                write(&writer, b"river").unwrap();
                assert_eq!(read_now(&reader, &mut buffer), Ok(3));
                assert_eq!((read_now(&reader, &mut buffer), &buffer[..2]), (Ok(2), &b"er"[..]));
                drop(writer);
                assert_eq!(read_now(&reader, &mut buffer), Ok(0));
            }
        }
    }

    #[test]
    fn a_file_is_shaped_and_made_durable() {
        let file = tempfile::tempfile().unwrap();
        ftruncate(&file, 100).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100);
        // The temporary directory may be on a file system without fallocate.
        assert!(matches!(reserve(&file, 0, 1 << 16), Ok(()) | Err(Errno::OPNOTSUPP)));
        assert_eq!(file.metadata().unwrap().len(), 100);
        assert_eq!((fsync(&file), fdatasync(&file)), (Ok(()), Ok(())));
    }

    #[test]
    fn rename_keeps_an_existing_destination_on_request() {
        let place = tempfile::tempdir().unwrap();
        let dir = fs::File::open(place.path()).unwrap();
        fs::write(place.path().join("a"), "a").unwrap();
        fs::write(place.path().join("b"), "b").unwrap();
        assert_eq!(rename(&dir, "a", &dir, "b", true), Err(Errno::EXIST));
        assert_eq!(rename(&dir, "a", &dir, "b", false), Ok(()));
        assert_eq!(fs::read(place.path().join("b")).unwrap(), b"a");
    }

    #[test]
    fn a_nameless_file_gets_its_name_once() {
        let place = tempfile::tempdir().unwrap();
        let dir = fs::File::open(place.path()).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        let file = open(place.path(), OFlags::TMPFILE | OFlags::RDWR, mode).unwrap();
        write(&file, b"whole").unwrap();
        assert_eq!(link_tmpfile(&file, &dir, "name"), Ok(()));
        assert_eq!(fs::read(place.path().join("name")).unwrap(), b"whole");
        assert_eq!(link_tmpfile(&file, &dir, "name"), Err(Errno::EXIST));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_scripted_short_read_moves_only_that_much() {
        use crate::fault::{Effect, Rule, Script};
        let file = tempfile::tempfile().unwrap();
        write(&file, b"0123456789").unwrap();
        let script = Script::new(vec![
            Rule::always(Call::Pread, Effect::Short(3)),
            Rule::always(Call::Link, Effect::Errno(Errno::PERM)),
        ]);
        let mut buffer = [0; 10];
        let outcome = script.run(|| pread(&file, &mut buffer, 2));
        assert_eq!((outcome.value, outcome.fired), (Ok(3), 1));
        assert_eq!(&buffer, b"234\0\0\0\0\0\0\0");
        let linked = script.run(|| link_tmpfile(&file, rustix::fs::CWD, "never"));
        assert_eq!(linked.value, Err(Errno::PERM));
    }
}
