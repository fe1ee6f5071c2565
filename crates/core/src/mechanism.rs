//! The interface of a mechanism: static facts, a function that opens it, and a mover.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::{End, Error, Facts, Guarantees, Kind, Sink, Source, Transfer, Tuning, Unfit};
use thalweg_sys::Errno;

use crate::error::Side;

/// A mechanism that moves bytes. To add one, write a file in `mechanisms/` and a line in its list.
pub trait Mechanism: Sync {
    /// Returns the static facts, which the manual, the command line and the bindings share.
    fn info(&self) -> &'static Info;

    /// Returns an error with the reason if the mechanism cannot do this transfer. The check uses facts alone. It covers
    /// conditions that the table of pairs cannot express (`O_APPEND`, another file system). [`probe`](crate::probe)
    /// tries the real call.
    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        let _ = facts;
        Ok(())
    }

    /// Returns `true` if the mechanism does *less work* than a copy between these endpoints (a clone, a server-side
    /// copy). The planner then tries the mechanism first, even without measurements.
    fn saves_work(&self, facts: &Facts) -> bool {
        let _ = facts;
        false
    }

    /// Acquires all resources for the move: pipes, rings, maps. Moves no bytes.
    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error>;
}

/// An opened mechanism. It moves and counts bytes. Retries and fallback are the driver's task.
pub trait Mover {
    /// Moves at most `budget` bytes and returns the number that reached the sink. Returns 0 if the source *seems* to
    /// have ended.
    ///
    /// On error, `moved` is the number of bytes that this step delivered before it failed.
    fn advance(&mut self, budget: u64) -> Result<u64, Error>;

    /// Returns `true` if `advance` returns 0 only after a `read` returned 0, which proves the end of the source.
    /// Otherwise the driver verifies the end with a read.
    fn knows_the_end(&self) -> bool {
        false
    }

    /// Returns the number of bytes that the mover took from a source that cannot be rewound, and has not delivered yet.
    fn in_flight(&self) -> u64 {
        0
    }

    /// Returns a note about the bytes moved so far, for the report.
    fn note(&self) -> Option<String> {
        None
    }

    /// Delivers the bytes in flight by plain `read` and `write`, and returns their number. May be called again after an
    /// interruption. If it returns 0 while bytes are in flight, the mover is stuck.
    fn drain(&mut self) -> Result<u64, Error> {
        Ok(0)
    }
}

/// The static facts of a mechanism.
#[derive(Debug)]
pub struct Info {
    /// The key in profiles, studies and flags: the name of the mechanism's source file, with `-` instead of `_`.
    pub name: &'static str,
    /// Summary in one line, for `thalweg list` and the manual.
    pub summary: &'static str,
    /// System calls on the hot path.
    pub calls: &'static [&'static str],
    /// The pairs of endpoints that the mechanism serves, and its guarantees for each.
    pub pairs: &'static [Pair],
    /// The values that the planner may choose and the lab may sweep.
    pub knobs: &'static [Knob],
    /// The conditions under which a plan may use the mechanism.
    pub role: Role,
    /// Properties other than the guarantees.
    pub nature: Nature,
}

/// Properties of a mechanism besides its guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// Sharing of disk blocks between the two files after the transfer.
    pub blocks: Blocks,
    /// `true` if the mechanism sends only from memory that the channel lends (a loan). Other data must first be copied
    /// into a loan, so the sender should write directly into the loan.
    pub wants_loan: bool,
    /// `true` if the mechanism accesses the memory of the other process. Only processes that trust each other use it.
    pub wants_trust: bool,
    /// The event, other than a disk or a blocking endpoint, that a step waits for. Callers that must never sleep cannot
    /// use a mechanism with such an event.
    pub waits: Option<&'static str>,
}

impl Nature {
    /// The default: no special property.
    pub const PLAIN: Self =
        Self { blocks: Blocks::Own, wants_loan: false, wants_trust: false, waits: None };
}

/// Sharing of disk blocks between two files after a transfer, until either is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Each file has its own blocks.
    Own,
    /// The file system decides whether it copies or clones.
    MayShare,
    /// The files share their blocks. Without a clone, the mechanism fails.
    Shared,
}

/// The conditions under which a plan may use a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Moves bytes. The planner may choose it if its guarantees suffice.
    Mover,
    /// Moves bytes, but only on request. The text contains the flag and the reason.
    OnRequest(&'static str),
    /// Moves nothing. It measures the overhead of the harness.
    Harness,
}

impl Role {
    /// Returns an error with the reason if a plan may not use the mechanism. `requested` is `true` if the caller named
    /// the mechanism.
    pub fn allows(self, requested: bool) -> Result<(), Unfit> {
        match self {
            Self::Harness => Err(Unfit::because("moves no data; used only in measurements")),
            Self::OnRequest(flag) if !requested => {
                Err(Unfit::because(format!("used only with {flag}")))
            }
            Self::OnRequest(_) | Self::Mover => Ok(()),
        }
    }
}

/// A pair of endpoint kinds, and the guarantees of a mechanism for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Kind of the source.
    pub source: Kind,
    /// Kind of the sink.
    pub sink: Kind,
    /// The guarantees once the transfer has returned.
    pub gives: Guarantees,
    /// `true` if the planner prefers the mechanism when nothing was measured. In every measurement between endpoints of
    /// these kinds, the mechanism cost little more than the best (docs/benchmarks/planner.md).
    pub likely: bool,
}

/// The pairs of a mechanism that copies memory of one process to memory of another.
pub const BETWEEN_PROCESSES: &[Pair] = &[Pair::new(Kind::Memory, Kind::Memory, Guarantees::COPIED)];

impl Pair {
    /// Creates a pair with its guarantees.
    pub const fn new(source: Kind, sink: Kind, gives: Guarantees) -> Self {
        Self { source, sink, gives, likely: false }
    }

    /// Marks the pair as likely: the planner prefers it when nothing was measured.
    #[must_use]
    pub const fn likely(self) -> Self {
        Self { likely: true, ..self }
    }
}

/// A tunable parameter, with the values worth trying. The first one is the default.
#[derive(Debug)]
pub struct Knob {
    /// The name in tunings, profiles and studies.
    pub name: &'static str,
    /// The meaning of the knob, in one line.
    pub summary: &'static str,
    /// The unit of the values.
    pub unit: Unit,
    /// The values of a sweep: at least two, the default first.
    pub values: &'static [u64],
}

impl Knob {
    /// Returns all facts, as in [`Info::to_json`].
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "summary": self.summary, "values": self.values,
                "unit": format!("{:?}", self.unit).to_lowercase() })
    }
}

/// The unit of a knob's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of objects: ring entries, threads.
    Count,
}

impl Info {
    /// Returns the entry for this pair of kinds, if the mechanism serves it.
    pub fn pair(&self, source: Kind, sink: Kind) -> Option<&'static Pair> {
        self.pairs.iter().find(|p| p.source == source && p.sink == sink)
    }

    /// Returns the flag that requests the mechanism, and the reason why the planner needs that request. `None` if the
    /// planner may choose the mechanism without a request.
    pub fn on_request(&self) -> Option<&'static str> {
        if let Role::OnRequest(text) = self.role { Some(text) } else { None }
    }

    /// Returns `true` if the mechanism is used only on request with this flag.
    pub fn waits_for(&self, flag: &str) -> bool {
        self.on_request().is_some_and(|text| text.contains(flag))
    }

    /// Returns the guarantees from memory to memory; none if the mechanism does not serve that pair.
    pub fn gives_in_memory(&self) -> Guarantees {
        self.pair(Kind::Memory, Kind::Memory).map_or(Guarantees::SHARED, |pair| pair.gives)
    }

    /// Returns the value of a knob, or its default.
    pub fn knob(&self, tuning: &Tuning, name: &str) -> u64 {
        let default = || self.knobs.iter().find(|knob| knob.name == name).map(|k| k.values[0]);
        tuning.get(name).or_else(default).unwrap_or(0)
    }

    /// Returns the value of a knob as a length in memory, at least 1.
    pub fn bytes(&self, tuning: &Tuning, name: &str) -> usize {
        usize::try_from(self.knob(tuning, name)).unwrap_or(usize::MAX).max(1)
    }

    /// Returns the smallest listed value of a knob that is a length in memory.
    pub fn least(&self, name: &str) -> usize {
        let knob = self.knobs.iter().find(|knob| knob.name == name);
        let least = knob.and_then(|knob| knob.values.iter().min().copied()).unwrap_or(0);
        usize::try_from(least).unwrap_or(usize::MAX)
    }

    /// Returns the value of a knob that is a length; `None` for 0, which means "the whole length".
    pub fn length(&self, tuning: &Tuning, name: &str) -> Option<usize> {
        usize::try_from(self.knob(tuning, name)).ok().filter(|len| *len > 0)
    }

    /// Returns every combination of the knobs' values, the defaults first.
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

    /// Returns the knobs of a tuning that this mechanism does not have.
    pub fn unknown<'t>(&self, tuning: &'t Tuning) -> Vec<&'t str> {
        let known = |name: &str| self.knobs.iter().any(|knob| knob.name == name);
        tuning.iter().map(|(name, _)| name).filter(|name| !known(name)).collect()
    }

    /// Returns all facts, for `thalweg list --json` and the bindings.
    pub fn to_json(&self) -> Value {
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|p| json!({ "source": p.source, "sink": p.sink, "gives": p.gives }));
        let knobs = self.knobs.iter().map(Knob::to_json);
        let role = match self.role {
            Role::Mover => "mover",
            Role::OnRequest(_) => "on-request",
            Role::Harness => "harness",
        };
        json!({
            "name": self.name, "summary": self.summary, "calls": self.calls, "role": role,
            "on_request": self.on_request(), "pairs": pairs.collect::<Vec<_>>(),
            "knobs": knobs.collect::<Vec<_>>(),
        })
    }

    /// Creates an error of this mechanism.
    pub fn error(&self, call: &'static str, side: Side, errno: Errno, moved: u64) -> Error {
        Error { mechanism: self.name, call, errno, side, moved }
    }
}

impl<'a> Transfer<'a> {
    /// Returns both endpoints as descriptors; EINVAL if one of them is memory.
    pub fn descriptors(self, info: &Info) -> Result<(End<'a>, End<'a>), Error> {
        match (self.source, self.sink) {
            (Source::Fd(source), Sink::Fd(sink)) => Ok((source, sink)),
            _ => Err(info.error("open", Side::Either, Errno::INVAL, 0)),
        }
    }
}

/// After this time, no further step starts, and control returns to the driver. Budgets are chosen for fast sources.
/// Without this limit, a slow source could keep the driver from calling its watcher for hours.
const LONGEST: Duration = Duration::from_millis(50);

/// Calls `step` with the rest of `budget` until the budget is used up, a step moves nothing or fails, or 50 ms have
/// passed. On error, `moved` includes the earlier steps.
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
