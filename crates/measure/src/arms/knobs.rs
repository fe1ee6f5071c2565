//! The knobs of a mechanism: which exist, and the values that tuning tries.

use thalweg_core::{Knob, Tuning, Unfit};

/// Returns every tuning in which one knob has a non-default value, knob by knob.
pub fn one_knob_turned(knobs: &[Knob]) -> impl Iterator<Item = Tuning> {
    knobs.iter().flat_map(|knob| knob.values[1..].iter().map(|value| Tuning::of(knob.name, *value)))
}

/// Returns an error for knobs that this mechanism does not have; the error lists the known ones.
pub fn only(name: &str, tuning: &Tuning, known: &[&str]) -> Result<(), Unfit> {
    let unknown = tuning.iter().find(|(knob, _)| !known.contains(knob));
    unknown.map_or(Ok(()), |(knob, _)| {
        Err(Unfit::because(format!("{name} has no knob {knob:?}; it has {known:?}")))
    })
}
