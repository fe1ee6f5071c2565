//! Why a server cannot be.

use std::{io, path::PathBuf};

use thalweg_core::{
    error::errno_name,
    failed::{Failed, of_io, quoted},
    shown,
};
use thalweg_sys::Errno;

/// What stands in the way of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What is to be served cannot be opened.
    #[error("{}", Failed { what: &quoted(path), call: "open", errno: *errno, moved: 0 })]
    Root {
        /// What was named.
        path: PathBuf,
        /// What the kernel says.
        errno: Errno,
    },
    /// It is neither a folder nor a regular file.
    #[error("'{}' is neither a folder nor a regular file", shown(.0))]
    Kind(PathBuf),
    /// A path is answered by no file.
    #[error("'{}' would be answered by {answer}", shown(path))]
    Answer {
        /// Below what is served.
        path: PathBuf,
        /// Number and words.
        answer: String,
    },
    /// It is a page that is made, or a redirection.
    #[error("'{}' is a folder: its page is made, not moved", shown(.0))]
    Folder(PathBuf),
    /// An address cannot be listened at.
    #[error("{}", of_io(address, "bind", error))]
    Listen {
        /// As it was asked for.
        address: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// The process cannot become another user.
    #[error("cannot become '{name}': {}; only root can", errno_name(*errno))]
    User {
        /// Who.
        name: String,
        /// What the kernel says.
        errno: Errno,
    },
    /// No worker can be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}
