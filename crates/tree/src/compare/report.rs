//! The report of a comparison.

use crate::Error;

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Regular files with equal contents.
    pub same: u64,
    /// Bytes of these files, on each side.
    pub bytes: u64,
    /// Directories that exist on both sides.
    pub dirs: u64,
    /// Symbolic links and special files that are equal.
    pub others: u64,
    /// Entries with another file type, other contents or another link target.
    pub differ: u64,
    /// Entries with other attributes.
    pub attributes: u64,
    /// Entries that exist only in the source.
    pub missing: u64,
    /// Entries that exist only in the destination.
    pub extra: u64,
    /// Symbolic links and special files in the destination, which a manifest does not name.
    pub not_named: u64,
    /// Number of errors that prevented a comparison. Each was reported as an event.
    pub error_count: u64,
    /// The first of these errors.
    pub error: Option<Error>,
    /// `true` if the comparison was stopped early.
    pub stopped: bool,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time of the whole process in seconds.
    pub cpu_seconds: f64,
}

impl Comparison {
    /// Returns `true` if everything was compared and no difference was found.
    pub fn is_same(&self) -> bool {
        let found = self.differ + self.attributes + self.missing + self.extra + self.error_count;
        found == 0 && !self.stopped
    }

    /// Adds the result of another thread, or of another pass over these files.
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
