//! What a comparison found.

use crate::Error;

/// The account of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Regular files whose contents are the same.
    pub same: u64,
    /// Bytes of these, on each side.
    pub bytes: u64,
    /// Folders that are on both sides.
    pub dirs: u64,
    /// Links and special files that are the same.
    pub others: u64,
    /// Things that are of another kind, hold other bytes, or lead elsewhere.
    pub differ: u64,
    /// Things with other attributes.
    pub attributes: u64,
    /// Things that are only in the source.
    pub missing: u64,
    /// Things that are only in the destination.
    pub extra: u64,
    /// Links and special files of the destination, which a manifest does not name.
    pub not_named: u64,
    /// Problems that kept something from being compared; each was told.
    pub error_count: u64,
    /// The first of them.
    pub error: Option<Error>,
    /// It was stopped before everything was compared.
    pub stopped: bool,
    /// Time on the clock.
    pub seconds: f64,
    /// Processor time of the whole process.
    pub cpu_seconds: f64,
}

impl Comparison {
    /// Whether everything was compared and nothing found.
    pub fn is_same(&self) -> bool {
        let found = self.differ + self.attributes + self.missing + self.extra + self.error_count;
        found == 0 && !self.stopped
    }

    /// Adds what one thread found, or another pass over the same.
    pub fn add(&mut self, other: Self) {
        self.same += other.same;
        self.bytes += other.bytes;
        self.dirs += other.dirs;
        self.others += other.others;
        self.differ += other.differ;
        self.attributes += other.attributes;
        self.missing += other.missing;
        self.extra += other.extra;
        self.not_named += other.not_named;
        self.error_count += other.error_count;
        self.error = self.error.take().or(other.error);
        self.stopped |= other.stopped;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
    }
}
