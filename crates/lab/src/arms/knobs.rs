//! The knobs of a mechanism: as sizes or numbers in a study, and as values for tuning.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use thalweg_core::{Knob, Tuning, Unfit, quantity::Size};

/// Deserializes a table of knobs.
pub(super) fn tuning<'de, D: Deserializer<'de>>(from: D) -> Result<Tuning, D::Error> {
    let knobs = BTreeMap::<String, Size>::deserialize(from)?;
    Ok(knobs.iter().fold(Tuning::default(), |tuning, (knob, size)| tuning.with(knob, size.0)))
}

/// Returns an error for knobs that this mechanism does not have; the error lists the known ones.
pub(super) fn only(name: &str, tuning: &Tuning, known: &[&str]) -> Result<(), Unfit> {
    let unknown = tuning.iter().find(|(knob, _)| !known.contains(knob));
    unknown.map_or(Ok(()), |(knob, _)| {
        Err(Unfit::because(format!("{name} has no knob {knob:?}; it has {known:?}")))
    })
}

/// Returns every tuning in which one knob has a non-default value, knob by knob.
pub(crate) fn one_knob_turned(knobs: &[Knob]) -> impl Iterator<Item = Tuning> {
    knobs.iter().flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)))
}
