//! Mechanisms between files, pipes, sockets and memory. The mechanism that always works is the reference.

use std::{cell::RefCell, io};
use thalweg_core::{
    EndFacts, Facts, Guarantees, Knob, MECHANISMS, Mechanism, Pair, Plan, Profile, Role, Unfit,
    alias::{self, Alias},
    mechanisms::{LAST_RESORT, by_name},
    profile::{Cell, LARGE_READS, Load, SinkState},
    scratch::ScratchSite,
};

use super::{
    super::{
        grid::Depth,
        job::{ContestJob, EndKeys, SurveyLine, TunedMethod},
        pair::{EndKind, EndPair},
        table::{AskedMethod, facts_between, verdict_on},
    },
    Arena, OpenedContest, PairContest, TriedArm, octaves, tunings,
};
use crate::{
    StopCheck,
    arms::transfer::{Terms, Whole, WholeArm},
    schedule::{SampleFailure, SampledArm},
};

pub(super) struct Mechanisms;

impl PairContest for Mechanisms {
    fn takes(&self, _ends: &EndPair) -> bool {
        true
    }

    fn takes_keys(&self, _keys: &EndKeys) -> bool {
        true
    }

    fn keys(&self, ends: &EndPair) -> Result<EndKeys, String> {
        look_at(ends).map(|(_, keys)| keys)
    }

    fn sizes(&self, depth: Depth) -> Vec<u64> {
        match depth {
            Depth::Quick => octaves(12, 27, 3),
            Depth::Standard => octaves(12, 30, 2),
        }
    }

    fn sink_states(&self, ends: &EndPair, depth: Depth) -> &'static [SinkState] {
        match (&ends.sink, depth) {
            (EndKind::File(_), Depth::Standard) => &[SinkState::Fresh, SinkState::Resident],
            _ => &[SinkState::Fresh],
        }
    }

    fn knobs(&self, name: &str) -> &'static [Knob] {
        by_name(name).map(|mechanism| mechanism.info().knobs).unwrap_or_default()
    }

    fn is_reference(&self, name: &str) -> bool {
        name == LAST_RESORT.info().name
    }

    fn keeps(&self, ends: &EndPair, way: &TunedMethod, needs: Guarantees) -> bool {
        by_name(&way.name)
            .and_then(|mechanism| mechanism.info().pair(ends.source.kind(), ends.sink.kind()))
            .is_some_and(|pair| pair.gives.cover(needs))
    }

    fn known<'p>(&self, profile: &'p Profile, ends: &EndPair) -> Result<Vec<&'p Cell>, String> {
        let (facts, _) = look_at(ends)?;
        let known = [Load::Idle, Load::Loaded].map(|load| profile.known(&facts, load));
        Ok(known.iter().flat_map(|known| known.cells().iter().copied()).collect())
    }

    fn choice(
        &self,
        profile: &Profile,
        keys: &EndKeys,
        asked: &AskedMethod,
    ) -> Option<TunedMethod> {
        let plan = verdict_on(profile, keys, asked)?;
        let chosen = plan.chosen()?;
        Some(TunedMethod { name: chosen.mechanism.to_owned(), tuning: chosen.tuning.clone() })
    }

    fn without_profile(&self, keys: &EndKeys, asked: &AskedMethod) -> Vec<&'static str> {
        let plan = facts_between(keys, asked).map(|facts| Plan::unmeasured(&facts));
        let ladder = plan.iter().flat_map(Plan::ladder);
        ladder.map(|(mechanism, _)| mechanism.info().name).collect()
    }

    fn open<'s>(
        &self,
        job: &ContestJob,
        stop: &'s StopCheck<'s>,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Result<OpenedContest<'s>, SampleFailure> {
        let failed = |e: io::Error| Unfit::because(format!("{}: {e}", job.ends));
        let mut whole = whole(&job.ends, job.sink_state, stop).map_err(failed)?;
        whole.resize(job.sizes.first().copied().unwrap_or(1)).map_err(failed)?;
        let facts = whole.facts()?;
        answer(SurveyLine::Ends(keys_of(&job.ends, &facts)));
        let ways = self.ways(job, &facts, answer);
        Ok((Box::new(Between(RefCell::new(whole))), ways))
    }
}

impl Mechanisms {
    fn ways(
        &self,
        job: &ContestJob,
        facts: &Facts,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Vec<TunedMethod> {
        let mut ways = Vec::new();
        for mechanism in MECHANISMS.iter().filter(|m| m.info().role == Role::Mover) {
            let info = mechanism.info();
            let Some(pair) = info.pair(facts.source.kind, facts.sink.kind) else {
                continue;
            };
            let tunings = tunings(job, info.name, info.knobs, self.is_reference(info.name));
            if tunings.is_empty() {
                continue;
            }
            let keeps = || keeps_its_promise(*mechanism, *pair, &job.ends);
            if let Err(unfit) = mechanism.fits(facts).and_then(|()| keeps()) {
                answer(SurveyLine::Unfit {
                    way: TunedMethod::plain(info.name),
                    reason: unfit.reason,
                });
                continue;
            }
            ways.extend(tunings);
        }
        ways.sort_by_key(|way| !(way.tuning.is_default() && self.is_reference(&way.name)));
        ways
    }
}

/// Creates transfers between these ends.
pub(in super::super) fn whole<'s>(
    ends: &EndPair,
    state: SinkState,
    stop: &'s StopCheck<'s>,
) -> io::Result<Whole<'s>> {
    // Mechanisms with weaker guarantees take part as well: the planner knows which requests need more.
    let terms = Terms { state, needs: Guarantees::SHARED, stop };
    Whole::between(ends.source.medium(), ends.sink.medium(), terms)
}

/// Returns the planner's facts about these ends and their names in a profile, or the reason why they cannot be
/// created.
pub(in super::super) fn look_at(ends: &EndPair) -> Result<(Facts, EndKeys), String> {
    let stop = || Ok(());
    let made = whole(ends, SinkState::Fresh, &stop).and_then(|mut whole| {
        whole.resize(1)?;
        Ok(whole)
    });
    let facts = made.map_err(|e| format!("{ends}: {e}"))?.facts();
    let facts = facts.map_err(|failure| format!("{ends}: {}", Unfit::from(failure)))?;
    let keys = keys_of(ends, &facts);
    Ok((facts, keys))
}

/// Returns the names in a profile of ends with these facts.
fn keys_of(ends: &EndPair, facts: &Facts) -> EndKeys {
    let reads = if ends.sink == EndKind::TcpLarge { LARGE_READS } else { "" };
    let options = [&facts.source, &facts.sink].map(EndFacts::options);
    EndKeys { source: facts.source.key(), sink: facts.sink.key() + reads, options }
}

/// Verifies a mechanism that claims stable copies: a later change of the source must not show in the sink.
fn keeps_its_promise(mechanism: &dyn Mechanism, pair: Pair, ends: &EndPair) -> Result<(), Unfit> {
    if !alias::applies(pair) || !pair.gives.stable {
        return Ok(());
    }
    let folder = |end: &EndKind| match end {
        EndKind::File(folder) => folder.clone(),
        _ => std::env::temp_dir(),
    };
    let site = ScratchSite::between(folder(&ends.source), folder(&ends.sink));
    match alias::probe(mechanism, pair, &site)? {
        Alias::Copied => Ok(()),
        Alias::Shared => Err(Unfit::because(
            "breaks its guarantee: a later change of the source also changes the sink",
        )),
    }
}

/// Two ends that are recreated for every transfer.
pub(in super::super) struct Between<'s>(pub RefCell<Whole<'s>>);

// Maximum number of files per sample. With more, the cost of the directory would be measured.
const MOST_FILES: u64 = 256;

impl Arena for Between<'_> {
    fn resize(&mut self, size: u64) -> io::Result<()> {
        self.0.get_mut().resize(size)
    }

    fn most_transfers(&self) -> u64 {
        let mut whole = self.0.borrow_mut();
        (whole.room() / whole.size.max(1)).clamp(1, MOST_FILES)
    }

    fn has_room(&self, size: u64, _ways: usize) -> bool {
        size.saturating_mul(2) <= self.0.borrow_mut().room()
    }

    fn try_out<'p>(&'p self, way: &TunedMethod) -> TriedArm<'p> {
        let unknown = || Unfit::because(format!("{way} is not available here"));
        let mechanism = by_name(&way.name).ok_or_else(unknown)?;
        let arm = WholeArm { place: &self.0, mechanism, tuning: way.tuning.clone() };
        let held = arm.try_out()?;
        Ok((SampledArm::once(arm), held))
    }

    fn may_move_nothing(&self) -> bool {
        true
    }
}
