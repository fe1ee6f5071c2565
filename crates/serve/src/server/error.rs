//! Errors that prevent a server from starting.

use std::{io, path::PathBuf};

use thalweg_core::{
    error::errno_name,
    failed::{Failed, of_io, quoted},
    shown,
};
use thalweg_sys::Errno;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The path to be served cannot be opened.
    #[error("{}", Failed { what: &quoted(path), call: "open", errno: *errno, moved: 0 })]
    Root {
        /// The path as given by the caller.
        path: PathBuf,
        /// The error of the system call.
        errno: Errno,
    },
    /// The path is neither a directory nor a regular file.
    #[error("'{}': not a directory or a regular file", shown(.0))]
    Kind(PathBuf),
    /// The server would not send a file for this path.
    #[error("'{}': the server would return {answer}", shown(path))]
    Answer {
        /// Relative to the served root.
        path: PathBuf,
        /// Status code and reason phrase.
        answer: String,
    },
    /// The path is a directory: its page is generated, or the client is redirected.
    #[error("'{}' is a directory: its page is generated, so no method is used", shown(.0))]
    Directory(PathBuf),
    /// The server cannot listen on an address.
    #[error("{}", of_io(address, "bind", error))]
    Listen {
        /// The address as given by the caller.
        address: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// The process cannot change its user.
    #[error("cannot switch to user '{name}': {}; only root can switch users", errno_name(*errno))]
    User {
        /// Name of the user.
        name: String,
        /// The error of the system call.
        errno: Errno,
    },
    /// A worker thread cannot be started.
    #[error("cannot start a worker thread: {0}")]
    Worker(io::Error),
}
