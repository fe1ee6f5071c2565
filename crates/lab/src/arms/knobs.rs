//! Reads the knobs of a mechanism from a study. Their values are sizes or numbers.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use thalweg_core::{Tuning, quantity::Size};

/// Deserializes a table of knobs.
pub(super) fn tuning<'de, D: Deserializer<'de>>(from: D) -> Result<Tuning, D::Error> {
    let knobs = BTreeMap::<String, Size>::deserialize(from)?;
    Ok(knobs.iter().fold(Tuning::default(), |tuning, (knob, size)| tuning.with(knob, size.0)))
}
