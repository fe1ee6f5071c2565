//! What can go wrong between two processes, and how far they had come.

use std::path::{Path, PathBuf};
use thalweg_core::{
    failed::{Failed, Undone, quoted},
    shown,
};
use thalweg_sys::Errno;

/// An error of a link, a ring or a bulk transfer. Printed, it holds no character that steers a
/// terminal, whatever the peer said; its fields are as they came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other process ended without a goodbye. Everything it had committed was delivered first.
    #[error(
        "the peer died: {delivered} delivered, {partial} bytes of an unfinished one left out; \
         connect again for a new channel"
    )]
    PeerDied {
        /// What arrived whole: messages on a ring, bytes of a bulk transfer.
        delivered: u64,
        /// Bytes that had arrived of a message that will never be whole; they were not delivered.
        partial: u64,
    },
    /// The other side said goodbye and everything it had sent was delivered.
    #[error("the peer closed the channel: {delivered} delivered")]
    Closed {
        /// As in [`Error::PeerDied`].
        delivered: u64,
    },
    /// The peer wrote something that the format does not allow. The channel is not used any more.
    #[error("corrupt: {}; the channel is given up", shown(.what))]
    Corrupt {
        /// What was found where, and what is allowed there.
        what: String,
    },
    /// Somebody may not do this: another user, a second consumer, memory without its seals.
    #[error("not permitted: {}", shown(.why))]
    NotPermitted {
        /// Who, what, and the rule.
        why: String,
    },
    /// The deadline passed. Nothing is lost: the call can be made again. Only a bulk transfer in the
    /// middle of a buffer is given up.
    #[error("timed out")]
    Timeout,
    /// More than fits.
    #[error("{len} bytes are too large: at most {most}{}", .instead.map(|way| format!("; {way}")).unwrap_or_default())]
    TooLarge {
        /// Bytes asked for.
        len: u64,
        /// The most that would do.
        most: u64,
        /// What to use instead, if there is something.
        instead: Option<&'static str>,
    },
    /// The process forked, and this is the child: the channel belongs to the parent.
    #[error(
        "not permitted: this end belongs to process {owner}, which forked; open one in the child"
    )]
    Forked {
        /// The process that opened the channel.
        owner: u32,
    },
    /// A system call failed.
    #[error("{}", Undone { call, errno: *.errno })]
    System {
        /// The call, by its own name.
        call: &'static str,
        /// What the kernel answered.
        errno: Errno,
    },
    /// The path where two processes meet cannot be listened at, or reached.
    #[error("{}{}", Failed { what: &quoted(.path), call, errno: *.errno, moved: 0 }, advice(call, *.errno))]
    Meeting {
        /// The call, by its own name.
        call: &'static str,
        /// The socket's path, or its directory.
        path: PathBuf,
        /// What the kernel answered.
        errno: Errno,
    },
}

/// What the operations of this crate answer.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: a failed call by its name.
    pub fn system(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { call, errno }
    }

    /// For `map_err`: the same, where two processes meet.
    pub(crate) fn at(call: &'static str, path: &Path) -> impl Fn(Errno) -> Self {
        move |errno| Self::Meeting { call, path: path.to_owned(), errno }
    }

    /// Whether no process listens at the path: it has not been started yet, or has ended.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Meeting { errno: Errno::NOENT | Errno::CONNREFUSED, .. })
    }

    /// What to do about a path where two processes cannot meet.
    pub fn advice(&self) -> &'static str {
        if let Self::Meeting { call, errno, .. } = self { advice(call, *errno) } else { "" }
    }

    /// For reports of what the peer did wrong.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// For refusals.
    pub fn not_permitted(why: impl Into<String>) -> Self {
        Self::NotPermitted { why: why.into() }
    }
}

fn advice(call: &str, errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT if call != "connect" => {
            "; the directory of the path is not there: make it first"
        }
        Errno::NOENT => "; start the process that listens there first, and check the path",
        Errno::CONNREFUSED => "; the process that listened there has ended: start it again",
        Errno::ADDRINUSE => "; another process listens there, or the name is not a socket's",
        Errno::NAMETOOLONG => "; the path of a socket has at most 107 bytes",
        Errno::ACCESS => "; this user may not enter or write the directory",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_how_far_and_what_next() {
        let died = Error::PeerDied { delivered: 3, partial: 7 }.to_string();
        assert!(died.contains("3 delivered") && died.contains("7 bytes"), "{died}");
        let large = Error::TooLarge { len: 9, most: 8, instead: Some("use bulk") };
        assert_eq!(large.to_string(), "9 bytes are too large: at most 8; use bulk");
        let call = Error::system("memfd_create")(Errno::NOSYS).to_string();
        let words = "cannot make shared memory: function not implemented (memfd_create: ENOSYS)";
        assert_eq!(call, words);
        let absent = Error::at("connect", Path::new("/run/x\n"))(Errno::NOENT);
        assert!(absent.is_absent());
        let absent = absent.to_string();
        let words = "cannot connect to '/run/x\\n': no such file or directory (connect: ENOENT); ";
        assert!(absent.starts_with(words), "{absent}");
        assert!(absent.ends_with("start the process that listens there first, and check the path"));
    }
}
