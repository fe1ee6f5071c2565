//! The report of a copy.

use serde::Serialize;
use std::path::PathBuf;
use thalweg_core::{StepDown, Tuning, driver::ContestResult};

use crate::{Error, Halt, ListedFiles, SyncCounts};

/// Result of a copy.
#[derive(Debug, Default)]
pub struct TreeReport {
    /// Regular files copied completely.
    pub files: u64,
    /// Directories created or merged into.
    pub dirs: u64,
    /// Symbolic links copied and hard links created.
    pub links: u64,
    /// Special files created.
    pub specials: u64,
    /// Names that became separate files, because the destination refused hard links.
    pub unlinked: u64,
    /// Extended attributes that the destination refused. The files are copied without them.
    pub attributes_dropped: u64,
    /// Bytes moved or cloned.
    pub bytes: u64,
    /// The part of `bytes` that shares its blocks with the source, or with the file that a sync replaced.
    pub cloned: u64,
    /// Bytes that an earlier run had already moved.
    pub resumed: u64,
    /// The part of `resumed` in files that this run continued. The rest is in files that were already complete.
    pub continued: u64,
    /// Existing files that were skipped.
    pub skipped: u64,
    /// Files and directories that [`CopyOptions::filter`](crate::CopyOptions::filter) excluded. Entries of an
    /// excluded directory are not counted.
    pub left_out: u64,
    /// Files with a source that changed while it was read.
    pub changed: u64,
    /// Entries by change, if the copy is a sync.
    pub sync: SyncCounts,
    /// Entries that a sync has not copied yet, as paths below the destination. The deletion must first remove the
    /// directories that have these names.
    pub deferred: Vec<PathBuf>,
    /// Source directories that were listed, if the copy is a sync.
    pub seen: DirectoryCensus,
    /// Result of verification.
    pub verified: Verified,
    /// The files that exist now, with [`CopyOptions::list`](crate::CopyOptions::list).
    pub listed: ListedFiles,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time of the whole process in seconds.
    pub cpu_seconds: f64,
    /// Bytes moved by each mechanism, largest first.
    pub shares: Vec<MechanismShare>,
    /// Fallbacks to another mechanism during the copy, the first [`MOST_STEPS`].
    pub steps_down: Vec<StepDown>,
    /// Measurements of mechanisms that took turns on the first bytes of a file, the first [`MOST_STEPS`].
    pub looks: Vec<ContestResult>,
    /// Errors, the first [`MOST_ERRORS`].
    pub errors: Vec<Error>,
    /// Total number of errors.
    pub error_count: u64,
    /// Number of errors for copies that differ from their source.
    pub differing: u64,
    /// The reason why the copy ended early, if it did.
    pub halted: Option<Halt>,
    /// New directories and files that keep their temporary names, the first [`MOST_ERRORS`]. A copy with
    /// [`CopyOptions::resume`](crate::CopyOptions::resume) continues them.
    pub unfinished: Vec<PathBuf>,
    /// Existing files and devices that were only partly overwritten, the first [`MOST_ERRORS`].
    pub torn: Vec<PathBuf>,
}

/// The number of directories of a tree, and the file systems they are on. If a directory vanished or a file system was
/// unmounted between two censuses of a tree, the censuses differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryCensus {
    /// Number of directories.
    pub count: u64,
    /// Sum of a hash of their device numbers, modulo 2^64.
    pub devices: u64,
}

impl DirectoryCensus {
    /// Adds one directory.
    pub fn note(&mut self, device: u64) {
        // An odd constant spreads small device numbers, so that sums of different sets rarely agree.
        let mixed = (device ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.count += 1;
        self.devices = self.devices.wrapping_add(mixed ^ (mixed >> 29));
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.devices = self.devices.wrapping_add(other.devices);
    }
}

/// Result of verification. Files that differ are errors: [`TreeReport::differing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files with a copy that is equal to the source.
    pub same: u64,
    /// Files that were copied again: by size and time they were complete, but they differed from their source.
    pub again: u64,
    /// Files that were not read: pipes and devices cannot be read back, and a dry run reads nothing.
    pub not_read: u64,
    /// Bytes of the equal files.
    pub bytes: u64,
    /// Equal files that were read from memory although the caller requested a read from the device. Either the file
    /// system has no device, or it did not drop the cached pages.
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

/// Maximum number of errors that are kept; further ones are only counted.
pub const MOST_ERRORS: usize = 100;
/// Maximum number of fallbacks and of measurements that are kept; further ones are dropped.
pub const MOST_STEPS: usize = 100;

/// The share of one mechanism in a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MechanismShare {
    /// The name of the mechanism.
    pub mechanism: &'static str,
    /// The tuning that moved most of its bytes.
    pub tuning: Tuning,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Files of which it moved at least a part.
    pub files: u64,
}

/// The outcome of a copy; each variant has its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything was copied.
    Done,
    /// At least one copy differed from its source.
    Differ,
    /// Something is missing, or a source changed; see the errors.
    Partial,
}

impl TreeReport {
    /// Returns how the copy ended.
    pub fn ending(&self) -> Ending {
        if self.differing > 0 {
            Ending::Differ
        } else if self.error_count > 0 || self.changed > 0 || self.halted.is_some() {
            Ending::Partial
        } else {
            Ending::Done
        }
    }

    /// Returns the mechanism that moved most bytes.
    pub fn main(&self) -> Option<&MechanismShare> {
        self.shares.first()
    }

    /// Adds the counts, errors and measurements of another report, but not its times.
    pub(crate) fn add(&mut self, other: Self) {
        // The pattern has all fields, so that a new one cannot be forgotten.
        #[rustfmt::skip]
        let Self {
            files, dirs, links, specials, unlinked, attributes_dropped, bytes, cloned, resumed, continued, skipped,
            left_out, changed, sync, deferred, seen, verified, listed, seconds: _, cpu_seconds: _, shares, steps_down,
            looks, errors, error_count, differing, halted, unfinished, torn,
        } = other;
        self.files += files;
        self.dirs += dirs;
        self.links += links;
        self.specials += specials;
        self.unlinked += unlinked;
        self.attributes_dropped += attributes_dropped;
        self.bytes += bytes;
        self.cloned += cloned;
        self.resumed += resumed;
        self.continued += continued;
        self.skipped += skipped;
        self.left_out += left_out;
        self.changed += changed;
        self.sync.add(sync);
        self.deferred.extend(deferred);
        self.seen.add(seen);
        self.verified.add(verified);
        self.listed.names.extend(listed.names);
        for share in shares {
            self.add_share(share);
        }
        self.shares.sort_by_key(|share| std::cmp::Reverse((share.bytes, share.files)));
        extend_to(&mut self.steps_down, steps_down, MOST_STEPS);
        extend_to(&mut self.looks, looks, MOST_STEPS);
        self.add_errors(error_count, errors);
        self.differing += differing;
        self.halted = self.halted.or(halted);
        self.unfinished.extend(unfinished);
        self.torn.extend(torn);
    }

    /// Adds errors. Keeps them up to [`MOST_ERRORS`].
    pub(crate) fn add_errors(&mut self, count: u64, errors: Vec<Error>) {
        self.error_count += count;
        extend_to(&mut self.errors, errors, MOST_ERRORS);
    }

    fn add_share(&mut self, other: MechanismShare) {
        match self.shares.iter_mut().find(|share| share.mechanism == other.mechanism) {
            Some(share) => {
                if other.bytes > share.bytes {
                    share.tuning = other.tuning;
                }
                share.bytes += other.bytes;
                share.files += other.files;
            }
            None => self.shares.push(other),
        }
    }

    /// Adds the report of a later run of this copy, which saw part of its directories again.
    pub(crate) fn join(&mut self, later: Self) {
        let seen = self.seen;
        self.add(Self { deferred: Vec::new(), listed: ListedFiles::default(), ..later });
        self.seen = seen;
    }

    /// Adds the report of a second walk over all entries, which copied the deferred ones. `sync`: the counts of the
    /// deferred entries. Directories and skipped entries are not added, because both walks met them.
    pub(crate) fn join_second_walk(&mut self, second: Self, sync: SyncCounts) {
        // The second walk read all files again if the caller requested verification.
        let again = self.verified.again;
        self.verified = Verified { again, ..Verified::default() };
        self.join(Self { sync, dirs: 0, skipped: 0, left_out: 0, ..second });
    }

    /// Adds bytes of one file to the share of a mechanism.
    pub(crate) fn book(&mut self, mechanism: &'static str, tuning: &Tuning, bytes: u64) {
        self.bytes += bytes;
        if let Some(share) = self.shares.iter_mut().find(|share| share.mechanism == mechanism) {
            share.bytes += bytes;
            share.files += 1;
        } else {
            let tuning = tuning.clone();
            self.shares.push(MechanismShare { mechanism, tuning, bytes, files: 1 });
        }
    }

    /// Keeps measurements of mechanisms, up to [`MOST_STEPS`].
    pub(crate) fn looked(&mut self, looks: Vec<ContestResult>) {
        extend_to(&mut self.looks, looks, MOST_STEPS);
    }

    /// Keeps a fallback, up to [`MOST_STEPS`].
    pub(crate) fn step_down(&mut self, step: StepDown) {
        extend_to(&mut self.steps_down, [step], MOST_STEPS);
    }
}

/// Appends items as long as there are fewer than `most`.
fn extend_to<T>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>, most: usize) {
    let room = most.saturating_sub(all.len());
    all.extend(more.into_iter().take(room));
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
    fn a_second_walk_adds_its_problems_but_not_the_entries_that_both_walks_met() {
        let verified = Verified { same: 3, again: 1, bytes: 30, ..Verified::default() };
        let walk = || TreeReport {
            dirs: 2,
            skipped: 1,
            left_out: 1,
            unlinked: 1,
            attributes_dropped: 1,
            changed: 1,
            differing: 1,
            torn: vec![PathBuf::from("torn")],
            verified,
            ..TreeReport::default()
        };
        let mut report = walk();
        report.join_second_walk(walk(), SyncCounts::default());
        assert_eq!((report.dirs, report.skipped, report.left_out), (2, 1, 1));
        assert_eq!((report.unlinked, report.attributes_dropped), (2, 2));
        assert_eq!((report.changed, report.differing, report.torn.len()), (2, 2, 2));
        assert_eq!(report.verified, Verified { again: 2, ..verified });
    }

    #[test]
    fn workers_shares_are_joined_largest_first() {
        let mut report = TreeReport::default();
        for (name, bytes) in [("a", 1), ("b", 5), ("a", 7)] {
            let mut tally = TreeReport::default();
            tally.book(name, &Tuning::default(), bytes);
            report.add(tally);
        }
        let shares: Vec<_> = report.shares.iter().map(|s| (s.mechanism, s.bytes)).collect();
        assert_eq!(shares, [("a", 8), ("b", 5)]);
        assert_eq!(report.bytes, 13);
    }
}
