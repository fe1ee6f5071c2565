//! The part of an answer that a mechanism moves from a file to the socket.

use std::{
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use thalweg_core::{Error, Report};
use thalweg_sys::Errno;

use super::{SendContext, Sent};
use crate::{
    http::range::ByteRange,
    plans::{KnownEnd, KnownFd},
    server::{
        moving::{self, OwnedTransfer, TransferStep},
        opened::ServedFile,
        short::Short,
    },
};

/// The last bytes of a large body. They are read, then the file's version is checked, and only then are they sent.
const TAIL: u64 = 4 << 10;

/// A file range that a mechanism moves to the socket, except for its tail.
pub(super) struct LargePart {
    pub(super) file: Arc<ServedFile>,
    pub(super) at: u64,
    pub(super) end: u64,
    /// Offset up to which the file was found in the page cache.
    pub(super) cached_to: u64,
    pub(super) moving: Option<OwnedTransfer>,
    /// Total duration of its steps.
    pub(super) spent: Duration,
}

impl LargePart {
    pub(super) fn reached(&self) -> u64 {
        self.at + self.moving.as_ref().map_or(0, OwnedTransfer::moved)
    }

    pub(super) fn tail(&self) -> ByteRange {
        ByteRange { from: self.end.saturating_sub(TAIL).max(self.at), to: self.end }
    }

    /// Returns `true` unless the next bytes were found in the page cache.
    pub(super) fn may_be_uncached(&self) -> bool {
        self.reached() >= self.cached_to
    }

    /// Returns the range that is moved next, including the tail if the range reaches it.
    pub(super) fn next(&self, step: u64) -> ByteRange {
        let from = self.reached();
        let to = from.saturating_add(step);
        ByteRange { from, to: if to >= self.tail().from { self.end } else { to } }
    }

    /// Makes one step towards this offset.
    pub(super) fn advance(&mut self, to: u64, way: &mut SendContext<'_>) -> Result<Sent, Short> {
        let moving = self.moving.get_or_insert_with(|| {
            let stretch = ByteRange { from: self.at, to };
            let (device, is_sealed) = (self.file.version.device(), self.file.is_sealed());
            let known = KnownEnd::File { device, is_sealed };
            let file = KnownFd { known, fd: self.file.as_fd() };
            let socket = KnownFd { known: way.sink, fd: way.socket.as_fd() };
            OwnedTransfer::new(moving::TransferJob {
                file: Arc::clone(&self.file),
                socket: Rc::clone(way.socket),
                sink: way.sink.kind(),
                stretch,
                needs: way.policy.needs,
                plan: way.plans.plan(way.policy, file, socket, stretch.len()),
            })
        });
        let most = self.cached_to.saturating_sub(self.at + moving.moved()).clamp(1, way.step);
        let began = Instant::now();
        let mut moved = moving.advance(most);
        if matches!(moved, TransferStep::Some) && self.at + moving.moved() >= to {
            // All bytes are moved; the next step only ends the transfer.
            moved = moving.advance(most);
        }
        self.spent += began.elapsed();
        let mut outcome = match moved {
            TransferStep::Some => return Ok(Sent::Some),
            TransferStep::Blocked => return Ok(Sent::Blocked),
            TransferStep::End(outcome) => outcome,
        };
        self.moving = None;
        self.at += outcome.report.bytes;
        outcome.report.wall = std::mem::take(&mut self.spent);
        (way.account)(&outcome.report);
        match outcome.error {
            Some(error) => Err(self.blame(&error)),
            // The file is shorter than the version that was opened.
            None if self.at < to => Err(Short::Changed),
            None => Ok(Sent::All),
        }
    }

    pub(super) fn leave(&mut self, account: &mut dyn FnMut(&Report)) {
        let Some(moving) = self.moving.take() else { return };
        self.at += moving.moved();
        if let Some(mut outcome) = moving.stop() {
            outcome.report.wall = std::mem::take(&mut self.spent);
            account(&outcome.report);
        }
    }

    /// Attributes the error of a transfer to the client, to the file or to a change of the file.
    fn blame(&self, error: &Error) -> Short {
        let gone = [Errno::PIPE, Errno::CONNRESET, Errno::TIMEDOUT, Errno::NOTCONN];
        if gone.contains(&error.errno) {
            Short::Client(error.errno)
        } else if self.file.is_unchanged() {
            Short::File(error.errno)
        } else {
            Short::Changed
        }
    }
}
