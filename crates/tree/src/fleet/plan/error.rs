//! The errors of reading a plan.

use thalweg_sys::Errno;

/// The reason why a file is not a valid plan, or a record not a valid task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read the file (pread: {0})")]
    Read(Errno),
    /// The file is truncated.
    #[error("truncated")]
    Short,
    /// The file does not start with the magic number.
    #[error("wrong magic number")]
    Magic,
    /// The file has an unsupported version.
    #[error("unsupported version {0} (supported: 1)")]
    Version(u32),
    /// A checksum does not match.
    #[error("wrong checksum of its {0}")]
    Sum(&'static str),
    /// A value is invalid.
    #[error("{0}")]
    Nonsense(&'static str),
}
