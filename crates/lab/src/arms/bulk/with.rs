//! The parameters of a bulk transfer in a study.

use serde::Deserialize;
use std::hint::black_box;
use thalweg_channel::bulk::{MECHANISMS, Mechanism, by_name};
use thalweg_core::{Tuning, Unfit};

use thalweg_measure::arms::{
    bulk::{BulkSource, BulkTerms, Residency},
    knobs::only,
};

use super::vmsplice_memcpy::{PIPE_BUF, vmsplice_memcpy};
use crate::arms::{knobs, parameters};

/// All parameters of a bulk transfer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkParameters {
    /// A transfer mechanism of the channel, or `auto` for the channel's own choice. `one-memcpy` and `vmsplice-memcpy`
    /// copy within this process, for comparison.
    pub arm: String,
    /// The knobs of that mechanism: sizes or numbers.
    #[serde(default, deserialize_with = "knobs::tuning")]
    pub tuning: Tuning,
    /// `true` if `auto` uses this machine's profile, as a user's sender does. Without a profile, `auto` uses the
    /// built-in order.
    #[serde(default = "yes")]
    pub profile: bool,
    /// The state of the destination memory.
    #[serde(default)]
    pub residency: Residency,
    /// The source memory. Copies within this process always use private memory.
    #[serde(default)]
    pub source: BulkSource,
    /// `true` if B reads all bytes as part of the operation.
    #[serde(default)]
    pub read: bool,
    /// `true` if page faults are part of an operation. Default: `true` if the destination memory is
    /// new.
    pub faults: Option<bool>,
    /// `true` to change a byte before verification; tests the verification.
    #[serde(default)]
    pub spoil: bool,
}

fn yes() -> bool {
    true
}

pub(super) enum BulkMethod {
    Arm(&'static dyn Mechanism),
    Auto,
    Copy(LocalCopier),
}

/// The method of a copy within this process.
#[derive(Clone, Copy, Debug)]
pub(super) enum LocalCopier {
    /// One call of the C library's memcpy.
    Memcpy,
    /// Several pieces through a pipe.
    Vmsplice { piece: usize },
}

impl LocalCopier {
    pub fn copy(self, to: &mut [u8], from: &[u8]) -> Result<(), String> {
        match self {
            Self::Memcpy => to.copy_from_slice(black_box(from)),
            Self::Vmsplice { piece } => {
                vmsplice_memcpy(to, from, piece).map_err(|errno| format!("vmsplice: {errno}"))?;
            }
        }
        black_box(to);
        Ok(())
    }
}

impl BulkParameters {
    pub fn read(table: &toml::Table) -> Result<Self, Unfit> {
        parameters("bulk", table)
    }

    /// Returns the mechanism of the channel, or the local copy that the parameters name instead.
    pub(super) fn way(&self) -> Result<BulkMethod, Unfit> {
        let known_knobs = |known: &[&str]| only(&self.arm, &self.tuning, known);
        match self.arm.as_str() {
            "auto" => known_knobs(&[]).map(|()| BulkMethod::Auto),
            "one-memcpy" => known_knobs(&[]).map(|()| BulkMethod::Copy(LocalCopier::Memcpy)),
            "vmsplice-memcpy" => {
                known_knobs(&["piece"])?;
                let piece = self.tuning.get("piece").unwrap_or(PIPE_BUF as u64) as usize;
                Ok(BulkMethod::Copy(LocalCopier::Vmsplice { piece }))
            }
            name => {
                let arm = by_name(name).ok_or_else(|| {
                    let all: Vec<&str> = MECHANISMS.iter().map(|arm| arm.info().name).collect();
                    let all = all.join(", ");
                    let also = "auto, one-memcpy, vmsplice-memcpy";
                    Unfit::because(format!("unknown arm {name:?}; known: {all}, {also}"))
                })?;
                let knobs: Vec<&str> = arm.info().knobs.iter().map(|knob| knob.name).collect();
                known_knobs(&knobs).map(|()| BulkMethod::Arm(arm))
            }
        }
    }

    /// Returns the parameters of a transfer between two processes.
    pub fn terms(&self) -> BulkTerms {
        BulkTerms {
            tuning: self.tuning.clone(),
            uses_profile: self.profile,
            residency: self.residency,
            source: self.source,
            reads: self.read,
            faults: self.faults(),
            spoils: self.spoil,
        }
    }

    /// Returns `true` if page faults are part of an operation.
    pub fn faults(&self) -> bool {
        self.faults.unwrap_or(self.residency != Residency::Resident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> Result<BulkMethod, Unfit> {
        BulkParameters::read(&text.parse().unwrap())?.way()
    }

    #[test]
    fn every_arm_and_what_stands_beside_them_can_be_named() {
        for arm in MECHANISMS {
            let name = arm.info().name;
            assert!(matches!(way(&format!("arm = {name:?}")), Ok(BulkMethod::Arm(found)) if
                found.info().name == name));
        }
        assert!(matches!(way("arm = 'auto'"), Ok(BulkMethod::Auto)));
        assert!(matches!(way("arm = 'auto'\nprofile = false"), Ok(BulkMethod::Auto)));
        let text = "arm = 'vmsplice-memcpy'\ntuning = { piece = '64KiB' }";
        assert!(matches!(way(text), Ok(BulkMethod::Copy(LocalCopier::Vmsplice { piece: 65536 }))));
    }

    #[test]
    fn parameters_that_make_no_sense_are_named() {
        for (text, reason) in [
            ("", "parameters of bulk"),
            ("arm = 'rong'", "unknown arm \"rong\""),
            ("arm = 'auto'\ntuning = { slot = 1 }", "no knob"),
            ("arm = 'ring'\ntuning = { chunk = 1 }", "no knob"),
            ("arm = 'ring'\ntuning = { slot = 'big' }", "parameters of bulk"),
            ("arm = 'ring'\nresidency = 'cold'", "parameters of bulk"),
            ("arm = 'ring'\nsize = 1", "parameters of bulk"),
        ] {
            let refused = way(text).err().unwrap();
            assert!(refused.reason.contains(reason), "{text}: {refused}");
        }
    }
}
