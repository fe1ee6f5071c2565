//! Filters of `thalweg sync` and `copy` between machines. With random trees, filter files and options, the trees and
//! the printed lines must be those of a local sync.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use rustix::fs::{XattrFlags, setxattr};
use thalweg_testing::{Dice, from_env};

use crate::{
    remote_syncs::BothWays,
    support::{Ran, Scratch, bytes, names, run, shell, sshd::OtherMachine, thalweg},
    sync_trees::{STATE, lines, record},
};

const FILTER_FILE: &str = ".f";

fn choose<'c>(dice: &mut Dice, of: &[&'c str]) -> &'c str {
    of[dice.below(of.len() as u64) as usize]
}

fn pattern(dice: &mut Dice) -> &'static str {
    choose(
        dice,
        &[
            "*.o", "b", "!b", "/d", "d/", "!d/", "!a.o", "*", "x.o/**", "k", "c.*", "!*/", "d/b",
            "**/e/b", ".f", "[", "\\", "# b", " ", "",
        ],
    )
}

/// Makes random changes. Names of directories are never those of files.
fn edit(dice: &mut Dice, root: &Path, changes: u64) {
    for _ in 0..changes {
        let depth = dice.below(4);
        let directory: PathBuf = (0..depth).map(|_| choose(dice, &["d", "e", "x.o"])).collect();
        let directory = root.join(directory);
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(choose(dice, &["a.o", "b", "c.tmp", "k", "s p"]));
        match dice.below(11) {
            0..=4 => {
                bytes::write(&file, dice.below(1000), dice.below(3) * 1000);
                let opened = fs::File::options().append(true).open(&file).unwrap();
                let time = Duration::from_secs(1_000_000_000 + dice.below(4) * 1000);
                opened.set_modified(UNIX_EPOCH + time).unwrap();
            }
            5 if depth > 0 => fs::remove_dir_all(&directory).unwrap(),
            6 => drop(symlink("b", directory.join("l"))),
            7 => drop(fs::remove_file(&file)),
            8 => {
                let path = if dice.below(2) == 0 { &file } else { &directory };
                let value = dice.below(3).to_string();
                let _ = setxattr(path, "user.x", value.as_bytes(), XattrFlags::empty());
            }
            _ => {
                let lines: Vec<_> = (0..dice.below(4)).map(|_| pattern(dice)).collect();
                fs::write(directory.join(FILTER_FILE), lines.join("\n")).unwrap();
            }
        }
    }
}

fn filters(dice: &mut Dice, list: &Path) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..dice.below(4) {
        words.push(match dice.below(5) {
            0..=2 => format!("--exclude={}", pattern(dice)),
            3 => format!("--include={}", pattern(dice)),
            _ => {
                let lines: Vec<_> = (0..dice.below(4)).map(|_| pattern(dice)).collect();
                fs::write(list, lines.join("\r\n")).unwrap();
                format!("--exclude-from={}", list.display())
            }
        });
    }
    let mut add = |cases: u64, word: &str| {
        if dice.below(cases) == 0 {
            words.push(word.to_owned());
        }
    };
    add(2, "--filter-file=.f");
    add(4, "--delete-excluded");
    add(5, "--max-size=2000");
    add(5, "--min-size=500");
    add(5, "--newer-than=2001-09-09T02:00:00Z");
    words
}

/// Returns the lines of `-i`, except those of directories and symbolic links that differ only in attributes.
fn changes(ran: &Ran) -> Vec<String> {
    lines(ran)
        .into_iter()
        .filter(|line| !line.starts_with(".d") && !line.starts_with(".L"))
        .collect()
}

#[test]
fn random_filters_have_the_meaning_that_they_have_locally() {
    let test = "random_filters_have_the_meaning_that_they_have_locally";
    let mut dice = Dice::fixed(test, 41);
    for case in 0..from_env("THALWEG_CASES", 16) {
        let scratch = Scratch::new();
        let machine = OtherMachine::by_script(scratch.path());
        let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
        edit(&mut dice, &source, 30);
        run(thalweg().args(["sync"]).args([&source, &dst])).expect(0);
        edit(&mut dice, &source, 10);
        edit(&mut dice, &dst, 15);
        shell(scratch.path(), "cp -a dst local").expect(0);
        let mut words = vec!["-i".to_owned(), "--delete".to_owned(), "--force".to_owned()];
        words.extend(filters(&mut dice, &scratch.join("list")));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let is_push = case % 2 == 0;
        eprintln!("case {case}: {words:?}, push: {is_push}");
        let mut local = thalweg();
        let wanted = run(local.args(["sync"]).args(&words).args([&source, &scratch.join("local")]));
        let both = BothWays { machine: &machine, source, is_push };
        let planned = both.sync(&[&["-n"], &words[..]].concat(), &dst).expect(0);
        let done = both.sync(&words, &dst).expect(0);
        assert_eq!(lines(&planned), lines(&done), "the dry run and the real run");
        assert_eq!(changes(&done), changes(&wanted.expect(0)), "the local sync");
        let (found, wanted) = (record(&dst).entries, record(&scratch.join("local")).entries);
        // A directory that the source lacks stays if it has a protected entry. Its modification time is the time of the
        // last deletion in it, so it is not compared.
        let is_extra = |path: &PathBuf| dst.join(path).is_dir() && !both.source.join(path).exists();
        let mut differ: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
        differ.retain(|path| found.get(*path) != wanted.get(*path) && !is_extra(path));
        assert!(differ.is_empty(), "{differ:?}");
    }
}

/// The source has only excluded entries: a FIFO, and a directory that cannot be listed.
#[test]
fn excluded_entries_are_no_reason_to_fail_or_to_delete_nothing() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.folder(&format!("dst{is_push}"));
        shell(&source, "mkfifo pipe; mkdir cache; touch cache/x; chmod 0 cache").expect(0);
        shell(&dst, "mkdir cache old; touch pipe cache/kept old/extra").expect(0);
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let words = ["-i", "--delete", "--exclude=pipe", "--exclude=/cache/"];
        let ran = both.sync(&words, &dst).expect(0);
        let deleted: Vec<String> =
            lines(&ran).into_iter().filter(|line| line.starts_with('*')).collect();
        assert_eq!(deleted, ["*deleting   old/", "*deleting   old/extra"]);
        ran.expect_said("2 excluded");
        assert_eq!(names(&dst), [STATE, "cache", "pipe"]);
        assert!(dst.join("cache/kept").exists());
        let ran = both.sync(&[&words[..], &["--delete-excluded"]].concat(), &dst).expect(0);
        assert_eq!(lines(&ran).len(), 3);
        assert_eq!(names(&dst), [STATE]);
    }
}

#[test]
fn a_filter_file_that_cannot_be_read_protects_its_directory() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.folder(&format!("dst{is_push}"));
        shell(&source, "mkdir a b; mkfifo a/.f; touch a/new b/new").expect(0);
        shell(&dst, "mkdir a b; touch a/kept b/kept").expect(0);
        let both = BothWays { machine: &machine, source, is_push };
        let ran = both.sync(&["-i", "--delete", "--filter-file=.f"], &dst).expect(1);
        ran.expect_said("a/.f");
        ran.expect_said("cannot be read");
        assert_eq!(
            (names(&dst.join("a")), names(&dst.join("b"))),
            (vec!["kept".to_owned()], vec!["kept".to_owned(), "new".to_owned()])
        );
        both.sync(&["--filter-file=a/b"], &dst)
            .expect(2)
            .expect_said("the filter file must be a file name without a directory");
    }
}

#[test]
fn a_copy_leaves_out_what_its_patterns_exclude() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    shell(&source, "mkdir d; touch a.o b d/c.o d/k.o 'x y'; printf 'b\\n' >../list").expect(0);
    let list = format!("--exclude-from={}", scratch.join("list").display());
    let words = ["-a", "--exclude=*.o", "--exclude=!k.o", "--exclude=x *", &list];
    for (name, is_push) in [("pulled", false), ("pushed", true)] {
        let (from, to) = (source.join(""), scratch.join(name));
        run(&mut machine.between(("copy", &words), is_push, [&from, &to])).expect(0);
        let found = run(std::process::Command::new("find")
            .current_dir(scratch.join(name))
            .args([".", "-type", "f"]));
        assert_eq!(String::from_utf8_lossy(&found.stdout), "./d/k.o\n", "{name}");
    }
    run(machine
        .copy(&["-a", "--exclude=source"])
        .arg(&source)
        .arg(machine.at(scratch.folder("into"))))
    .expect(0);
    run(machine
        .copy(&["--exclude=*.o"])
        .arg(machine.at(source.join("a.o")))
        .arg(scratch.join("into")))
    .expect(0);
    assert!(names(&scratch.join("into")).is_empty());
    run(machine.copy(&["-a", "--files-from=x"]).arg(&source).arg(machine.at("x")))
        .expect(2)
        .expect_said("--files-from");
}
