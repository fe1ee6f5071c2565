//! The knobs of a mechanism: as a study writes them, sizes or numbers, and as tuning turns them.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use thalweg_core::{Knob, Tuning, Unfit, quantity::Size};

/// Reads a table of them.
pub(super) fn tuning<'de, D: Deserializer<'de>>(from: D) -> Result<Tuning, D::Error> {
    let knobs = BTreeMap::<String, Size>::deserialize(from)?;
    Ok(knobs.iter().fold(Tuning::default(), |tuning, (knob, size)| tuning.with(knob, size.0)))
}

/// Refuses those that a mechanism of this name has not, naming those it has.
pub(super) fn only(name: &str, tuning: &Tuning, known: &[&str]) -> Result<(), Unfit> {
    let unknown = tuning.iter().find(|(knob, _)| !known.contains(knob));
    unknown.map_or(Ok(()), |(knob, _)| {
        Err(Unfit::because(format!("{name} has no knob {knob:?}; it has {known:?}")))
    })
}

/// Every tuning in which one knob is turned, knob by knob; the default is not among them.
pub(crate) fn one_knob_turned(knobs: &[Knob]) -> impl Iterator<Item = Tuning> {
    knobs.iter().flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)))
}
