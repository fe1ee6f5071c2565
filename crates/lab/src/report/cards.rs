//! The cards at the top of the page: one per article, with its main claim, the answer in one sentence, and a chart.

use serde::Serialize;

use super::{
    bars::{self, Bar},
    chart::Scope,
    claims::{Badge, published},
    history,
    load::ReportInput,
    machines::ReportMachine,
    overview::{SeenClaim, columns},
    today::{self, TodayAnswer},
    words,
};
use crate::study::{
    file::{Card, StudyFile, TodayTask},
    result::{ClaimResult, ClaimVerdict},
};

/// The main claim of an article, for templates.
#[derive(Clone, Debug, Serialize)]
pub struct CardView {
    /// The anchor of the claim's details on the page.
    pub anchor: String,
    pub study: String,
    pub title: String,
    /// The article's own words.
    pub quote: String,
    /// An English translation, if the quote has another language.
    pub translation: Option<String>,
    pub answer: String,
    pub badge: Badge,
    /// A description of the ratio that the chart shows.
    pub measures: String,
    /// The chart as a complete drawing; `None` without any figure.
    pub drawing: Option<String>,
    pub today: Vec<TodayView>,
}

/// A task that the article performs, with the fastest method of today.
#[derive(Clone, Debug, Serialize)]
pub struct TodayView {
    /// A sentence for each machine.
    pub sentences: Vec<String>,
    /// The metric of the chart.
    pub measures: String,
    /// The chart of the newest run.
    pub drawing: String,
}

/// Room for the labels of the machines, and for the names of methods.
const MACHINE: f64 = 84.0;
const METHOD: f64 = 154.0;
/// Maximum number of characters of a method's name, so that it fits into `METHOD`.
const NAME: usize = 22;

/// Returns a card for each study with a main claim.
pub fn cards(inputs: &[ReportInput]) -> Vec<CardView> {
    let machines = ReportMachine::all(inputs);
    let studies = history::by_study(inputs);
    let views = studies.iter().enumerate().filter_map(|(number, runs)| {
        let shown = runs[0];
        let scope = Scope { id: "", result: &shown.result, study: shown.study.as_ref() };
        let study = scope.study?;
        let card = study.card.as_ref()?;
        let claim = study.claims.iter().find(|claim| claim.id == card.claim)?;
        let place = shown.result.claims.iter().position(|claim| claim.id == card.claim)?;
        let found = CardFinding::all(&machines, &scope, card);
        Some(CardView {
            anchor: format!("s{number}-k{place}"),
            study: shown.result.study.clone(),
            title: shown.result.title.clone(),
            quote: claim.quote.clone().unwrap_or_else(|| claim.text.clone()),
            translation: card.translation.clone(),
            answer: answer(&found),
            badge: Badge::of(common(&found)),
            measures: card.measures.clone(),
            drawing: draw(&scope, &shown.result.claims[place], card, &found),
            today: tasks_of_today(&machines, study),
        })
    });
    views.collect()
}

/// The finding of one machine.
struct CardFinding {
    letter: char,
    seen: SeenClaim,
    /// `true` if nothing was measured as published. `seen` is then the result under modern conditions.
    is_wider: bool,
}

impl CardFinding {
    fn all(machines: &[ReportMachine<'_>], scope: &Scope<'_>, card: &Card) -> Vec<Self> {
        let of = |machine: &ReportMachine<'_>| {
            let run = machine.run(&scope.result.study)?;
            let claim = run.result.claims.iter().find(|claim| claim.id == card.claim)?;
            let [published, wider] = columns(claim);
            let is_wider = published.as_ref().is_none_or(|seen| seen.value.is_none())
                && wider.as_ref().is_some_and(|seen| seen.value.is_some());
            let seen = if is_wider { wider } else { published }?;
            Some(Self { letter: machine.letter, seen, is_wider })
        };
        machines.iter().filter_map(of).collect()
    }
}

/// Returns the verdict of all machines; undecided if they differ.
fn common(found: &[CardFinding]) -> ClaimVerdict {
    let mut all = found.iter().map(|one| one.seen.verdict);
    let first = all.next().unwrap_or(ClaimVerdict::NotRunnable);
    if all.all(|verdict| verdict == first) { first } else { ClaimVerdict::Undecided }
}

/// Returns the answer, such as `Contradicted on 2 of 3 machines, undecided on 1. Measured with today's conditions.`
fn answer(found: &[CardFinding]) -> String {
    let order = [
        ClaimVerdict::Reproduced,
        ClaimVerdict::Contradicted,
        ClaimVerdict::Undecided,
        ClaimVerdict::NotRunnable,
    ];
    let count = |verdict| found.iter().filter(|one| one.seen.verdict == verdict).count();
    let mut counts: Vec<(usize, &str)> =
        order.into_iter().map(|verdict| (count(verdict), words::verdict(verdict))).collect();
    counts.retain(|(count, _)| *count > 0);
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let all = found.len();
    let parts: Vec<String> = match counts.as_slice() {
        [] => return "Not measured yet.".to_owned(),
        [(_, word)] if all == 1 => vec![format!("{word} on the one machine that ran it")],
        [(_, word)] if all == 2 => vec![format!("{word} on both machines")],
        [(_, word)] => vec![format!("{word} on all {all} machines")],
        several => several.iter().map(|(count, word)| format!("{word} on {count}")).collect(),
    };
    let mut text = parts.join(", ");
    text[..1].make_ascii_uppercase();
    let of = if counts.len() > 1 { format!(" of {all} machines") } else { String::new() };
    let wider = if found.iter().all(|one| one.is_wider) {
        " The sizes of the article were not run; the verdict is for modern conditions."
    } else {
        ""
    };
    format!("{text}{of}.{wider}")
}

fn bars(scope: &Scope<'_>, claim: &ClaimResult, card: &Card, found: &[CardFinding]) -> Vec<Bar> {
    let said = card.published.or_else(|| published(scope, claim));
    let said =
        said.map(|value| Bar { label: "article".to_owned(), value: [value; 3], class: "bar said" });
    let measured = found.iter().filter_map(|one| {
        let class = match one.seen.verdict {
            ClaimVerdict::Reproduced => "bar good",
            ClaimVerdict::Contradicted => "bar bad",
            _ => "bar open",
        };
        let value = one.seen.value.filter(|[_, lo, _]| *lo > 0.0)?;
        Some(Bar { label: format!("machine {}", one.letter), value, class })
    });
    said.into_iter().chain(measured).collect()
}

fn draw(
    scope: &Scope<'_>,
    claim: &ClaimResult,
    card: &Card,
    found: &[CardFinding],
) -> Option<String> {
    let bars = bars(scope, claim, card, found);
    if bars.iter().all(|bar| bar.class == "bar said") {
        return None;
    }
    let id = format!("card-{}", scope.result.study);
    Some(bars::draw(&id, &card.measures, &bars, MACHINE))
}

/// Returns the tasks that the newest run measured, each with the sentences of all machines.
fn tasks_of_today(machines: &[ReportMachine<'_>], study: &StudyFile) -> Vec<TodayView> {
    let of = |machine: &ReportMachine<'_>| {
        let run = machine.run(&study.id)?;
        Some((machine.letter, today::answers(study, &run.result)))
    };
    let answers: Vec<(char, Vec<TodayAnswer>)> = machines.iter().filter_map(of).collect();
    let task = |task: &TodayTask| {
        let of = |(letter, all): &(char, Vec<TodayAnswer>)| {
            let answer = all.iter().find(|answer| answer.task == task.task)?;
            Some((*letter, answer.clone()))
        };
        let found: Vec<(char, TodayAnswer)> = answers.iter().filter_map(of).collect();
        let (letter, newest) = found.first()?;
        let names = newest.others.iter().map(|(name, _)| name.as_str());
        let names = distinct_parts(std::iter::once(newest.best.as_str()).chain(names).collect());
        let bars = newest.others.iter().zip(&names[1..]).map(|((_, value), name)| Bar {
            label: words::short(name, NAME),
            value: *value,
            class: "bar said",
        });
        let measures = format!("Machine {letter}: time, divided by that of {}.", names[0]);
        let id = format!("today-{}-{}", study.id, task.cell.replace(' ', "-"));
        let drawing = bars::draw(&id, &measures, &bars.collect::<Vec<_>>(), METHOD);
        let sentences =
            found.iter().map(|(letter, answer)| format!("{letter}: {}", answer.sentence));
        Some(TodayView { sentences: sentences.collect(), measures, drawing })
    };
    study.today.iter().filter_map(task).collect()
}

/// Returns the names without the words that all of them begin or end with, such as `, reader 256 KiB`.
fn distinct_parts(names: Vec<&str>) -> Vec<&str> {
    let Some(first) = names.first() else { return names };
    let head = first.find(": ").map_or("", |end| &first[..end + 2]);
    let tail = first.rfind(", ").map_or("", |start| &first[start..]);
    let head = if names.iter().all(|name| name.starts_with(head)) { head } else { "" };
    let tail = if names.iter().all(|name| name.ends_with(tail)) { tail } else { "" };
    names.iter().map(|name| &name[head.len()..name.len() - tail.len()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(verdicts: &[ClaimVerdict]) -> Vec<CardFinding> {
        let one = |verdict: &ClaimVerdict| CardFinding {
            letter: 'A',
            seen: SeenClaim { value: Some([2.0, 1.9, 2.1]), within: None, verdict: *verdict },
            is_wider: false,
        };
        verdicts.iter().map(one).collect()
    }

    #[test]
    fn the_answer_counts_machines_and_a_mixed_one_is_undecided() {
        use ClaimVerdict::{Contradicted, Reproduced};
        let mixed = found(&[Reproduced, Contradicted, Contradicted]);
        assert_eq!(answer(&mixed), "Contradicted on 2, reproduced on 1 of 3 machines.");
        assert_eq!(common(&mixed), ClaimVerdict::Undecided);
        let all = found(&[Contradicted, Contradicted]);
        assert_eq!(answer(&all), "Contradicted on both machines.");
        assert_eq!(common(&all), Contradicted);
        assert_eq!(answer(&[]), "Not measured yet.");
    }
}
