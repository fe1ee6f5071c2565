//! Many cuts of one command on one file system, and the exact repetition of a failing one.

use std::{fs, path::Path, time::Instant};

use super::{
    command::CutCase,
    cut::PowerCut,
    judge::CutRun,
    place::{FormerPlace, Place},
    reboot::wait_for_reboot_after,
    recording::Recording,
    system::{DiskSystem, copy_image},
};
use thalweg_testing::Dice;

/// Number of cuts made from one recorded run.
const CUTS_OF_A_RUN: u64 = 10;
/// Maximum number of failing cuts of a campaign whose disks are kept.
const KEPT: usize = 3;

/// All cuts of one command on one file system.
pub struct Campaign<'a> {
    test: &'a str,
    case: &'a CutCase,
    system: &'a DiskSystem,
    place: Place,
    failures: Vec<String>,
}

impl<'a> Campaign<'a> {
    pub fn new(test: &'a str, case: &'a CutCase, system: &'a DiskSystem) -> Self {
        let place = Place::new(case, system);
        Self { test, case, system, place, failures: Vec::new() }
    }

    /// Makes this number of cuts and returns the failures; `None` if the test is skipped.
    pub fn run(mut self, cuts: u64) -> Option<Vec<String>> {
        let began = Instant::now();
        let what = format!("{} on {}", self.case.name, self.system.name);
        let mut dice = Dice::new(&what);
        let mut made = 0;
        while made < cuts {
            let recording =
                Recording::make(self.test, self.case, self.system, &self.place, &mut dice)?;
            wait_for_reboot_after(recording.ended);
            for _ in 0..CUTS_OF_A_RUN.min(cuts - made) {
                let cut = recording.choose_cut(self.case, &mut dice);
                if let Err(reason) = self.check(&recording, &cut) {
                    self.note(&recording, &cut, made, &reason);
                }
                made += 1;
            }
        }
        let (failed, took) = (self.failures.len(), began.elapsed().as_secs_f64());
        println!("power cut: {what}: {made} cuts, {failed} failed, {took:.1} s");
        Some(self.failures)
    }

    fn check(&self, recording: &Recording, cut: &PowerCut) -> Result<(), String> {
        let image = self.place.memory().join("cut.img");
        cut.make_image(&self.place.base(), &recording.log, &image);
        let run = CutRun {
            case: self.case,
            system: self.system,
            place: &self.place,
            words: &recording.words,
            had_ended: recording.had_ended(cut),
        };
        let result = run.judge(&image);
        fs::remove_file(&image).unwrap();
        result
    }

    /// Records a failing cut, and how to repeat it.
    fn note(&mut self, recording: &Recording, cut: &PowerCut, number: u64, reason: &str) {
        let (case, system) = (self.case.name, self.system.name);
        let when = if recording.had_ended(cut) { "after its end" } else { "while it ran" };
        let words = recording.words.join(" ");
        let name = format!("{case}-{system}-{}-{number}", std::process::id());
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-cut").join(name);
        let repeat = if self.failures.len() < KEPT {
            self.keep(recording, cut, &kept);
            format!("\n  repeat: tests/setup/power-cut repeat {}", kept.display())
        } else {
            String::new()
        };
        let failure =
            format!("{case} {words} on {system}, cut {number} ({when}, {cut:?}): {reason}{repeat}");
        eprintln!("{failure}");
        self.failures.push(failure);
    }

    /// Keeps the disk and the source of a failing cut.
    fn keep(&self, recording: &Recording, cut: &PowerCut, kept: &Path) {
        fs::create_dir_all(kept).unwrap();
        cut.make_image(&self.place.base(), &recording.log, &kept.join("disk.img"));
        for name in ["source.img", "base.img"] {
            copy_image(&self.place.memory().join(name), &kept.join(name));
        }
        let former = self.place.former();
        let case = [
            self.case.name,
            self.system.name,
            &former.loop_number.to_string(),
            &former.port,
            &recording.had_ended(cut).to_string(),
            &recording.words.join(" "),
            "",
        ];
        fs::write(kept.join("case"), case.join("\n")).unwrap();
    }
}

/// Repeats a failing cut from the directory in which it was kept.
pub fn repeat(kept: &Path) -> Result<(), String> {
    let text = fs::read_to_string(kept.join("case")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let [case, system, loop_number, port, had_ended, words] = lines[..] else { panic!("{text}") };
    let former = FormerPlace { loop_number: loop_number.parse().unwrap(), port: port.to_owned() };
    let (case, system) = (CutCase::named(case), DiskSystem::named(system));
    let place = Place::restore(case, kept, &former);
    let image = place.memory().join("cut.img");
    copy_image(&kept.join("disk.img"), &image);
    let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
    let had_ended = had_ended == "true";
    CutRun { case, system, place: &place, words: &words, had_ended }.judge(&image)
}
