//! What can go wrong while moving, and why a mechanism is not used.

use std::fmt;
use thalweg_sys::Errno;

/// Which end of a transfer a failed call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Reading the source.
    Source,
    /// Writing the sink.
    Sink,
    /// The call touches both ends and does not say which one failed.
    Either,
    /// Neither: a pipe, a ring or a mapping of the mechanism's own.
    Own,
}

/// A call that failed, and how far the mechanism had come.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{mechanism} {}", self.between("the source", "the sink"))]
pub struct Error {
    /// Which mechanism made the call.
    pub mechanism: &'static str,
    /// The system call, by its own name.
    pub call: &'static str,
    /// What the kernel answered.
    pub errno: Errno,
    /// The end the call was about.
    pub side: Side,
    /// Bytes delivered to the sink, as far as the holder of this error knows: by this step when a
    /// mover returns it, by the whole transfer when the driver does.
    pub moved: u64,
}

impl Error {
    /// The errno's symbol and its meaning: `ENOSPC (No space left on device)`.
    pub fn errno_name(&self) -> String {
        errno_name(self.errno)
    }

    /// In words, between two ends as people call them: `cannot write 'b' after 42 bytes: no space
    /// left on device (splice: ENOSPC)`.
    pub fn between(&self, source: &str, sink: &str) -> String {
        let (verb, what) = match self.side {
            Side::Source => ("read", source.to_owned()),
            Side::Sink => ("write", sink.to_owned()),
            Side::Either | Side::Own => ("copy", format!("{source} to {sink}")),
        };
        let (errno, call) = (self.errno, self.call);
        format!("cannot {verb} {what}{}: {}", After(self.moved), Why { call, errno })
    }

    /// Whether this is a refusal: the kernel will not do *this call* on *these ends*, and a plainer
    /// call may still work. Any other errno says something about the data or the devices.
    pub fn is_refusal(&self) -> bool {
        // GNU cp's list for copy_file_range, plus EFBIG (sendfile and copy_file_range have limits
        // of their own), ENOMEM and EMFILE (a ring or a pipe we wanted, not the caller's), ESPIPE,
        // ENODEV (mmap of a file that cannot be mapped) and EFAULT (a mapped source that shrank).
        matches!(
            self.errno,
            Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::INVAL
                | Errno::XDEV
                | Errno::PERM
                | Errno::ACCESS
                | Errno::BADF
                | Errno::TXTBSY
                | Errno::NOTTY
                | Errno::FBIG
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::SPIPE
                | Errno::NODEV
                | Errno::FAULT
        )
    }

    /// Whether the call should simply be made again: a signal came.
    pub fn is_interruption(&self) -> bool {
        self.errno == Errno::INTR
    }

    /// Whether an end that does not block has nothing to give or no room: wait, then go on.
    pub fn is_would_block(&self) -> bool {
        self.errno == Errno::AGAIN
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "the source",
            Self::Sink => "the sink",
            Self::Either => "the source or the sink",
            Self::Own => "a resource of its own",
        })
    }
}

/// `ENOSPC (No space left on device)`.
pub fn errno_name(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // rustix prints `Errno::NOSPC`-less forms only through Debug; its constants lack the leading E.
    let symbol = symbol(errno);
    if symbol.is_empty() {
        format!("errno {} ({text})", errno.raw_os_error())
    } else {
        format!("{symbol} ({text})")
    }
}

/// The symbol of an errno this project meets, or an empty text.
pub fn symbol(errno: Errno) -> &'static str {
    const SYMBOLS: &[(Errno, &str)] = &[
        (Errno::ACCESS, "EACCES"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::BADF, "EBADF"),
        (Errno::BUSY, "EBUSY"),
        (Errno::CANCELED, "ECANCELED"),
        (Errno::CONNABORTED, "ECONNABORTED"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::CONNRESET, "ECONNRESET"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::EXIST, "EEXIST"),
        (Errno::FAULT, "EFAULT"),
        (Errno::FBIG, "EFBIG"),
        (Errno::HOSTUNREACH, "EHOSTUNREACH"),
        (Errno::ILSEQ, "EILSEQ"),
        (Errno::INTR, "EINTR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::IO, "EIO"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::LOOP, "ELOOP"),
        (Errno::MFILE, "EMFILE"),
        (Errno::MLINK, "EMLINK"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NETUNREACH, "ENETUNREACH"),
        (Errno::NFILE, "ENFILE"),
        (Errno::NOBUFS, "ENOBUFS"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOLCK, "ENOLCK"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTCONN, "ENOTCONN"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::NXIO, "ENXIO"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::PERM, "EPERM"),
        (Errno::PIPE, "EPIPE"),
        (Errno::RANGE, "ERANGE"),
        (Errno::ROFS, "EROFS"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::SRCH, "ESRCH"),
        (Errno::STALE, "ESTALE"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::XDEV, "EXDEV"),
    ];
    SYMBOLS.iter().find(|(e, _)| *e == errno).map_or("", |(_, s)| s)
}

/// `no space left on device (write: ENOSPC)`.
pub(crate) struct Why<'a> {
    pub call: &'a str,
    pub errno: Errno,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", meaning(self.errno), self.call, code(self.errno))
    }
}

/// ` after 42 bytes`; nothing of nothing.
pub(crate) struct After(pub u64);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " after {} bytes", self.0) }
    }
}

/// What an errno means: `no space left on device`.
fn meaning(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // "RFS specific error" and its like keep their capitals.
    let shouted = text.chars().nth(1).is_some_and(|second| !second.is_lowercase());
    match text.chars().next() {
        Some(first) if !shouted => first.to_lowercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}

/// `ENOSPC`; a number for one that has no symbol here.
fn code(errno: Errno) -> String {
    match symbol(errno) {
        "" => format!("errno {}", errno.raw_os_error()),
        symbol => symbol.to_owned(),
    }
}

/// Why a mechanism is not used for a job, in words a person understands. An answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unfit {
    /// The whole reason: `FICLONERANGE: EOPNOTSUPP (ext4 has no reflink)`.
    pub reason: String,
    /// The errno behind it, if the kernel was asked.
    pub errno: Option<Errno>,
}

impl Unfit {
    /// A reason found by looking, not by asking the kernel.
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), errno: None }
    }
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self { reason: format!("{}: {}", error.call, error.errno_name()), errno: Some(error.errno) }
    }
}
