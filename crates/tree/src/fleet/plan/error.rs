//! The errors of reading a plan.

use thalweg_sys::Errno;

/// The reason why a file is not a valid plan, or a record not a valid task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("pread: {0}")]
    Read(Errno),
    /// The file is truncated.
    #[error("it is cut short")]
    Short,
    /// The file does not start with the magic number.
    #[error("it does not begin as one")]
    Magic,
    /// The file has an unsupported version.
    #[error("it is of version {0}, and 1 is understood")]
    Version(u32),
    /// A checksum does not match.
    #[error("the checksum of its {0} is wrong")]
    Sum(&'static str),
    /// A value is invalid.
    #[error("{0}")]
    Nonsense(&'static str),
}
