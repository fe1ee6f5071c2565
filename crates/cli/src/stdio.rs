//! Standard input and output as endpoints of a transfer, and whether standard error is a terminal.

use rustix::{
    event::epoll,
    fs::{SeekFrom, fstat, seek},
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, ioctl_fionread},
    stdio,
};
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::OnceLock,
};
use thalweg_core::{End, Kind, atomic_file::Destination};
use thalweg_sys::{host, pipe, standard};

use crate::exit::{CommandFailure, Exit, INPUT, OUTPUT};

/// Largest remainder of a file, in bytes, that fits into a pipe of default capacity.
pub const SHORT: u64 = 64 << 10;

/// Returns standard input. Its own offset is used and advanced, as in `(head -c 10; thalweg pipe; cat) < f`.
pub fn input() -> Result<End<'static>, CommandFailure> {
    expect_open(0, INPUT)?;
    End::inherited(stdio::stdin()).map_err(|e| CommandFailure::of_call("fstat", INPUT, e))
}

/// Returns standard output. Its own offset is used and advanced, because several programs may write to one log.
pub fn output() -> Result<End<'static>, CommandFailure> {
    expect_open(1, OUTPUT)?;
    End::inherited(stdio::stdout()).map_err(|e| CommandFailure::of_call("fstat", OUTPUT, e))
}

/// Returns `true` if standard error is a terminal. The result is kept, because several parts of a command need it.
pub fn is_error_terminal() -> bool {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    *IS_TERMINAL.get_or_init(|| std::io::stderr().is_terminal())
}

/// Opens a path for writing; `-` is standard output.
pub fn destination(path: &Path) -> Result<Destination, CommandFailure> {
    if path.as_os_str() != "-" {
        return Destination::open(path)
            .map_err(|error| CommandFailure::of_destination(error, path));
    }
    expect_open(1, OUTPUT)?;
    let fd = fcntl_dupfd_cloexec(stdio::stdout(), 3);
    fd.map(Destination::Direct).map_err(|errno| CommandFailure::of_call("fcntl", OUTPUT, errno))
}

/// Returns an error if the descriptor was closed when this process started.
pub fn expect_open(fd: i32, name: &str) -> Result<(), CommandFailure> {
    if standard::was_closed(fd) {
        return Err(CommandFailure::new(Exit::Failed, format!("{name} is closed (EBADF)")));
    }
    Ok(())
}

/// If standard input or output was closed at start, replaces it with a descriptor that can be neither read nor
/// written. Rust's start-up code has opened `/dev/null` there, which would silently discard everything written to
/// `/dev/stdout`.
pub fn disarm_closed() {
    let closed = [standard::was_closed(0), standard::was_closed(1)];
    if closed == [false; 2] {
        return;
    }
    // An epoll instance cannot be reopened through `/dev/fd`, and can be neither read nor written.
    let Ok(blind) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
    if closed[0] && stdio::dup2_stdin(&blind).is_ok() {
        // Child processes find the descriptor closed, as this process did. The call fails only for a closed
        // descriptor.
        let _ = fcntl_setfd(stdio::stdin(), FdFlags::CLOEXEC);
    }
    if closed[1] && stdio::dup2_stdout(&blind).is_ok() {
        let _ = fcntl_setfd(stdio::stdout(), FdFlags::CLOEXEC);
    }
}

/// Returns the number of bytes from the offset to the end of a regular file; `None` if its size is 0, as in procfs.
pub fn left_in(end: &End<'_>) -> Option<u64> {
    if end.kind != Kind::File {
        return None;
    }
    let stat = fstat(end.fd).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0)?;
    let here = rustix::fs::tell(end.fd).ok()?;
    Some(size.saturating_sub(here))
}

/// Sets a pipe's capacity to the limit for unprivileged users, or as near to it as the kernel currently allows. The
/// programs at the other end also gain: larger reads and writes, fewer context switches. A pipe that can hold all
/// `expected` bytes keeps its capacity. [`SHORT`] data needs no query, because it fits into the default capacity.
pub fn enlarge(end: &End<'_>, expected: Option<u64>) {
    if end.kind != Kind::Pipe || expected.is_some_and(|expected| expected <= SHORT) {
        return;
    }
    let Ok(size) = pipe::size(end.fd) else { return };
    if expected.is_some_and(|expected| expected <= size as u64) {
        return;
    }
    let Some(most) = host::pipe_max_size() else { return };
    let mut wish = usize::try_from(most).unwrap_or(usize::MAX);
    while wish > size && pipe::set_size(end.fd, wish).is_err() {
        wish /= 2;
    }
}

/// Returns `true` if a write of little data will not wait for another process: for files, `/dev/null` and empty pipes.
pub fn has_room(sink: &End<'_>) -> bool {
    match sink.kind {
        Kind::File | Kind::Null => true,
        Kind::Pipe => ioctl_fionread(sink.fd) == Ok(0),
        Kind::Memory | Kind::Socket | Kind::Device => false,
    }
}

/// Moves the offset of a file back over bytes that were read and not delivered. Returns `false` if the source cannot
/// seek.
pub fn put_back(end: &End<'_>, lost: u64) -> bool {
    let Ok(lost) = i64::try_from(lost) else { return false };
    end.kind == Kind::File && seek(end.fd, SeekFrom::Current(-lost)).is_ok()
}

/// Returns a path for opening standard input again with the same bytes. `None` for sockets, and for files that were
/// read in part.
pub fn reopenable(input: &End<'_>) -> Option<PathBuf> {
    let fresh = || rustix::fs::tell(input.fd) == Ok(0);
    match input.kind {
        Kind::Socket | Kind::Memory => None,
        Kind::File if !fresh() => None,
        _ => Some(PathBuf::from("/dev/stdin")),
    }
}

/// Moves the offset of a file to its end, because its bytes were read through another descriptor.
pub fn skip_all(input: &End<'_>) {
    if input.kind == Kind::File {
        // Without this call, a later reader would read the bytes again. Its failure has no remedy, so the error is
        // ignored.
        let _ = seek(input.fd, SeekFrom::End(0));
    }
}

/// Returns `true` if both endpoints are the same regular file.
pub fn same_file(a: &End<'_>, b: &End<'_>) -> bool {
    if a.kind != Kind::File || b.kind != Kind::File {
        return false;
    }
    match (fstat(a.fd), fstat(b.fd)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Returns `true` if source and sink are one file, and the transfer would read bytes that it has written.
pub fn feeds_itself(source: &End<'_>, sink: &End<'_>) -> bool {
    if !same_file(source, sink) {
        return false;
    }
    let appends = rustix::fs::fcntl_getfl(sink.fd)
        .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND));
    match (rustix::fs::tell(source.fd), rustix::fs::tell(sink.fd)) {
        (Ok(from), Ok(to)) => appends || from < to,
        _ => true,
    }
}
