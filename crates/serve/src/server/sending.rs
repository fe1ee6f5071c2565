//! One answer on its way: what fits goes out in one send, the rest by the mechanism of its plan.

use std::{os::fd::OwnedFd, rc::Rc};

use thalweg_core::{Error, Report};
use thalweg_sys::{Errno, io, net};

use super::{
    body::{Body, Part},
    moving::{Job, Moved, Moving},
    open::Opened,
    plans::{Plans, Policy},
};
use crate::http::range::Stretch;

/// The most of an answer that is put together in memory.
const ONE_SEND: usize = 64 << 10;

/// So much of a body is read before it is asked a last time whether the file is what it was, and sent after.
const TAIL: u64 = 4 << 10;

/// An answer that is being sent.
#[derive(Default)]
pub struct Sending {
    /// Put together and not sent yet, from `sent` on.
    bytes: Vec<u8>,
    sent: usize,
    body: Body,
    large: Option<Large>,
    /// Bytes that are in the socket, the head's among them.
    pub total: u64,
}

/// A stretch that is moved from the file to the socket, but for its tail.
struct Large {
    file: Rc<Opened>,
    at: u64,
    end: u64,
    moving: Option<Moving>,
}

/// Where an answer goes, and by what.
pub struct Way<'w> {
    pub socket: &'w Rc<OwnedFd>,
    pub is_internet: bool,
    pub plans: &'w mut Plans,
    pub policy: &'w Policy,
    /// The most that one step moves.
    pub step: u64,
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
}

/// Why an answer stays short.
#[derive(Debug)]
pub enum Short {
    /// The file is not what it was when the answer began.
    Changed,
    /// The client is gone, or cannot be reached.
    Client(Errno),
    /// The file cannot be read.
    File(Errno),
    /// What was to be found on the way is not there.
    Supply(String),
}

impl Sending {
    /// Puts together the head and as much of the body as fits. Nothing is sent: if the file has changed
    /// already, there can still be another answer.
    pub fn prepare(head: Vec<u8>, body: Body) -> Result<Self, Short> {
        let mut sending = Self { bytes: head, body, ..Self::default() };
        sending.gather()?;
        Ok(sending)
    }

    /// Sends until there is no room, or for long enough.
    pub fn advance(&mut self, way: &mut Way<'_>) -> Result<Sent, Short> {
        loop {
            if self.sent < self.bytes.len() {
                match net::send(way.socket, &self.bytes[self.sent..]) {
                    // A socket that takes nothing and gives no reason would be asked for ever.
                    Ok(0) => return Err(Short::Client(Errno::IO)),
                    Ok(count) => {
                        self.sent += count;
                        self.total += count as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                    Err(errno) => return Err(Short::Client(errno)),
                }
                continue;
            }
            (self.bytes, self.sent) = (Vec::new(), 0);
            if self.large.is_some() {
                match self.move_on(way)? {
                    Sent::All => continue,
                    other => return Ok(other),
                }
            }
            self.gather()?;
            let is_over = self.bytes.is_empty() && self.large.is_none();
            return Ok(if is_over { Sent::All } else { Sent::Some });
        }
    }

    /// Gives up the buffer or the pipe of a transfer under way, which can go on with another one.
    pub fn park(&mut self, account: &mut dyn FnMut(&Report)) {
        if let Some(large) = &mut self.large {
            large.leave(account);
        }
    }

    /// Takes parts into memory as far as they fit; the first that does not becomes the large one.
    fn gather(&mut self) -> Result<(), Short> {
        while self.large.is_none() {
            self.body.fill().map_err(Short::Supply)?;
            let room = ONE_SEND.saturating_sub(self.bytes.len()) as u64;
            let fits = self.body.parts.front().is_some_and(|part| part.len() <= room);
            let is_empty = self.bytes.is_empty();
            match self.body.parts.front() {
                None => return Ok(()),
                Some(Part::Bytes(_)) if !fits && !is_empty => return Ok(()),
                Some(Part::File(_, stretch))
                    if !fits && !is_empty && stretch.len() <= ONE_SEND as u64 =>
                {
                    return Ok(());
                }
                Some(_) => {}
            }
            match self.body.parts.pop_front() {
                Some(Part::Bytes(bytes)) if is_empty => self.bytes = bytes,
                Some(Part::Bytes(bytes)) => self.bytes.extend_from_slice(&bytes),
                Some(Part::File(file, stretch)) if fits => read(&file, stretch, &mut self.bytes)?,
                Some(Part::File(file, stretch)) => {
                    let (at, end) = (stretch.from, stretch.to);
                    self.large = Some(Large { file, at, end, moving: None });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// One step of the large part; its tail is put together once the rest is in the socket.
    fn move_on(&mut self, way: &mut Way<'_>) -> Result<Sent, Short> {
        let Some(large) = &mut self.large else { return Ok(Sent::All) };
        let tail = Stretch { from: large.end.saturating_sub(TAIL).max(large.at), to: large.end };
        if large.at < tail.from {
            let before = large.reached();
            let sent = large.advance(tail.from, way);
            self.total += large.reached() - before;
            return sent;
        }
        let file = Rc::clone(&large.file);
        self.large = None;
        read(&file, tail, &mut self.bytes)?;
        Ok(Sent::All)
    }
}

impl Large {
    fn reached(&self) -> u64 {
        self.at + self.moving.as_ref().map_or(0, Moving::moved)
    }

    /// One step on the way to this byte.
    fn advance(&mut self, to: u64, way: &mut Way<'_>) -> Result<Sent, Short> {
        let moving = self.moving.get_or_insert_with(|| {
            let stretch = Stretch { from: self.at, to };
            let socket = (way.socket.as_ref(), way.is_internet);
            Moving::new(Job {
                file: Rc::clone(&self.file),
                socket: Rc::clone(way.socket),
                stretch,
                needs: way.policy.needs,
                step: way.step,
                plan: way.plans.plan(way.policy, &self.file, socket, stretch.len()),
            })
        });
        let outcome = match moving.advance() {
            Moved::Some => return Ok(Sent::Some),
            Moved::Blocked => return Ok(Sent::Blocked),
            Moved::End(outcome) => outcome,
        };
        self.moving = None;
        self.at += outcome.report.bytes;
        (way.account)(&outcome.report);
        match outcome.error {
            Some(error) => Err(self.blame(&error)),
            // It ended before it should have.
            None if self.at < to => Err(Short::Changed),
            None => Ok(Sent::Some),
        }
    }

    fn leave(&mut self, account: &mut dyn FnMut(&Report)) {
        if let Some(moving) = self.moving.take() {
            self.at += moving.moved();
            if let Some(outcome) = moving.stop() {
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

/// Reads a stretch into memory and makes sure that it is of the version that was opened.
fn read(file: &Opened, stretch: Stretch, into: &mut Vec<u8>) -> Result<(), Short> {
    let begin = into.len();
    into.resize(begin + stretch.len() as usize, 0);
    let mut done = 0;
    while done < stretch.len() {
        match io::pread(file, &mut into[begin + done as usize..], stretch.from + done) {
            Ok(0) => return Err(Short::Changed),
            Ok(count) => done += count as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Short::File(errno)),
        }
    }
    if file.is_unchanged() { Ok(()) } else { Err(Short::Changed) }
}
