//! Tests the memory that a survey needs. The test runs alone in its process, because it reads the peak of the whole
//! process.

use std::{fs, path::PathBuf, time::Duration};
use thalweg_core::Cancelled;
use thalweg_testing::peak_resident;
use thalweg_tree::{
    CopyOptions, Events,
    fleet::{Member, status, work},
};

/// Stops a worker as soon as the plan exists.
struct UntilPlanned(PathBuf);

impl Events for UntilPlanned {
    fn go_on(&self) -> Result<(), Cancelled> {
        if self.0.exists() { Err(Cancelled) } else { Ok(()) }
    }
}

#[test]
fn a_survey_streams_what_it_finds() {
    let _alone = thalweg_testing::alone();
    let before = peak_resident();
    for (folders, files) in [(60, 1000), (1, 60_000)] {
        let place = crate::support::scratch();
        let (src, dst) = (place.path().join("src"), place.path().join("dst"));
        for folder in 0..folders {
            let folder = src.join(format!("a folder with quite a long name, number {folder}"));
            fs::create_dir_all(&folder).unwrap();
            for n in 0..files {
                fs::write(folder.join(format!("a file with quite a long name, number {n}")), "")
                    .unwrap();
            }
        }
        let options = CopyOptions { jobs: 4, ..CopyOptions::archive() };
        let member = Member::new(0, 1, Duration::ZERO);
        let events = UntilPlanned(place.path().join(".dst.thalweg-fleet/plan"));
        work(&src, &dst, &options, &member, &events).unwrap();
        let grown = peak_resident().saturating_sub(before);
        let found = status(&dst).unwrap().unwrap();
        assert!((60..=64).contains(&found.tasks), "{} tasks", found.tasks);
        // The survey needs up to 5 MiB for stacks, one task per thread, some names, and pages of code. If it held
        // 60,000 entries with their names, it would need 6 MB more.
        assert!(grown < 7 << 20, "{folders} folders: grew by {grown} bytes");
    }
}
