//! Errors of a fetch.

use std::time::Duration;
use thalweg_core::{
    Cancelled,
    atomic_file::{CallFailed, DestinationError},
    failed::loses_written_bytes,
    quantity,
};
use thalweg_sys::Errno;

/// The reason why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL or an option is invalid.
    #[error("{0}")]
    Usage(String),
    /// The request is valid, but this program or machine does not support it.
    #[error("{0}")]
    Unsupported(String),
    /// The connection to the server failed or broke.
    #[error("cannot {doing} {host}: {why}")]
    Network { doing: &'static str, host: String, why: String },
    /// The first connection to a server failed: unknown name, no route, refused, or no answer.
    #[error("cannot {doing} {host}: {why}")]
    Unreached { doing: &'static str, host: String, why: String },
    /// The command that connects to the server failed before the server answered.
    #[error("{host}: {why}")]
    Remote {
        host: String,
        /// Exit code of the command.
        code: Option<i32>,
        why: String,
    },
    /// The stream to the server has ended, and cannot be opened again.
    #[error("the connection to {0} has ended")]
    Ended(String),
    /// TLS certificate verification failed.
    #[error("TLS connection to {host} failed: {why}")]
    Untrusted { host: String, why: String },
    /// The server sent nothing for this long.
    #[error("{host} sent nothing for {}", quantity::duration(*.waited))]
    Stalled { host: String, waited: Duration },
    /// The server answered with an error status.
    #[error("the server returned {status}{}{reason}", if .reason.is_empty() { "" } else { " " })]
    Status {
        status: u16,
        reason: String,
        /// Delay after which the server allows a retry (Retry-After).
        after: Option<Duration>,
    },
    /// The proxy answered with an error status.
    #[error("the proxy returned {status}{}{reason}", if .reason.is_empty() { "" } else { " " })]
    Proxy { status: u16, reason: String },
    /// The response contradicts itself or the request.
    #[error("invalid response: {0}")]
    Broken(String),
    /// Another program changed the temporary copy of a tree's list.
    #[error("another program changed the temporary copy of the list of files")]
    ListChanged,
    /// The connection ended before the body did.
    #[error("the connection closed early: received {got} of {want}")]
    Short { got: String, want: String },
    /// The server sent different versions of the file in several responses.
    #[error("the file changes on the server during the download; run the command again later")]
    Changing,
    /// Moving bytes from the connection or into the file failed.
    #[error("{}", .0.between("the connection", "the destination"))]
    Moved(thalweg_core::Error),
    /// An operation on the destination failed.
    #[error("{0}")]
    Destination(DestinationError),
    /// The file is complete, but its digest differs from the expected one.
    #[error("{hash} is {got}, but expected {want} (from {by}); the file was not saved")]
    Differs { hash: &'static str, got: String, want: String, by: &'static str },
    /// An entry of a tree's list cannot be created at its path.
    #[error("{0}")]
    Listed(String),
    /// The server now has another version of the file than its list describes.
    #[error("differs from the server's list: {0}; run the same command again to fetch a new list")]
    OutOfDate(String),
    /// The server lists the directory itself, but has no permission to read its entries.
    #[error("the server has no permission to read this directory")]
    Shut,
    /// The caller cancelled the fetch.
    #[error("interrupted")]
    Cancelled,
}

impl FetchError {
    /// Returns `true` if the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Network { .. } | Self::Stalled { .. } | Self::Short { .. } => true,
            Self::Status { status, .. } | Self::Proxy { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504)
            }
            Self::Moved(error) => is_of_the_network(error.errno),
            _ => false,
        }
    }

    /// Converts a failed connection to a server that has answered before. A retry makes sense, because the server may
    /// be restarting.
    pub(crate) fn of_known_server(self) -> Self {
        match self {
            Self::Unreached { doing, host, why } => Self::Network { doing, host, why },
            error => error,
        }
    }

    /// Returns `true` if a later fetch must not continue from the local bytes: they are known to be wrong, or may be
    /// lost.
    pub(crate) fn spoils_what_is_here(&self) -> bool {
        match self {
            Self::Differs { .. } => true,
            Self::Moved(error) => loses_written_bytes(error.call),
            Self::Destination(DestinationError::Call(failed)) => loses_written_bytes(failed.call),
            _ => false,
        }
    }

    /// Returns the delay after which the server allows a retry.
    pub(crate) fn after(&self) -> Option<Duration> {
        if let Self::Status { after, .. } = self { *after } else { None }
    }

    pub(crate) fn listed(why: &str) -> Self {
        Self::Listed(why.to_owned())
    }

    pub(crate) fn broken(why: impl Into<String>) -> Self {
        Self::Broken(why.into())
    }
}

fn is_of_the_network(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NETRESET
    )
}

impl From<Cancelled> for FetchError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<CallFailed> for FetchError {
    fn from(failed: CallFailed) -> Self {
        Self::Destination(failed.into())
    }
}

impl From<DestinationError> for FetchError {
    fn from(error: DestinationError) -> Self {
        Self::Destination(error)
    }
}
