//! One answer on its way: what fits goes out in one send, the rest by the mechanism of its plan.

use std::{
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use thalweg_core::{Error, Report};
use thalweg_sys::{Errno, io, net};

use super::{
    body::{Body, Part},
    cold::{self, Colds, Disks, Got},
    digests::DigestWait,
    errand::Errand,
    gathered::{Gathered, ONE_SEND},
    moving::{self, Moved, Moving},
    opened::Opened,
    short::Short,
};
use crate::{
    http::range::Stretch,
    plans::{Known, Plans, Policy},
};

/// So much of a body is read before it is asked a last time whether the file is what it was, and sent after.
const TAIL: u64 = 4 << 10;

/// A parked answer may keep this many bytes: its head, and what stands between files of an archive.
const PARKED: u64 = 4 << 10;

/// An answer that is being sent.
#[derive(Default)]
pub struct Sending {
    out: Gathered,
    // Of `out`, those of the body.
    of_body: usize,
    /// The last stretch in `out` and where it begins there: it can be read again.
    last: Option<(Arc<Opened>, Stretch, usize)>,
    body: Body,
    large: Option<Large>,
    cold: Option<Cold>,
    /// Bytes that are in the socket, the head's among them.
    pub total: u64,
}

/// Something that has to be done before an answer can continue.
enum Cold {
    /// Nobody was asked yet.
    Wanted(Arc<Opened>, Stretch),
    /// A helper reads it in.
    Asked(Arc<AtomicBool>),
    /// A helper finds out what the head has to say.
    Head(DigestWait),
    /// The next piece of the body has to be made.
    Piece,
    /// A helper makes it.
    Making(Errand),
}

/// A stretch that is moved from the file to the socket, but for its tail.
struct Large {
    file: Arc<Opened>,
    at: u64,
    end: u64,
    /// Up to here it was in memory.
    warm: u64,
    moving: Option<Moving>,
    /// The time that its steps took.
    spent: Duration,
}

/// Where an answer goes, and by what.
pub struct Way<'w> {
    pub socket: &'w Rc<OwnedFd>,
    pub is_internet: bool,
    pub plans: &'w mut Plans,
    pub policy: &'w Policy,
    /// The most that one step moves.
    pub step: u64,
    /// Another answer follows at once.
    pub more: bool,
    pub cold: &'w mut Colds,
    /// Gets the account of every transfer that has ended.
    pub account: &'w mut dyn FnMut(&Report),
}

/// How far it got.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it.
    All,
    /// There is room for more, but others wait too.
    Some,
    /// The socket has no room.
    Blocked,
    /// A helper reads on; the mailbox is told when it has.
    Cold,
}

impl Sending {
    /// Puts together the head and as much of the body as fits and is in memory. Nothing is sent: if the file has
    /// changed already, there can still be another answer.
    pub fn prepare(
        head: &[u8],
        body: Body,
        buffer: Vec<u8>,
        disks: &mut Disks,
    ) -> Result<Self, Short> {
        let mut sending = Self { out: Gathered::within(buffer), body, ..Self::default() };
        sending.out.push(head);
        sending.gather(disks)?;
        Ok(sending)
    }

    /// An answer whose head needs a hash. Once the wait is over, it asks to be made again.
    pub fn waiting(wait: DigestWait) -> Self {
        Self { cold: Some(Cold::Head(wait)), ..Self::default() }
    }

    /// Whether it waits for a disk.
    pub fn is_cold(&self) -> bool {
        self.cold.is_some()
    }

    /// Whether it waits for a hash.
    pub fn waits_for_digest(&self) -> bool {
        matches!(self.cold, Some(Cold::Head(_)))
    }

    /// Does not wait for a hash any more. `is_kept`: the client may ask for it later.
    pub fn leave_digest(&mut self, is_kept: bool) {
        if let Some(Cold::Head(wait)) = self.cold.take()
            && is_kept
        {
            wait.leave();
        }
    }

    /// Sends until there is no room, or for long enough.
    pub fn advance(&mut self, way: &mut Way<'_>) -> Result<Sent, Short> {
        let (mut was_large, mut may_go_on) = (false, true);
        loop {
            if self.is_still_cold(way)? {
                return Ok(Sent::Cold);
            }
            if !self.out.unsent().is_empty() {
                let out = self.out.unsent();
                // What is moved next goes out in one packet with the head, and so does an answer that follows.
                let sent = if way.more || self.large.is_some() {
                    net::send_more(way.socket, out)
                } else {
                    net::send(way.socket, out)
                };
                match sent {
                    // A socket that takes nothing and gives no reason would be asked for ever.
                    Ok(0) => return Err(Short::Client(Errno::IO)),
                    Ok(count) => {
                        self.out.sent(count);
                        self.total += count as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                    Err(errno) => return Err(Short::Client(errno)),
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
                    Sent::Cold => {}
                    other => return Ok(other),
                }
            }
            if self.cold.is_none() {
                self.gather(&mut way.cold.disks)?;
            }
            if self.cold.is_some() {
                continue;
            }
            if self.out.unsent().is_empty() && self.large.is_none() {
                return Ok(Sent::All);
            }
            // The tail of what was moved has been waiting for long enough. Once: a body may be of many files.
            if !(was_large && std::mem::take(&mut may_go_on)) {
                return Ok(Sent::Some);
            }
        }
    }

    /// Gives up the buffer or the pipe of a transfer under way, which can go on with another one, and what can be
    /// read again.
    pub fn park(&mut self, account: &mut dyn FnMut(&Report)) {
        if let Some(large) = &mut self.large {
            large.leave(account);
        }
        let Some((file, stretch, begin)) = self.last.take() else { return };
        if let Some(Large { file, at, end, .. }) = self.large.take() {
            // It comes behind what is put together.
            self.body.parts.push_front(Part::File(file, Stretch { from: at, to: end }));
        }
        let kept = self.out.sent_so_far().max(begin);
        let from = stretch.from + (kept - begin) as u64;
        if from < stretch.to {
            self.body.parts.push_front(Part::File(file, Stretch { from, to: stretch.to }));
        }
        self.out.cut(kept);
        self.out.shrink();
    }

    /// Memory that is kept while the client takes nothing.
    pub fn held(&self) -> u64 {
        let moving = self.large.as_ref().and_then(|large| large.moving.as_ref());
        self.out.held() as u64 + self.body.held() + moving.map_or(0, Moving::held)
    }

    /// Whether it keeps memory that cannot be given back: bytes that are made cannot be made again.
    pub fn is_stuck(&self) -> bool {
        self.body.is_made() && self.held() > PARKED
    }

    /// Keeps no more than what is unsent; the buffer, if it was much larger.
    pub fn shrink(&mut self) -> Option<Vec<u8>> {
        if self.out.held() / 2 < self.out.unsent().len() {
            return None;
        }
        let sent = self.out.sent_so_far();
        if let Some((_, stretch, begin)) = &mut self.last {
            stretch.from += sent.saturating_sub(*begin) as u64;
            *begin = begin.saturating_sub(sent);
        }
        Some(self.out.shrink())
    }

    /// The buffer of one that is over.
    pub fn buffer(self) -> Vec<u8> {
        self.out.into_buffer()
    }

    fn clear(&mut self) {
        self.out.clear();
        self.of_body = 0;
        self.last = None;
    }

    /// Has helpers do what the answer waits for. Returns whether it still waits.
    fn is_still_cold(&mut self, way: &mut Way<'_>) -> Result<bool, Short> {
        loop {
            match self.cold.take() {
                None => return Ok(false),
                Some(Cold::Wanted(file, stretch)) => {
                    let done = cold::ask_for((file, stretch), &way.cold.crew, way.cold.waiter());
                    way.cold.count += 1;
                    self.cold = Some(Cold::Asked(done));
                }
                Some(Cold::Asked(done)) if done.load(Ordering::Acquire) => {
                    self.has_read(way)?;
                }
                Some(Cold::Head(wait)) if wait.is_over() => return Err(Short::Again),
                Some(Cold::Piece) => {
                    let Some(supply) = self.body.take_supply() else { continue };
                    let errand = Errand::start(supply, &way.cold.crew, way.cold.waiter());
                    let none = || Short::Supply("no thread can be started".to_owned());
                    self.cold = Some(Cold::Making(errand.ok_or_else(none)?));
                }
                Some(Cold::Making(errand)) => match errand.take() {
                    None => {
                        self.cold = Some(Cold::Making(errand));
                        return Ok(true);
                    }
                    Some(made) => {
                        let (supply, piece) = made.map_err(Short::Supply)?;
                        self.body.add(supply, piece.map_err(Short::Supply)?);
                        self.gather(&mut way.cold.disks)?;
                    }
                },
                Some(waiting) => {
                    self.cold = Some(waiting);
                    return Ok(true);
                }
            }
        }
    }

    /// The stretch that was asked for is read in.
    fn has_read(&mut self, way: &mut Way<'_>) -> Result<(), Short> {
        if let Some(large) = self.large.as_mut().filter(|large| large.is_cold()) {
            large.warm = large.reached().saturating_add(way.step);
            return Ok(());
        }
        // What is not in memory even now is read all the same.
        self.gather_more(&mut way.cold.disks, true)
    }

    fn gather(&mut self, disks: &mut Disks) -> Result<(), Short> {
        self.gather_more(disks, false)
    }

    /// Takes parts into memory as far as they fit; the first that does not becomes the large one. The first file
    /// is read from its disk if it `may_wait`.
    fn gather_more(&mut self, disks: &mut Disks, mut may_wait: bool) -> Result<(), Short> {
        while self.large.is_none() {
            if self.body.needs_more() && !self.body.make_at_hand().map_err(Short::Supply)? {
                // What there is need not wait for it, unless it is a head alone.
                if self.of_body == 0 {
                    self.cold = Some(Cold::Piece);
                }
                return Ok(());
            }
            let room = ONE_SEND.saturating_sub(self.of_body) as u64;
            let Some(part) = self.body.parts.front() else { return Ok(()) };
            let fits = part.len() <= room;
            let may_be_large = matches!(part, Part::File(..)) && part.len() > ONE_SEND as u64;
            if !fits && self.of_body > 0 && !may_be_large {
                return Ok(());
            }
            match self.body.parts.pop_front() {
                Some(Part::Bytes(bytes)) => {
                    self.out.push(&bytes);
                    self.of_body += bytes.len();
                }
                Some(Part::File(file, stretch)) if fits => {
                    let begin = self.out.len();
                    if !read(&file, stretch, &mut self.out, (disks, may_wait))? {
                        self.out.cut(begin);
                        self.body.parts.push_front(Part::File(Arc::clone(&file), stretch));
                        self.cold = Some(Cold::Wanted(file, stretch));
                        return Ok(());
                    }
                    may_wait = false;
                    self.of_body += stretch.len() as usize;
                    self.last = Some((file, stretch, begin));
                }
                Some(Part::File(file, stretch)) => {
                    let (at, end) = (stretch.from, stretch.to);
                    self.large = Some(Large {
                        file,
                        at,
                        end,
                        warm: at,
                        moving: None,
                        spent: Duration::ZERO,
                    });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// One step of the large part; its tail is put together once the rest is in the socket.
    fn move_on(&mut self, way: &mut Way<'_>) -> Result<Sent, Short> {
        let Some(large) = &mut self.large else { return Ok(Sent::All) };
        let tail = large.tail();
        if large.at < tail.from {
            if large.is_cold() {
                let next = large.next(way.step);
                if way.cold.disks.is_cold(&large.file, next) {
                    self.cold = Some(Cold::Wanted(Arc::clone(&large.file), next));
                    return Ok(Sent::Cold);
                }
                large.warm = next.to;
            }
            let before = large.reached();
            let sent = large.advance(tail.from, way);
            self.total += large.reached() - before;
            return sent;
        }
        let file = Arc::clone(&large.file);
        self.large = None;
        self.body.parts.push_front(Part::File(file, tail));
        Ok(Sent::All)
    }
}

impl Large {
    fn reached(&self) -> u64 {
        self.at + self.moving.as_ref().map_or(0, Moving::moved)
    }

    fn tail(&self) -> Stretch {
        Stretch { from: self.end.saturating_sub(TAIL).max(self.at), to: self.end }
    }

    /// What is moved next may not be in memory.
    fn is_cold(&self) -> bool {
        self.reached() >= self.warm
    }

    /// What is moved next, with the tail if it is near.
    fn next(&self, step: u64) -> Stretch {
        let from = self.reached();
        let to = from.saturating_add(step);
        Stretch { from, to: if to >= self.tail().from { self.end } else { to } }
    }

    /// One step on the way to this byte.
    fn advance(&mut self, to: u64, way: &mut Way<'_>) -> Result<Sent, Short> {
        let moving = self.moving.get_or_insert_with(|| {
            let stretch = Stretch { from: self.at, to };
            let (device, is_sealed) = (self.file.version.device(), self.file.is_sealed());
            let file = (Known::File { device, is_sealed }, self.file.as_fd());
            let socket = (Known::Socket { is_internet: way.is_internet }, way.socket.as_fd());
            Moving::new(moving::Job {
                file: Arc::clone(&self.file),
                socket: Rc::clone(way.socket),
                stretch,
                needs: way.policy.needs,
                plan: way.plans.plan(way.policy, file, socket, stretch.len()),
            })
        });
        let most = self.warm.saturating_sub(self.at + moving.moved()).clamp(1, way.step);
        let began = Instant::now();
        let mut moved = moving.advance(most);
        if matches!(moved, Moved::Some) && self.at + moving.moved() >= to {
            // There is nothing left but to end it.
            moved = moving.advance(most);
        }
        self.spent += began.elapsed();
        let mut outcome = match moved {
            Moved::Some => return Ok(Sent::Some),
            Moved::Blocked => return Ok(Sent::Blocked),
            Moved::End(outcome) => outcome,
        };
        self.moving = None;
        self.at += outcome.report.bytes;
        outcome.report.wall = std::mem::take(&mut self.spent);
        (way.account)(&outcome.report);
        match outcome.error {
            Some(error) => Err(self.blame(&error)),
            // It ended before it should have.
            None if self.at < to => Err(Short::Changed),
            None => Ok(Sent::All),
        }
    }

    fn leave(&mut self, account: &mut dyn FnMut(&Report)) {
        if let Some(moving) = self.moving.take() {
            self.at += moving.moved();
            if let Some(mut outcome) = moving.stop() {
                outcome.report.wall = std::mem::take(&mut self.spent);
                account(&outcome.report);
            }
        }
    }

    /// Whose fault it is that a transfer failed.
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

/// Reads a stretch into memory and makes sure that it is of the version that was opened. False where that would
/// wait for a disk and must not.
fn read(
    file: &Opened,
    stretch: Stretch,
    into: &mut Gathered,
    (disks, may_wait): (&mut Disks, bool),
) -> Result<bool, Short> {
    let len = stretch.len() as usize;
    let room = into.room(len);
    let mut done = 0;
    while done < len {
        let (rest, at) = (&mut room[done..], stretch.from + done as u64);
        let got = if may_wait {
            io::pread(file, rest, at).map(Got::Bytes)
        } else {
            disks.read(file, rest, at)
        };
        match got {
            Ok(Got::Bytes(0)) => return Err(Short::Changed),
            Ok(Got::Bytes(count)) => done += count,
            Ok(Got::Cold) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Short::File(errno)),
        }
    }
    into.fill(len);
    if file.is_unchanged() { Ok(true) } else { Err(Short::Changed) }
}
