//! The receiver's side of a handover of files.

use super::opened::NotMoved;
use super::{
    Announced, DIFFERS, Handed, Head, LONGEST, NOT_TAKEN, Problem, TAKEN, TAKES_OPEN, Tail,
};
use crate::bulk::control_message::{ControlMessage, Kind};
use crate::bulk::memory::Memory;
use crate::bulk::receiver::Receiver;
use crate::error::{Error, Result};
use crate::shared::stop::Stop;
use std::os::fd::BorrowedFd;
use thalweg_core::Watch as Progress;
use thalweg_sys::{host, region::Pages};
use xxhash_rust::xxh3::Xxh3;

mod open;

/// Where files go. The error of a call is said to the sender in these words, and that file is passed
/// over.
pub trait Sink {
    /// A file begins.
    fn begin(&mut self, file: &Announced) -> std::result::Result<(), String>;

    /// More of it.
    fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), String>;

    /// All of it is there, and is what was sent: it may be seen now.
    fn publish(&mut self) -> std::result::Result<(), String>;

    /// It is not to be: what there is of it goes. Not called after an error of
    /// [`publish`](Self::publish) or [`begin`](Self::begin).
    fn abandon(&mut self);

    /// Whether the file that has begun can be moved from a file that the sender has open.
    fn takes_open(&self) -> bool {
        false
    }

    /// Moves `size` bytes, from the start of an open file that is known to be a regular one; `watch`
    /// is told of the bytes that are there and says when to stop. The name of what moved them.
    fn move_open(
        &mut self,
        from: BorrowedFd<'_>,
        size: u64,
        watch: &mut dyn Progress,
    ) -> std::result::Result<String, NotMoved> {
        let (_, _, _) = (from, size, watch);
        Err(NotMoved::Refused("not asked for".to_owned()))
    }
}

/// Told of every file that begins, and of the bytes moved so far.
pub type Watch<'w> = dyn FnMut(&Announced, u64) + 'w;

/// What became of a file's data.
enum Data {
    Whole,
    /// The same by what is named here, from the open file.
    Moved(String),
    Failed(Problem),
    /// Nothing that comes now is of use: the last file failed, or a stream did.
    Enough(Problem),
}

impl Receiver {
    /// Takes what a sender [sends](crate::bulk::Sender::send_all), until its goodbye. A problem with one
    /// file does not keep the others from coming; when the last of them, or a stream, cannot be
    /// taken any more, this returns without waiting for the rest of it. What came is compared with
    /// what was announced: a file of another size is a problem, one that never began is
    /// [`missing`](Handed::missing).
    ///
    /// `watch` is told of every file that begins and of the bytes moved so far. Errors as
    /// [`recv_into`](Self::recv_into); then the file under way was abandoned.
    pub fn recv_all(&mut self, sink: &mut dyn Sink, watch: &mut Watch<'_>) -> Result<Handed> {
        let mut handed = Handed::default();
        let (mut memory, mut begun) = (None, 0);
        while self.next_len()?.is_some() {
            let words = self.recv_words()?;
            let head = Head::parse(&words).map_err(|what| self.lost(Error::corrupt(what)))?;
            let file = &head.announced;
            if file.number < begun {
                let what = format!("file number {} after {begun} files", file.number);
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
                // Published or not, it is the sink's no more.
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

    /// The answer to a head, and what follows it.
    fn recv_item(
        &mut self,
        head: &Head,
        sink: &mut dyn Sink,
        memory: &mut Option<Memory>,
        moved: &mut u64,
        watch: &mut Watch<'_>,
    ) -> Result<Data> {
        let takes_open = self.trusts() && head.announced.size.is_some() && sink.takes_open();
        let answer = ControlMessage::new(Kind::Answer);
        self.say(&answer.words(&[TAKEN, if takes_open { TAKES_OPEN } else { 0 }]))?;
        if let Some(data) = self.recv_data(head, sink, memory, moved, &mut *watch)? {
            return Ok(data);
        }
        if takes_open && let Some(data) = self.recv_open(head, sink, moved, &mut *watch)? {
            return Ok(data);
        }
        let data = self.recv_data(head, sink, memory, moved, watch)?;
        data.ok_or_else(|| self.lost(Error::corrupt("an open file that was not asked for")))
    }

    /// The data of one file, and its tail. `None`: none came, the sender hands over the open file.
    fn recv_data(
        &mut self,
        head: &Head,
        sink: &mut dyn Sink,
        memory: &mut Option<Memory>,
        moved: &mut u64,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Data>> {
        let into = memory.as_mut().map(|memory| &mut memory[..]).unwrap_or_default();
        let (mut hasher, mut bytes, mut failed) = (Xxh3::new(), 0, None);
        loop {
            let count = match self.recv_into(into) {
                Err(Error::TooLarge { .. }) => {
                    let what = "a buffer longer than the sender had said";
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
        let tail = Tail::parse(&self.recv_words()?);
        let tail = tail.ok_or_else(|| self.lost(Error::corrupt("a tail that is none")))?;
        Ok(Some(match (failed, tail) {
            (Some(problem), _) => Data::Failed(problem),
            (None, Tail::GivenUp { why }) => Data::Failed(Problem::GivenUp { why }),
            (None, Tail::Open { bytes: told })
                if bytes == 0 && head.announced.size == Some(told) =>
            {
                return Ok(None);
            }
            (None, sent) => match compare(&head.announced, &sent, &Tail::of(bytes, &hasher)) {
                None => Data::Whole,
                Some(problem) => Data::Failed(problem),
            },
        }))
    }

    /// A head or a tail.
    fn recv_words(&mut self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; LONGEST];
        let len = match self.recv_into(&mut bytes) {
            Err(Error::TooLarge { .. }) => {
                return Err(self.lost(Error::corrupt("the sender does not announce files")));
            }
            len => len?,
        };
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The answer to a head that is refused, or to a tail; `by` names what moved an open file.
    fn reply(&mut self, problem: Option<&Problem>, by: &str) -> Result<()> {
        let (code, why) = match problem {
            None => (TAKEN, by),
            Some(Problem::Differs { why }) => (DIFFERS, why.as_str()),
            Some(Problem::NotTaken { why } | Problem::GivenUp { why }) => (NOT_TAKEN, why.as_str()),
        };
        self.say(&ControlMessage::new(Kind::Answer).words(&[code]).text(why))
    }

    pub(super) fn say(&mut self, packet: &ControlMessage) -> Result<()> {
        let sent = self.control().send(packet, &[]);
        sent.map_err(|stop| self.stopped(stop))
    }

    pub(super) fn stopped(&mut self, stop: Stop) -> Error {
        self.broken(stop, 0)
    }

    /// Nothing more is to be had from this sender.
    pub(super) fn lost(&mut self, error: Error) -> Error {
        self.give_up();
        error
    }
}

fn published(sink: &mut dyn Sink) -> Option<Problem> {
    sink.publish().err().map(|why| Problem::NotTaken { why })
}

/// What is wrong with data that came, if they are not what was sent and announced.
fn compare(announced: &Announced, sent: &Tail, came: &Tail) -> Option<Problem> {
    if sent != came {
        let why = format!("{} were sent, {} came", sent.words(), came.words());
        return Some(Problem::Differs { why });
    }
    let (Tail::Whole { bytes, .. }, Some(size)) = (came, announced.size) else { return None };
    let why = format!("{bytes} bytes came and {size} were announced");
    (*bytes != size).then_some(Problem::NotTaken { why })
}

impl Tail {
    fn words(&self) -> String {
        match self {
            Self::Whole { bytes, xxh3 } => format!("{bytes} bytes with XXH3 {xxh3:032x}"),
            Self::GivenUp { why } => why.clone(),
            Self::Open { bytes } => format!("{bytes} bytes in an open file"),
        }
    }
}

/// Memory for buffers of the sender's size, if there is that much.
fn room(memory: &mut Option<Memory>, len: u64) -> Result<()> {
    if memory.as_ref().is_some_and(|memory| memory.len() as u64 >= len) {
        return Ok(());
    }
    *memory = None;
    // A length is easily claimed; memory that is not there kills.
    let most = host::memory_available().unwrap_or(u64::MAX);
    let whole = usize::try_from(len).ok().filter(|_| len <= most);
    let instead = Some("send with a smaller buffer");
    let whole = whole.ok_or(Error::TooLarge { len, most, instead })?;
    // Made once: received into again and again it is resident, as far as anything came.
    let made = Memory::untouched(whole, Pages::Transparent);
    *memory = Some(made.map_err(Error::system("mmap"))?);
    Ok(())
}
