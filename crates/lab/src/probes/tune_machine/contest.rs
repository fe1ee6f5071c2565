//! What is compared between two ends, where that is done and by which rules: mechanisms, kernels, or
//! the arms of the channel. A new kind of ends is one file here and one line in [`CONTESTS`].

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
    job::{ContestJob, EndKeys, Line, Way, Ways},
    pair::Ends,
    table::Asked,
};
use crate::{
    arms::knobs::one_knob_turned,
    measure::{
        Stop,
        schedule::{Arm, Failure, Sampled},
    },
};

/// The last takes all ends that no other one takes.
static CONTESTS: [&dyn Contest; 7] = [
    &kernels::COPIES,
    &kernels::COLD_COPIES,
    &kernels::REPEATED_COPIES,
    &kernels::FILLS,
    &kernels::REPEATED_FILLS,
    &channel::Channel,
    &mechanisms::Mechanisms,
];

/// One kind of ends.
pub(super) trait Contest: Sync {
    fn takes(&self, ends: &Ends) -> bool;

    /// The same, of ends as a profile names them.
    fn takes_keys(&self, keys: &EndKeys) -> bool;

    /// How a profile names such ends, or why they cannot be made here.
    fn keys(&self, ends: &Ends) -> Result<EndKeys, String>;

    fn sizes(&self, depth: Depth) -> Vec<u64>;

    /// The states of the sink that mean something between these ends.
    fn sink_states(&self, _ends: &Ends, _depth: Depth) -> &'static [SinkState] {
        &[SinkState::Fresh]
    }

    /// Whether it is measured under such a load.
    fn counts_under(&self, _load: Load) -> bool {
        true
    }

    /// Whether there is anything to tune, so that a scouting session looks for good tunings first.
    fn has_knobs(&self) -> bool {
        true
    }

    /// The knobs of what has this name; none of what is not known.
    fn knobs(&self, name: &str) -> &'static [Knob];

    /// Whether what has this name, at its default, is what the others are compared with.
    fn is_reference(&self, name: &str) -> bool;

    /// Whether a way keeps such promises between these ends.
    fn keeps(&self, _ends: &Ends, _way: &Way, _needs: Guarantees) -> bool {
        true
    }

    /// What a profile knows of these ends.
    fn known<'p>(&self, profile: &'p Profile, ends: &Ends) -> Result<Vec<&'p Cell>, String>;

    /// What is taken there with this profile.
    fn choice(&self, profile: &Profile, keys: &EndKeys, asked: &Asked) -> Option<Way>;

    /// What is taken there without a profile: the first of these that works.
    fn without_profile(&self, keys: &EndKeys, asked: &Asked) -> Vec<&'static str>;

    /// Makes the ends of a job, tells how a profile names them, and the ways that take part: the
    /// reference is the first.
    fn open<'s>(
        &self,
        job: &ContestJob,
        stop: &'s Stop<'s>,
        answer: &mut dyn FnMut(Line),
    ) -> Result<Opened<'s>, Failure>;
}

pub(super) type Opened<'s> = (Box<dyn Arena + 's>, Vec<Way>);

impl Ends {
    /// What is compared there.
    pub(super) fn contest(&self) -> &'static dyn Contest {
        let taking = CONTESTS.iter().find(|contest| contest.takes(self));
        *taking.unwrap_or(&CONTESTS[CONTESTS.len() - 1])
    }
}

impl EndKeys {
    /// What is compared between ends of these names.
    pub(super) fn contest(&self) -> &'static dyn Contest {
        let taking = CONTESTS.iter().find(|contest| contest.takes_keys(self));
        *taking.unwrap_or(&CONTESTS[CONTESTS.len() - 1])
    }
}

/// Where all arms of a session do their work, one after the other.
pub(super) trait Arena {
    /// From now on so many bytes are moved at a time.
    fn resize(&mut self, size: u64) -> io::Result<()>;

    /// The most transfers of a sample that there is room for.
    fn most_transfers(&self) -> u64 {
        1 << 24
    }

    /// Whether so many ways may move so many bytes here.
    fn has_room(&self, size: u64, ways: usize) -> bool;

    /// Has the way do it once and looks at what arrived: its arm, and how much memory it held.
    fn try_out<'p>(&'p self, way: &Way) -> Result<(Sampled<'p>, Option<u64>), Failure>;

    /// Whether a way may move no byte at all, and then needs more transfers to fill a sample.
    fn may_move_nothing(&self) -> bool {
        false
    }
}

impl dyn Arena + '_ {
    /// So many transfers as a sample, as far as there is room for them.
    pub fn fitting(&self, transfers: u64) -> u64 {
        transfers.clamp(1, self.most_transfers())
    }

    /// Time on the clock of one transfer: the least of a few.
    pub fn time_of_one(&self, arm: &mut dyn Arm) -> Result<Duration, Failure> {
        let mut least = Duration::MAX;
        let mut took = Duration::ZERO;
        for _ in 0..5 {
            let one = arm.sample(1)?.wall;
            (least, took) = (least.min(one), took + one);
            if took > LONG_ENOUGH {
                break;
            }
        }
        // A clock cannot see a single small copy: as many as can be told from nothing.
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

    /// Has an arm's samples hold as many transfers as those of the reference; and more where they
    /// would not fill a sample: beside a reference that moves every byte, a way that moves none had
    /// samples of a single call, and whatever disturbed that decided.
    pub fn fill(&self, arm: &mut Sampled<'_>, sample: Duration, transfers: u64) {
        arm.repeats = transfers as u32;
        if !self.may_move_nothing() {
            return;
        }
        // What fails now fails in the rounds, which say so.
        let one = arm.arm.sample(1).map_or(sample, |one| one.wall);
        let fitting = sample.as_secs_f64() / one.as_secs_f64().max(1e-9);
        arm.repeats = self.fitting(transfers.max(fitting as u64)) as u32;
    }
}

const LONG_ENOUGH: Duration = Duration::from_millis(5);
const CAN_BE_TIMED: Duration = Duration::from_micros(20);

/// The powers of two from one to another.
fn octaves(least: u32, most: u32, step: usize) -> Vec<u64> {
    (least..=most).step_by(step).map(|power| 1 << power).collect()
}

/// The tunings with which what has this name takes part in a session.
fn tunings(job: &ContestJob, name: &str, knobs: &[Knob], is_reference: bool) -> Vec<Way> {
    let plain = Way::plain(name);
    let named = |ways: &[Way]| {
        ways.iter().filter(|way| way.name == name).cloned().collect::<BTreeSet<Way>>()
    };
    match &job.ways {
        Ways::All => {
            let turned = one_knob_turned(knobs).map(|tuning| Way { name: name.to_owned(), tuning });
            std::iter::once(plain).chain(turned).collect()
        }
        Ways::These(ways) => {
            let mut wanted = named(ways);
            wanted.insert(plain);
            wanted.into_iter().collect()
        }
        Ways::Only(ways) => {
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
            let ends: Ends = text.parse().unwrap();
            let keys = ends.contest().keys(&ends).unwrap();
            assert!(std::ptr::addr_eq(ends.contest(), keys.contest()), "{text}: {keys:?}");
        }
    }

    #[test]
    fn a_name_that_two_lists_have_is_looked_for_in_the_right_one() {
        let knobs = |ends: &str, name| {
            let ends: Ends = ends.parse().unwrap();
            let knobs = ends.contest().knobs(name).iter();
            knobs.map(|knob| knob.name).collect::<Vec<_>>()
        };
        assert_ne!(knobs("file:file", "io-uring"), knobs("process:process", "io-uring"));
        assert!(knobs("file:file", "ring").is_empty());
        assert!(knobs("memory:memory", "io-uring").is_empty());
    }
}
