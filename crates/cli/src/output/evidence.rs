//! What a choice rests on, in words.

use thalweg_channel::bulk::{Destination, Facts, Figures};
use thalweg_core::profile::Evidence;

use super::units;

/// `measured 2026-11-21: 0.84x read-write [0.80, 0.88], processor 0.71x, 3 sessions, idle`, and what
/// there is to add.
pub fn cited(evidence: &Evidence, reference: &str, more: &str) -> String {
    format!(
        "measured {}: {:.2}x {reference} [{:.2}, {:.2}], processor {:.2}x, {}, {}{more}",
        day(&evidence.at),
        evidence.wall.ratio,
        evidence.wall.lo,
        evidence.wall.hi,
        evidence.cpu.ratio,
        units::count(u64::from(evidence.sessions), "session", "sessions"),
        evidence.load.name(),
    )
}

/// The day of a moment.
pub fn day(at: &str) -> &str {
    at.split('T').next().unwrap_or_default()
}

/// The same of a way between two processes.
pub fn cited_between(evidence: &Evidence, figures: &Figures, facts: &Facts) -> String {
    let reference = figures.reference(facts).unwrap_or("the reference");
    cited(evidence, reference, &format!(", {}", between(facts)))
}

/// `from lent memory into memory used before`.
pub fn between(facts: &Facts) -> String {
    let from = if facts.will_loan { "lent memory" } else { "the sender's own memory" };
    let into = match facts.destination {
        Destination::Unknown | Destination::Resident => "memory used before",
        Destination::Fresh => "new memory",
        Destination::FreshHuge => "new memory on huge pages",
    };
    format!("from {from} into {into}")
}
