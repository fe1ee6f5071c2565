//! Whole transfers, as tuning measures them. A transfer opens both ends, moves all bytes with a mechanism, closes the
//! ends, and waits until the last byte has arrived. The arms (compared variants) of a session share one pair of ends
//! and take turns.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};
use thalweg_core::{
    Facts, Guarantees, Mechanism, Sink, Source, Transfer, Tuning, Unfit, profile::SinkState,
};
use thalweg_sys::usage::Heap;

use super::{
    alone::{TunedMechanism, end_of, move_all},
    peer::{StreamKind, StreamPeer},
};
use crate::{
    StopCheck,
    arms::content::{self, ByteContent, first_difference, own_file},
    sample::{Sample, SampleMeter},
    schedule::{Arm, SampleFailure},
    scratch::{ScratchFolder, free_space},
};

/// The kind of an end.
#[derive(Clone, Copy, Debug)]
pub enum Medium<'p> {
    Memory,
    /// A pipe or socket with a thread of this process at its other end.
    Stream(StreamKind),
    /// A temporary file in this directory.
    Within(&'p Path),
    /// This file. A source must exist; a sink is created.
    File(&'p Path),
}

/// The conditions of every transfer.
#[derive(Clone, Copy)]
pub struct Terms<'s> {
    pub state: SinkState,
    pub needs: Guarantees,
    pub stop: &'s StopCheck<'s>,
}

/// The two ends, and the data that every sample moves.
pub struct Whole<'s> {
    source: WholeEnd,
    sink: WholeEnd,
    terms: Terms<'s>,
    /// Number of sink files of the last sample, which must be removed. At least 1, because an arm of another kind may
    /// have left a file.
    made: u64,
    pub size: u64,
}

enum WholeEnd {
    Memory(Vec<u8>),
    File { path: PathBuf, own: Option<ScratchFolder> },
    Stream(StreamPeer),
}

const AT_ONCE: usize = 1 << 20;

impl<'s> Whole<'s> {
    /// Creates the ends, without a size.
    pub fn between(source: Medium<'_>, sink: Medium<'_>, terms: Terms<'s>) -> io::Result<Self> {
        // Allocates the pattern now; otherwise it would count as memory of the first mechanism.
        ByteContent::Pattern.piece(0, 1);
        let near = |medium, name, peer: fn(StreamKind) -> io::Result<StreamPeer>| {
            Ok::<_, io::Error>(match medium {
                Medium::Memory => WholeEnd::Memory(Vec::new()),
                Medium::Stream(kind) => WholeEnd::Stream(peer(kind)?),
                Medium::File(path) => WholeEnd::File { path: path.to_owned(), own: None },
                Medium::Within(folder) => {
                    let folder = ScratchFolder::inside(folder)?;
                    WholeEnd::File { path: folder.file(name), own: Some(folder) }
                }
            })
        };
        let source = near(source, "source", StreamPeer::feeding)?;
        let sink = near(sink, "sink", StreamPeer::draining)?;
        Ok(Self { source, sink, terms, made: 1, size: 1 })
    }

    /// Creates a source of `size` bytes in memory, and prepares the sink for as many bytes.
    pub fn resize(&mut self, size: u64) -> io::Result<()> {
        self.clear()?;
        self.size = size;
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        match &mut self.source {
            WholeEnd::Memory(bytes) => {
                *bytes = vec![0; len];
                ByteContent::Pattern.fill(0, bytes);
            }
            WholeEnd::File { path, own: Some(_) } => {
                remove(path)?;
                own_file(path, size)?;
            }
            WholeEnd::File { .. } | WholeEnd::Stream(_) => {}
        }
        if let WholeEnd::Memory(room) = &mut self.sink {
            *room = vec![1; len];
        }
        self.blank_sink()
    }

    /// Returns the maximum total bytes of the source and the sinks of one size: a quarter of the free space.
    pub fn room(&mut self) -> u64 {
        // If removing fails, the files that remain reduce the free space.
        let _ = self.clear();
        let folder = |near: &WholeEnd| match near {
            WholeEnd::File { path, .. } => path.parent().map(free_space),
            WholeEnd::Memory(_) | WholeEnd::Stream(_) => None,
        };
        [&self.source, &self.sink].into_iter().filter_map(folder).min().unwrap_or(u64::MAX) / 4
    }

    /// Returns the planner's facts about these ends.
    pub fn facts(&mut self) -> Result<Facts, SampleFailure> {
        let facts = self.transfer(0, |transfer| Ok(Facts::of(&transfer)))?;
        self.clear().map_err(|e| unfit("cannot remove a sink", &e))?;
        Ok(facts)
    }

    /// Performs this number of transfers, timed until the last byte has arrived.
    pub fn sample(
        &mut self,
        tuned: TunedMechanism<'_>,
        transfers: u64,
    ) -> Result<Sample, SampleFailure> {
        self.clear().map_err(|e| unfit("cannot remove a sink", &e))?;
        let stop = self.terms.stop;
        let meter = SampleMeter::start();
        self.begin(transfers, false)?;
        for n in 0..transfers {
            self.transfer(n, |transfer| move_all(tuned, transfer, stop, &mut || ()))?;
        }
        self.wait()?;
        Ok(meter.stop(self.size * transfers))
    }

    /// Performs one transfer and verifies every byte. Returns the memory that was in use at its end.
    pub fn check(&mut self, tuned: TunedMechanism<'_>) -> Result<Option<u64>, SampleFailure> {
        self.clear().map_err(|e| unfit("cannot remove a sink", &e))?;
        self.blank_sink().map_err(|e| unfit("cannot prepare the sink", &e))?;
        if let WholeEnd::Memory(room) = &mut self.sink {
            room.fill(0);
        }
        self.begin(1, true)?;
        let before = Heap::now();
        let mut held = None;
        let mut at_end = || {
            held = Heap::now().zip(before).map(|(now, before)| now.grown_since(before));
        };
        let stop = self.terms.stop;
        self.transfer(0, |transfer| move_all(tuned, transfer, stop, &mut at_end))?;
        self.wait()?;
        self.look()?;
        Ok(held)
    }

    /// Verifies the bytes that arrived last. Always succeeds for a stream, which the draining thread has verified.
    pub fn look(&self) -> Result<(), String> {
        match (&self.source, &self.sink) {
            (_, WholeEnd::Stream(_)) => Ok(()),
            (_, WholeEnd::Memory(room)) => first_difference(ByteContent::Pattern, 0, room)
                .map_or(Ok(()), |place| Err(format!("delivered a wrong byte at {place}"))),
            (WholeEnd::File { path: from, own: None }, WholeEnd::File { path, .. }) => {
                content::same(path, from, self.size)
            }
            (_, WholeEnd::File { path, .. }) => {
                content::check(path, ByteContent::Pattern, 0, self.size)
            }
        }
    }

    /// Replaces the streams, because after a failure their content is unknown.
    fn renew(&mut self) -> io::Result<()> {
        if let WholeEnd::Stream(peer) = &mut self.source {
            *peer = StreamPeer::feeding(peer.kind)?;
        }
        if let WholeEnd::Stream(peer) = &mut self.sink {
            *peer = StreamPeer::draining(peer.kind)?;
        }
        Ok(())
    }

    fn begin(&self, transfers: u64, checking: bool) -> Result<(), SampleFailure> {
        for near in [&self.sink, &self.source] {
            if let WholeEnd::Stream(peer) = near {
                peer.begin(self.size, transfers, checking)?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), SampleFailure> {
        for near in [&self.source, &self.sink] {
            if let WholeEnd::Stream(peer) = near {
                peer.wait(self.terms.stop)?;
            }
        }
        Ok(())
    }

    /// Performs the `n`-th transfer of a sample. Opens and closes the files, like a program that moves files one by
    /// one.
    fn transfer<R>(
        &mut self,
        n: u64,
        moved: impl FnOnce(Transfer<'_>) -> Result<R, SampleFailure>,
    ) -> Result<R, SampleFailure> {
        let (from, to);
        let source = match &self.source {
            WholeEnd::Memory(bytes) => Source::Memory(bytes),
            WholeEnd::Stream(peer) => Source::Fd(end_of(&peer.near)?),
            WholeEnd::File { path, .. } => {
                from = File::open(path).map_err(|e| unfit("cannot open the source", &e))?;
                Source::Fd(end_of(&from)?)
            }
        };
        let path = self.sink_path(n);
        let sink = match &mut self.sink {
            WholeEnd::Memory(room) => Sink::Memory(room),
            WholeEnd::Stream(peer) => Sink::Fd(end_of(&peer.near)?),
            WholeEnd::File { .. } => {
                let made = match self.terms.state {
                    SinkState::Fresh => create(&path),
                    SinkState::Resident => File::options().read(true).write(true).open(&path),
                };
                self.made = self.made.max(n + 1);
                to = made.map_err(|e| unfit("cannot open the sink", &e))?;
                Sink::Fd(end_of(&to)?)
            }
        };
        moved(Transfer { source, sink, len: Some(self.size), needs: self.terms.needs })
    }

    /// Returns the path of the `n`-th sink of a sample; empty if the sink is not a file.
    fn sink_path(&self, n: u64) -> PathBuf {
        match (&self.sink, self.terms.state) {
            (WholeEnd::File { path, .. }, SinkState::Fresh) if n > 0 => {
                let mut name = path.clone().into_os_string();
                name.push(format!("-{n}"));
                name.into()
            }
            (WholeEnd::File { path, .. }, _) => path.clone(),
            (WholeEnd::Memory(_) | WholeEnd::Stream(_), _) => PathBuf::new(),
        }
    }

    /// Removes the sinks of the last sample, unless they must exist for the next one.
    fn clear(&mut self) -> io::Result<()> {
        if self.terms.state == SinkState::Fresh && matches!(self.sink, WholeEnd::File { .. }) {
            (0..self.made).try_for_each(|n| remove(&self.sink_path(n)))?;
        }
        self.made = 1;
        Ok(())
    }

    /// If the sink must exist before a transfer, creates it with the right length and filled with
    /// zeros.
    fn blank_sink(&self) -> io::Result<()> {
        let (WholeEnd::File { path, .. }, SinkState::Resident) = (&self.sink, self.terms.state)
        else {
            return Ok(());
        };
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        let blank = vec![0; AT_ONCE.min(self.size as usize)];
        let mut at = 0;
        while at < self.size {
            let most = (self.size - at).min(AT_ONCE as u64) as usize;
            file.write_all(&blank[..most])?;
            at += most as u64;
        }
        file.set_len(self.size)
    }
}

/// A mechanism with a tuning, between ends that it shares with other arms.
pub struct WholeArm<'p, 's> {
    pub place: &'p RefCell<Whole<'s>>,
    pub mechanism: &'static dyn Mechanism,
    pub tuning: Tuning,
}

impl<'s> WholeArm<'_, 's> {
    /// Performs one transfer and verifies it. Returns the memory that was in use.
    pub fn try_out(&self) -> Result<Option<u64>, SampleFailure> {
        self.in_place(Whole::check)
    }

    /// Runs `act` on the shared ends. If it fails, replaces the streams.
    fn in_place<R>(
        &self,
        act: impl FnOnce(&mut Whole<'s>, TunedMechanism<'_>) -> Result<R, SampleFailure>,
    ) -> Result<R, SampleFailure> {
        let mut place = self.place.borrow_mut();
        let tuned = TunedMechanism { mechanism: self.mechanism, tuning: &self.tuning };
        let done = act(&mut place, tuned);
        if done.is_err() {
            place.renew().map_err(|e| unfit("cannot create new streams", &e))?;
        }
        done
    }
}

impl Arm for WholeArm<'_, '_> {
    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        self.in_place(|place, tuned| place.sample(tuned, u64::from(repeats)))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.place.borrow().look().map_err(Unfit::because)
    }
}

/// Creates a file that is also readable, because mechanisms that map the sink need that.
pub fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

fn unfit(what: &str, error: &io::Error) -> SampleFailure {
    SampleFailure::Unfit(Unfit::because(format!("{what}: {error}")))
}
