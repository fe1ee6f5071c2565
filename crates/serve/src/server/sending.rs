//! An answer that is being sent. Small parts are combined into one send; the rest is moved by the mechanism of the
//! plan.

use std::{
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use thalweg_core::Report;
use thalweg_sys::{Errno, io, net};

mod large_part;

use super::{
    body::{AnswerBody, BodyPart},
    digests::DigestWait,
    errand::Errand,
    held_answers::HeldAnswers,
    moving::OwnedTransfer,
    opened::ServedFile,
    readahead::{self, Disks, Readahead},
    send_buffer::{ONE_SEND, SendBuffer},
    short::Short,
};
use crate::{
    http::range::ByteRange,
    plans::{KnownEnd, Plans, Policy},
};

use large_part::LargePart;

/// Maximum memory of a parked connection, in bytes: an incomplete request, the head of an answer, or the headers between
/// files of an archive.
pub const PARKED: u64 = 4 << 10;

/// An answer that is being sent.
#[derive(Default)]
pub struct Sending {
    out: SendBuffer,
    // Number of bytes in `out` that belong to the body.
    of_body: usize,
    last: Option<LastRange>,
    body: AnswerBody,
    large: Option<LargePart>,
    pending: Option<PendingWork>,
    /// Number of bytes written to the socket, including the head.
    pub total: u64,
}

/// The last file range in the buffer of an answer. It can be read again, so its memory can be released. Bytes that cannot
/// be read again may follow it.
struct LastRange {
    file: Arc<ServedFile>,
    stretch: ByteRange,
    /// Offset in the buffer.
    begin: usize,
}

/// Work that must be done before an answer can continue.
enum PendingWork {
    /// A range must be read, and no helper was asked yet.
    Wanted(Arc<ServedFile>, ByteRange),
    /// A helper is reading the range.
    Asked(Arc<AtomicBool>),
    /// A helper is computing the hash for the head.
    Head(DigestWait),
    /// The next piece of the body must be produced.
    Piece,
    /// A helper is producing the piece.
    Making(Errand),
}

/// The destination of an answer, and the resources for sending it.
pub struct SendContext<'w> {
    pub socket: &'w Rc<OwnedFd>,
    pub sink: KnownEnd,
    pub plans: &'w mut Plans,
    pub policy: &'w Policy,
    /// On a byte stream: earlier answers that are not written yet.
    pub held: Option<&'w mut HeldAnswers>,
    /// Maximum number of bytes of one step.
    pub step: u64,
    /// `true` if another answer follows immediately (`MSG_MORE`).
    pub more: bool,
    pub readahead: &'w mut Readahead,
    /// Receives the report of every transfer that has ended.
    pub account: &'w mut dyn FnMut(&Report),
}

/// Progress of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The answer is complete.
    All,
    /// The socket accepts more data, but other connections have their turn now.
    Some,
    /// The socket is full.
    Blocked,
    /// A helper is working for this answer; the mailbox receives the connection's token when it is done.
    Pending,
}

impl Sending {
    /// Assembles the head and as much of the body as fits and is in the page cache. Nothing is sent yet: if the file
    /// has changed, another answer is still possible.
    pub fn prepare(
        head: &[u8],
        body: AnswerBody,
        buffer: Vec<u8>,
        disks: &mut Disks,
    ) -> Result<Self, Short> {
        let mut sending = Self { out: SendBuffer::within(buffer), body, ..Self::default() };
        sending.out.push(head);
        sending.gather(disks)?;
        Ok(sending)
    }

    /// Creates an answer with a head that needs a hash. After the wait the answer must be created again
    /// ([`Short::Again`]).
    pub fn waiting(wait: DigestWait) -> Self {
        Self { pending: Some(PendingWork::Head(wait)), ..Self::default() }
    }

    /// Returns `true` if the answer waits for a helper.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns `true` if the answer waits for a hash.
    pub fn waits_for_digest(&self) -> bool {
        matches!(self.pending, Some(PendingWork::Head(_)))
    }

    /// Ends the wait for a hash. `is_kept`: `true` to continue a computation that has begun, because the client may ask
    /// again.
    pub fn leave_digest(&mut self, is_kept: bool) {
        if let Some(PendingWork::Head(wait)) = self.pending.take()
            && is_kept
        {
            wait.leave();
        }
    }

    /// Sends until the socket is full, or until other connections must have their turn.
    pub fn advance(&mut self, way: &mut SendContext<'_>) -> Result<Sent, Short> {
        let (mut was_large, mut may_send_tail) = (false, true);
        loop {
            if self.is_still_pending(way)? {
                return Ok(Sent::Pending);
            }
            if !self.out.unsent().is_empty() {
                match self.hold_back(way) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                    Err(errno) => return Err(Short::Client(errno)),
                }
                if self.send_unsent(way)? {
                    return Ok(Sent::Blocked);
                }
                continue;
            }
            self.clear();
            if self.large.is_some() {
                match self.move_on(way)? {
                    Sent::All => {
                        was_large = true;
                        continue;
                    }
                    Sent::Pending => {}
                    other => return Ok(other),
                }
            }
            if self.pending.is_none() {
                self.gather(&mut way.readahead.disks)?;
            }
            if self.pending.is_some() {
                continue;
            }
            if self.out.unsent().is_empty() && self.large.is_none() {
                return Ok(Sent::All);
            }
            // Also sends the tail of a large part before other connections have their turn. Sends only one tail,
            // because a body may consist of many files.
            if !(was_large && std::mem::take(&mut may_send_tail)) {
                return Ok(Sent::Some);
            }
        }
    }

    /// Sends combined parts once. Returns `true` if the socket is full.
    fn send_unsent(&mut self, way: &SendContext<'_>) -> Result<bool, Short> {
        let out = self.out.unsent();
        // A small answer shares a packet with the next one, and a head with the data that the mechanism copies. A head
        // before pages that are passed by reference does not wait for them: with `MSG_MORE`, the whole answer takes more
        // CPU time if the congestion control is BBR.
        let more = if self.large.is_some() { way.policy.needs.stable } else { way.more };
        let sent = match way.sink {
            KnownEnd::Socket { .. } if more => net::send_more(way.socket, out),
            KnownEnd::Socket { .. } => net::send(way.socket, out),
            _ => io::write(way.socket, out),
        };
        match sent {
            // A socket that accepts nothing without an error would cause an endless loop.
            Ok(0) => return Err(Short::Client(Errno::IO)),
            Ok(count) => {
                self.out.sent(count);
                self.total += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(Short::Client(errno)),
        }
        Ok(false)
    }

    /// On a byte stream, holds a small answer back if another one follows, or else writes the answers that were held
    /// back. Returns `true` if the bytes were held back.
    fn hold_back(&mut self, way: &mut SendContext<'_>) -> Result<bool, Errno> {
        let Some(held) = &mut way.held else { return Ok(false) };
        let out = self.out.unsent();
        let is_whole = self.large.is_none() && self.body.is_sent();
        if way.more && is_whole && held.has_room(out.len()) {
            held.push(out);
            self.total += out.len() as u64;
            self.out.sent(out.len());
            return Ok(true);
        }
        held.write(way.socket)?;
        Ok(false)
    }

    /// Releases the buffer or pipe of the transfer in progress, and data that can be read again. A new transfer
    /// continues the answer later.
    pub fn park(&mut self, account: &mut dyn FnMut(&Report)) {
        if let Some(large) = &mut self.large {
            large.leave(account);
        }
        let Some(LastRange { file, stretch, begin }) = self.last.take() else { return };
        let (sent, end) = (self.out.sent_so_far(), begin + stretch.len() as usize);
        if sent >= end {
            return;
        }
        // Puts everything from the unsent bytes of the range back in front of the body, last part first.
        if let Some(LargePart { file, at, end, .. }) = self.large.take() {
            self.body.parts.push_front(BodyPart::File(file, ByteRange { from: at, to: end }));
        }
        let kept = sent.max(begin);
        let behind = &self.out.unsent()[end - sent..];
        if !behind.is_empty() {
            self.body.parts.push_front(BodyPart::Bytes(behind.to_vec()));
        }
        let from = stretch.from + (kept - begin) as u64;
        self.body.parts.push_front(BodyPart::File(file, ByteRange { from, ..stretch }));
        self.out.cut(kept);
        self.out.shrink();
    }

    /// Returns the memory, in bytes, that is held while the client reads nothing.
    pub fn held(&self) -> u64 {
        let moving = self.large.as_ref().and_then(|large| large.moving.as_ref());
        self.out.held() as u64 + self.body.held() + moving.map_or(0, OwnedTransfer::held)
    }

    /// Returns `true` if the answer holds memory that cannot be released: produced bytes cannot be produced again.
    pub fn is_stuck(&self) -> bool {
        self.body.is_made() && self.held() > PARKED
    }

    /// Reduces the buffer to the unsent bytes. Returns the old buffer if it was much larger.
    pub fn shrink(&mut self) -> Option<Vec<u8>> {
        if self.out.held() / 2 < self.out.unsent().len() {
            return None;
        }
        let sent = self.out.sent_so_far();
        if let Some(LastRange { stretch, begin, .. }) = &mut self.last {
            let of_range = sent.saturating_sub(*begin) as u64;
            stretch.from = stretch.to.min(stretch.from + of_range);
            *begin = begin.saturating_sub(sent);
        }
        Some(self.out.shrink())
    }

    /// Returns the buffer of a finished answer.
    pub fn buffer(self) -> Vec<u8> {
        self.out.into_buffer()
    }

    fn clear(&mut self) {
        self.out.clear();
        self.of_body = 0;
        self.last = None;
    }

    /// Asks helpers for the work that the answer needs. Returns `true` if the answer must still wait.
    fn is_still_pending(&mut self, way: &mut SendContext<'_>) -> Result<bool, Short> {
        loop {
            match self.pending.take() {
                None => return Ok(false),
                Some(PendingWork::Wanted(file, stretch)) => {
                    let done = readahead::ask_for(
                        file,
                        stretch,
                        &way.readahead.helpers,
                        way.readahead.waiter(),
                    );
                    way.readahead.count += 1;
                    self.pending = Some(PendingWork::Asked(done));
                }
                Some(PendingWork::Asked(done)) if done.load(Ordering::Acquire) => {
                    self.has_read(way)?;
                }
                Some(PendingWork::Head(wait)) if wait.is_over() => return Err(Short::Again),
                Some(PendingWork::Piece) => {
                    let Some(supply) = self.body.take_supply() else { continue };
                    let errand =
                        Errand::start(supply, &way.readahead.helpers, way.readahead.waiter());
                    let none = || Short::Supply("cannot start a helper thread".to_owned());
                    self.pending = Some(PendingWork::Making(errand.ok_or_else(none)?));
                }
                Some(PendingWork::Making(errand)) => match errand.take() {
                    None => {
                        self.pending = Some(PendingWork::Making(errand));
                        return Ok(true);
                    }
                    Some(made) => {
                        let (supply, piece) = made.map_err(Short::Supply)?;
                        self.body.add(supply, piece.map_err(Short::Supply)?);
                        self.gather(&mut way.readahead.disks)?;
                    }
                },
                Some(waiting) => {
                    self.pending = Some(waiting);
                    return Ok(true);
                }
            }
        }
    }

    /// Continues after a helper has read the requested range.
    fn has_read(&mut self, way: &mut SendContext<'_>) -> Result<(), Short> {
        if let Some(large) = self.large.as_mut().filter(|large| large.may_be_uncached()) {
            large.cached_to = large.reached().saturating_add(way.step);
            return Ok(());
        }
        // Data that is not in the page cache even now is read directly, which may block.
        self.gather_more(&mut way.readahead.disks, true)
    }

    fn gather(&mut self, disks: &mut Disks) -> Result<(), Short> {
        self.gather_more(disks, false)
    }

    /// Copies parts into memory as far as they fit. A file range larger than [`ONE_SEND`] becomes the large part. If
    /// `may_wait` is `true`, the first file may be read from disk.
    fn gather_more(&mut self, disks: &mut Disks, mut may_wait: bool) -> Result<(), Short> {
        while self.large.is_none() {
            if self.body.needs_more() && !self.body.make_at_hand().map_err(Short::Supply)? {
                // Body bytes in memory are sent without waiting for the piece. A head alone waits.
                if self.of_body == 0 {
                    self.pending = Some(PendingWork::Piece);
                }
                return Ok(());
            }
            let room = ONE_SEND.saturating_sub(self.of_body) as u64;
            let Some(part) = self.body.parts.front() else { return Ok(()) };
            let fits = part.len() <= room;
            let may_be_large = matches!(part, BodyPart::File(..)) && part.len() > ONE_SEND as u64;
            if !fits && self.of_body > 0 && !may_be_large {
                return Ok(());
            }
            match self.body.parts.pop_front() {
                Some(BodyPart::Bytes(bytes)) => {
                    self.out.push(&bytes);
                    self.of_body += bytes.len();
                }
                Some(BodyPart::File(file, stretch)) if fits => {
                    let begin = self.out.len();
                    if !disks.read_range(&file, stretch, &mut self.out, may_wait)? {
                        self.out.cut(begin);
                        self.body.parts.push_front(BodyPart::File(Arc::clone(&file), stretch));
                        self.pending = Some(PendingWork::Wanted(file, stretch));
                        return Ok(());
                    }
                    may_wait = false;
                    self.of_body += stretch.len() as usize;
                    self.last = Some(LastRange { file, stretch, begin });
                }
                Some(BodyPart::File(file, stretch)) => {
                    let (at, end) = (stretch.from, stretch.to);
                    self.large = Some(LargePart {
                        file,
                        at,
                        end,
                        cached_to: at,
                        moving: None,
                        spent: Duration::ZERO,
                    });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Makes one step of the large part. When all but the tail is in the socket, the tail becomes a part in memory.
    fn move_on(&mut self, way: &mut SendContext<'_>) -> Result<Sent, Short> {
        let Some(large) = &mut self.large else { return Ok(Sent::All) };
        let tail = large.tail();
        if large.at < tail.from {
            if large.may_be_uncached() {
                let next = large.next(way.step);
                if way.readahead.disks.needs_readahead(&large.file, next) {
                    self.pending = Some(PendingWork::Wanted(Arc::clone(&large.file), next));
                    return Ok(Sent::Pending);
                }
                large.cached_to = next.to;
            }
            let before = large.reached();
            let sent = large.advance(tail.from, way);
            self.total += large.reached() - before;
            return sent;
        }
        let file = Arc::clone(&large.file);
        self.large = None;
        self.body.parts.push_front(BodyPart::File(file, tail));
        Ok(Sent::All)
    }
}
