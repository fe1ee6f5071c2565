//! The knob settings of one mechanism.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

use crate::quantity::Size;

/// Maps knob names to values. A knob that is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tuning(BTreeMap<String, u64>);

impl Tuning {
    /// Creates a tuning with one knob set.
    pub fn of(knob: &str, value: u64) -> Self {
        Self::default().with(knob, value)
    }

    /// Sets one more knob, and returns the tuning.
    #[must_use]
    pub fn with(mut self, knob: &str, value: u64) -> Self {
        self.0.insert(knob.to_owned(), value);
        self
    }

    /// Returns the value that was set for a knob; `None` if the knob has its default.
    pub fn get(&self, knob: &str) -> Option<u64> {
        self.0.get(knob).copied()
    }

    /// Returns `true` if every knob has its default.
    pub fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the knobs that were set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(k, v)| (k.as_str(), *v))
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (knob, value)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{knob}={}", Size(*value))?;
        }
        Ok(())
    }
}
