//! Real ends of one pair, and transfers between them that can be repeated, timed and checked.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
};
use thalweg_core::{
    Facts, Guarantees, Mechanism, Sink, Source, Transfer, Tuning, Unfit, profile::SinkState,
};
use thalweg_sys::usage::Heap;

use super::{
    job::EndKeys,
    pair::{EndKind, Ends},
    peer::Peer,
};
use crate::{
    arms::{
        content::{Content, check, first_difference, own_file},
        transfer::{end_of, move_all},
    },
    measure::{
        sample::{Meter, Sample},
        schedule::Failure,
    },
    probes::tune_copy::Stop,
    scratch::Folder,
};

const AT_ONCE: usize = 1 << 20;

/// The ends, and what every sample between them moves.
pub(super) struct Bench<'s> {
    ends: Ends,
    state: SinkState,
    stop: &'s Stop<'s>,
    feeder: Option<Peer>,
    drain: Option<Peer>,
    from: Option<Folder>,
    to: Option<Folder>,
    memory: Vec<u8>,
    room: Vec<u8>,
    pub size: u64,
    pub transfers: u64,
}

impl<'s> Bench<'s> {
    /// Makes them; nothing has a size yet.
    pub fn new(ends: &Ends, state: SinkState, stop: &'s Stop<'s>) -> io::Result<Self> {
        let folder = |end: &EndKind| match end {
            EndKind::File(folder) => Folder::inside(folder).map(Some),
            _ => Ok(None),
        };
        // Made now: else it would count as memory that the first mechanism holds.
        Content::Pattern.piece(0, 1);
        let mut bench = Self {
            ends: ends.clone(),
            state,
            stop,
            feeder: None,
            drain: None,
            from: folder(&ends.source)?,
            to: folder(&ends.sink)?,
            memory: Vec::new(),
            room: Vec::new(),
            size: 1,
            transfers: 1,
        };
        bench.renew()?;
        Ok(bench)
    }

    /// New streams, and none of the sinks: after a failure nobody knows what the old ones hold.
    pub fn renew(&mut self) -> io::Result<()> {
        self.clear()?;
        let is_stream =
            |end: &EndKind| !matches!(end, EndKind::Memory | EndKind::Fill | EndKind::File(_));
        if is_stream(&self.ends.source) {
            self.feeder = None;
            self.feeder = Some(Peer::feeding(&self.ends.source)?);
        }
        if is_stream(&self.ends.sink) {
            self.drain = None;
            self.drain = Some(Peer::draining(&self.ends.sink)?);
        }
        Ok(())
    }

    /// Makes a source of `size` bytes, all of it in memory, and room for as many.
    pub fn resize(&mut self, size: u64) -> io::Result<()> {
        (self.size, self.transfers) = (size, 1);
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        if let Some(path) = self.source_path() {
            remove(&path)?;
            own_file(&path, size)?;
        }
        if self.ends.source == EndKind::Memory {
            self.memory = vec![0; len];
            Content::Pattern.fill(0, &mut self.memory);
        }
        if self.ends.sink == EndKind::Memory {
            self.room = vec![1; len];
        }
        if self.to.is_some() && self.state == SinkState::Resident {
            self.blank_sink()?;
        }
        Ok(())
    }

    /// The most bytes that files of one size may take, source and sinks together.
    pub fn room_for(&self) -> u64 {
        let free = |folder: &Folder| {
            rustix::fs::statvfs(folder.path())
                .map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
        };
        let folders = [&self.from, &self.to].into_iter().flatten();
        folders.map(free).min().unwrap_or(u64::MAX) / 4
    }

    /// What the planner knows of such ends, and how a profile names them.
    pub fn facts(&mut self) -> Result<(Facts, EndKeys), Failure> {
        let facts = self.with_transfer(0, |transfer| Ok(Facts::of(&transfer)))?;
        self.clear().map_err(|e| unfit("removing a sink", &e))?;
        let options = [&facts.source, &facts.sink]
            .map(|end| end.fs.as_ref().map(|fs| fs.options.clone()).unwrap_or_default());
        let keys = EndKeys { source: facts.source.key(), sink: facts.sink.key(), options };
        Ok((facts, keys))
    }

    /// The transfers of one sample, timed until the last byte has arrived.
    pub fn sample(&mut self, way: (&dyn Mechanism, &Tuning)) -> Result<Sample, Failure> {
        let meter = Meter::start();
        self.begin(self.transfers, false)?;
        for n in 0..self.transfers {
            let stop = self.stop;
            self.with_transfer(n, |transfer| move_all(way, transfer, stop, &mut || ()))?;
        }
        self.wait()?;
        let sample = meter.stop(self.size * self.transfers);
        self.clear().map_err(|e| unfit("removing a sink", &e))?;
        Ok(sample)
    }

    /// One transfer that is looked at byte by byte, and how much memory it held at its end.
    pub fn check(&mut self, way: (&dyn Mechanism, &Tuning)) -> Result<Option<u64>, Failure> {
        if self.to.is_some() && self.state == SinkState::Resident {
            self.blank_sink().map_err(|e| unfit("preparing the sink", &e))?;
        }
        self.room.fill(0);
        self.begin(1, true)?;
        let before = Heap::now();
        let mut held = None;
        let stop = self.stop;
        let mut at_end = || {
            held = Heap::now().zip(before).map(|(now, before)| now.grown_since(before));
        };
        self.with_transfer(0, |transfer| move_all(way, transfer, stop, &mut at_end))?;
        self.wait()?;
        let arrived = self.look_at_sink();
        self.clear().map_err(|e| unfit("removing a sink", &e))?;
        arrived.map(|()| held).map_err(|why| Failure::Unfit(Unfit::because(why)))
    }

    fn begin(&self, transfers: u64, checking: bool) -> Result<(), Failure> {
        for peer in [&self.drain, &self.feeder].into_iter().flatten() {
            peer.begin(self.size, transfers, checking)?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), Failure> {
        for peer in [&self.feeder, &self.drain].into_iter().flatten() {
            peer.wait(self.stop)?;
        }
        Ok(())
    }

    /// The `n`-th transfer of a sample: files are opened for it and closed after it, as by whoever
    /// moves files one by one.
    fn with_transfer<R>(
        &mut self,
        n: u64,
        moved: impl FnOnce(Transfer<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let failed = |what: &'static str| move |e: io::Error| unfit(what, &e);
        let source = self.source_path().map(File::open).transpose();
        let source = source.map_err(failed("opening the source"))?;
        let sink = self.sink_path(n).map(|path| match self.state {
            SinkState::Fresh => crate::probes::tune_copy::create(&path),
            SinkState::Resident => File::options().read(true).write(true).open(path),
        });
        let sink = sink.transpose().map_err(failed("opening the sink"))?;
        let from = match (&source, &self.feeder) {
            (Some(file), _) => Source::Fd(end_of(file)?),
            (None, Some(peer)) => Source::Fd(end_of(&peer.near)?),
            (None, None) => Source::Memory(&self.memory),
        };
        let to = match (&sink, &self.drain) {
            (Some(file), _) => Sink::Fd(end_of(file)?),
            (None, Some(peer)) => Sink::Fd(end_of(&peer.near)?),
            (None, None) => Sink::Memory(&mut self.room),
        };
        // Whoever promises less may take part: the planner knows who needs more.
        let needs = Guarantees::SHARED;
        moved(Transfer { source: from, sink: to, len: Some(self.size), needs })
    }

    fn source_path(&self) -> Option<PathBuf> {
        self.from.as_ref().map(|folder| folder.file("source"))
    }

    fn sink_path(&self, n: u64) -> Option<PathBuf> {
        self.to.as_ref().map(|folder| match self.state {
            SinkState::Fresh => folder.file(&format!("sink-{n}")),
            SinkState::Resident => folder.file("sink"),
        })
    }

    /// Removes the sinks of a sample, unless they are to be there for the next one.
    fn clear(&self) -> io::Result<()> {
        if self.state == SinkState::Resident || self.to.is_none() {
            return Ok(());
        }
        (0..self.transfers).filter_map(|n| self.sink_path(n)).try_for_each(|path| remove(&path))
    }

    /// A sink of the right length that holds none of the right bytes.
    fn blank_sink(&self) -> io::Result<()> {
        let Some(path) = self.sink_path(0) else { return Ok(()) };
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

    /// What is wrong with the bytes that arrived; streams were looked at by their drain.
    fn look_at_sink(&self) -> Result<(), String> {
        if self.ends.sink == EndKind::Memory {
            let wrong = first_difference(Content::Pattern, 0, &self.room);
            return wrong.map_or(Ok(()), |place| Err(format!("delivered a wrong byte at {place}")));
        }
        self.sink_path(0).map_or(Ok(()), |path| check(&path, Content::Pattern, (0, self.size)))
    }
}

fn remove(path: &PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

fn unfit(what: &str, error: &io::Error) -> Failure {
    Failure::Unfit(Unfit::because(format!("{what}: {error}")))
}
