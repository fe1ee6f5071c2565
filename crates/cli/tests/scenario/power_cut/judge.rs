//! Checks the disk that a cut has left, runs the command again on it as after a reboot, and checks the result.

use std::{fs, path::Path};

use super::{
    command::{CutCase, CutCommand, unsuccessful},
    contents::hashes,
    place::Place,
    reboot::after_reboot,
    system::DiskSystem,
};
use crate::support::{Ran, loop_disk::MountedDisk, names};

/// The run that was cut.
pub struct CutRun<'a> {
    pub case: &'a CutCase,
    pub system: &'a DiskSystem,
    pub place: &'a Place,
    /// The random options of the run.
    pub words: &'a [String],
    /// `true` if the run had ended before the cut.
    pub had_ended: bool,
}

impl CutRun<'_> {
    /// Judges the disk in an image. This changes the image.
    pub fn judge(&self, image: &Path) -> Result<(), String> {
        let (case, place) = (self.case, self.place);
        let disk = MountedDisk::of_image(image, &place.disk(), self.system.options)?;
        let is_published = place.copy().exists();
        let found = hashes(&place.copy())?;
        let after_the_cut = |reason| format!("after the cut: {reason}");
        case.judge_names(place, &found).map_err(after_the_cut)?;
        if self.had_ended && case.durable {
            place.judge_copy(case, &found).map_err(after_the_cut)?;
        }
        let mut ran = self.run_again(&[]);
        // Without --fsync, the size and time of a new file may have reached the disk without its bytes. Only a sync
        // with --checksum finds this.
        if case.sync_kind().is_some() && !case.durable && ran.code() == 0 {
            ran = self.run_again(&["--checksum"]);
        }
        // A fleet only makes new directories. If the copy was published before the cut, the fleet refuses it with exit
        // status 4.
        if case.command == CutCommand::Fleet && is_published && ran.code() == 4 {
            return Ok(());
        }
        if ran.code() != case.exit_status() {
            return Err(unsuccessful("the resumed run", &ran, &place.disk()));
        }
        let found = hashes(&place.copy())?;
        place.judge_copy(case, &found).map_err(|reason| format!("after the resume: {reason}"))?;
        let left = leftovers(&place.disk());
        drop(disk);
        if left.is_empty() { Ok(()) } else { Err(format!("after the resume: {left:?} is left")) }
    }

    fn run_again(&self, more: &[&str]) -> Ran {
        let boot_id = self.place.memory().join("boot_id");
        let text = format!("00000000-0000-4000-8000-{:012}\n", std::process::id());
        fs::write(&boot_id, text).unwrap();
        let is_kept = |word: &&String| !word.starts_with("--limit") && *word != "--resume";
        let mut words: Vec<_> = self.words.iter().filter(is_kept).cloned().collect();
        if matches!(self.case.command, CutCommand::CopyTree(_)) {
            words.push("--resume".to_owned());
        }
        words.extend(more.iter().map(|word| (*word).to_owned()));
        self.case.run(self.place, &words, |command| after_reboot(command, &boot_id))
    }
}

/// Returns the names on the disk that no command of the tests should leave.
fn leftovers(disk: &Path) -> Vec<String> {
    let is_left = |name: &String| {
        !["copy", "lost+found", "other", "trash", "reference"].contains(&name.as_str())
    };
    names(disk).into_iter().filter(is_left).collect()
}
