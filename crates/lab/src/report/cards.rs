//! The cards at the top of the page: one per article, with its main claim, the answer in one sentence, and a chart.

use serde::Serialize;

use super::{
    chart::Scope,
    claims::{Badge, published},
    history,
    load::ReportInput,
    machines::ReportMachine,
    overview::{SeenClaim, columns},
    scale::LogAxis,
    svg::{Anchor, Shape, Svg},
    words,
};
use crate::study::{
    file::Card,
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
    /// The ratio that the chart shows.
    pub measures: String,
    /// The chart as a complete drawing; `None` without any figure.
    pub drawing: Option<String>,
}

/// A bar of the chart.
struct Bar {
    label: String,
    /// The value and its interval.
    value: [f64; 3],
    class: &'static str,
}

const WIDTH: f64 = 440.0;
const LABEL: f64 = 96.0;
const ROW: f64 = 26.0;
const FOOT: f64 = 24.0;
/// Room for the figures beside the bars.
const FIGURES: f64 = 128.0;

/// Returns a card for each study with a main claim.
pub fn cards(inputs: &[ReportInput]) -> Vec<CardView> {
    let machines = ReportMachine::all(inputs);
    let studies = history::by_study(inputs);
    let views = studies.iter().enumerate().filter_map(|(number, runs)| {
        let shown = runs[0];
        let scope = Scope { id: "", result: &shown.result, study: shown.study.as_ref() };
        let card = scope.study?.card.as_ref()?;
        let place = shown.result.claims.iter().position(|claim| claim.id == card.claim)?;
        let found = CardFinding::all(&machines, &scope, card);
        Some(CardView {
            anchor: format!("s{number}-k{place}"),
            study: shown.result.study.clone(),
            title: shown.result.title.clone(),
            quote: card.quote.clone(),
            translation: card.translation.clone(),
            answer: answer(&found),
            badge: Badge::of(common(&found)),
            measures: card.measures.clone(),
            drawing: draw(&scope, &shown.result.claims[place], card, &found),
        })
    });
    views.collect()
}

/// The finding of one machine.
struct CardFinding {
    letter: char,
    seen: SeenClaim,
    /// `true` if nothing was measured as published, so that this is the check under modern conditions.
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

/// Draws a bar from 1 to each ratio on a logarithmic axis, with its interval.
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
    let values = bars.iter().flat_map(|bar| bar.value);
    let axis = LogAxis::of(values.chain([0.8, 1.25]), [LABEL, WIDTH - FIGURES]);
    let bottom = 4.0 + ROW * bars.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + FOOT);
    for (value, label) in axis.ticks(5) {
        let x = axis.at(value);
        svg.line([x, 2.0], [x, bottom], "grid");
        svg.text([x, bottom + 15.0], Anchor::Middle, &label, "tick");
    }
    for (row, bar) in bars.iter().enumerate() {
        let middle = 4.0 + ROW * (row as f64 + 0.5);
        let [value, lo, hi] = bar.value;
        svg.text([LABEL - 10.0, middle + 4.0], Anchor::End, &bar.label, "label");
        let ends = [axis.at(1.0), axis.at(value)];
        svg.area([ends[0], middle - 7.0], [ends[1], middle + 7.0], bar.class);
        let figure = if lo < hi {
            svg.line([axis.at(lo), middle], [axis.at(hi), middle], "whisker");
            words::interval(value, lo, hi)
        } else {
            svg.mark(Shape::Diamond, [axis.at(value), middle], "published");
            words::number(value)
        };
        svg.text([WIDTH, middle + 4.0], Anchor::End, &figure, "value");
    }
    svg.line([axis.at(1.0), 2.0], [axis.at(1.0), bottom], "one");
    let figures = bars.iter().map(|bar| format!("{}: {}", bar.label, words::number(bar.value[0])));
    let said = format!("{}. {}", card.measures, figures.collect::<Vec<_>>().join("; "));
    Some(svg.finish(&format!("card-{}", scope.result.study), &card.measures, &said))
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
