//! Detects changes of a file.

use rustix::fs::Stat;

/// Returns `true` if a file was written, truncated or changed in its attributes between two calls
/// of `stat`.
pub fn changed(before: &Stat, after: &Stat) -> bool {
    let look = |stat: &Stat| {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_size, modified, (stat.st_ctime, stat.st_ctime_nsec))
    };
    look(before) != look(after)
}
