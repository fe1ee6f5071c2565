//! Compares results of different machines, with one run of each study per machine.

use super::{claims::Badge, history, load::ReportInput, words};
use crate::study::tally::Tallies;

/// A machine and its runs.
#[derive(Clone, Debug)]
pub struct ReportMachine<'i> {
    /// A letter as a short name.
    pub letter: char,
    pub name: String,
    /// The newest complete run of each study.
    pub runs: Vec<&'i ReportInput>,
}

impl<'i> ReportMachine<'i> {
    /// Returns all machines, the one with the newest run first.
    pub fn all(inputs: &'i [ReportInput]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for run in history::by_study(inputs).into_iter().flatten() {
            let name = words::machine(&run.result);
            let at = all.iter().position(|machine| machine.name == name).unwrap_or_else(|| {
                all.push(Self { letter: 'A', name, runs: Vec::new() });
                all.len() - 1
            });
            if all[at].run(&run.result.study).is_none() {
                all[at].runs.push(run);
            }
        }
        let newest = |machine: &Self| {
            let began = machine.runs.iter().map(|run| run.result.protocol.began.clone());
            began.max().unwrap_or_default()
        };
        all.sort_by_key(|machine| std::cmp::Reverse(newest(machine)));
        label(&mut all);
        all
    }

    /// Returns the machines with their runs of studies about articles. Machines without such runs are left out.
    pub fn of_articles(inputs: &'i [ReportInput]) -> Vec<Self> {
        let mut all = Self::all(inputs);
        let is_article = |run: &&ReportInput| {
            run.study.as_ref().is_some_and(|study| !study.source.items.is_empty())
        };
        for machine in &mut all {
            machine.runs.retain(is_article);
        }
        all.retain(|machine| !machine.runs.is_empty());
        label(&mut all);
        all
    }

    /// Returns the run of a study on this machine.
    pub fn run(&self, study: &str) -> Option<&'i ReportInput> {
        self.runs.iter().copied().find(|run| run.result.study == study)
    }

    pub fn tallies(&self) -> Tallies {
        let tallies = self.runs.iter().map(|run| Tallies::of(&run.result.claims));
        tallies.fold(Tallies::default(), Tallies::and)
    }

    /// Returns the dates and presets of the runs, like `2026-11-22, quick`.
    pub fn when(&self) -> String {
        let kinds = self.runs.iter().map(|run| {
            let protocol = &run.result.protocol;
            let day = protocol.began.split('T').next().unwrap_or_default();
            format!("{day}, {}", protocol.preset)
        });
        let mut kinds: Vec<String> = kinds.collect();
        kinds.sort();
        kinds.dedup();
        kinds.join("; ")
    }
}

/// Returns on how many machines the verdict agrees, like `same verdict on all 2 machines`.
pub fn agreement(badges: &[Badge]) -> Option<String> {
    let (first, others) = badges.split_first()?;
    if others.is_empty() {
        return None;
    }
    let all = badges.len();
    let same = badges.iter().filter(|badge| badge.word == first.word).count();
    Some(if same == all {
        format!("same verdict on all {all} machines")
    } else {
        "verdicts differ between machines".to_owned()
    })
}

/// Labels the machines by letters in their order, `A` to `Z` and then `a` to `z`.
fn label(all: &mut [ReportMachine<'_>]) {
    for (machine, letter) in all.iter_mut().zip(('A'..='Z').chain('a'..='z')) {
        machine.letter = letter;
    }
}
