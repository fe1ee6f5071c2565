//! Defines what is compared between two ends, and by which rules: mechanisms, kernels, or the variants of the channel.
//! A new kind of ends needs one file here and one line in [`CONTESTS`].

mod channel;
mod kernels;
mod mechanisms;

#[cfg(test)]
pub(super) use mechanisms::{Between, look_at, whole};

use std::{collections::BTreeSet, io, time::Duration};
use thalweg_core::{
    Guarantees, Knob, Profile,
    profile::{Cell, Load, SinkState},
};

use super::{
    grid::Depth,
    job::{ContestJob, EndKeys, SurveyLine, TunedMethod, WantedMethods},
    pair::EndPair,
    table::AskedMethod,
};
use crate::{
    StopCheck,
    arms::knobs::one_knob_turned,
    schedule::{Arm, SampleFailure, SampledArm},
};

/// The last entry accepts all ends that no other entry accepts.
static CONTESTS: [&dyn PairContest; 7] = [
    &kernels::COPIES,
    &kernels::COLD_COPIES,
    &kernels::REPEATED_COPIES,
    &kernels::FILLS,
    &kernels::REPEATED_FILLS,
    &channel::Channel,
    &mechanisms::Mechanisms,
];

/// The rules for one kind of ends.
pub(super) trait PairContest: Sync {
    fn takes(&self, ends: &EndPair) -> bool;

    /// Like `takes`, for ends as named in a profile.
    fn takes_keys(&self, keys: &EndKeys) -> bool;

    /// Returns the names of the ends in a profile, or the reason why they cannot be created on this machine.
    fn keys(&self, ends: &EndPair) -> Result<EndKeys, String>;

    fn sizes(&self, depth: Depth) -> Vec<u64>;

    /// Returns the states of the sink that make a difference between these ends.
    fn sink_states(&self, _ends: &EndPair, _depth: Depth) -> &'static [SinkState] {
        &[SinkState::Fresh]
    }

    /// Returns `true` if these ends are measured under this load.
    fn counts_under(&self, _load: Load) -> bool {
        true
    }

    /// Returns `true` if there are knobs to tune, so that a scouting session runs first.
    fn has_knobs(&self) -> bool {
        true
    }

    /// Returns the knobs of the mechanism or kernel with this name; empty if it is unknown.
    fn knobs(&self, name: &str) -> &'static [Knob];

    /// Returns `true` if the default tuning of this mechanism or kernel is the reference of the comparison.
    fn is_reference(&self, name: &str) -> bool;

    /// Returns `true` if a mechanism gives these guarantees between these ends.
    fn keeps(&self, _ends: &EndPair, _way: &TunedMethod, _needs: Guarantees) -> bool {
        true
    }

    /// Returns the cells of a profile for these ends.
    fn known<'p>(&self, profile: &'p Profile, ends: &EndPair) -> Result<Vec<&'p Cell>, String>;

    /// Returns the method that is chosen with this profile.
    fn choice(&self, profile: &Profile, keys: &EndKeys, asked: &AskedMethod)
    -> Option<TunedMethod>;

    /// Returns the methods to try in this order without a profile. The first one that works is used.
    fn without_profile(&self, keys: &EndKeys, asked: &AskedMethod) -> Vec<&'static str>;

    /// Creates the ends of a job. Returns their names in a profile and the mechanisms that take part, the reference
    /// first.
    fn open<'s>(
        &self,
        job: &ContestJob,
        stop: &'s StopCheck<'s>,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Result<OpenedContest<'s>, SampleFailure>;
}

pub(super) type OpenedContest<'s> = (Box<dyn Arena + 's>, Vec<TunedMethod>);

impl EndPair {
    /// Returns the rules by which mechanisms are compared between these ends.
    pub(super) fn contest(&self) -> &'static dyn PairContest {
        let taking = CONTESTS.iter().find(|contest| contest.takes(self));
        *taking.unwrap_or(&CONTESTS[CONTESTS.len() - 1])
    }
}

impl EndKeys {
    /// Returns the rules for ends with these names in a profile.
    pub(super) fn contest(&self) -> &'static dyn PairContest {
        let taking = CONTESTS.iter().find(|contest| contest.takes_keys(self));
        *taking.unwrap_or(&CONTESTS[CONTESTS.len() - 1])
    }
}

/// An arm that has moved bytes correctly once, and the memory that it used.
pub(super) type TriedArm<'p> = Result<(SampledArm<'p>, Option<u64>), SampleFailure>;

/// The ends between which the arms (compared variants) of a session take turns.
pub(super) trait Arena {
    /// Sets the number of bytes per transfer.
    fn resize(&mut self, size: u64) -> io::Result<()>;

    /// Returns the maximum number of transfers per sample for which there is room.
    fn most_transfers(&self) -> u64 {
        1 << 24
    }

    /// Returns `true` if this number of mechanisms can transfer this number of bytes here.
    fn has_room(&self, size: u64, ways: usize) -> bool;

    /// Performs one transfer and verifies the result.
    fn try_out<'p>(&'p self, way: &TunedMethod) -> TriedArm<'p>;

    /// Returns `true` if a mechanism may finish without moving bytes, so that it needs more transfers to fill a
    /// sample.
    fn may_move_nothing(&self) -> bool {
        false
    }
}

impl dyn Arena + '_ {
    /// Limits the number of transfers per sample to the available room.
    pub fn fitting(&self, transfers: u64) -> u64 {
        transfers.clamp(1, self.most_transfers())
    }

    /// Returns the minimum wall time of one transfer, from a few attempts.
    pub fn time_of_one(&self, arm: &mut dyn Arm) -> Result<Duration, SampleFailure> {
        let mut least = Duration::MAX;
        let mut took = Duration::ZERO;
        for _ in 0..5 {
            let one = arm.sample(1)?.wall;
            (least, took) = (least.min(one), took + one);
            if took > LONG_ENOUGH {
                break;
            }
        }
        // A single small copy is below the clock resolution, so enough copies are timed together.
        let mut transfers = 1_u64;
        while least < CAN_BE_TIMED {
            let more = self.fitting(transfers * 16);
            if more == transfers {
                break;
            }
            transfers = more;
            least = arm.sample(transfers as u32)?.wall;
        }
        Ok(least.div_f64(transfers as f64).max(Duration::from_nanos(1)))
    }

    /// Sets the transfers per sample to those of the reference, or to more if the samples would be too short. A
    /// mechanism that moves no bytes needs more: its sample would be a single call, and any disturbance would decide
    /// the comparison.
    pub fn fill(&self, arm: &mut SampledArm<'_>, sample: Duration, transfers: u64) {
        arm.repeats = transfers as u32;
        if !self.may_move_nothing() {
            return;
        }
        // An error here occurs again in the rounds, which report it.
        let one = arm.arm.sample(1).map_or(sample, |one| one.wall);
        let fitting = sample.as_secs_f64() / one.as_secs_f64().max(1e-9);
        arm.repeats = self.fitting(transfers.max(fitting as u64)) as u32;
    }
}

const LONG_ENOUGH: Duration = Duration::from_millis(5);
const CAN_BE_TIMED: Duration = Duration::from_micros(20);

/// Returns the powers of two between two exponents.
fn octaves(least: u32, most: u32, step: usize) -> Vec<u64> {
    (least..=most).step_by(step).map(|power| 1 << power).collect()
}

/// Returns the tunings with which this mechanism or kernel takes part in a session.
fn tunings(job: &ContestJob, name: &str, knobs: &[Knob], is_reference: bool) -> Vec<TunedMethod> {
    let plain = TunedMethod::plain(name);
    let named = |ways: &[TunedMethod]| {
        ways.iter().filter(|way| way.name == name).cloned().collect::<BTreeSet<TunedMethod>>()
    };
    match &job.ways {
        WantedMethods::All => {
            let turned =
                one_knob_turned(knobs).map(|tuning| TunedMethod { name: name.to_owned(), tuning });
            std::iter::once(plain).chain(turned).collect()
        }
        WantedMethods::These(ways) => {
            let mut wanted = named(ways);
            wanted.insert(plain);
            wanted.into_iter().collect()
        }
        WantedMethods::Only(ways) => {
            let mut wanted = named(ways);
            if is_reference {
                wanted.insert(plain);
            }
            wanted.into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_their_names_in_a_profile_are_of_one_contest() {
        for text in [
            "memory:memory",
            "memory:repeated",
            "fill:memory",
            "fill:repeated",
            "process:process",
            "loan:huge",
            "pipe:unix",
        ] {
            let ends: EndPair = text.parse().unwrap();
            let keys = ends.contest().keys(&ends).unwrap();
            assert!(std::ptr::addr_eq(ends.contest(), keys.contest()), "{text}: {keys:?}");
        }
    }

    #[test]
    fn a_name_that_two_lists_have_is_looked_for_in_the_right_one() {
        let knobs = |ends: &str, name| {
            let ends: EndPair = ends.parse().unwrap();
            let knobs = ends.contest().knobs(name).iter();
            knobs.map(|knob| knob.name).collect::<Vec<_>>()
        };
        assert_ne!(knobs("file:file", "io-uring"), knobs("process:process", "io-uring"));
        assert!(knobs("file:file", "ring").is_empty());
        assert!(knobs("memory:memory", "io-uring").is_empty());
    }
}
