//! Standard input and output as ends of a transfer.

use rustix::{
    event::epoll,
    fs::{FileType, SeekFrom, Stat, fstat, seek},
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    stdio,
};
use std::path::{Path, PathBuf};
use thalweg_core::{End, Kind, atomic_file::Destination};
use thalweg_sys::{host, pipe, standard};

use crate::exit::{Exit, Failure, INPUT, OUTPUT};

/// Standard input. See [`inherited`].
pub fn input() -> Result<End<'static>, Failure> {
    expect_open(0, INPUT)?;
    let end = End::of(stdio::stdin()).map_err(|e| Failure::of_call("fstat", INPUT, e))?;
    Ok(inherited(end))
}

/// Standard output. See [`inherited`].
pub fn output() -> Result<End<'static>, Failure> {
    expect_open(1, OUTPUT)?;
    let end = End::of(stdio::stdout()).map_err(|e| Failure::of_call("fstat", OUTPUT, e))?;
    Ok(inherited(end))
}

/// What a path leads to, to be written; `-` is standard output.
pub fn destination(path: &Path) -> Result<Destination, Failure> {
    if path.as_os_str() != "-" {
        return Destination::open(path).map_err(|error| Failure::of_destination(error, path));
    }
    expect_open(1, OUTPUT)?;
    let fd = fcntl_dupfd_cloexec(stdio::stdout(), 3);
    fd.map(Destination::Direct).map_err(|errno| Failure::of_call("fcntl", OUTPUT, errno))
}

/// Refuses a descriptor that was closed when this process was started.
pub fn expect_open(fd: i32, name: &str) -> Result<(), Failure> {
    if standard::was_closed(fd) {
        return Err(Failure::new(Exit::Failed, format!("{name} is closed (EBADF); open it")));
    }
    Ok(())
}

/// Puts something that takes no byte and gives none in the place of a standard input or output that
/// was closed, where Rust's start-up code has opened `/dev/null`: under another name (`/dev/stdout`)
/// that would take everything and keep nothing.
pub fn disarm_closed() {
    let closed = [standard::was_closed(0), standard::was_closed(1)];
    if closed == [false; 2] {
        return;
    }
    // It cannot be opened again by a name, and neither read nor written.
    let Ok(blind) = epoll::create(epoll::CreateFlags::CLOEXEC) else { return };
    if closed[0] && stdio::dup2_stdin(&blind).is_ok() {
        // What we start finds it closed, as we did. It fails for no open descriptor.
        let _ = fcntl_setfd(stdio::stdin(), FdFlags::CLOEXEC);
    }
    if closed[1] && stdio::dup2_stdout(&blind).is_ok() {
        let _ = fcntl_setfd(stdio::stdout(), FdFlags::CLOEXEC);
    }
}

/// The descriptor's own offset is used and moved, since it is shared with whoever ran us:
/// `(head -c 10; thalweg pipe; cat) < f`, and two writers of one log.
fn inherited(end: End<'static>) -> End<'static> {
    End { at: None, ..end }
}

/// Bytes from here to the end, for a regular file that says so.
pub fn left_in(end: &End<'_>) -> Option<u64> {
    let stat = fstat(end.fd).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0)?;
    let here = rustix::fs::tell(end.fd).ok()?;
    (end.kind == Kind::File).then_some(size.saturating_sub(here))
}

/// Gives a pipe the capacity the kernel grants anybody, or as much of it as it grants us now. The
/// programs on the other side gain as much as we do: larger reads and writes, fewer switches.
pub fn enlarge(end: &End<'_>) {
    if end.kind != Kind::Pipe {
        return;
    }
    let (Some(most), Ok(size)) = (host::pipe_max_size(), pipe::size(end.fd)) else { return };
    let mut wish = usize::try_from(most).unwrap_or(usize::MAX);
    while wish > size && pipe::set_size(end.fd, wish).is_err() {
        wish /= 2;
    }
}

/// Puts back what was read from a file and not delivered; false if the source cannot take it.
pub fn put_back(end: &End<'_>, lost: u64) -> bool {
    let Ok(lost) = i64::try_from(lost) else { return false };
    end.kind == Kind::File && seek(end.fd, SeekFrom::Current(-lost)).is_ok()
}

/// A name under which standard input can be opened again and gives the bytes it would give us;
/// `None` for sockets, and for files that were read in part.
pub fn reopenable(input: &End<'_>) -> Option<PathBuf> {
    let fresh = || rustix::fs::tell(input.fd) == Ok(0);
    match input.kind {
        Kind::Socket | Kind::Memory => None,
        Kind::File if !fresh() => None,
        _ => Some(PathBuf::from("/dev/stdin")),
    }
}

/// Moves the offset of a file to its end: its bytes were read under another descriptor.
pub fn skip_all(input: &End<'_>) {
    if input.kind == Kind::File {
        // Without this a later reader would see the bytes twice; more cannot be done about it.
        let _ = seek(input.fd, SeekFrom::End(0));
    }
}

/// Whether two ends are one regular file.
pub fn same_file(a: &End<'_>, b: &End<'_>) -> bool {
    let regular = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match (fstat(a.fd), fstat(b.fd)) {
        (Ok(a), Ok(b)) => regular(&a) && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Whether a transfer between two ends of one file would read what it has written itself.
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
