//! Moves the body of a response to the destination. A mechanism such as splice moves an unencoded body. A chunked body
//! is copied through the buffer of the connection.

use std::{cell::Cell, os::fd::BorrowedFd, sync::Arc, time::Duration};

use httparse::{Status, parse_chunk_size};
use thalweg_core::{
    Cancelled, Driver, End, Facts, Plan, Report, Side, Sink, Source, Transfer, Tuning,
    cadence::{CANCEL_CHECK, Deadline},
    driver::{STEP, StepPace},
    mechanisms::LAST_RESORT,
    quantity,
};
use thalweg_sys::{Errno, io};

use super::{
    BodySettings, FetchError, connect::FetchConnection, deadline::NetDeadline, head::Framing,
};
use crate::plans::{KnownEnd, KnownFd, Plans};

/// A body that is being received.
pub struct ResponseBody<'a> {
    pub connection: &'a mut FetchConnection,
    pub deadline: NetDeadline<'a>,
    pub way: &'a BodySettings,
    /// Destination of the next byte.
    pub end: End<'a>,
    /// Called with the number of bytes of this body that have been written.
    pub note: &'a mut dyn FnMut(u64) -> Result<(), Cancelled>,
    /// Records the number of bytes that each mechanism moved.
    pub report: &'a mut Report,
    /// For a new small file of a tree: the plans of this thread, and the device of the file.
    pub plans: Option<(&'a mut Plans, u64)>,
}

/// Longest accepted line in bytes: a chunk size with its extensions, or a trailer.
const LONGEST_LINE: usize = 8 << 10;
const MOST_TRAILERS: usize = 128;

/// Returns `true` if a transfer without progress waits for its sink, not for the server: the server has sent bytes, or the
/// sink takes none. The last bytes of a body may have left the socket, and wait in a buffer of the mechanism.
fn is_sink_slow(socket: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> bool {
    let now = Some(Duration::ZERO);
    io::wait_readable(socket, now) == Ok(true) || io::wait_writable(sink, now) == Ok(false)
}

impl ResponseBody<'_> {
    /// Returns the rate limits that apply to this connection.
    fn pace(&mut self) -> StepPace {
        let each = self.way.limit_each.map(|limit| self.connection.limit(limit));
        StepPace::within(self.way.limit.iter().cloned().chain(each).collect(), STEP)
    }

    /// Moves the whole body. `want`: its size in bytes, if known beforehand. A shorter body, or a longer chunked one,
    /// is an error.
    pub fn bring(mut self, framing: Framing, want: Option<u64>) -> Result<u64, FetchError> {
        let came = match (framing, want) {
            (Framing::Length(length), _) => self.stream(Some(length))?,
            // A body without a length may be longer than the requested range. Its first bytes are the requested ones.
            (Framing::UntilClose, want) => self.stream(want)?,
            (Framing::Chunked, want) => self.chunks(want)?,
        };
        let want = if let Framing::Length(length) = framing { Some(length) } else { want };
        match want {
            Some(want) if came < want => Err(short(came, want)),
            _ => Ok(came),
        }
    }

    /// Moves an unencoded body: first the bytes that arrived with the head, then the rest by a mechanism.
    fn stream(&mut self, length: Option<u64>) -> Result<u64, FetchError> {
        let most = length.unwrap_or(u64::MAX);
        let mut came = 0;
        while came < most && self.has_in_memory()? {
            came += self.put(most - came, came)?;
        }
        let pace = self.pace();
        let Some(socket) = self.connection.descriptor().filter(|_| came < most) else {
            return Ok(came);
        };
        let known = self.connection.known_end();
        let source = Source::Fd(End { fd: socket, kind: known.kind(), at: None });
        let (sink, len) = (Sink::Fd(self.end), length.map(|length| length - came));
        let policy = &self.way.policy;
        let mut transfer = Transfer { source, sink, len, needs: policy.needs };
        let plan = if let (Some((plans, device)), Some(len)) = (&mut self.plans, len) {
            let socket = KnownFd { known, fd: socket };
            let known = KnownEnd::File { device: *device, is_sealed: false };
            plans.plan(policy, socket, KnownFd { known, fd: self.end.fd }, len)
        } else {
            let facts = Facts::of(&transfer);
            Arc::new(Plan::make(&facts, &policy.request, policy.profile.as_ref()))
        };
        if let Some(reason) = &plan.impossible {
            return Err(FetchError::Unsupported(reason.clone()));
        }
        let (limit, sink_fd) = (self.deadline.limit, self.end.fd);
        let (stalled, mut last, mut silence) = (Cell::new(false), 0, Deadline::after(limit));
        let mut watch = |moved: u64| {
            if moved > last {
                (last, silence) = (moved, Deadline::after(limit));
            }
            if silence.passed() && is_sink_slow(socket, sink_fd) {
                silence = Deadline::after(limit);
            }
            stalled.set(silence.passed());
            (self.note)(came + moved)?;
            if stalled.get() { Err(Cancelled) } else { Ok(()) }
        };
        // Offset before this transfer, so that an error names the offset in the file.
        let before = self.end.at.unwrap_or(came);
        let outcome = Driver::run_at(pace, &mut transfer, &plan, &mut watch);
        came += outcome.report.bytes;
        book(self.report, outcome.report);
        (self.note)(came)?;
        match outcome.error {
            Some(mut error) => {
                error.moved += before;
                Err(FetchError::Moved(error))
            }
            None if stalled.get() => Err(self.deadline.stalled(self.connection.host())),
            None if outcome.stopped => Err(FetchError::Cancelled),
            None => Ok(came),
        }
    }

    /// Returns `true` if the buffer holds bytes to write. Fills the buffer of a TLS connection first, because no
    /// mechanism can decrypt.
    fn has_in_memory(&mut self) -> Result<bool, FetchError> {
        if self.connection.descriptor().is_none() && self.connection.unused().is_empty() {
            self.connection.fill(&self.deadline)?;
        }
        Ok(!self.connection.unused().is_empty())
    }

    /// Moves a chunked body (RFC 9112, 7.1).
    fn chunks(&mut self, want: Option<u64>) -> Result<u64, FetchError> {
        let mut came = 0;
        loop {
            let left = self.chunk_size(came)?;
            if left == 0 {
                return self.trailers(came).map(|()| came);
            }
            if want.is_some_and(|want| left > want - came) {
                return Err(FetchError::broken("the body is longer than its announced size"));
            }
            let end = came
                .checked_add(left)
                .ok_or_else(|| FetchError::broken("the total size of the chunks overflows"))?;
            while came < end {
                if self.connection.unused().is_empty() {
                    self.more(came)?;
                }
                came += self.put(end - came, came)?;
            }
            self.line_end(came)?;
        }
    }

    /// Reads the line that starts a chunk. `came` is the number of bytes of the body before this line, for the text of
    /// an error.
    fn chunk_size(&mut self, came: u64) -> Result<u64, FetchError> {
        loop {
            let unused = self.connection.unused();
            // httparse parses a line without digits as size 0, which would end the body.
            let has_digit = unused.first().is_none_or(u8::is_ascii_hexdigit);
            match parse_chunk_size(unused) {
                _ if !has_digit => return Err(FetchError::broken("invalid chunk size")),
                Ok(Status::Complete((used, size))) => {
                    self.connection.take(used);
                    return Ok(size);
                }
                Ok(Status::Partial) if self.connection.unused().len() < LONGEST_LINE => {
                    self.more(came)?;
                }
                _ => return Err(FetchError::broken("invalid chunk size")),
            }
        }
    }

    fn line_end(&mut self, came: u64) -> Result<(), FetchError> {
        while self.connection.unused().len() < 2 {
            self.more(came)?;
        }
        if !self.connection.unused().starts_with(b"\r\n") {
            return Err(FetchError::broken("a chunk is longer than its announced size"));
        }
        self.connection.take(2);
        Ok(())
    }

    /// Skips the trailers, up to the empty line. thalweg uses none of them.
    fn trailers(&mut self, came: u64) -> Result<(), FetchError> {
        for _ in 0..MOST_TRAILERS {
            let length = loop {
                let unused = self.connection.unused();
                match unused.windows(2).position(|pair| pair == b"\r\n") {
                    Some(length) => break length,
                    None if unused.len() < LONGEST_LINE => self.more(came)?,
                    None => return Err(FetchError::broken("a trailer line is too long")),
                }
            };
            self.connection.take(length + 2);
            if length == 0 {
                return Ok(());
            }
        }
        Err(FetchError::broken("too many trailer lines"))
    }

    fn more(&mut self, came: u64) -> Result<(), FetchError> {
        match self.connection.fill(&self.deadline)? {
            0 => Err(FetchError::Short {
                got: quantity::exact(came),
                want: "an unknown number of bytes".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Writes at most `most` bytes from the buffer, after the `came` bytes of the body written before. With a rate
    /// limit, one call writes at most one step of the limit. A longer write would use up a shared limit, and block the
    /// other connections.
    fn put(&mut self, most: u64, came: u64) -> Result<u64, FetchError> {
        let pace = self.pace();
        let most = most.min(pace.budget());
        let unused = self.connection.unused();
        let length = unused.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let put = loop {
            match self.end.write(&unused[..length]) {
                // A retry would return 0 again, forever.
                Ok(0) => return Err(self.failed(Errno::IO)),
                Ok(put) => break put,
                Err(Errno::INTR) => (self.deadline.check)()?,
                Err(Errno::AGAIN) => {
                    (self.deadline.check)()?;
                    io::wait_writable(self.end.fd, Some(CANCEL_CHECK))
                        .map_err(|e| self.failed(e))?;
                }
                Err(errno) => return Err(self.failed(errno)),
            }
        };
        self.connection.take(put);
        let moved = put as u64;
        self.report.bytes += moved;
        share(self.report, LAST_RESORT.info().name, &Tuning::default(), moved);
        (self.note)(came + moved)?;
        pace.hold_back(moved, || (self.deadline.check)())?;
        Ok(moved)
    }

    fn failed(&self, errno: Errno) -> FetchError {
        let call = self.end.write_call();
        let moved = self.end.at.unwrap_or(self.report.bytes);
        FetchError::Moved(LAST_RESORT.info().error(call, Side::Sink, errno, moved))
    }
}

fn short(got: u64, want: u64) -> FetchError {
    FetchError::Short { got: quantity::exact(got), want: quantity::exact(want) }
}

/// Adds `one` to `all`.
pub fn book(all: &mut Report, one: Report) {
    all.bytes += one.bytes;
    for own in &one.shares {
        share(all, own.mechanism, &own.tuning, own.bytes);
    }
    all.steps_down.extend(one.steps_down);
    all.notes.extend(one.notes);
}

/// Reduces the total of a report to `bytes`, because it counts bytes that were moved twice.
pub fn trim(report: &mut Report, bytes: u64) {
    let mut over = report.bytes.saturating_sub(bytes);
    report.bytes -= over;
    while let Some(most) = report.shares.iter_mut().max_by_key(|own| own.bytes).filter(|_| over > 0)
    {
        let off = over.min(most.bytes).max(1);
        most.bytes = most.bytes.saturating_sub(off);
        over -= off;
    }
}

fn share(report: &mut Report, mechanism: &'static str, tuning: &Tuning, bytes: u64) {
    let same = |own: &&mut thalweg_core::driver::Share| {
        own.mechanism == mechanism && own.tuning == *tuning
    };
    match report.shares.iter_mut().find(same) {
        Some(own) => own.bytes += bytes,
        None => report.shares.push(thalweg_core::driver::Share {
            mechanism,
            tuning: tuning.clone(),
            bytes,
        }),
    }
}
