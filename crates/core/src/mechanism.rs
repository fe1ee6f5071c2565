//! What a mechanism is: static facts, a way to open it, and a mover that moves.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::{End, Error, Facts, Guarantees, Kind, Sink, Source, Transfer, Tuning, Unfit};
use thalweg_sys::Errno;

use crate::error::Side;

/// One way of moving bytes. Add one by writing a file in `mechanisms/` and a line in its list.
pub trait Mechanism: Sync {
    /// Static facts, the same in the manual, the command line and the bindings.
    fn info(&self) -> &'static Info;

    /// Whether this job fits, answered from facts alone, for what the table of pairs cannot say
    /// (`O_APPEND`, another file system). Trying the real call is [`probe`](crate::probe)'s work.
    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        let _ = facts;
        Ok(())
    }

    /// Whether it does *less work* than a copy on these ends (a clone, a server-side copy), so that
    /// it goes first even where nothing was measured.
    fn saves_work(&self, facts: &Facts) -> bool {
        let _ = facts;
        false
    }

    /// Acquires everything the move needs: pipes, rings, maps. Set-up is not moving.
    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error>;
}

/// An opened mechanism. It moves, counts, and never retries or falls back: the driver owns that.
pub trait Mover {
    /// Moves at most `budget` bytes and returns how many reached the sink; 0 when the source
    /// *seems* to have ended.
    ///
    /// An error carries in `moved` what this step delivered before it failed.
    fn advance(&mut self, budget: u64) -> Result<u64, Error>;

    /// Whether a 0 from `advance` came from a `read` and so is the end; if not, the driver reads.
    fn knows_the_end(&self) -> bool {
        false
    }

    /// Bytes taken from a source that cannot be rewound and not yet in the sink.
    fn in_flight(&self) -> u64 {
        0
    }

    /// Something about the bytes moved so far that the report should say.
    fn note(&self) -> Option<String> {
        None
    }

    /// Delivers what is in flight by plain `read` and `write`; returns how many bytes that was.
    /// May be called again after an interruption. 0 with bytes in flight means that it is stuck.
    fn drain(&mut self) -> Result<u64, Error> {
        Ok(0)
    }
}

/// The static facts of a mechanism.
#[derive(Debug)]
pub struct Info {
    /// Key of profiles, studies and flags; the file's name with `-` for `_`.
    pub name: &'static str,
    /// One line for `thalweg list` and the manual.
    pub summary: &'static str,
    /// System calls on the hot path.
    pub calls: &'static [&'static str],
    /// The end pairs it serves, and what it gives on each.
    pub pairs: &'static [Pair],
    /// What the planner may choose and the lab may sweep.
    pub knobs: &'static [Knob],
    /// What the mechanism is for.
    pub role: Role,
    /// What it does or wants beyond what it promises.
    pub nature: Nature,
}

/// What a mechanism does or wants beyond what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// What two files do with their blocks afterwards.
    pub blocks: Blocks,
    /// The sender writes its data into memory that the channel lends; anything else is copied there
    /// first.
    pub wants_loan: bool,
    /// It reads or writes the other process's memory: only between processes that trust each other.
    pub wants_trust: bool,
    /// What a step waits for besides disks and ends that block: a caller that must never sleep cannot
    /// use it.
    pub waits: Option<&'static str>,
}

impl Nature {
    /// Nothing of that.
    pub const PLAIN: Self =
        Self { blocks: Blocks::Own, wants_loan: false, wants_trust: false, waits: None };
}

/// What two files do with their blocks after a transfer, until one of them is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Each has its own.
    Own,
    /// The file system decides: it copies, or clones unasked.
    MayShare,
    /// They share them: it is a clone or nothing.
    Shared,
}

/// What a mechanism is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Moves bytes; the planner may choose it whenever its promises suffice.
    Mover,
    /// Moves bytes, but only for those who ask: the text names the flag and the reason.
    OnRequest(&'static str),
    /// Moves nothing: it measures the harness.
    Harness,
}

/// A pair of end kinds, and what a mechanism gives on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Kind of the source.
    pub source: Kind,
    /// Kind of the sink.
    pub sink: Kind,
    /// What holds once the transfer has returned.
    pub gives: Guarantees,
    /// Where nothing was measured it goes before those that are not likely: wherever it was measured on
    /// such ends, taking it cost little (docs/planner.md).
    pub likely: bool,
}

/// What a mechanism between two processes serves: the memory of one is copied to that of the other.
pub const BETWEEN_PROCESSES: &[Pair] = &[Pair::new(Kind::Memory, Kind::Memory, Guarantees::COPIED)];

impl Pair {
    /// A pair with its promise.
    pub const fn new(source: Kind, sink: Kind, gives: Guarantees) -> Self {
        Self { source, sink, gives, likely: false }
    }

    /// The same, to be taken where nothing was measured.
    #[must_use]
    pub const fn likely(self) -> Self {
        Self { likely: true, ..self }
    }
}

/// Something to tune, with the values worth trying; the first one is the default.
#[derive(Debug)]
pub struct Knob {
    /// The name in tunings, profiles and studies.
    pub name: &'static str,
    /// What it sets, in one line.
    pub summary: &'static str,
    /// What the values count.
    pub unit: Unit,
    /// The values a sweep tries, at least two, the default first.
    pub values: &'static [u64],
}

impl Knob {
    /// All facts, as in [`Info::to_json`].
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "summary": self.summary, "values": self.values,
                "unit": format!("{:?}", self.unit).to_lowercase() })
    }
}

/// What a knob's values count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of things: ring entries, threads.
    Count,
}

impl Info {
    /// The entry for this pair of kinds, if the mechanism serves it.
    pub fn pair(&self, source: Kind, sink: Kind) -> Option<&'static Pair> {
        self.pairs.iter().find(|p| p.source == source && p.sink == sink)
    }

    /// Whether it is used only by those who give this flag.
    pub fn waits_for(&self, flag: &str) -> bool {
        matches!(self.role, Role::OnRequest(text) if text.contains(flag))
    }

    /// What holds once bytes have come from memory to memory; nothing where it does not serve that.
    pub fn gives_in_memory(&self) -> Guarantees {
        self.pair(Kind::Memory, Kind::Memory).map_or(Guarantees::SHARED, |pair| pair.gives)
    }

    /// The value of a knob, or the default listed for it.
    pub fn knob(&self, tuning: &Tuning, name: &str) -> u64 {
        let default = || self.knobs.iter().find(|knob| knob.name == name).map(|k| k.values[0]);
        tuning.get(name).or_else(default).unwrap_or(0)
    }

    /// The same as a length in memory, at least 1.
    pub fn bytes(&self, tuning: &Tuning, name: &str) -> usize {
        usize::try_from(self.knob(tuning, name)).unwrap_or(usize::MAX).max(1)
    }

    /// The smallest of the values listed for a length in memory.
    pub fn least(&self, name: &str) -> usize {
        let knob = self.knobs.iter().find(|knob| knob.name == name);
        let least = knob.and_then(|knob| knob.values.iter().min().copied()).unwrap_or(0);
        usize::try_from(least).unwrap_or(usize::MAX)
    }

    /// A knob that is a length: `None` for 0, which stands for "all of it".
    pub fn length(&self, tuning: &Tuning, name: &str) -> Option<usize> {
        usize::try_from(self.knob(tuning, name)).ok().filter(|len| *len > 0)
    }

    /// Every combination of the knobs' values, the defaults first.
    pub fn tunings(&self) -> Vec<Tuning> {
        let mut tunings = vec![Tuning::default()];
        for knob in self.knobs {
            let more = knob.values[1..].iter().flat_map(|value| {
                tunings.iter().map(|tuning| tuning.clone().with(knob.name, *value))
            });
            let more: Vec<_> = more.collect();
            tunings.extend(more);
        }
        tunings
    }

    /// The knobs of a tuning that this mechanism does not have.
    pub fn unknown<'t>(&self, tuning: &'t Tuning) -> Vec<&'t str> {
        let known = |name: &str| self.knobs.iter().any(|knob| knob.name == name);
        tuning.iter().map(|(name, _)| name).filter(|name| !known(name)).collect()
    }

    /// All facts, as `thalweg list --json` and the bindings hand them out.
    pub fn to_json(&self) -> Value {
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|p| json!({ "source": p.source, "sink": p.sink, "gives": p.gives }));
        let knobs = self.knobs.iter().map(Knob::to_json);
        let (role, on_request) = match self.role {
            Role::Mover => ("mover", None),
            Role::OnRequest(text) => ("on-request", Some(text)),
            Role::Harness => ("harness", None),
        };
        json!({
            "name": self.name, "summary": self.summary, "calls": self.calls, "role": role,
            "on_request": on_request, "pairs": pairs.collect::<Vec<_>>(),
            "knobs": knobs.collect::<Vec<_>>(),
        })
    }

    /// An error of this mechanism.
    pub fn error(&self, call: &'static str, side: Side, errno: Errno, moved: u64) -> Error {
        Error { mechanism: self.name, call, errno, side, moved }
    }
}

impl<'a> Transfer<'a> {
    /// Both ends as descriptors, for mechanisms whose pairs have no memory in them.
    pub fn descriptors(self, info: &Info) -> Result<(End<'a>, End<'a>), Error> {
        match (self.source, self.sink) {
            (Source::Fd(source), Sink::Fd(sink)) => Ok((source, sink)),
            _ => Err(info.error("open", Side::Either, Errno::INVAL, 0)),
        }
    }
}

/// How long steps are taken before the driver is told of them. A budget says how much a fast
/// source may give; a slow one would keep the driver, and its watcher, waiting for hours.
const LONGEST: Duration = Duration::from_millis(50);

/// Takes steps of at most what is left of `budget` until one moves nothing or fails, or time is up;
/// the count of an error is made to include the steps before it.
pub fn advance_by_steps(
    budget: u64,
    mut step: impl FnMut(u64) -> Result<u64, Error>,
) -> Result<u64, Error> {
    let began = Instant::now();
    let mut moved = 0;
    while moved < budget && (moved == 0 || began.elapsed() < LONGEST) {
        match step(budget - moved) {
            Ok(0) => break,
            Ok(count) => moved += count,
            Err(error) => return Err(Error { moved: moved + error.moved, ..error }),
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_tunings_start_with_the_default() {
        for info in crate::MECHANISMS.iter().map(|m| m.info()) {
            let all = info.tunings();
            let count: usize = info.knobs.iter().map(|knob| knob.values.len()).product();
            assert!(all[0].is_default());
            assert_eq!(all.len(), count, "{}", info.name);
        }
    }
}
