//! Why a file is not a plan.

use thalweg_sys::Errno;

/// Why a file is not a plan, or a record of it no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It cannot be read.
    #[error("pread: {0}")]
    Read(Errno),
    /// It ends before it should.
    #[error("it is cut short")]
    Short,
    /// It begins otherwise.
    #[error("it does not begin as one")]
    Magic,
    /// Another version wrote it.
    #[error("it is of version {0}, and 1 is understood")]
    Version(u32),
    /// A checksum is not that of its bytes.
    #[error("the checksum of its {0} is wrong")]
    Sum(&'static str),
    /// What it says makes no sense.
    #[error("{0}")]
    Nonsense(&'static str),
}
