//! Two processes. Compares the mechanisms of the channel (called arms here). A session opens and samples them like the
//! work `bulk` of studies. The channel's own code chooses among them. The first arm that works is the reference.

use std::{io, path::Path};
use thalweg_channel::bulk::{
    self, Destination, Facts, HUGE, LOAN, MECHANISMS, Options, PROCESS, choose,
};
use thalweg_core::{
    Guarantees, Info, Knob, Profile, Role, Unfit,
    profile::{Cell, Load, SinkState},
};
use thalweg_sys::host::memory_available;

use super::{
    super::{
        grid::Depth,
        job::{ContestJob, EndKeys, SurveyLine, TunedMethod},
        pair::{EndKind, EndPair, MemoryOwner},
        table::AskedMethod,
    },
    Arena, OpenedContest, PairContest, TriedArm, octaves, tunings,
};
use crate::{
    StopCheck,
    arms::{
        bulk::{BulkArm, BulkSource, BulkTerms, PairJob, Residency},
        knobs::only,
    },
    schedule::{Arm, SampleFailure, SampledArm},
    scratch::ScratchFolder,
};

pub(super) struct Channel;

impl PairContest for Channel {
    fn takes(&self, ends: &EndPair) -> bool {
        matches!((&ends.source, &ends.sink), (EndKind::Process(_), EndKind::Process(_)))
    }

    fn takes_keys(&self, keys: &EndKeys) -> bool {
        [PROCESS, LOAN].contains(&keys.source.as_str())
    }

    /// Returns the names without trying any arm: only the session finds out which arms work.
    fn keys(&self, ends: &EndPair) -> Result<EndKeys, String> {
        let source =
            if ends.source == EndKind::Process(MemoryOwner::Loan) { LOAN } else { PROCESS };
        let sink = if ends.sink == EndKind::Process(MemoryOwner::Huge) { HUGE } else { PROCESS };
        let [source, sink] = [source, sink].map(str::to_owned);
        Ok(EndKeys { source, sink, options: Default::default() })
    }

    /// The channel sends smaller buffers as messages. Larger buffers need more memory than many machines have.
    fn sizes(&self, depth: Depth) -> Vec<u64> {
        match depth {
            Depth::Quick => octaves(16, 28, 3),
            Depth::Standard => octaves(16, 28, 2),
        }
    }

    fn sink_states(&self, ends: &EndPair, _depth: Depth) -> &'static [SinkState] {
        match &ends.sink {
            EndKind::Process(MemoryOwner::Plain) => &[SinkState::Resident, SinkState::Fresh],
            _ => &[SinkState::Fresh],
        }
    }

    /// Measured only on an idle machine. Two processes that move a buffer use two CPUs; their speed on a single CPU is
    /// not of interest.
    fn counts_under(&self, load: Load) -> bool {
        load == Load::Idle
    }

    fn knobs(&self, name: &str) -> &'static [Knob] {
        bulk::by_name(name).map(|arm| arm.info().knobs).unwrap_or_default()
    }

    fn is_reference(&self, _name: &str) -> bool {
        true
    }

    fn known<'p>(&self, profile: &'p Profile, ends: &EndPair) -> Result<Vec<&'p Cell>, String> {
        let keys = self.keys(ends)?;
        let cells = profile.cells.iter();
        let known = cells.filter(|cell| (&cell.source, &cell.sink) == (&keys.source, &keys.sink));
        Ok(known.collect())
    }

    /// Returns the sender's choice, if it is based on a measurement.
    fn choice(
        &self,
        profile: &Profile,
        keys: &EndKeys,
        asked: &AskedMethod,
    ) -> Option<TunedMethod> {
        let facts = facts(keys, asked);
        let options = Options { needs: asked.needs, ..Options::default() };
        let plan = choose(&facts, &options, Some(profile));
        // The channel can also choose an arm without measurements. Such a choice cannot be evaluated.
        let best = plan.chosen().filter(|best| best.evidence.is_some())?;
        Some(TunedMethod { name: best.mechanism.to_owned(), tuning: best.tuning.clone() })
    }

    fn without_profile(&self, keys: &EndKeys, asked: &AskedMethod) -> Vec<&'static str> {
        let options = Options { needs: asked.needs, ..Options::default() };
        let verdicts = choose(&facts(keys, asked), &options, None).verdicts.into_iter();
        let usable = verdicts.filter(|verdict| verdict.judgement.is_usable());
        usable.map(|verdict| verdict.mechanism).collect()
    }

    fn open<'s>(
        &self,
        job: &ContestJob,
        _stop: &'s StopCheck<'s>,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Result<OpenedContest<'s>, SampleFailure> {
        let processes = Processes::new(&job.ends, job.sink_state);
        let processes = processes.map_err(|e| format!("{}: {e}", job.ends))?;
        answer(SurveyLine::Ends(self.keys(&job.ends)?));
        Ok((Box::new(processes), ways(job, answer)))
    }
}

/// Returns the channel's facts about a buffer between these ends.
fn facts(keys: &EndKeys, asked: &AskedMethod) -> Facts {
    Facts {
        destination: match (keys.sink.as_str(), asked.sink_state) {
            (HUGE, _) => Destination::FreshHuge,
            (_, SinkState::Fresh) => Destination::Fresh,
            (_, SinkState::Resident) => Destination::Resident,
        },
        will_loan: keys.source == LOAN,
        size: Some(asked.size),
        ..Facts::default()
    }
}

/// Returns the arms that a default request may use.
fn ways(job: &ContestJob, answer: &mut dyn FnMut(SurveyLine)) -> Vec<TunedMethod> {
    let mut ways = Vec::new();
    let allowed = |info: &Info| {
        info.role == Role::Mover && info.gives_in_memory().cover(Guarantees::default())
    };
    for arm in MECHANISMS.iter().filter(|arm| allowed(arm.info())) {
        let info = arm.info();
        match arm.probe() {
            Ok(()) => {
                ways.extend(tunings(job, info.name, info.knobs, ways.is_empty()));
            }
            Err(unfit) => answer(SurveyLine::Unfit {
                way: TunedMethod::plain(info.name),
                reason: unfit.reason,
            }),
        }
    }
    ways.sort_by_key(|way| !way.tuning.is_default());
    ways
}

/// The two processes and their buffers.
struct Processes {
    folder: ScratchFolder,
    /// The kind of memory the bytes come from.
    source: BulkSource,
    /// The kind of memory the bytes go to.
    residency: Residency,
    /// Bytes per buffer.
    size: u64,
}

impl Processes {
    /// Creates the arena without starting any process.
    fn new(ends: &EndPair, state: SinkState) -> io::Result<Self> {
        let is_lent = ends.source == EndKind::Process(MemoryOwner::Loan);
        let source = if is_lent { BulkSource::Born } else { BulkSource::Private };
        let residency = match (&ends.sink, state) {
            (EndKind::Process(MemoryOwner::Huge), _) => Residency::Huge,
            (_, SinkState::Fresh) => Residency::Fresh,
            (_, SinkState::Resident) => Residency::Resident,
        };
        let folder = ScratchFolder::inside(&std::env::temp_dir())?;
        Ok(Self { folder, source, residency, size: 1 })
    }
}

impl Arena for Processes {
    fn resize(&mut self, size: u64) -> io::Result<()> {
        self.size = size;
        Ok(())
    }

    /// Assumes that each mechanism keeps its own buffer on both sides.
    fn has_room(&self, size: u64, ways: usize) -> bool {
        let most = size.saturating_mul(2).saturating_mul(ways as u64);
        memory_available().is_none_or(|available| most <= available)
    }

    /// Opens an arm between the two processes and verifies the bytes that arrive. Also checks whether later changes
    /// of the source show in the destination.
    fn try_out<'p>(&'p self, way: &TunedMethod) -> TriedArm<'p> {
        let mechanism = bulk::by_name(&way.name);
        let mechanism =
            mechanism.ok_or_else(|| Unfit::because(format!("unknown mechanism {way}")))?;
        // A profile can contain knobs of another version of thalweg.
        let knobs: Vec<&str> = mechanism.info().knobs.iter().map(|knob| knob.name).collect();
        only(&way.name, &way.tuning, &knobs)?;
        let bytes = usize::try_from(self.size).ok().filter(|bytes| (1..1 << 40).contains(bytes));
        let bytes = bytes
            .ok_or_else(|| Unfit::because(format!("{way} cannot move {} bytes", self.size)))?;
        let job = PairJob {
            // This executable, even if its file was renamed.
            program: Path::new("/proc/self/exe"),
            scratch: self.folder.path(),
            bytes,
        };
        let terms = BulkTerms {
            tuning: way.tuning.clone(),
            uses_profile: false,
            residency: self.residency,
            source: self.source,
            reads: false,
            faults: self.residency != Residency::Resident,
            spoils: false,
        };
        let mut arm: Box<dyn Arm> = Box::new(BulkArm::join(&job, terms, Some(mechanism))?);
        arm.warm_up()?;
        arm.check()?;
        Ok((SampledArm { arm, repeats: 1 }, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_that_the_channel_reads() {
        let named: EndPair = "process:process".parse().unwrap();
        let all: Vec<EndKeys> = named.each().iter().map(|e| Channel.keys(e).unwrap()).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|k| (&*k.source, &*k.sink)).collect();
        assert_eq!(all, [(PROCESS, PROCESS), (PROCESS, HUGE), (LOAN, PROCESS), (LOAN, HUGE)]);
    }
}
