//! Truncates a sink file to the delivered bytes, for mechanisms that write out of order.
//!
//! Such a file may reach its final size before all its bytes are written. After a power failure, it may have its final
//! size and times, but not all its bytes. After a reboot, callers therefore do not trust size and times.

use rustix::fs::fstat;
use thalweg_sys::{Errno, io};

use crate::{End, Kind};

/// The length of a sink file before it grew.
#[derive(Clone, Copy, Debug)]
pub struct LengthGuard {
    before: Option<u64>,
}

impl LengthGuard {
    /// Records the current length of the sink. A sink that is not a file does not grow.
    pub fn of(sink: &End<'_>) -> Result<Self, Errno> {
        let before = if sink.kind == Kind::File { Some(length(sink)?) } else { None };
        Ok(Self { before })
    }

    /// Truncates the file to the larger of its old length and the offset of `sink`, which is the end of the delivered
    /// bytes.
    pub fn settle(&self, sink: &End<'_>) -> Result<(), Errno> {
        let (Some(before), Some(at)) = (self.before, sink.at) else { return Ok(()) };
        let honest = before.max(at);
        if length(sink)? > honest { io::ftruncate(sink.fd, honest) } else { Ok(()) }
    }
}

/// Returns the current length of the file behind an endpoint.
pub fn length(end: &End<'_>) -> Result<u64, Errno> {
    Ok(u64::try_from(fstat(end.fd)?.st_size).unwrap_or(0))
}
