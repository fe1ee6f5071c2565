//! What the planner makes of a survey: for each size the winner, the runner-up and how sure it is.

use serde::Serialize;
use thalweg_core::{
    EndFacts, Facts, Guarantees, MECHANISMS, Plan, Prefer, Profile, Request, Unfit,
    bands::Band,
    profile::{FILL, LIBC, Load, Ratio, SinkState},
};

use super::{
    job::{EndKeys, Way},
    pair::Ends,
    processes,
    sum::Survey,
};
use crate::measure::{
    sample::Metric,
    stats::{Verdict, verdict},
};

/// One pair of ends at one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub pair: Ends,
    /// What else the machine did.
    pub load: Load,
    /// What the sink was like before.
    pub sink_state: SinkState,
    /// Whether the sink may share pages with the source.
    pub zero_copy: bool,
    pub size: u64,
    /// What the planner takes.
    pub winner: Way,
    /// The best of the others.
    pub runner_up: Option<Way>,
    /// The winner's time, or processor time, against the runner-up's.
    pub ratio: Option<Ratio>,
    pub noise: f64,
    /// The word for it; anything but `faster` is a tie, or a safer way that is as good.
    pub verdict: Option<Verdict>,
}

/// What is moved, and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub size: u64,
    /// What is not given up.
    pub needs: Guarantees,
    pub prefer: Prefer,
    /// What else the machine does.
    pub load: Load,
    /// What the sink is like before.
    pub sink_state: SinkState,
}

/// The facts of a job between ends that a profile names; `None` if the keys are none.
pub fn facts_between(keys: &EndKeys, asked: &Asked) -> Option<Facts> {
    let source = EndFacts::of_key(&keys.source, &keys.options[0])?;
    let mut sink = EndFacts::of_key(&keys.sink, &keys.options[1])?;
    sink.filled = asked.sink_state == SinkState::Resident;
    if let (Some(from), Some(to)) = (&source.fs, &mut sink.fs) {
        // Which device it was is not known: alike file systems are taken for the same one.
        to.dev = u64::from((&from.name, &from.options) != (&to.name, &to.options));
    }
    Some(Facts { source, sink, len: Some(asked.size), needs: asked.needs })
}

/// The planner's verdict on such a job, among what was measured: what was not, nobody saw work.
pub fn verdict_on(profile: &Profile, keys: &EndKeys, asked: &Asked) -> Option<Plan> {
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

/// The planner's choice for such a job; from memory to memory, or for filling it, the kernel; between
/// processes the arm.
pub fn choice(profile: &Profile, keys: &EndKeys, asked: &Asked) -> Option<Way> {
    let bands = match (keys.source.as_str(), keys.sink.as_str()) {
        ("memory", "memory") => Some(profile.kernel_bands(asked.load, asked.prefer)),
        (FILL, "memory") => Some(profile.fill_bands(asked.load, asked.prefer)),
        _ => None,
    };
    if let Some(bands) = bands {
        let band = Band::of(&bands, asked.size);
        return Some(Way::plain(band.map_or(LIBC, |band| &band.kernel)));
    }
    if processes::are_keys_of(keys) {
        return processes::choice(profile, keys, asked);
    }
    let plan = verdict_on(profile, keys, asked)?;
    let chosen = plan.chosen()?;
    Some(Way { name: chosen.mechanism.to_owned(), tuning: chosen.tuning.clone() })
}

/// A row for every size of a survey; two where giving promises up changes the choice.
pub fn rows(survey: &Survey, profile: &Profile, prefer: Prefer) -> Vec<Row> {
    let Some(keys) = survey.keys() else { return Vec::new() };
    let mut rows = Vec::new();
    for size in survey.sizes() {
        let (load, sink_state) = (survey.load, survey.sink_state);
        let mut copied = None;
        for needs in [Guarantees::COPIED, Guarantees::SHARED] {
            let asked = Asked { size, needs, prefer, load, sink_state };
            let Some(winner) = choice(profile, keys, &asked) else { continue };
            if copied.as_ref() == Some(&winner) {
                continue;
            }
            copied.get_or_insert_with(|| winner.clone());
            rows.push(row(survey, &asked, winner));
        }
    }
    rows
}

fn row(survey: &Survey, asked: &Asked, winner: Way) -> Row {
    let metric = metric_of(asked.prefer);
    let size = asked.size;
    let ways = survey.ways(size);
    let others = ways.iter().filter(|way| way.name != winner.name && may(survey, way, asked.needs));
    let ratios = others
        .filter_map(|other| Some((survey.ratio(size, (&winner, other), metric)?, other.clone())));
    // The fastest of the others is the one against which the winner looks worst.
    let best = ratios.max_by(|(a, _), (b, _)| a.ratio.total_cmp(&b.ratio));
    let noise = survey.noise(size, metric);
    let ratio = best.as_ref().map(|(ratio, _)| *ratio);
    Row {
        pair: survey.ends.clone(),
        load: asked.load,
        sink_state: asked.sink_state,
        zero_copy: !asked.needs.stable,
        size,
        winner,
        runner_up: best.map(|(_, way)| way),
        verdict: ratio.map(|ratio| verdict(&ratio, noise)),
        ratio,
        noise,
    }
}

/// What counts for a preference; memory is judged by the planner, and its rows show time.
pub(super) fn metric_of(prefer: Prefer) -> Metric {
    if prefer == Prefer::Cpu { Metric::Cpu } else { Metric::Wall }
}

/// Whether a way keeps such promises between the ends of a survey; kernels keep all, and of the arms
/// only those take part that do.
pub(super) fn may(survey: &Survey, way: &Way, needs: Guarantees) -> bool {
    let (source, sink) = (survey.ends.source.kind(), survey.ends.sink.kind());
    survey.ends.are_memory()
        || survey.ends.are_processes()
        || thalweg_core::mechanisms::by_name(&way.name)
            .and_then(|mechanism| mechanism.info().pair(source, sink))
            .is_some_and(|pair| pair.gives.cover(needs))
}
