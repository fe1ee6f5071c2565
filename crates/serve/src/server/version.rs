//! Identifies a version of a file by its metadata.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::Stat,
    time::{ClockId, clock_getres},
};

use crate::{
    http::condition::{Validator, in_seconds},
    manifest::FileTag,
};

/// State of a file at one moment. Equal versions have equal contents, within the resolution of the file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    /// In bytes.
    pub size: u64,
    modified: FileTime,
    changed: FileTime,
}

/// A timestamp of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileTime {
    seconds: i64,
    nanos: u32,
}

impl FileTime {
    fn nanos(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }
}

impl FileVersion {
    /// Reads the version from the result of `fstat`.
    pub fn of(stat: &Stat) -> Self {
        let moment = |seconds, nanos| FileTime { seconds, nanos: nanos as u32 };
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: moment(stat.st_mtime, stat.st_mtime_nsec),
            changed: moment(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Returns the device on which the file is stored.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Returns the modification time, in whole seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.modified.seconds
    }

    /// Returns the entity tag. It is weak while the file could change again within the same clock tick, because then
    /// two versions would have one tag.
    pub fn etag(&self, now: SystemTime) -> String {
        let weak = if self.is_settled(now) { "" } else { "W/" };
        let FileTime { seconds, nanos } = self.modified;
        weak.to_owned() + &self.tag().etag(seconds, nanos)
    }

    /// Returns the version in the form of a list entry, without `linked_on` and `is_sparse`.
    pub fn tag(&self) -> FileTag {
        let changed = (self.changed.seconds, self.changed.nanos);
        let (linked_on, is_sparse) = (None, false);
        FileTag { size: self.size, inode: self.inode, changed, linked_on, is_sparse }
    }

    /// Returns `true` if any later change must produce other timestamps, because the clock tick has passed.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        self.age(now) > self.tick()
    }

    /// Returns `true` if both are versions of one file or directory.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns the validator for evaluating conditional requests.
    pub fn validator(&self, now: SystemTime) -> Validator {
        let modified = in_seconds(self.modified.seconds).filter(|modified| *modified <= now);
        let is_settled = self.age(now) > Duration::from_secs(2).as_nanos() as i128;
        Validator { etag: self.etag(now), modified, is_settled }
    }

    /// Returns the nanoseconds since the last change of data or metadata. It uses the ctime, which users cannot set.
    fn age(&self, now: SystemTime) -> i128 {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
        now - self.changed.nanos()
    }

    /// Returns the resolution of the file system's clock, in nanoseconds.
    fn tick(&self) -> i128 {
        static TICK: OnceLock<i128> = OnceLock::new();
        if self.modified.nanos == 0 && self.changed.nanos == 0 {
            // Timestamps in whole seconds; on FAT, in steps of two seconds.
            return Duration::from_secs(2).as_nanos() as i128;
        }
        // Before Linux 6.13, and on file systems without fine-grained timestamps, a timestamp is the time of the last
        // kernel tick.
        *TICK.get_or_init(|| {
            let tick = clock_getres(ClockId::RealtimeCoarse);
            2 * (i128::from(tick.tv_sec) * 1_000_000_000 + i128::from(tick.tv_nsec))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::stat;

    #[test]
    fn a_young_file_has_a_weak_tag_and_an_old_one_a_strong_tag() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let version = FileVersion::of(&stat(file.path()).unwrap());
        let changed = UNIX_EPOCH + Duration::from_nanos(version.changed.nanos() as u64);
        assert!(version.etag(changed).starts_with("W/\""));
        let later = changed + Duration::from_secs(3);
        assert!(version.etag(later).starts_with('"'));
        assert!(!version.validator(changed).is_settled);
        assert!(version.validator(later).is_settled);
        // A clock that was set back does not make the version settled: the tag stays weak.
        assert!(version.etag(changed - Duration::from_secs(3600)).starts_with("W/"));
    }

    #[test]
    fn every_change_makes_another_version() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let look = || FileVersion::of(&stat(file.path()).unwrap());
        let first = look();
        std::fs::write(file.path(), "longer").unwrap();
        assert_ne!(look(), first);
    }
}
