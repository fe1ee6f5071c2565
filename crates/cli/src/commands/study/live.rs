//! Progress of a run on standard error: a changing table on a terminal, otherwise lines.

use indicatif::ProgressBar;
use std::{fmt::Write, io::IsTerminal, time::Duration};
use thalweg_lab::study::{
    result::{Condition, ConditionCost, StudyResult},
    run::StudyProgress,
};
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::stats::median;

use super::tables::{bar, gb_per_s};
use crate::output::{
    quantity,
    table::width,
    text::note,
    ticking::{new_bar, style},
};

/// Steps of the bar.
const STEPS: u64 = 1000;
/// Largest number of lines in the table, so that it fits a small terminal.
const MOST_ARMS: usize = 16;
/// Number of slowest test cases listed at the end.
const SLOWEST: usize = 5;

/// The progress display of a run.
pub struct Live {
    bar: Option<ProgressBar>,
    place: Option<Condition>,
    /// Rates of each variant in the rounds so far, in 10^9 bytes per second.
    rates: Vec<(String, Vec<f64>)>,
    /// `true` once the expected time was printed.
    is_announced: bool,
}

impl Live {
    pub fn new() -> Self {
        let look = || style("{wide_bar} {percent:>3}%{msg}");
        let bar = std::io::stderr().is_terminal().then(|| new_bar(Some(STEPS), look()));
        Self { bar, place: None, rates: Vec::new(), is_announced: false }
    }

    pub fn show(&mut self, progress: &StudyProgress<'_>) {
        if !std::mem::replace(&mut self.is_announced, true) {
            let left = quantity::duration(Duration::from_secs(progress.left.as_secs().max(1)));
            note(&format!("{} sessions, about {left}", progress.session[1]));
        }
        if self.place.as_ref() != progress.place || progress.round[0] == 0 {
            self.place = progress.place.cloned();
            self.rates.clear();
        }
        for (name, rate) in progress.rates {
            match self.rates.iter_mut().find(|(known, _)| known == name) {
                Some((_, rates)) => rates.push(*rate),
                None => self.rates.push((name.clone(), vec![*rate])),
            }
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position((progress.done * STEPS as f64) as u64);
                bar.set_message(self.table(progress));
            }
            None if progress.round[0] == progress.round[1] && progress.place.is_some() => {
                note(&self.line(progress));
            }
            None => {}
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn medians(&self) -> Vec<(&str, f64)> {
        let mut medians: Vec<(&str, f64)> = self
            .rates
            .iter()
            .filter_map(|(name, rates)| Some((name.as_str(), median(rates)?)))
            .collect();
        medians.sort_by(|a, b| a.0.cmp(b.0));
        medians
    }

    fn table(&self, progress: &StudyProgress<'_>) -> String {
        let mut text = format!("\n{}", fit(&head(progress)));
        let medians = self.medians();
        let most = medians.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        for (name, rate) in medians.iter().take(MOST_ARMS) {
            let line =
                format!("  {name:<32.32} {:>9} GB/s {}", gb_per_s(*rate), bar(*rate, most, 20));
            let _ = write!(text, "\n{}", fit(&line));
        }
        text
    }

    fn line(&self, progress: &StudyProgress<'_>) -> String {
        let rates = self.medians().into_iter();
        let rates = rates.map(|(name, rate)| format!("{name} {}", gb_per_s(rate)));
        format!("{}: {} GB/s", head(progress), rates.collect::<Vec<_>>().join(", "))
    }
}

/// Returns text such as `002, session 1 of 3, zero-null 16GiB, round 4 of 10, left 1:20`.
fn head(progress: &StudyProgress<'_>) -> String {
    let [session, sessions] = progress.session;
    let place = match progress.place {
        Some(place) => {
            let [round, rounds] = progress.round;
            format!("{}, round {round} of {rounds}", named(place))
        }
        None => "pause".to_owned(),
    };
    let left = quantity::duration(Duration::from_secs(progress.left.as_secs().max(1)));
    format!("{}, session {session} of {sessions}, {place}, left {left}", progress.study)
}

/// Returns text such as `zero-null 16GiB busy`.
fn named(place: &Condition) -> String {
    let load = if place.load == BackgroundLoad::Idle { "" } else { place.load.name() };
    format!("{} {} {load}", place.cell, place.size).trim_end().to_owned()
}

/// Formats the test cases that took longest, as a hint for making a run shorter; `None` if there are none.
pub fn slowest(results: &[StudyResult]) -> Option<String> {
    let costs = results.iter().flat_map(|one| one.costs.iter().map(move |cost| (&one.study, cost)));
    let mut costs: Vec<(&String, &ConditionCost)> = costs.collect();
    costs.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    let dear = costs.iter().take(SLOWEST).map(|(study, cost)| {
        let took = Duration::try_from_secs_f64(cost.seconds).unwrap_or_default();
        format!("{study} {} {}", named(&cost.place), quantity::duration(took))
    });
    let dear: Vec<String> = dear.collect();
    (!dear.is_empty())
        .then(|| format!("slowest of {} test cases: {}", costs.len(), dear.join(", ")))
}

/// Shortens a line to the width of the terminal: a wrapped line would break the display.
fn fit(line: &str) -> String {
    line.chars().take(usize::from(width()).saturating_sub(1)).collect()
}
