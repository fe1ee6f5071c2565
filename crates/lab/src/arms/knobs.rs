//! The knobs of a mechanism: as sizes or numbers in a study.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use thalweg_core::{Tuning, Unfit, quantity::Size};

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
