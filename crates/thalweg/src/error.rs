//! What can go wrong, and how far a copy had come.

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
    /// A descriptor that bytes cannot be moved from or to: not open, or a directory.
    #[error("{side} cannot be used: {}", errno_name(*errno))]
    End {
        /// Which of the two.
        side: Side,
        /// What the kernel says of it.
        errno: Errno,
    },
    /// No way of moving bytes between these ends keeps the promises that were asked for.
    #[error("{reason}")]
    Unsupported {
        /// What is missing.
        reason: String,
    },
    /// A call failed midway.
    #[error("{error}")]
    Move {
        /// The call, the errno and the bytes that are in the sink.
        error: thalweg_core::Error,
        /// What had been done by then.
        report: Box<Report>,
    },
    /// A copy of named files was not begun.
    #[error(transparent)]
    Tree(#[from] thalweg_tree::Error),
    /// A copy of named files is not complete: some could not be copied, differ from their source, or
    /// changed while they were read.
    #[error("{}", incomplete(.0))]
    Incomplete(Box<TreeReport>),
}

impl Error {
    /// The errno of the call that failed first, if one did.
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
    /// Of the same kind, with this error inside.
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
            "{} of the sources changed while being copied: their copies may hold old and new bytes",
            report.changed
        ),
        None => format!("stopped after {} files", report.files),
    }
}
