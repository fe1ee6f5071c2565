//! Errors during a transfer, and reasons against a mechanism.

use std::fmt;
use thalweg_sys::Errno;

/// The endpoint that a failed call concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Reading the source.
    Source,
    /// Writing the sink.
    Sink,
    /// The call uses both endpoints and does not report which of them failed.
    Either,
    /// Neither endpoint, but a pipe, a ring or a mapping that belongs to the mechanism.
    Own,
}

/// A failed call, and the number of bytes moved before it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{mechanism} {}", self.between("the source", "the sink"))]
pub struct Error {
    /// The mechanism that made the call.
    pub mechanism: &'static str,
    /// The name of the system call.
    pub call: &'static str,
    /// The kernel's error.
    pub errno: Errno,
    /// The endpoint that the call concerns.
    pub side: Side,
    /// Bytes delivered to the sink: by this step if a mover returns the error, by the whole
    /// transfer if the driver does.
    pub moved: u64,
}

impl Error {
    /// Returns the errno's symbol and its meaning: `ENOSPC (No space left on device)`.
    pub fn errno_name(&self) -> String {
        errno_name(self.errno)
    }

    /// Formats the error with display names for both endpoints: `cannot write 'b' after 42 bytes:
    /// no space left on device (splice: ENOSPC)`.
    pub fn between(&self, source: &str, sink: &str) -> String {
        let (verb, what) = match self.side {
            Side::Source => ("read", source.to_owned()),
            Side::Sink => ("write", sink.to_owned()),
            Side::Either | Side::Own => ("copy", format!("{source} to {sink}")),
        };
        let (errno, call) = (self.errno, self.call);
        format!("cannot {verb} {what}{}: {}", AfterBytes(self.moved), Why { call, errno })
    }

    /// Returns `true` if the kernel refuses *this call* on *these endpoints*, so that a plainer
    /// call may still work. Any other errno is a failure of the data or the devices.
    pub fn is_refusal(&self) -> bool {
        // The errno values of GNU cp for copy_file_range, and five more groups. EFBIG: sendfile and
        // copy_file_range have limits of their own. ENOMEM, EMFILE, ENFILE, ENOBUFS: the
        // mechanism's own ring or pipe could not be created. ESPIPE: the call needs an offset, and
        // the endpoint has none. ENODEV: the file cannot be mapped. EFAULT: a mapped source shrank.
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

    /// Returns `true` if a signal interrupted the call, so that it should be repeated.
    pub fn is_interruption(&self) -> bool {
        self.errno == Errno::INTR
    }

    /// Returns `true` if a non-blocking endpoint has no data or no room, so that the caller must
    /// wait.
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
            Self::Own => "a resource of the mechanism",
        })
    }
}

/// Formats an error without its number: `No space left on device`.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Formats an errno: `ENOSPC (No space left on device)`.
pub fn errno_name(errno: Errno) -> String {
    let text = reason(&errno.into());
    // `Errno` prints only through Debug, and rustix's constants lack the leading E. The table in
    // `symbol` therefore supplies the names.
    let symbol = symbol(errno);
    if symbol.is_empty() {
        format!("errno {} ({text})", errno.raw_os_error())
    } else {
        format!("{symbol} ({text})")
    }
}

/// Returns the symbol of an errno, or an empty string if the table does not contain it.
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

/// Formats as `no space left on device (write: ENOSPC)`.
pub(crate) struct Why<'a> {
    pub call: &'a str,
    pub errno: Errno,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", meaning(self.errno), self.call, code(self.errno))
    }
}

/// Formats as ` after 42 bytes`; empty for 0 bytes.
pub(crate) struct AfterBytes(pub u64);

impl fmt::Display for AfterBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " after {} bytes", self.0) }
    }
}

/// Returns the meaning of an errno: `no space left on device`.
fn meaning(errno: Errno) -> String {
    let text = reason(&errno.into());
    // Only an ordinary first word is put in lower case: "RFS specific error" keeps its capitals.
    let shouted = text.chars().nth(1).is_some_and(|second| !second.is_lowercase());
    match text.chars().next() {
        Some(first) if !shouted => first.to_lowercase().chain(text.chars().skip(1)).collect(),
        _ => text,
    }
}

/// Returns `ENOSPC`, or a number if the errno's symbol is unknown here.
fn code(errno: Errno) -> String {
    match symbol(errno) {
        "" => format!("errno {}", errno.raw_os_error()),
        symbol => symbol.to_owned(),
    }
}

/// The reason that a mechanism is not used for a transfer, in words for users. This is an expected
/// result, not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unfit {
    /// The complete reason: `FICLONERANGE: EOPNOTSUPP (ext4 has no reflink)`.
    pub reason: String,
    /// The errno, if a system call was tried.
    pub errno: Option<Errno>,
}

impl Unfit {
    /// Creates a reason that was found without a system call.
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), errno: None }
    }
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self { reason: format!("{}: {}", error.call, error.errno_name()), errno: Some(error.errno) }
    }
}
