//! The planner's choices on a survey: for each size the winner, the runner-up and the certainty.

use serde::Serialize;
use thalweg_core::{
    EndFacts, Facts, Guarantees, MECHANISMS, Plan, Prefer, Profile, Request, Unfit,
    profile::{Load, Ratio, SinkState},
};

use super::{
    job::{EndKeys, TunedMethod},
    pair::EndPair,
    pair_survey::PairSurvey,
};
use crate::{outcome::RatioOutcome, sample::SampleMetric, stats::RatioVerdict};

/// One pair of ends at one size.
#[derive(Clone, Debug, Serialize)]
pub struct SurveyRow {
    pub pair: EndPair,
    /// The background load.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
    /// `true` if the sink may share pages with the source.
    pub zero_copy: bool,
    pub size: u64,
    /// The planner's choice.
    pub winner: TunedMethod,
    /// The best of the other mechanisms.
    pub runner_up: Option<TunedMethod>,
    /// The wall time (or CPU time) of the winner relative to the runner-up.
    pub ratio: Option<Ratio>,
    pub noise: f64,
    /// The verdict on `ratio`. If it is not `faster`, no difference was shown, or the planner chose the winner for
    /// another reason: the winner is safer, or needs less memory.
    pub verdict: Option<RatioVerdict>,
}

/// A transfer and its requirements.
#[derive(Clone, Copy, Debug)]
pub struct AskedMethod {
    pub size: u64,
    /// The required guarantees.
    pub needs: Guarantees,
    pub prefer: Prefer,
    /// The background load.
    pub load: Load,
    /// The state of the sink before each transfer.
    pub sink_state: SinkState,
}

/// Returns the facts of a job between ends named in a profile; `None` if the names are unknown.
pub fn facts_between(keys: &EndKeys, asked: &AskedMethod) -> Option<Facts> {
    let source = EndFacts::of_key(&keys.source, &keys.options[0])?;
    let mut sink = EndFacts::of_key(keys.sink(), &keys.options[1])?;
    sink.filled = asked.sink_state == SinkState::Resident;
    if let (Some(from), Some(to)) = (&source.fs, &mut sink.fs) {
        // The profile does not record the device: equal file systems are assumed to be the same one.
        to.dev = u64::from((&from.name, from.options()) != (&to.name, to.options()));
    }
    Some(Facts { source, sink, len: Some(asked.size), needs: asked.needs })
}

/// Returns the planner's plan for such a job. Excludes mechanisms without measurements, because they may not work
/// between these ends.
pub fn verdict_on(profile: &Profile, keys: &EndKeys, asked: &AskedMethod) -> Option<Plan> {
    let facts = facts_between(keys, asked)?;
    let known = profile.known(&facts, asked.load);
    let mut request = Request { prefer: asked.prefer, load: asked.load, ..Request::default() };
    for info in MECHANISMS.iter().map(|m| m.info()) {
        if !known.cells().iter().any(|cell| cell.mechanism == info.name) {
            request.unfit.insert(info.name, Unfit::because("not measured"));
        }
    }
    Some(Plan::make(&facts, &request, Some(profile)))
}

/// Returns a row for every size of a survey; two rows if weaker guarantees change the choice.
pub fn rows(survey: &PairSurvey, profile: &Profile, prefer: Prefer) -> Vec<SurveyRow> {
    let Some(keys) = survey.keys() else { return Vec::new() };
    let mut rows = Vec::new();
    for size in survey.sizes() {
        let (load, sink_state) = (survey.load, survey.sink_state);
        let mut copied = None;
        for needs in [Guarantees::COPIED, Guarantees::SHARED] {
            let asked = AskedMethod { size, needs, prefer, load, sink_state };
            let Some(winner) = keys.contest().choice(profile, keys, &asked) else { continue };
            if copied.as_ref() == Some(&winner) {
                continue;
            }
            copied.get_or_insert_with(|| winner.clone());
            rows.push(row(survey, &asked, winner));
        }
    }
    rows
}

fn row(survey: &PairSurvey, asked: &AskedMethod, winner: TunedMethod) -> SurveyRow {
    let metric = metric_of(asked.prefer);
    let size = asked.size;
    let ways = survey.ways(size);
    let keeps = |way: &TunedMethod| survey.ends.contest().keeps(&survey.ends, way, asked.needs);
    let others = ways.iter().filter(|way| way.name != winner.name && keeps(way));
    let ratios = others
        .filter_map(|other| Some((survey.ratio(size, &winner, other, metric)?, other.clone())));
    // Each ratio is the winner's cost divided by that of another mechanism. The runner-up has the largest ratio.
    let best = ratios.max_by(|(a, _), (b, _)| a.ratio.total_cmp(&b.ratio));
    let noise = survey.noise(size, metric);
    let ratio = best.as_ref().map(|(ratio, _)| *ratio);
    SurveyRow {
        pair: survey.ends.clone(),
        load: asked.load,
        sink_state: asked.sink_state,
        zero_copy: !asked.needs.stable,
        size,
        winner,
        runner_up: best.map(|(_, way)| way),
        verdict: ratio.map(|ratio| RatioOutcome { ratio, noise }.word()),
        ratio,
        noise,
    }
}

/// Returns the metric for a preference. For [`Prefer::Memory`] it is wall time: only the planner compares memory.
pub fn metric_of(prefer: Prefer) -> SampleMetric {
    if prefer == Prefer::Cpu { SampleMetric::Cpu } else { SampleMetric::Wall }
}
