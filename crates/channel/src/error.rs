//! Errors of the communication between two processes, with the progress before the failure.

use std::path::{Path, PathBuf};
use thalweg_core::{
    failed::{Failed, Undone, quoted},
    shown,
};
use thalweg_sys::Errno;

/// An error of a link, a ring or a bulk transfer. The `Display` text contains no terminal control characters, even if
/// the peer sent some. The fields may contain them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer ended without closing the channel. Everything that it had committed was delivered before this error.
    #[error(
        "the peer died after {delivered} messages (or bytes, in a bulk transfer); {partial} bytes of an \
         unfinished message were dropped; connect again for a new channel"
    )]
    PeerDied {
        /// Number of messages (ring) or bytes (bulk transfer) that arrived completely.
        delivered: u64,
        /// Bytes of an incomplete last message, which were not delivered.
        partial: u64,
    },
    /// The peer closed its end. Everything that it had sent was delivered before this error.
    #[error(
        "the peer closed the channel after {delivered} messages (or bytes, in a bulk transfer)"
    )]
    Closed {
        /// See [`Error::PeerDied`].
        delivered: u64,
    },
    /// The peer wrote data that the format does not allow. The channel cannot be used any more.
    #[error("invalid data from the peer: {}; the channel cannot be used any more", shown(.what))]
    Corrupt {
        /// The invalid value, its position and the allowed values.
        what: String,
    },
    /// The operation is not allowed. Examples: another user, a second consumer, memory without its seals.
    #[error("not permitted: {}", shown(.why))]
    NotPermitted {
        /// The process or object, the refused operation, and the rule.
        why: String,
    },
    /// The deadline passed. The call can be repeated without loss, except in the middle of a buffer of a bulk transfer,
    /// which is aborted.
    #[error("timed out")]
    Timeout,
    /// The message or buffer is larger than the limit.
    #[error("{len} bytes are too large: at most {most}{}", .instead.map(|way| format!("; {way}")).unwrap_or_default())]
    TooLarge {
        /// Requested size in bytes.
        len: u64,
        /// The largest allowed size in bytes.
        most: u64,
        /// Another method to suggest, if one exists.
        instead: Option<&'static str>,
    },
    /// The calling process is a forked child; the channel belongs to the parent.
    #[error(
        "not permitted: this channel belongs to process {owner}, which forked; open a new channel in the child"
    )]
    Forked {
        /// The process that opened the channel.
        owner: u32,
    },
    /// A system call failed.
    #[error("{}", Undone { call, errno: *.errno })]
    System {
        /// Name of the system call.
        call: &'static str,
        /// The errno of the call.
        errno: Errno,
    },
    /// The listener's socket cannot be bound, or a client cannot connect to it.
    #[error("{}{}", Failed { what: &quoted(.path), call, errno: *.errno, moved: 0 }, advice(call, *.errno))]
    Meeting {
        /// Name of the system call that failed.
        call: &'static str,
        /// Path of the socket or of its directory.
        path: PathBuf,
        /// The errno of the call.
        errno: Errno,
    },
}

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a closure for `map_err` that builds [`Error::System`] for the call `call`.
    pub fn system(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { call, errno }
    }

    /// Returns a closure for `map_err` that builds [`Error::Meeting`] for `path`.
    pub(crate) fn at(call: &'static str, path: &Path) -> impl Fn(Errno) -> Self {
        move |errno| Self::Meeting { call, path: path.to_owned(), errno }
    }

    /// Returns `true` if no process listens at the path, because it has not started yet or has ended.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Meeting { errno: Errno::NOENT | Errno::CONNREFUSED, .. })
    }

    /// Returns a hint for the user about an [`Error::Meeting`]; empty for other errors.
    pub fn advice(&self) -> &'static str {
        if let Self::Meeting { call, errno, .. } = self { advice(call, *errno) } else { "" }
    }

    /// Builds [`Error::Corrupt`], which reports a protocol violation of the peer.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// Builds [`Error::NotPermitted`].
    pub fn not_permitted(why: impl Into<String>) -> Self {
        Self::NotPermitted { why: why.into() }
    }
}

fn advice(call: &str, errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT if call != "connect" => "; create the directory of the path first",
        Errno::NOENT => "; start the process that listens there first, and check the path",
        Errno::CONNREFUSED => "; the process that listened there has ended: start it again",
        Errno::ADDRINUSE => "; another process listens there, or the path is not a socket",
        Errno::NAMETOOLONG => "; the path of a socket has at most 107 bytes",
        Errno::ACCESS => "; this user cannot search or write the directory",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_how_far_and_what_next() {
        let died = Error::PeerDied { delivered: 3, partial: 7 }.to_string();
        assert!(died.contains("3 messages") && died.contains("7 bytes"), "{died}");
        let large = Error::TooLarge { len: 9, most: 8, instead: Some("use bulk") };
        assert_eq!(large.to_string(), "9 bytes are too large: at most 8; use bulk");
        let call = Error::system("memfd_create")(Errno::NOSYS).to_string();
        let words = "cannot create shared memory: function not implemented (memfd_create: ENOSYS)";
        assert_eq!(call, words);
        let absent = Error::at("connect", Path::new("/run/x\n"))(Errno::NOENT);
        assert!(absent.is_absent());
        let absent = absent.to_string();
        let words = "cannot connect to '/run/x\\n': no such file or directory (connect: ENOENT); ";
        assert!(absent.starts_with(words), "{absent}");
        assert!(absent.ends_with("start the process that listens there first, and check the path"));
    }
}
