//! The account of a run.

use serde::Serialize;
use std::path::PathBuf;
use thalweg_core::{StepDown, Tuning, driver::Look};

use crate::{Error, Halt, Listed};

/// What a run did.
#[derive(Debug, Default)]
pub struct TreeReport {
    /// Regular files copied whole.
    pub files: u64,
    /// Directories made or merged into.
    pub dirs: u64,
    /// Symbolic links copied and hard links made.
    pub links: u64,
    /// Special files made.
    pub specials: u64,
    /// Names of one file in the source that are files of their own in the copy: hard links were
    /// refused there.
    pub unlinked: u64,
    /// Extended attributes that the destination refused: the files are copied without them.
    pub attributes_dropped: u64,
    /// Bytes moved or cloned.
    pub bytes: u64,
    /// Of these, bytes that share their blocks with the source.
    pub cloned: u64,
    /// Bytes that an earlier run had moved and this one did not.
    pub resumed: u64,
    /// Files left as they were.
    pub skipped: u64,
    /// Files and directories that [`CopyOptions::filter`](crate::CopyOptions::filter) left out; what
    /// is in such a directory was not looked at.
    pub left_out: u64,
    /// Files whose source changed while it was read.
    pub changed: u64,
    /// What was read again and compared.
    pub verified: Verified,
    /// The files that are there now, with [`CopyOptions::list`](crate::CopyOptions::list).
    pub listed: Listed,
    /// Time on the clock.
    pub seconds: f64,
    /// Processor time of the whole process.
    pub cpu_seconds: f64,
    /// Which mechanism moved how much, largest first.
    pub shares: Vec<MechanismShare>,
    /// Changes of mechanism under way, the first [`MOST_STEPS`].
    pub steps_down: Vec<StepDown>,
    /// What was found where mechanisms took turns on the first bytes of a file, the first
    /// [`MOST_STEPS`].
    pub looks: Vec<Look>,
    /// Problems, the first [`MOST_ERRORS`].
    pub errors: Vec<Error>,
    /// How many problems there were.
    pub error_count: u64,
    /// How many of them were copies that differ from their source.
    pub differing: u64,
    /// Why the run ended early, if it did.
    pub halted: Option<Halt>,
    /// New directories and files that keep their temporary names, the first [`MOST_ERRORS`]: a run
    /// with [`CopyOptions::resume`](crate::CopyOptions::resume) goes on with them.
    pub unfinished: Vec<PathBuf>,
    /// Existing files and devices that were written into, and not to the end, the first [`MOST_ERRORS`].
    pub torn: Vec<PathBuf>,
}

/// What reading everything again found. Files that differ are problems: [`TreeReport::differing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files whose copy is equal.
    pub same: u64,
    /// Files that an earlier run had finished and that differed all the same: copied again.
    pub again: u64,
    /// Files that were not read: a pipe or a device is no file that can be read back, and a dry run
    /// reads nothing.
    pub not_read: u64,
    /// Bytes of the equal files.
    pub bytes: u64,
    /// Equal files that were to be read from the device and were read from memory: the file system has no device, or does
    /// not let go of the pages.
    pub from_memory: u64,
}

impl Verified {
    fn add(&mut self, other: Self) {
        self.same += other.same;
        self.again += other.again;
        self.not_read += other.not_read;
        self.from_memory += other.from_memory;
        self.bytes += other.bytes;
    }
}

/// More problems than this are counted, not kept.
pub const MOST_ERRORS: usize = 100;
/// More changes of mechanism, and more looks at them, than this are dropped.
pub const MOST_STEPS: usize = 100;

/// The part one mechanism moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MechanismShare {
    /// Its name.
    pub mechanism: &'static str,
    /// The tuning that moved most of it.
    pub tuning: Tuning,
    /// Bytes it moved.
    pub bytes: u64,
    /// Files it had a part in.
    pub files: u64,
}

/// How a run ended, in the words of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything was copied.
    Done,
    /// A copy differed from its source.
    Differ,
    /// Something is missing, or a source changed: see the errors.
    Partial,
}

impl TreeReport {
    /// How the run ended.
    pub fn ending(&self) -> Ending {
        if self.differing > 0 {
            Ending::Differ
        } else if self.error_count > 0 || self.changed > 0 || self.halted.is_some() {
            Ending::Partial
        } else {
            Ending::Done
        }
    }

    /// The mechanism that moved most.
    pub fn main(&self) -> Option<&MechanismShare> {
        self.shares.first()
    }

    /// Takes in what one worker did.
    pub(crate) fn add(&mut self, tally: Tally) {
        self.files += tally.files;
        self.dirs += tally.dirs;
        self.links += tally.links;
        self.specials += tally.specials;
        self.unlinked += tally.unlinked;
        self.bytes += tally.bytes;
        self.cloned += tally.cloned;
        self.resumed += tally.resumed;
        self.skipped += tally.skipped;
        self.left_out += tally.left_out;
        self.changed += tally.changed;
        self.verified.add(tally.verified);
        self.listed.names.extend(tally.listed);
        self.add_moves(tally.shares, tally.steps_down, tally.looks);
    }

    fn add_moves(
        &mut self,
        shares: Vec<MechanismShare>,
        steps_down: Vec<StepDown>,
        looks: Vec<Look>,
    ) {
        for part in shares {
            match self.shares.iter_mut().find(|share| share.mechanism == part.mechanism) {
                Some(share) => {
                    if part.bytes > share.bytes {
                        share.tuning = part.tuning;
                    }
                    share.bytes += part.bytes;
                    share.files += part.files;
                }
                None => self.shares.push(part),
            }
        }
        self.shares.sort_by_key(|share| std::cmp::Reverse((share.bytes, share.files)));
        self.steps_down.extend(steps_down);
        self.steps_down.truncate(MOST_STEPS);
        self.looks.extend(looks);
        self.looks.truncate(MOST_STEPS);
    }

    /// Takes in what a later run did for the same copy.
    pub(crate) fn join(&mut self, later: Self) {
        self.files += later.files;
        self.dirs += later.dirs;
        self.links += later.links;
        self.specials += later.specials;
        self.unlinked += later.unlinked;
        self.attributes_dropped += later.attributes_dropped;
        self.bytes += later.bytes;
        self.cloned += later.cloned;
        self.resumed += later.resumed;
        self.skipped += later.skipped;
        self.left_out += later.left_out;
        self.changed += later.changed;
        self.verified.add(later.verified);
        self.add_moves(later.shares, later.steps_down, later.looks);
        self.errors.extend(later.errors);
        self.errors.truncate(MOST_ERRORS);
        self.error_count += later.error_count;
        self.differing += later.differing;
        self.halted = self.halted.or(later.halted);
        self.unfinished.extend(later.unfinished);
        self.torn.extend(later.torn);
    }
}

/// The account of one worker, merged when it ends.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub files: u64,
    pub dirs: u64,
    pub links: u64,
    pub specials: u64,
    pub unlinked: u64,
    pub bytes: u64,
    pub cloned: u64,
    pub resumed: u64,
    pub skipped: u64,
    pub left_out: u64,
    pub changed: u64,
    pub verified: Verified,
    pub listed: Vec<Vec<u8>>,
    pub steps_down: Vec<StepDown>,
    pub looks: Vec<Look>,
    // One for each mechanism: a handful. The one that moved last is the first to be looked at.
    shares: Vec<MechanismShare>,
    last: usize,
}

impl Tally {
    /// Books bytes on a mechanism.
    pub fn book(&mut self, mechanism: &'static str, tuning: &Tuning, bytes: u64) {
        self.bytes += bytes;
        let is_its = |share: &MechanismShare| share.mechanism == mechanism;
        if !self.shares.get(self.last).is_some_and(is_its) {
            self.last = self.shares.iter().position(is_its).unwrap_or(self.shares.len());
        }
        if self.last == self.shares.len() {
            let tuning = tuning.clone();
            self.shares.push(MechanismShare { mechanism, tuning, bytes: 0, files: 0 });
        }
        let share = &mut self.shares[self.last];
        share.bytes += bytes;
        share.files += 1;
    }

    /// Keeps what was found by looking, as far as there is room.
    pub fn looked(&mut self, looks: Vec<Look>) {
        let room = MOST_STEPS.saturating_sub(self.looks.len());
        self.looks.extend(looks.into_iter().take(room));
    }

    /// Keeps a change of mechanism, as far as there is room.
    pub fn step_down(&mut self, step: StepDown) {
        if self.steps_down.len() < MOST_STEPS {
            self.steps_down.push(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_is_the_worst_that_happened() {
        let mut report = TreeReport::default();
        assert_eq!(report.ending(), Ending::Done);
        report.changed = 1;
        assert_eq!(report.ending(), Ending::Partial);
        report.differing = 1;
        assert_eq!(report.ending(), Ending::Differ);
    }

    #[test]
    fn workers_shares_are_joined_largest_first() {
        let mut report = TreeReport::default();
        for (name, bytes) in [("a", 1), ("b", 5), ("a", 7)] {
            let mut tally = Tally::default();
            tally.book(name, &Tuning::default(), bytes);
            report.add(tally);
        }
        let shares: Vec<_> = report.shares.iter().map(|s| (s.mechanism, s.bytes)).collect();
        assert_eq!(shares, [("a", 8), ("b", 5)]);
        assert_eq!(report.bytes, 13);
    }
}
