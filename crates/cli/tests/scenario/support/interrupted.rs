//! A copy that a signal ends after it has copied some data.

use rustix::process::Signal;
use std::{fs, path::Path, thread, time::Duration};

use super::{Ran, Running, Scratch, thalweg};

/// Starts a slow copy of `tree` to `new`, and sends the signal after some entries exist.
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

/// Returns `true` if the staging directory has an entry of the source.
fn is_begun(stage: &Path) -> bool {
    let is_data = |entry: fs::DirEntry| entry.file_name() != ".thalweg-journal";
    fs::read_dir(stage).is_ok_and(|entries| entries.flatten().any(is_data))
}
