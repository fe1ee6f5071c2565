//! Keeps a sink file no longer than what was delivered, for mechanisms that make room before they
//! write, or that write out of order.
//!
//! Their size is set ahead of their data (`fallocate` before a mapping is written). After a power cut such a file may
//! have its size, its times and none of its bytes, so callers trust size and times only within one boot.

use rustix::fs::fstat;
use thalweg_sys::{Errno, io};

use crate::{End, Kind};

/// The length a sink file had before it grew.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    before: Option<u64>,
}

impl Growth {
    /// Remembers how long the sink is; an end that is no file does not grow.
    pub fn of(sink: &End<'_>) -> Result<Self, Errno> {
        let before = if sink.kind == Kind::File { Some(length(sink)?) } else { None };
        Ok(Self { before })
    }

    /// Cuts off what lies beyond both the old end and the last byte delivered, where `sink` stands.
    pub fn settle(&self, sink: &End<'_>) -> Result<(), Errno> {
        let (Some(before), Some(at)) = (self.before, sink.at) else { return Ok(()) };
        let honest = before.max(at);
        if length(sink)? > honest { io::ftruncate(sink.fd, honest) } else { Ok(()) }
    }
}

/// How long the file behind an end is now.
pub fn length(end: &End<'_>) -> Result<u64, Errno> {
    Ok(u64::try_from(fstat(end.fd)?.st_size).unwrap_or(0))
}
