//! The sending side of a file transfer.

use super::checked;
use super::{
    Announced, DIFFERS, FileHead, FileTail, Handed, LONGEST_NAME, NOT_TAKEN, Problem, TAKEN,
    TAKES_OPEN,
};
use crate::bulk::control::BulkControl;
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::handshake::error_of;
use crate::bulk::memory::Loan;
use crate::bulk::sender::Sender;
use crate::error::{Error, Result};
use crate::shared::stop::WaitStop;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use xxhash_rust::xxh3::Xxh3;

mod open;

/// A file or stream to send.
#[derive(Debug)]
pub struct Item<R> {
    /// File name at the receiver, without a directory; `None` for a stream.
    pub name: Option<OsString>,
    /// Size in bytes, if known. If it is known, each buffer is filled before it is sent, and a `source` of another
    /// length is an error.
    pub size: Option<u64>,
    /// Source of the bytes.
    pub source: R,
    /// The file that `source` reads from its start, opened for reading only. Set this field only if the receiver may
    /// have the descriptor. If both sides trust each other and `size` is known, the receiver may copy the bytes itself.
    /// No checksum is compared then. Otherwise this side reads the bytes from `source`.
    pub file: Option<OwnedFd>,
}

/// Parameters of a file transfer.
pub struct Pace<'w> {
    /// Maximum size of a buffer in bytes.
    pub buffer: usize,
    /// Number of items, if known.
    pub total: Option<u64>,
    /// Called with the number of bytes moved so far.
    pub watch: &'w mut dyn FnMut(u64),
}

impl Sender {
    /// Sends several files or streams, in order, to a receiver that [receives them](crate::bulk::Receiver::recv_all).
    /// If an item cannot be read or is rejected, records a [`Problem`] and continues with the next item.
    ///
    /// Errors: see [`send_from`](Self::send_from); nothing more can be sent afterwards.
    pub fn send_all<R: Read>(
        &mut self,
        items: impl IntoIterator<Item = Item<R>>,
        pace: &mut Pace<'_>,
    ) -> Result<Handed> {
        let mut handed = Handed::default();
        let (mut loan, mut begun) = (None, 0);
        for (number, item) in (0..).zip(items) {
            begun = number + 1;
            let name = item.name.clone().unwrap_or_default();
            let announced =
                Announced { name: item.name, size: item.size, number, total: pace.total };
            let (source, file) = (item.source, item.file);
            let sent =
                self.send_item(announced, source, file.as_ref(), pace, &mut handed, &mut loan);
            match sent? {
                None => handed.files += 1,
                Some(problem) => handed.problems.push((name, problem)),
            }
        }
        handed.missing = pace.total.unwrap_or(0).saturating_sub(begun);
        Ok(handed)
    }

    fn send_item(
        &mut self,
        announced: Announced,
        source: impl Read,
        file: Option<&OwnedFd>,
        pace: &mut Pace<'_>,
        handed: &mut Handed,
        loan: &mut Option<Loan>,
    ) -> Result<Option<Problem>> {
        if announced.name.as_ref().is_some_and(|name| checked(name.as_bytes()).is_none()) {
            let why = format!(
                "invalid name: one path component of at most {LONGEST_NAME} bytes is allowed"
            );
            return Ok(Some(Problem::GivenUp { why }));
        }
        let most = pace.buffer.max(1);
        let room = announced.size.map_or(most as u64, |size| size.clamp(1, most as u64));
        let (size, room) = (announced.size, room as usize);
        let head = FileHead { announced, buffer: room as u64 };
        self.send_from(&head.to_bytes())?;
        let answer = self.answer()?;
        if let Some(problem) = answer.problem {
            return Ok(Some(problem));
        }
        if let (Some(size), Some(file)) = (size, file)
            && self.may_open(file.as_fd(), answer.takes_open)
            && let OpenOffer::Answered(problem) =
                self.send_open(file.as_fd(), size, pace, handed)?
        {
            return Ok(problem);
        }
        self.send_data(source, size, room, pace, &mut handed.bytes, loan)
    }

    /// Sends the data of one item in buffers of `room` bytes, and then its tail. Adds the bytes to `moved`, which
    /// counts those of all items.
    fn send_data(
        &mut self,
        mut source: impl Read,
        size: Option<u64>,
        room: usize,
        pace: &mut Pace<'_>,
        moved: &mut u64,
        loan: &mut Option<Loan>,
    ) -> Result<Option<Problem>> {
        let (mut hasher, mut bytes) = (Xxh3::new(), 0);
        let failed = loop {
            self.control().wanted().map_err(|stop| self.break_off(stop))?;
            let mut own = match loan.take().filter(|own| own.len() >= room) {
                Some(own) => own,
                None => self.alloc(room)?,
            };
            let whole = size.is_some();
            let (count, failed) = fill(&mut source, &mut own[..room], whole, self.control());
            if failed.as_ref().is_some_and(|error| error.kind() == ErrorKind::Interrupted) {
                return Err(self.break_off(WaitStop::Interrupted));
            }
            if count == 0 || failed.is_some() {
                *loan = Some(own);
                break failed;
            }
            hasher.update(&own[..count]);
            if count == own.len() {
                *loan = self.send_loan(own)?;
            } else {
                self.send_from(&own[..count])?;
                *loan = Some(own);
            }
            bytes += count as u64;
            *moved += count as u64;
            (pace.watch)(*moved);
            if size.is_some_and(|size| bytes > size) {
                // The file has grown. Stop here, because it could grow without end.
                break None;
            }
        };
        self.send_from(&[])?;
        let changed = size.filter(|size| *size != bytes).map(|size| {
            let how = if bytes < size { "ended" } else { "continued" };
            format!(
                "the file changed during the copy: expected {size} bytes, but it {how} after {bytes} bytes"
            )
        });
        let why = failed.map(|error| error.to_string()).or(changed);
        let tail = match &why {
            None => FileTail::of(bytes, &hasher),
            Some(why) => FileTail::GivenUp { why: why.clone() },
        };
        self.send_from(&tail.to_bytes())?;
        let answer = self.answer()?;
        Ok(why.map(|why| Problem::GivenUp { why }).or(answer.problem))
    }

    /// Waits for the receiver's reply to a head or tail.
    fn answer(&mut self) -> Result<FileAnswer> {
        let heard = self.heard()?;
        let problem = problem_of(&heard).map_err(|stop| self.break_off(stop))?;
        let takes_open = problem.is_none() && heard.word(1) == TAKES_OPEN;
        Ok(FileAnswer { problem, takes_open })
    }

    /// Waits for the receiver's next message.
    pub(super) fn heard(&mut self) -> Result<ControlMessage> {
        let heard = self.control().message();
        heard.map(|heard| heard.message).map_err(|stop| self.break_off(stop))
    }

    /// Ends the transfer because of an error.
    pub(super) fn break_off(&mut self, stop: WaitStop) -> Error {
        self.give_up();
        error_of(stop, 0)
    }
}

/// A reply to a head or a tail.
struct FileAnswer {
    problem: Option<Problem>,
    /// `true` if the receiver accepts an open file in place of the bytes.
    takes_open: bool,
}

/// Outcome of offering an open file.
enum OpenOffer {
    /// The sender must send the bytes.
    Refused,
    /// The receiver's final reply.
    Answered(Option<Problem>),
}

/// Returns the problem that a reply reports; `None` if the reply is positive.
fn problem_of(heard: &ControlMessage) -> std::result::Result<Option<Problem>, WaitStop> {
    let why = heard.text.clone();
    match (heard.kind, heard.word(0)) {
        (ControlKind::Answer, TAKEN) => Ok(None),
        (ControlKind::Answer, NOT_TAKEN) => Ok(Some(Problem::NotTaken { why })),
        (ControlKind::Answer, DIFFERS) => Ok(Some(Problem::Differs { why })),
        _ => Err(WaitStop::corrupt("expected the receiver's answer to a file")),
    }
}

/// Reads from `source`: until the buffer is full if `whole` is `true`, otherwise once. Returns the number of bytes and
/// the error, if any. The error `Interrupted` means that the caller wants to stop.
fn fill(
    source: &mut impl Read,
    into: &mut [u8],
    whole: bool,
    control: &BulkControl,
) -> (usize, Option<std::io::Error>) {
    let mut filled = 0;
    while filled < into.len() {
        match source.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count.min(into.len() - filled),
            Err(error) if error.kind() == ErrorKind::Interrupted && control.wanted().is_ok() => {
                continue;
            }
            Err(error) => return (filled, Some(error)),
        }
        if !whole {
            break;
        }
    }
    (filled, None)
}
