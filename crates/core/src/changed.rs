//! Whether a file is still as it was.

use rustix::fs::Stat;

/// Whether a file was written, cut or changed in its attributes between two looks.
pub fn changed(before: &Stat, after: &Stat) -> bool {
    let look = |stat: &Stat| {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_size, modified, (stat.st_ctime, stat.st_ctime_nsec))
    };
    look(before) != look(after)
}
