//! Tests another process (the rival) that acts between two steps of a copy. No file of the rival may be lost, and no
//! file may be torn.

use crate::support;

use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{copy, large, names, noise, problems, recursive};
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};
use thalweg_tree::{Backup, CopyOptions, Preserve, TreeReport};

/// Copies `src` to `to`. Calls `rival` right before the `nth` call of this kind.
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

/// Returns contents that start with `first` and are too large for one write.
fn much(first: &str) -> Vec<u8> {
    [first.as_bytes(), &noise(large(), 3)].concat()
}

#[test]
fn a_numbered_backup_does_not_replace_that_of_another_run() {
    let place = support::scratch();
    let at = place.path();
    fs::write(at.join("src"), "mine").unwrap();
    fs::write(at.join("to"), "the original").unwrap();
    // Both processes found that the next number is 1, but the rival was first to use it.
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
    for contents in [b"mine".to_vec(), much("mine")] {
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
    fs::write(at.join("src"), much("mine")).unwrap();
    let options = CopyOptions { no_clobber: true, resume: true, ..CopyOptions::default() };
    let rival = |at: &Path| fs::write(at.join("to"), "the rival's").unwrap();
    let report = raced(at, &options, (Call::Rename, 1), rival);
    assert_eq!((report.error_count, report.skipped), (0, 1), "{}", problems(&report));
    assert_eq!(
        (names(at), read(at.join("to"))),
        (vec!["src".into(), "to".into()], "the rival's".into())
    );
}

#[test]
fn a_copy_in_place_removes_nothing_of_a_rivals() {
    let inplace = CopyOptions { inplace: true, ..CopyOptions::default() };
    let rival = |at: &Path| {
        fs::write(at.join("rival"), "the rival's").unwrap();
        fs::rename(at.join("rival"), at.join("to")).unwrap();
    };
    let place = support::scratch();
    let at = place.path();
    fs::write(at.join("src"), "mine").unwrap();
    let here = at.to_owned();
    let fails = Rule::once(Call::Write, 1, Effect::Errno(Errno::IO));
    let script = Script::new(vec![fails]).meanwhile(Call::Write, 1, move || rival(&here));
    let ran = script.run(|| copy(&at.join("src"), &at.join("to"), &inplace));
    assert_eq!((ran.value.error_count, read(at.join("to"))), (1, "the rival's".into()));

    // The rival acts between the check of the name and the creation of the file.
    fs::remove_file(at.join("to")).unwrap();
    let shy = CopyOptions { no_clobber: true, ..inplace.clone() };
    let report = raced(at, &shy, (Call::Read, 1), rival);
    assert_eq!((report.error_count, report.skipped), (0, 1), "{}", problems(&report));
    assert_eq!(read(at.join("to")), "the rival's");
    fs::remove_file(at.join("to")).unwrap();
    let kept = move |at: &Path| {
        rival(at);
        fs::hard_link(at.join("to"), at.join("kept")).unwrap();
    };
    let report = raced(at, &inplace, (Call::Read, 1), kept);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    // The copy writes into the rival's file, as it does into any existing file.
    assert_eq!((read(at.join("to")), read(at.join("kept"))), ("mine".into(), "mine".into()));
}

#[test]
fn a_copy_in_place_cannot_keep_a_backup_and_says_so() {
    let place = support::scratch();
    fs::write(place.path().join("src"), "mine").unwrap();
    let options = CopyOptions { inplace: true, ..backups(Backup::Simple) };
    let sources = [place.path().join("src")];
    let refused = thalweg_tree::copy(&sources, &place.path().join("to"), &options, &());
    assert!(refused.unwrap_err().to_string().contains("backup"));
}

/// In a new tree, another name of this copy can exist under the name of a file, on a file system that ignores case. The
/// test imitates this.
#[test]
fn what_a_new_tree_holds_already_is_not_replaced() {
    for (contents, call) in [(b"mine".to_vec(), Call::Read), (much("mine"), Call::Rename)] {
        let place = support::scratch();
        let at = place.path();
        fs::create_dir(at.join("src")).unwrap();
        fs::write(at.join("src/f"), &contents).unwrap();
        let same = |at: &Path| fs::write(at.join(".to.thalweg-part/f"), "the other").unwrap();
        let options = CopyOptions { jobs: 1, ..recursive() };
        let report = raced(at, &options, (call, 1), same);
        assert!(problems(&report).contains("just-created"), "{}", problems(&report));
        assert_eq!(
            (names(&at.join("to")), read(at.join("to/f"))),
            (vec!["f".into()], "the other".into())
        );
    }
}

#[test]
fn a_name_is_linked_to_the_copy_of_its_source_and_to_nothing_else() {
    let place = support::scratch();
    let at = place.path();
    fs::create_dir_all(at.join("src")).unwrap();
    fs::create_dir_all(at.join("to/src")).unwrap();
    fs::write(at.join("src/a"), "mine").unwrap();
    fs::hard_link(at.join("src/a"), at.join("src/b")).unwrap();
    // The first linkat(2) gives the copy its name, and the second one creates the other name.
    let rival = |at: &Path| {
        for name in
            ["a", "b"].map(|name| at.join("to/src").join(name)).iter().filter(|n| n.exists())
        {
            fs::remove_file(name).unwrap();
            fs::write(name, "the rival's").unwrap();
        }
    };
    let preserve = Preserve { links: true, ..Preserve::default() };
    let options = CopyOptions { jobs: 1, preserve, ..recursive() };
    let report = raced(at, &options, (Call::Link, 2), rival);
    assert_eq!((report.error_count, report.files), (0, 2), "{}", problems(&report));
    let mut found = ["a", "b"].map(|name| read(at.join("to/src").join(name)));
    found.sort();
    assert_eq!(found, ["mine", "the rival's"]);
    assert_eq!(names(&at.join("to/src")), ["a", "b"]);
}
