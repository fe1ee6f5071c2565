//! Combines the logs of all sessions into a result.

use serde_json::Value;

use super::{
    claims,
    costs::{doubled, ratio},
    file::StudyFile,
    messages::{ArmRun, ConditionLog, SessionLog},
    result::{
        ArmResult, ClaimResult, ClaimVerdict, Condition, ConditionCost, Missing, ProbeResult,
        Protocol, RatioResult, SessionSamples, StudyResult,
    },
};
use thalweg_measure::{
    outcome::{RatioOutcome, noise_over},
    sample::{Sample, SampleMetric},
    stats::median,
};

/// Returns the result of a study from its sessions, with all ratios and the verdict on every claim.
pub fn result_of(
    study: &StudyFile,
    sessions: Vec<SessionLog>,
    protocol: Protocol,
    conditions: Value,
) -> StudyResult {
    let nulls: Vec<f64> = sessions.iter().map(|session| session.null_seconds).collect();
    let places: Vec<Condition> =
        sessions.first().into_iter().flat_map(|s| &s.places).map(|p| p.place.clone()).collect();
    let (mut arms, mut missing, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for place in &places {
        let logs: Vec<(usize, &ConditionLog)> = sessions
            .iter()
            .flat_map(|s| s.places.iter().map(|log| (s.session, log)))
            .filter(|(_, log)| log.place == *place)
            .collect();
        let seconds = logs.iter().map(|(_, log)| log.seconds).sum();
        costs.push(ConditionCost { place: place.clone(), seconds });
        let names = study.cell(&place.cell).map(|cell| cell.arms.as_slice()).unwrap_or_default();
        for name in names {
            arms.extend(arm_of(study, name, place, &logs));
            missing.extend(missing_of(name, place, &logs));
        }
    }
    let mut result = StudyResult {
        study: study.id.clone(),
        schema: 1,
        samples: None,
        title: study.title.clone(),
        text: None,
        conditions,
        protocol,
        comparisons: 0,
        arms,
        missing,
        ratios: Vec::new(),
        aa: None,
        noise: 0.0,
        null_seconds: median(&nulls),
        probes: probes_of(sessions),
        costs,
        claims: Vec::new(),
    };
    judge(study, &mut result);
    result
}

/// Computes noise, ratios and verdicts of a result from its samples and probes.
pub fn judge(study: &StudyFile, result: &mut StudyResult) {
    let seed = result.protocol.seed;
    (result.aa, result.noise) = noise_over(&doubled(&result.arms, SampleMetric::Wall), seed);
    result.ratios = ratios_of(study, &result.arms, result.noise, seed);
    result.comparisons = result.ratios.len();
    result.claims = claims::judge(study, result);
}

/// Judges the samples of a saved result by the current text of its study. Omits claims that the study did not have when
/// the result was saved, unless the samples decide them.
pub fn judge_again(study: &StudyFile, saved: &StudyResult) -> StudyResult {
    let mut result = saved.clone();
    judge(study, &mut result);
    let had = |claim: &ClaimResult| saved.claims.iter().any(|known| known.id == claim.id);
    result.claims.retain(|claim| had(claim) || claim.verdict != ClaimVerdict::Undecided);
    result
}

/// Combines the results of one arm (a compared variant) under one condition over all sessions; `None` if it has no
/// sample.
fn arm_of(
    study: &StudyFile,
    name: &str,
    place: &Condition,
    logs: &[(usize, &ConditionLog)],
) -> Option<ArmResult> {
    let runs = logs.iter().filter_map(|(_, log)| log.arms.iter().find(|run| run.name == name));
    let runs: Vec<&ArmRun> = runs.collect();
    let first = runs.first()?;
    let arm = study.arms.iter().find(|arm| arm.name == name)?;
    // A single observation of shared memory is conclusive, even if other sessions did not observe any.
    let aliases: Vec<&String> = runs.iter().filter_map(|run| run.alias.as_ref()).collect();
    let shared = aliases.iter().find(|alias| **alias == "shared");
    let mut result = ArmResult {
        name: name.to_owned(),
        place: place.clone(),
        origin: arm.origin,
        promises: first.promises,
        alias: shared.or(aliases.first()).map(|alias| (*alias).clone()),
        note: arm.note.clone(),
        gb_per_s: 0.0,
        cpu_s_per_gb: 0.0,
        user_s_per_gb: 0.0,
        far_cpu_s_per_gb: None,
        faults_per_gb: 0.0,
        calls_per_gb: None,
        calls_kind: None,
        calls_uncounted: runs.iter().find_map(|run| run.calls_uncounted.clone()),
        marked: runs.iter().map(|run| run.marked).sum(),
        sessions: runs.iter().map(|run| run.taken.clone()).collect(),
    };
    set_figures(&mut result);
    Some(result)
}

/// Computes the figures of an arm from its samples.
pub(super) fn set_figures(arm: &mut ArmResult) {
    // The median is taken per session first. A median over all samples would weight the sessions unevenly.
    let figure = |of: &dyn Fn(&Sample) -> Option<f64>| -> Option<f64> {
        let of_session = |session: &SessionSamples| {
            let values = session.samples.iter().filter_map(|taken| of(&taken.sample));
            median(&values.collect::<Vec<_>>())
        };
        median(&arm.sessions.iter().filter_map(of_session).collect::<Vec<_>>())
    };
    let gb = |sample: &Sample| (sample.bytes.max(1)) as f64 / 1e9;
    let cpu = |s: &Sample| Some(s.user.saturating_add(s.sys).as_secs_f64() / gb(s));
    let far = |s: &Sample| Some((s.far_user + s.far_sys).as_secs_f64() / gb(s));
    let mut taken = arm.sessions.iter().flat_map(|s| &s.samples).map(|taken| &taken.sample);
    *arm = ArmResult {
        gb_per_s: figure(&|s| Some(gb(s) / s.wall_seconds())).unwrap_or(0.0),
        cpu_s_per_gb: figure(&cpu).unwrap_or(0.0),
        user_s_per_gb: figure(&|s| Some(s.user.as_secs_f64() / gb(s))).unwrap_or(0.0),
        far_cpu_s_per_gb: figure(&far).filter(|far| *far > 0.0),
        faults_per_gb: figure(&|s| Some(s.faults_per_gb())).unwrap_or(0.0),
        calls_per_gb: figure(&|s| Some(s.calls? as f64 / gb(s))),
        calls_kind: taken.find(|s| s.calls.is_some()).map(|s| s.calls_kind),
        ..arm.clone()
    };
}

/// Returns the reason why an arm has no samples or failed under a condition, if that happened in at least one session.
fn missing_of(name: &str, place: &Condition, logs: &[(usize, &ConditionLog)]) -> Option<Missing> {
    let found: Vec<(usize, &String)> = logs
        .iter()
        .flat_map(|(n, log)| log.missing.iter().map(move |missing| (*n, missing)))
        .filter(|(_, (arm, _))| arm == name)
        .map(|(n, (_, reason))| (n, reason))
        .collect();
    let (session, reason) = found.first()?;
    let reason = if found.len() == logs.len() {
        (*reason).clone()
    } else {
        let (some, all) = (found.len(), logs.len());
        format!("in {some} of {all} sessions, first in session {}: {reason}", session + 1)
    };
    Some(Missing { arm: name.to_owned(), place: place.clone(), reason })
}

/// Returns the ratio of every arm to the first one of its cell, in wall time and CPU time.
fn ratios_of(study: &StudyFile, arms: &[ArmResult], noise: f64, seed: u64) -> Vec<RatioResult> {
    let mut ratios = Vec::new();
    for arm in arms {
        let Some(first) = study.cell(&arm.place.cell).and_then(|cell| cell.arms.first()) else {
            continue;
        };
        let base = arms.iter().find(|base| base.name == *first && base.place == arm.place);
        let Some(base) = base.filter(|base| base.name != arm.name) else { continue };
        for metric in [SampleMetric::Wall, SampleMetric::Cpu] {
            let Some(ratio) = ratio(arm, base, metric, seed) else { continue };
            ratios.push(RatioResult {
                a: arm.name.clone(),
                b: base.name.clone(),
                place: arm.place.clone(),
                metric,
                ratio,
                verdict: RatioOutcome { ratio, noise }.word(),
                same_promises: arm.promises == base.promises,
            });
        }
    }
    ratios
}

/// Merges the probe results of all sessions.
fn probes_of(sessions: Vec<SessionLog>) -> Vec<ProbeResult> {
    let mut all: Vec<ProbeResult> = Vec::new();
    for found in sessions.into_iter().flat_map(|session| session.probes) {
        let same =
            |other: &&mut ProbeResult| other.claim == found.claim && other.check == found.check;
        match all.iter_mut().find(same) {
            Some(known) => known.sessions.extend(found.sessions),
            None => all.push(found),
        }
    }
    all
}
