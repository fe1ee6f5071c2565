//! The receiving side of a file transfer.

use super::opened::NotMoved;
use super::{
    Announced, DIFFERS, FileHead, FileTail, Handed, LONGEST, NOT_TAKEN, Problem, TAKEN, TAKES_OPEN,
};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::memory::MappedBytes;
use crate::bulk::receiver::Receiver;
use crate::error::{Error, Result};
use crate::shared::stop::WaitStop;
use std::os::fd::BorrowedFd;
use thalweg_core::Watch as Progress;
use thalweg_sys::{host, region::Pages};
use xxhash_rust::xxh3::Xxh3;

mod open;

/// Destination of received files. If a method fails, the receiver sends the error text to the sender and skips the
/// file.
pub trait Sink {
    /// Starts a file.
    fn begin(&mut self, file: &Announced) -> std::result::Result<(), String>;

    /// Appends bytes to the file.
    fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), String>;

    /// Makes the file visible. Called only for a complete file. Its checksum is correct, unless
    /// [`move_open`](Self::move_open) copied it.
    fn publish(&mut self) -> std::result::Result<(), String>;

    /// Discards the incomplete file. Not called after an error of [`publish`](Self::publish) or
    /// [`begin`](Self::begin).
    fn abandon(&mut self);

    /// Returns `true` if [`move_open`](Self::move_open) can copy the current file.
    fn takes_open(&self) -> bool {
        false
    }

    /// Copies `size` bytes from the start of a regular file that the sender has open. Calls `watch` with the number of
    /// bytes copied, and stops if `watch` returns an error. Returns the name of the mechanism used.
    fn move_open(
        &mut self,
        from: BorrowedFd<'_>,
        size: u64,
        watch: &mut dyn Progress,
    ) -> std::result::Result<String, NotMoved> {
        let (_, _, _) = (from, size, watch);
        Err(NotMoved::Refused("the receiver does not accept open files".to_owned()))
    }
}

/// Progress callback, called when a file begins and during its transfer. The number is that of all bytes moved so far.
pub type Watch<'w> = dyn FnMut(&Announced, u64) + 'w;

/// Outcome of the data of one file.
enum Data {
    Whole,
    /// The file is complete. The receiver copied the sender's open file, by the mechanism named here.
    Moved(String),
    Failed(Problem),
    /// The sink failed for the last file or for a stream, so receiving the rest would be useless.
    Enough(Problem),
}

impl Receiver {
    /// Receives everything that a sender [sends](crate::bulk::Sender::send_all), until the end of the transfer. If one
    /// file fails, the others still arrive. If the sink fails for the last file or for a stream, returns without
    /// waiting for the rest of the data. A file of another size than announced is a problem. A file that
    /// never began counts as [`missing`](Handed::missing).
    ///
    /// Calls `watch` when a file begins and during its transfer, with the number of bytes moved so far. Errors: see
    /// [`recv_into`](Self::recv_into); the current file is then discarded.
    pub fn recv_all(&mut self, sink: &mut dyn Sink, watch: &mut Watch<'_>) -> Result<Handed> {
        let mut handed = Handed::default();
        let (mut memory, mut begun) = (None, 0);
        while self.next_len()?.is_some() {
            let words = self.recv_words()?;
            let head = FileHead::parse(&words).map_err(|what| self.lost(Error::corrupt(what)))?;
            let (file, number) = (&head.announced, head.announced.number);
            if number < begun {
                let what = format!("file number {number} is out of order, after {begun} files");
                return Err(self.lost(Error::corrupt(what)));
            }
            begun += 1;
            handed.missing = file.missing(begun);
            let name = file.name.clone().unwrap_or_default();
            watch(file, handed.bytes);
            if let Err(why) = sink.begin(file) {
                let problem = Problem::NotTaken { why };
                self.reply(Some(&problem), "")?;
                handed.problems.push((name, problem));
                continue;
            }
            let room = room(&mut memory, head.buffer).map_err(|error| self.lost(error));
            let data = room.and_then(|()| {
                self.recv_item(&head, sink, &mut memory, &mut handed.bytes, &mut *watch)
            });
            let mut by = None;
            let problem = match data {
                // Do not call `abandon` for a file after `publish`, even if `publish` failed.
                Ok(Data::Whole) => published(sink),
                Ok(Data::Moved(name)) => {
                    by = Some(name);
                    published(sink)
                }
                Ok(Data::Failed(problem)) => {
                    sink.abandon();
                    Some(problem)
                }
                Ok(Data::Enough(problem)) => {
                    sink.abandon();
                    handed.problems.push((name, problem));
                    return Ok(handed);
                }
                Err(error) => {
                    sink.abandon();
                    return Err(error);
                }
            };
            self.reply(problem.as_ref(), by.as_deref().unwrap_or_default())?;
            match problem {
                None => {
                    handed.files += 1;
                    if let (Some(name), Some(size)) = (by, head.announced.size) {
                        handed.from_open.add(size, name);
                    }
                }
                Some(problem) => handed.problems.push((name, problem)),
            }
        }
        Ok(handed)
    }

    /// Replies to a head, and receives the data.
    fn recv_item(
        &mut self,
        head: &FileHead,
        sink: &mut dyn Sink,
        memory: &mut Option<MappedBytes>,
        moved: &mut u64,
        watch: &mut Watch<'_>,
    ) -> Result<Data> {
        let takes_open = self.trusts() && head.announced.size.is_some() && sink.takes_open();
        let answer = ControlMessage::new(ControlKind::Answer);
        self.say(&answer.words(&[TAKEN, if takes_open { TAKES_OPEN } else { 0 }]))?;
        if let Some(data) = self.recv_data(head, sink, memory, moved, &mut *watch)? {
            return Ok(data);
        }
        if takes_open && let Some(data) = self.recv_open(head, sink, moved, &mut *watch)? {
            return Ok(data);
        }
        let data = self.recv_data(head, sink, memory, moved, watch)?;
        data.ok_or_else(|| {
            self.lost(Error::corrupt("the sender passed the open file again instead of its bytes"))
        })
    }

    /// Receives the data of one file, and its tail. Returns `None` if the sender passes the open file instead of data.
    fn recv_data(
        &mut self,
        head: &FileHead,
        sink: &mut dyn Sink,
        memory: &mut Option<MappedBytes>,
        moved: &mut u64,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Data>> {
        let into = memory.as_mut().map(|memory| &mut memory[..]).unwrap_or_default();
        let (mut hasher, mut bytes, mut failed) = (Xxh3::new(), 0, None);
        loop {
            let count = match self.recv_into(into) {
                Err(Error::TooLarge { .. }) => {
                    let what = "buffer longer than announced";
                    return Err(self.lost(Error::corrupt(what)));
                }
                count => count?,
            };
            if count == 0 {
                break;
            }
            self.control().wanted().map_err(|stop| self.stopped(stop))?;
            bytes += count as u64;
            *moved += count as u64;
            if failed.is_none() {
                hasher.update(&into[..count]);
                if let Err(why) = sink.write(&into[..count]) {
                    let problem = Problem::NotTaken { why };
                    if head.announced.is_last() || head.announced.size.is_none() {
                        return Ok(Some(Data::Enough(problem)));
                    }
                    failed = Some(problem);
                }
            }
            watch(&head.announced, *moved);
        }
        let tail = FileTail::parse(&self.recv_words()?);
        let tail =
            tail.ok_or_else(|| self.lost(Error::corrupt("invalid record at the end of a file")))?;
        Ok(Some(match (failed, tail) {
            (Some(problem), _) => Data::Failed(problem),
            (None, FileTail::GivenUp { why }) => Data::Failed(Problem::GivenUp { why }),
            (None, FileTail::Open { bytes: told })
                if bytes == 0 && head.announced.size == Some(told) =>
            {
                return Ok(None);
            }
            (None, sent) => match compare(&head.announced, &sent, &FileTail::of(bytes, &hasher)) {
                None => Data::Whole,
                Some(problem) => Data::Failed(problem),
            },
        }))
    }

    /// Receives a head or a tail.
    fn recv_words(&mut self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; LONGEST];
        let len = match self.recv_into(&mut bytes) {
            Err(Error::TooLarge { .. }) => {
                return Err(self.lost(Error::corrupt("the sender does not use the file protocol")));
            }
            len => len?,
        };
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Replies to a tail, or refuses a head. `by` is the mechanism that copied an open file.
    fn reply(&mut self, problem: Option<&Problem>, by: &str) -> Result<()> {
        let (code, why) = match problem {
            None => (TAKEN, by),
            Some(Problem::Differs { why }) => (DIFFERS, why.as_str()),
            Some(Problem::NotTaken { why } | Problem::GivenUp { why }) => (NOT_TAKEN, why.as_str()),
        };
        self.say(&ControlMessage::new(ControlKind::Answer).words(&[code]).text(why))
    }

    pub(super) fn say(&mut self, packet: &ControlMessage) -> Result<()> {
        let sent = self.control().send(packet, &[]);
        sent.map_err(|stop| self.stopped(stop))
    }

    pub(super) fn stopped(&mut self, stop: WaitStop) -> Error {
        self.broken(stop, 0)
    }

    /// Ends the transfer because of an error.
    pub(super) fn lost(&mut self, error: Error) -> Error {
        self.give_up();
        error
    }
}

fn published(sink: &mut dyn Sink) -> Option<Problem> {
    sink.publish().err().map(|why| Problem::NotTaken { why })
}

/// Compares the tail and the announcement with the received data. Returns the problem, if any.
fn compare(announced: &Announced, sent: &FileTail, came: &FileTail) -> Option<Problem> {
    if sent != came {
        let why = format!("{} were sent, but {} arrived", sent.words(), came.words());
        return Some(Problem::Differs { why });
    }
    let (FileTail::Whole { bytes, .. }, Some(size)) = (came, announced.size) else { return None };
    let why = format!("{bytes} bytes arrived, but {size} were announced");
    (*bytes != size).then_some(Problem::NotTaken { why })
}

impl FileTail {
    fn words(&self) -> String {
        match self {
            Self::Whole { bytes, xxh3 } => format!("{bytes} bytes with XXH3 {xxh3:032x}"),
            Self::GivenUp { why } => why.clone(),
            Self::Open { bytes } => format!("{bytes} bytes as a file descriptor"),
        }
    }
}

/// Allocates memory for buffers of `len` bytes. Returns [`Error::TooLarge`] if that exceeds the available memory.
fn room(memory: &mut Option<MappedBytes>, len: u64) -> Result<()> {
    if memory.as_ref().is_some_and(|memory| memory.len() as u64 >= len) {
        return Ok(());
    }
    *memory = None;
    // A peer can claim any length. If this process used more memory than is available, the kernel would kill it.
    let most = host::memory_available().unwrap_or(u64::MAX);
    let whole = usize::try_from(len).ok().filter(|_| len <= most);
    let instead = Some("send with a smaller buffer");
    let whole = whole.ok_or(Error::TooLarge { len, most, instead })?;
    // Allocate once, and reuse the memory. Its pages become resident only when data arrives, so a false claim costs
    // nothing.
    let made = MappedBytes::untouched(whole, Pages::Transparent);
    *memory = Some(made.map_err(Error::system("mmap"))?);
    Ok(())
}
