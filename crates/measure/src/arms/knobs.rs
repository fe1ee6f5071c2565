//! The values of a mechanism's knobs that tuning tries.

use thalweg_core::{Knob, Tuning};

/// Returns every tuning in which one knob has a non-default value, knob by knob.
pub fn one_knob_turned(knobs: &[Knob]) -> impl Iterator<Item = Tuning> {
    knobs.iter().flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)))
}
