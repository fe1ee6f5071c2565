//! Why a server cannot be.

use std::{io, path::PathBuf};

use thalweg_core::shown;
use thalweg_sys::Errno;

/// What stands in the way of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What is to be served cannot be opened.
    #[error("cannot open '{}': {}", shown(path), io::Error::from(*errno))]
    Root {
        /// What was named.
        path: PathBuf,
        /// What the kernel says.
        errno: Errno,
    },
    /// It is neither a folder nor a regular file.
    #[error("'{}' is neither a folder nor a regular file", shown(.0))]
    Kind(PathBuf),
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// As it was asked for.
        address: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// No worker can be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}
