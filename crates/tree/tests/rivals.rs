//! Somebody else acts between two steps of a copy: nothing of theirs is lost, and nothing torn.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{copy, names, noise, problems, recursive};
use thalweg_core::Request;
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};
use thalweg_tree::{Backup, CopyOptions, Preserve, TreeReport};

/// Copies `src` to `to` while a rival does something right before the `nth` call.
fn raced(
    at: &Path,
    options: &CopyOptions,
    (call, nth): (Call, u64),
    rival: impl Fn(&Path) + Send + Sync + 'static,
) -> TreeReport {
    let here = at.to_owned();
    let script = Script::new(Vec::new()).meanwhile(call, nth, move || rival(&here));
    script.run(|| copy(&at.join("src"), &at.join("to"), options)).value
}

fn read(path: PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

fn backups(backup: Backup) -> CopyOptions {
    CopyOptions { backup, ..CopyOptions::default() }
}

/// Beginning with a line that says whose it is, and too large for one write.
fn large(first: &str) -> Vec<u8> {
    [first.as_bytes(), &noise(400_000, 3)].concat()
}

#[test]
fn a_numbered_backup_does_not_replace_that_of_another_run() {
    let place = support::scratch();
    let at = place.path();
    fs::write(at.join("src"), "mine").unwrap();
    fs::write(at.join("to"), "the original").unwrap();
    // Both found 1 to be the next number; the rival was the first to take it.
    let rival = |at: &Path| {
        if !at.join("to.~1~").exists() {
            fs::rename(at.join("to"), at.join("to.~1~")).unwrap();
            fs::write(at.join("to"), "the rival's").unwrap();
        }
    };
    let report = raced(at, &backups(Backup::Numbered), (Call::Link, 1), rival);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(names(at), ["src", "to", "to.~1~", "to.~2~"]);
    let found = ["to", "to.~1~", "to.~2~"].map(|name| read(at.join(name)));
    assert_eq!(found, ["mine", "the original", "the rival's"]);
}

#[test]
fn what_a_rival_put_under_a_free_name_is_backed_up_and_what_vanished_is_not_missed() {
    for contents in [b"mine".to_vec(), large("mine")] {
        let place = support::scratch();
        let at = place.path();
        let is_large = contents.len() > 4;
        fs::write(at.join("src"), &contents).unwrap();
        let name_it = if is_large { Call::Rename } else { Call::Link };
        let rival = |at: &Path| fs::write(at.join("to"), "the rival's").unwrap();
        let report = raced(at, &backups(Backup::Simple), (name_it, 1), rival);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(names(at), ["src", "to", "to~"]);
        assert_eq!(read(at.join("to~")), "the rival's");
        assert!(fs::read(at.join("to")).unwrap() == contents);

        fs::remove_file(at.join("to~")).unwrap();
        let rival = |at: &Path| fs::remove_file(at.join("to")).unwrap();
        let report = raced(at, &backups(Backup::Simple), (Call::Link, 1), rival);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(names(at), ["src", "to"]);
    }
}

#[test]
fn with_no_clobber_and_resume_a_rivals_file_leaves_no_part_behind() {
    let place = support::scratch();
    let at = place.path();
    fs::write(at.join("src"), large("mine")).unwrap();
    let options = CopyOptions { no_clobber: true, resume: true, ..CopyOptions::default() };
    let rival = |at: &Path| fs::write(at.join("to"), "the rival's").unwrap();
    let report = raced(at, &options, (Call::Rename, 1), rival);
    assert_eq!((report.error_count, report.skipped), (0, 1), "{}", problems(&report));
    assert_eq!(
        (names(at), read(at.join("to"))),
        (vec!["src".into(), "to".into()], "the rival's".into())
    );
}
