//! The work `transfer`: one mechanism without fallback, from a source to a sink, until all bytes have arrived and the
//! process that reads the sink has read them.
//!
//! A sample excludes the opening of the mechanism, the first use of its buffers, and the process that feeds a paced
//! source. It includes CPU time, faults and calls of this process and of the process that reads the sink. Those of the
//! reading process are also reported separately.

use rustix::fs::OFlags;
use std::{fs::File, os::fd::OwnedFd, path::PathBuf, sync::Arc};
use thalweg_core::{
    Facts, Guarantees, Mechanism, Pair, Sink, Source, Transfer as Bytes, Tuning, Unfit,
    alias::{self, Alias},
    scratch::{ScratchSite, Sockets},
};
use thalweg_sys::{Errno, net, tally};

mod with;

use super::{
    Arm, ArmJob, ArmKind, Spec,
    far::{Fifo, connect_tcp, connect_unix},
    volume::Volume,
};
use thalweg_measure::{
    arms::{
        content,
        far::Far,
        transfer::{end_of, move_exactly},
    },
    sample::{Sample, SampleMeter},
    schedule::SampleFailure,
    scratch::room_for,
};
use with::{TransferParameters, TransferSink, TransferSource, touching};

/// A mechanism between two ends.
pub(super) static TRANSFER: ArmKind = ArmKind { name: "transfer", parse };

/// Bytes moved for warm-up: enough to fill every queue on the way.
const WARM: u64 = 8 << 20;
/// Default buffer size of a receiver.
const RECEIVER_BUFFER: u64 = 64 << 10;

fn parse(with: &toml::Table) -> Result<Box<dyn Spec>, Unfit> {
    let with = TransferParameters::read(with)?;
    let (mechanism, tuning) = with.tuned()?;
    if with.source == TransferSource::Paced {
        with.rate()?;
    }
    let (from, to) = (with.source.kind(), with.sink.kind());
    let info = mechanism.info();
    let pair = info.pair(from, to).copied();
    let pair = pair.ok_or_else(|| {
        Unfit::because(format!("{} does not support the pair {from} -> {to}", info.name))
    })?;
    if !pair.gives.cover(with.needs.guarantees()) {
        let text = "shares pages with the source, but the study requires a copy";
        return Err(Unfit::because(format!("{} {from} -> {to} {text}", info.name)));
    }
    Ok(Box::new(TransferSpec { mechanism, tuning, pair, with }))
}

/// A mechanism with a tuning, between ends that it supports.
struct TransferSpec {
    mechanism: &'static dyn Mechanism,
    tuning: Tuning,
    pair: Pair,
    with: TransferParameters,
}

impl Spec for TransferSpec {
    fn open(&self, job: &ArmJob<'_>) -> Result<Box<dyn Arm>, Unfit> {
        let with = self.with.clone();
        if job.bytes == 0 {
            return Err(Unfit::because("a transfer needs at least 1 byte"));
        }
        let place = Volume::find(&with.place, job.scratch)?;
        let files = u64::from(with.source == TransferSource::File)
            + u64::from(with.sink == TransferSink::File);
        place.room_for(job.bytes.saturating_mul(files))?;
        if with.source == TransferSource::Memfd {
            room_for(usize::try_from(job.bytes).unwrap_or(usize::MAX)).map_err(Unfit::because)?;
        }
        let source = StudyEnd::source(&with, job)?;
        let sink = StudyEnd::sink(&with, job)?;
        let file = job.file(place.path(), "sink");
        let moving = TransferArm {
            touch: touching(self.mechanism, &self.tuning),
            mechanism: self.mechanism,
            tuning: self.tuning.clone(),
            pair: self.pair,
            with,
            bytes: job.bytes,
            source,
            sink,
            given: 0,
            file,
            place,
            broken: None,
        };
        Ok(Box::new(moving))
    }
}

/// One end: our descriptor, and the peer process if there is one.
#[derive(Default)]
struct StudyEnd {
    fd: Option<Arc<File>>,
    far: Option<Far>,
}

impl StudyEnd {
    fn source(with: &TransferParameters, job: &ArmJob<'_>) -> Result<Self, Unfit> {
        match with.source {
            TransferSource::Zero => {
                let zero = File::open("/dev/zero");
                let zero = zero.map_err(|e| Unfit::because(format!("/dev/zero: {e}")))?;
                Ok(Self { fd: Some(Arc::new(zero)), far: None })
            }
            TransferSource::Paced => {
                let fifo = Fifo::new(job.scratch, with.pipe.map(|size| size.0))?;
                let rate = with.rate()?.to_string();
                let mut far = Far::start(job.program, "feeder", &[fifo.path()?, &rate])?;
                far.hear_only("ready")?;
                let fd = fifo.end(OFlags::RDONLY)?;
                Ok(Self { fd: Some(Arc::new(fd.into())), far: Some(far) })
            }
            TransferSource::File | TransferSource::Memfd => Ok(Self::default()),
        }
    }

    fn sink(with: &TransferParameters, job: &ArmJob<'_>) -> Result<Self, Unfit> {
        let buffer = with.receiver_buffer.map_or(RECEIVER_BUFFER, |size| size.0).to_string();
        let start = |arguments: &[&str]| Far::start(job.program, "receiver", arguments);
        let (mut far, fd): (Far, OwnedFd) = match with.sink {
            TransferSink::File => return Ok(Self::default()),
            TransferSink::Null => {
                let null = File::options().write(true).open("/dev/null");
                let null = null.map_err(|e| Unfit::because(format!("/dev/null: {e}")))?;
                return Ok(Self { fd: Some(Arc::new(null)), far: None });
            }
            TransferSink::Pipe => {
                let fifo = Fifo::new(job.scratch, with.pipe.map(|size| size.0))?;
                let mut far = start(&["pipe", fifo.path()?, &buffer])?;
                far.hear_only("ready")?;
                let fd = fifo.end(OFlags::WRONLY)?;
                return Ok(Self { fd: Some(Arc::new(fd.into())), far: Some(far) });
            }
            TransferSink::Unix => {
                let mut far = start(&["unix", &buffer])?;
                let stream = connect_unix(&mut far)?;
                (far, stream.into())
            }
            TransferSink::Tcp => {
                let mut far = start(&["tcp", &buffer])?;
                let stream = connect_tcp(&mut far)?;
                if let Some(name) = &with.congestion {
                    net::congestion(&stream, name).map_err(|errno| no_congestion(name, errno))?;
                }
                (far, stream.into())
            }
        };
        far.hear_only("ready")?;
        Ok(Self { fd: Some(Arc::new(fd.into())), far: Some(far) })
    }
}

fn no_congestion(name: &str, errno: Errno) -> Unfit {
    let read = |what| {
        let path = format!("/proc/sys/net/ipv4/tcp_{what}_congestion_control");
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    };
    let (has, allows) = (read("available"), read("allowed"));
    let reason = format!(
        "TCP_CONGESTION {name:?}: {errno}; loaded here: {has}; allowed for all users: {allows}"
    );
    Unfit { reason, errno: Some(errno) }
}

struct TransferArm {
    mechanism: &'static dyn Mechanism,
    tuning: Tuning,
    pair: Pair,
    with: TransferParameters,
    bytes: u64,
    touch: u64,
    source: StudyEnd,
    sink: StudyEnd,
    // Bytes requested from a paced source since it started.
    given: u64,
    // The path of the sink, if it is a file.
    file: PathBuf,
    place: Volume,
    // The first failure. Bytes may remain in transit, so the arm (a compared variant) cannot continue.
    broken: Option<Unfit>,
}

/// The receiver's task: only read the bytes, or compare them too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiverTask {
    Take,
    Look,
}

impl Arm for TransferArm {
    fn promises(&self) -> Option<Guarantees> {
        Some(self.pair.gives)
    }

    fn is_fresh(&self) -> bool {
        // These mechanisms use new pages each time.
        self.mechanism.info().calls.iter().any(|call| ["mmap", "vmsplice"].contains(call))
    }

    fn warm_up(&mut self) -> Result<(), Unfit> {
        let failed = |e: std::io::Error| Unfit::because(format!("cannot create the source: {e}"));
        let len = self.bytes + self.lead(self.bytes);
        match self.with.source {
            TransferSource::File => {
                self.source.fd = Some(content::file(self.place.path(), len).map_err(failed)?);
            }
            TransferSource::Memfd => self.source.fd = Some(content::memfd(len).map_err(failed)?),
            TransferSource::Zero | TransferSource::Paced => {}
        }
        // If the sink file is overwritten, the warm-up must write its full length.
        let most =
            if self.with.sink == TransferSink::File { self.bytes } else { WARM.max(self.touch) };
        self.once(self.bytes.min(most), ReceiverTask::Take).map(|_| ())
    }

    fn sample(&mut self, repeats: u32) -> Result<Sample, SampleFailure> {
        let all = self.bytes.checked_mul(u64::from(repeats.max(1)));
        // Operations from an endless source to a stream have no boundary between them, so one move does all of them.
        let is_stream = self.with.source.is_endless() && self.with.sink != TransferSink::File;
        let sum = match all {
            Some(all) if is_stream => self.once(all, ReceiverTask::Take),
            _ => Sample::of_batches(repeats, 1, |_| self.once(self.bytes, ReceiverTask::Take)),
        };
        sum.map_err(SampleFailure::Unfit)
    }

    fn check(&mut self) -> Result<(), Unfit> {
        let given = self.given;
        // Verifies the result of the last timed operation before another one overwrites it.
        if self.with.source != TransferSource::Paced {
            self.look(given)?;
        }
        self.once(self.bytes, ReceiverTask::Look)?;
        self.look(given)
    }

    fn alias(&mut self) -> Option<Result<Alias, Unfit>> {
        if !alias::applies(self.pair) {
            return None;
        }
        let sockets = match self.with.sink {
            TransferSink::Tcp => Some(Sockets::Tcp),
            TransferSink::Unix => Some(Sockets::Unix),
            TransferSink::Null | TransferSink::File | TransferSink::Pipe => None,
        };
        let memfd = self.with.source == TransferSource::Memfd;
        let site = ScratchSite { memfd, sockets, ..ScratchSite::at(self.place.path()) };
        Some(alias::probe(self.mechanism, self.pair, &site))
    }
}

impl TransferArm {
    /// Verifies that a sink file contains the bytes of the source from position `from` on. Other sinks are verified by
    /// the receiver, except `/dev/null`: it stores nothing, so only the number of bytes is known.
    fn look(&self, from: u64) -> Result<(), Unfit> {
        if self.with.sink != TransferSink::File {
            return Ok(());
        }
        let moved = self.lead(self.bytes) + self.bytes;
        let checked = content::check(&self.file, self.with.source.content(), from, moved);
        checked.map_err(Unfit::because)
    }

    /// Returns the number of bytes to move before the timed part, so that the buffers are not fresh memory.
    fn lead(&self, total: u64) -> u64 {
        if self.with.source == TransferSource::Paced { 0 } else { self.touch.min(total) }
    }

    fn once(&mut self, total: u64, reading: ReceiverTask) -> Result<Sample, Unfit> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let done = self.attempt(total, reading);
        if let Err(unfit) = &done {
            self.broken = Some(unfit.clone());
        }
        done
    }

    fn attempt(&mut self, total: u64, reading: ReceiverTask) -> Result<Sample, Unfit> {
        let lead = self.lead(total);
        let unprepared =
            || Unfit::because("the transfer has no source, because it was not warmed up");
        let source = self.source.fd.clone().ok_or_else(unprepared)?;
        let sink = self.sink_of_one()?;
        let len = (!self.with.source.is_endless()).then_some(lead + total);
        let transfer = Bytes {
            source: Source::Fd(end_of(&*source)?),
            sink: Sink::Fd(end_of(&*sink)?),
            len,
            needs: self.with.needs.guarantees(),
        };
        self.mechanism.fits(&Facts::of(&transfer))?;
        let mut mover = self.mechanism.open(transfer, &self.tuning)?;
        if lead > 0 {
            self.receiver_begins(&format!("take {lead}"))?;
            let moved = move_exactly(mover.as_mut(), lead);
            self.explained(moved)?;
            if let Some(receiver) = &mut self.sink.far {
                receiver.spent()?;
            }
        }
        let content = self.with.source.content().name();
        let at = if self.with.source == TransferSource::Paced { self.given } else { lead };
        self.receiver_begins(&match reading {
            ReceiverTask::Take => format!("take {total}"),
            ReceiverTask::Look => format!("look {total} {content} {at}"),
        })?;
        if let Some(feeder) = &mut self.source.far {
            feeder.begin(&format!("give {total}"))?;
            self.given += total;
        }
        let before = tally::calls();
        let meter = SampleMeter::start();
        let moved = move_exactly(mover.as_mut(), total);
        self.explained(moved)?;
        let moving = tally::calls() - before;
        let answer = self.sink.far.as_mut().map(Far::hear).transpose()?;
        let mut sample = meter.stop(total);
        // Threads of the mechanism add their calls when they exit, so the calls are counted after the drop.
        let before = tally::calls();
        drop(mover);
        sample.calls = Some(moving + tally::calls() - before);
        if let Some(feeder) = &mut self.source.far {
            feeder.spent()?;
        }
        match answer {
            Some(line) => judged(&line, reading, sample),
            None => Ok(sample),
        }
    }

    fn receiver_begins(&mut self, line: &str) -> Result<(), Unfit> {
        self.sink.far.as_mut().map_or(Ok(()), |receiver| receiver.begin(line))
    }

    /// If a move failed because one of our processes died, returns that process's reason.
    fn explained(&mut self, moved: Result<(), Unfit>) -> Result<(), Unfit> {
        let Err(unfit) = moved else { return Ok(()) };
        let both = [&mut self.sink.far, &mut self.source.far];
        let words = both.into_iter().flatten().find_map(Far::last_words);
        Err(match words {
            Some(words) => Unfit::because(format!("{}; {}", unfit.reason, words.reason)),
            None => unfit,
        })
    }

    /// Returns the sink of one operation. A file may be new each time.
    fn sink_of_one(&mut self) -> Result<Arc<File>, Unfit> {
        if let Some(fd) = &self.sink.fd {
            return Ok(Arc::clone(fd));
        }
        if self.with.fresh.unwrap_or(true) {
            thalweg_measure::scratch::remove(&self.file);
        }
        // The file is opened for reading too, because a mechanism may map it.
        let mut options = File::options();
        let made = options.read(true).write(true).create(true).truncate(false).open(&self.file);
        let made = made.map_err(|e| Unfit::because(format!("{}: {e}", self.file.display())))?;
        Ok(Arc::new(made))
    }
}

impl Drop for TransferArm {
    fn drop(&mut self) {
        thalweg_measure::scratch::remove(&self.file);
    }
}

/// Evaluates the receiver's final answer.
fn judged(line: &str, reading: ReceiverTask, mut sample: Sample) -> Result<Sample, Unfit> {
    match (reading, line) {
        (ReceiverTask::Take, _) => {
            let spent = thalweg_measure::line::spent(line);
            let (used, calls) = spent.ok_or_else(|| {
                Unfit::because(format!("unexpected answer of the receiver: {line:?}"))
            })?;
            sample.add_far(&used, calls);
            Ok(sample)
        }
        (ReceiverTask::Look, "same") => Ok(sample),
        (ReceiverTask::Look, _) => {
            let at = line.strip_prefix("wrong ").unwrap_or(line);
            Err(Unfit::because(format!("a wrong byte arrived at {at} of {}", sample.bytes)))
        }
    }
}
