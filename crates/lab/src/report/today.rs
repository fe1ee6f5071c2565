//! The fastest method of today for the tasks of an article: one sentence for each task, computed from the samples of a
//! run.

use std::fmt::Write;

use super::{
    cell_results::CellResults,
    chart::Scope,
    winners::{RankedArm, Ranking},
    words,
};
use crate::study::{
    file::{StudyFile, TodayTask},
    result::StudyResult,
};
use thalweg_measure::{load::BackgroundLoad, sample::SampleMetric};

/// The answer to one task.
#[derive(Clone, Debug)]
pub struct TodayAnswer {
    /// The task, in the words of the study.
    pub task: String,
    pub sentence: String,
    /// The fastest method.
    pub best: String,
    /// The time of each other method, divided by that of the best, with its interval.
    pub others: Vec<(String, [f64; 3])>,
}

/// Returns an answer for each task that the run measured.
pub fn answers(study: &StudyFile, result: &StudyResult) -> Vec<TodayAnswer> {
    let scope = Scope { id: "", result, study: Some(study) };
    let groups = CellResults::all(result);
    study.today.iter().filter_map(|today| answer(&scope, &groups, today)).collect()
}

/// Returns one sentence for each task that the run measured.
pub fn today(study: &StudyFile, result: &StudyResult) -> Vec<String> {
    answers(study, result).into_iter().map(|answer| answer.sentence).collect()
}

fn answer(scope: &Scope<'_>, groups: &[CellResults<'_>], today: &TodayTask) -> Option<TodayAnswer> {
    let is_asked =
        |group: &&CellResults<'_>| group.cell == today.cell && group.load == BackgroundLoad::Idle;
    let mut group = groups.iter().find(is_asked)?.clone();
    group.arms.retain(|arm| today.arms.contains(&arm.name));
    let place = group.places.iter().copied().find(|place| place.size == today.size)?;
    let ranking = Ranking::of(scope, &group, place, SampleMetric::Wall)?;
    let measured = |name: &&String| group.arm(name, place).is_none();
    let missing: Vec<&str> = today.arms.iter().filter(measured).map(String::as_str).collect();
    let inverse = |rival: &RankedArm<'_>| {
        let ratio = rival.ratio?;
        let value = [1.0 / ratio.ratio, 1.0 / ratio.hi, 1.0 / ratio.lo];
        Some((rival.arm.name.clone(), value))
    };
    Some(TodayAnswer {
        task: today.task.clone(),
        sentence: sentence(&today.task, &ranking, &missing),
        best: ranking.best.name.clone(),
        others: ranking.others.iter().filter_map(inverse).collect(),
    })
}

/// Returns text such as `To pass 64 MiB to another process, use pull: 0.62 [0.60, 0.64] of the time of ring.`
fn sentence(task: &str, ranking: &Ranking<'_>, missing: &[&str]) -> String {
    let mut text = format!("To {task}, use {:?}", ranking.best.name);
    let beaten = ranking.others.iter().find(|rival| rival.beaten);
    if let Some((rival, ratio)) = beaten.and_then(|rival| Some((rival, rival.ratio?))) {
        let (figure, name) = (words::ratio(&ratio), &rival.arm.name);
        let _ = write!(text, ": {figure} of the time of {name:?}");
    }
    let quoted = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        names.join(", ")
    };
    let ties: Vec<&str> = ranking.ties().collect();
    if !ties.is_empty() {
        let _ = write!(text, "; no difference from {} was shown", quoted(&ties));
    }
    text.push('.');
    if words::promises_less(ranking.best.promises)
        && let Some(keeper) = ranking.keeper()
    {
        let cost = keeper.ratio.map_or(String::new(), |ratio| {
            format!(": {} times the time", words::number(1.0 / ratio.ratio))
        });
        let name = &keeper.arm.name;
        let _ = write!(text, " If later changes of the source must not show, use {name:?}{cost}.");
    }
    if !missing.is_empty() {
        let _ = write!(text, " Not measured in this run: {}.", quoted(missing));
    }
    text
}
