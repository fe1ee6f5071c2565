//! A copy that a signal ends when some of it is there.

use rustix::process::Signal;
use std::{fs, path::Path, thread, time::Duration};

use super::{Ran, Running, Scratch, thalweg};

/// Starts a copy of `tree` to `new` that is far from its end for a long time, and interrupts it when some of
/// it is there.
#[track_caller]
pub fn interrupted(scratch: &Scratch, options: &[&str], signal: Signal) -> Ran {
    let mut copy = thalweg();
    copy.current_dir(scratch.path()).args(["copy", "-r", "--limit=256K"]).args(options);
    let mut running = Running::start(copy.args(["tree", "new"]));
    while !is_begun(&scratch.join(".new.thalweg-part")) {
        assert!(!running.has_ended(), "over before it had begun");
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(signal);
    running.finish().expect(128 + signal.as_raw())
}

/// Whether a file or folder of the source is in it.
fn is_begun(stage: &Path) -> bool {
    let is_data = |entry: fs::DirEntry| entry.file_name() != ".thalweg-journal";
    fs::read_dir(stage).is_ok_and(|entries| entries.flatten().any(is_data))
}
