//! What goes wrong between here and a server.

use std::time::Duration;
use thalweg_core::{
    Cancelled,
    atomic_file::{CallFailed, DestinationError},
    failed::loses_written_bytes,
    quantity,
};
use thalweg_sys::Errno;

/// Why nothing more comes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL or an option makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It makes sense, and is not to be had here.
    #[error("{0}")]
    Unsupported(String),
    /// No way to the server, or it broke.
    #[error("cannot {doing} {host}: {why}")]
    Network { doing: &'static str, host: String, why: String },
    /// The first connection to a server failed: no such name, no route, refused, or no answer.
    #[error("cannot {doing} {host}: {why}")]
    Unreached { doing: &'static str, host: String, why: String },
    /// It does not prove that it is who it says.
    #[error("{host} is not to be trusted: {why}")]
    Untrusted { host: String, why: String },
    /// Nothing came for so long.
    #[error("nothing came from {host} for {}", quantity::duration(*.waited))]
    Stalled { host: String, waited: Duration },
    /// The server says no.
    #[error("the server answers {status}{}{reason}", if .reason.is_empty() { "" } else { " " })]
    Status {
        status: u16,
        reason: String,
        /// It says when to ask again.
        after: Option<Duration>,
    },
    /// The proxy says no.
    #[error("the proxy answers {status}{}{reason}", if .reason.is_empty() { "" } else { " " })]
    Proxy { status: u16, reason: String },
    /// What it says contradicts itself, or what was asked.
    #[error("the server's answer makes no sense: {0}")]
    Broken(String),
    /// The connection ended before the body did.
    #[error("the connection ended early: {got} of {want} came")]
    Short { got: String, want: String },
    /// The file is another one each time.
    #[error("the file changes on the server while it is fetched")]
    Changing,
    /// The bytes could not be moved from the connection, or into the file.
    #[error("{}", .0.between("the connection", "the destination"))]
    Moved(thalweg_core::Error),
    /// The destination.
    #[error("{0}")]
    Destination(DestinationError),
    /// All came, and it is not what it should be.
    #[error("its {hash} is {got}, and not {want} as {by}; nothing was published")]
    Differs { hash: &'static str, got: String, want: String, by: &'static str },
    /// An entry of a tree's list cannot be put where it says.
    #[error("{0}")]
    Listed(String),
    /// The server has another file by now than its list says.
    #[error("not as the list says: {0}; the same command fetches a new list")]
    OutOfDate(String),
    /// The server lists a folder, and nothing of what is in it.
    #[error("the server may not read this folder")]
    Shut,
    /// Nobody wants it any more.
    #[error("interrupted")]
    Cancelled,
}

impl Error {
    /// Whether the same request may succeed in a moment.
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

    /// For a server that has answered before: it may only be restarting.
    pub(crate) fn of_known_server(self) -> Self {
        match self {
            Self::Unreached { doing, host, why } => Self::Network { doing, host, why },
            error => error,
        }
    }

    /// Whether the bytes that are here must not be continued from: they are known to be wrong, or may be gone.
    pub(crate) fn spoils_what_is_here(&self) -> bool {
        match self {
            Self::Differs { .. } => true,
            Self::Moved(error) => loses_written_bytes(error.call),
            Self::Destination(DestinationError::Call(failed)) => loses_written_bytes(failed.call),
            _ => false,
        }
    }

    /// When the server wants to be asked again.
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

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<CallFailed> for Error {
    fn from(failed: CallFailed) -> Self {
        Self::Destination(failed.into())
    }
}

impl From<DestinationError> for Error {
    fn from(error: DestinationError) -> Self {
        Self::Destination(error)
    }
}
