//! The properties of both endpoints that the engine needs: which endpoint can block a call, and how to wait for it.

use std::{os::fd::BorrowedFd, time::Duration};

use rustix::fs::{OFlags, fcntl_getfl};
use thalweg_sys::{Errno, io};

use crate::{End, Error, Kind, Side, Sink, Source, Transfer, Unfit, mechanisms::LAST_RESORT};

/// The endpoints that can block a call, and the properties of both together.
pub(super) struct EngineEnds<'a> {
    source: Option<End<'a>>,
    sink: Option<End<'a>>,
    /// `true` if bytes that were taken from the source and not delivered can be read again.
    pub rewindable: bool,
    /// `true` if both can be addressed by offset. Any mechanism can then continue where another stopped.
    pub addressed: bool,
}

impl<'a> EngineEnds<'a> {
    pub fn of(transfer: &Transfer<'a>) -> Self {
        let source = if let Source::Fd(end) = &transfer.source { Some(*end) } else { None };
        let sink = if let Sink::Fd(end) = &transfer.sink { Some(*end) } else { None };
        let rewindable = source.is_none_or(|end| end.at.is_some());
        // An endpoint with offsets is a file or a block device, for which poll always reports that it is ready.
        let streams = |end: &End<'a>| end.at.is_none() && end.kind != Kind::Null;
        let is_addressed = |end: Option<End<'_>>| end.is_some_and(|end| end.at.is_some());
        let addressed = is_addressed(source) && is_addressed(sink);
        Self { source: source.filter(streams), sink: sink.filter(streams), rewindable, addressed }
    }

    /// Returns the descriptor to poll for this side.
    pub fn descriptor(&self, side: Side) -> Option<BorrowedFd<'a>> {
        let end = if side == Side::Source { &self.source } else { &self.sink };
        end.map(|end| end.fd)
    }

    /// Returns the side to wait for after a call returned EAGAIN; `None` if the call can be repeated at once. If the
    /// call used both endpoints, polling the source shows which of them blocked.
    pub fn blocked(&self, side: Side) -> Option<Side> {
        let is_empty = |end: &End<'a>| io::wait_readable(end.fd, Some(Duration::ZERO)) == Ok(false);
        let for_source =
            |end: &End<'a>| side == Side::Source || side != Side::Sink && is_empty(end);
        if self.source.as_ref().is_some_and(for_source) {
            return Some(Side::Source);
        }
        // If the sink has become writable since the call, this wait ends at once.
        self.sink.filter(|_| side != Side::Source).map(|_| Side::Sink)
    }

    /// Fails if an endpoint could block a call because it lacks `O_NONBLOCK`.
    pub fn never_block(&self) -> Result<(), Unfit> {
        for (name, end) in [("source", self.source), ("sink", self.sink)] {
            let Some(end) = end.filter(|end| end.kind != Kind::File) else { continue };
            let flags = fcntl_getfl(end.fd).unwrap_or(OFlags::empty());
            if !flags.contains(OFlags::NONBLOCK) {
                let kind = end.kind;
                let reason =
                    format!("the {name} is a {kind} without O_NONBLOCK, so a call could block");
                return Err(Unfit::because(reason));
            }
        }
        Ok(())
    }
}

/// Syncs the data written to the sink to stable storage.
pub(super) fn sync(sink: &Sink<'_>) -> Result<(), Error> {
    let Sink::Fd(end) = sink else { return Ok(()) };
    match io::sync_data(end.fd) {
        // Pipes and sockets have no stable storage.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(LAST_RESORT.info().error("fdatasync", Side::Sink, errno, 0)),
    }
}
