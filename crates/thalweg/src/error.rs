//! Errors, and how far a copy progressed.

use rustix::io::Errno;
use std::io;
use thalweg_core::{Report, Side, error::errno_name};
use thalweg_tree::TreeReport;

/// An error of a copy.
///
/// ```
/// let error = thalweg::copy_file("/no/such/file", "/tmp/copy").expect_err("no such file");
/// assert!(error.to_string().contains("/no/such/file"), "{error}");
/// let error: std::io::Error = error.into();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A descriptor cannot be a source or a sink: it is not open, or it is a directory.
    #[error("{side} cannot be used: {}", errno_name(*errno))]
    End {
        /// The descriptor that is affected.
        side: Side,
        /// The error of the system call.
        errno: Errno,
    },
    /// No mechanism between these endpoints provides the requested guarantees.
    #[error("{reason}")]
    Unsupported {
        /// The missing property.
        reason: String,
    },
    /// A system call failed during the transfer.
    #[error("{error}")]
    Move {
        /// The call, the errno, and the number of bytes in the sink.
        error: thalweg_core::Error,
        /// Report of the transfer up to the error.
        report: Box<Report>,
    },
    /// A copy of named files did not start.
    #[error(transparent)]
    Tree(#[from] thalweg_tree::Error),
    /// A copy of named files is incomplete: some could not be copied, differ from their source, or changed during the
    /// copy.
    #[error("{}", incomplete(.0))]
    Incomplete(Box<TreeReport>),
}

impl Error {
    /// Returns the errno of the first failed call, if there was one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::End { errno, .. } => Some(*errno),
            Self::Unsupported { .. } => None,
            Self::Move { error, .. } => Some(error.errno),
            Self::Tree(error) => error.errno(),
            Self::Incomplete(report) => report.errors.first().and_then(thalweg_tree::Error::errno),
        }
    }
}

impl From<Error> for io::Error {
    /// Converts to an error of the corresponding kind, with this error as its source.
    fn from(error: Error) -> Self {
        let kind = error.errno().map_or(io::ErrorKind::Other, |errno| Self::from(errno).kind());
        Self::new(kind, error)
    }
}

fn incomplete(report: &TreeReport) -> String {
    let more =
        |count: u64| if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    match report.errors.first() {
        Some(first) => format!("{first}{}", more(report.error_count)),
        None if report.changed > 0 => format!(
            "{} of the sources changed during the copy: their copies may contain old and new bytes",
            report.changed
        ),
        None => format!("stopped after {} files", report.files),
    }
}
