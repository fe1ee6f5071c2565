//! `thalweg sync` from and to other machines.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use thalweg_testing::{Dice, sample_share, script};

use crate::{
    fetch_trees::are_equal,
    remote_copies::{odd_names, over_each},
    support::{Ran, Running, Scratch, bytes, names, run, sshd::OtherMachine, thalweg},
    sync_trees::record,
};

/// Both directions between a source and a destination.
pub struct BothWays<'a> {
    pub machine: &'a OtherMachine,
    pub source: PathBuf,
    pub is_push: bool,
}

impl BothWays<'_> {
    pub fn command(&self, words: &[&str], dst: &Path) -> Command {
        let mut command = self.machine.run("sync", words);
        if self.is_push {
            command.arg(&self.source).arg(self.machine.at(dst));
        } else {
            command.arg(self.machine.at(&self.source)).arg(dst);
        }
        command
    }

    pub fn sync(&self, words: &[&str], dst: &Path) -> Ran {
        run(&mut self.command(words, dst))
    }
}

pub fn lines(ran: &Ran) -> Vec<String> {
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_sync_makes_the_other_side_equal_and_a_dry_run_prints_the_lines_of_the_real_one() {
    over_each("a_sync_makes_the_other_side_equal", |scratch, machine| {
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let dst = scratch.join(&format!("dst{is_push}"));
            for name in odd_names() {
                bytes::write(&source.join(name), 5, 3000);
            }
            fs::create_dir_all(source.join("a/b")).unwrap();
            bytes::write(&source.join("a/b/c"), 1, 100);
            symlink("c", source.join("a/b/link")).unwrap();
            let both = BothWays { machine, source: source.clone(), is_push };
            let planned = lines(&both.sync(&["-n", "--delete"], &dst).expect(0));
            assert!(!dst.exists());
            let done = lines(&both.sync(&["-i", "--delete"], &dst).expect(0));
            assert_eq!(planned, done);
            assert_eq!(planned.len(), odd_names().len() + 5, "{planned:#?}");
            assert!(planned.iter().any(|line| line == "cd+++++++++ ./"), "{planned:#?}");
            are_equal(&source, &dst);
            assert!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)).is_empty());

            fs::write(source.join("a/b/c"), "changed").unwrap();
            fs::write(source.join("new"), "new").unwrap();
            fs::remove_file(source.join("a/b/link")).unwrap();
            fs::create_dir_all(dst.join("extra/deep")).unwrap();
            fs::write(dst.join("extra/deep/file"), "x").unwrap();
            fs::set_permissions(
                source.join("-rf"),
                std::os::unix::fs::PermissionsExt::from_mode(0o600),
            )
            .unwrap();
            // Both directories may have changed within one tick of the clock.
            for changed in [&source, &source.join("a/b")] {
                fs::File::open(changed).unwrap().set_modified(UNIX_EPOCH).unwrap();
            }
            let planned = both.sync(&["-n", "--delete"], &dst).expect(0);
            planned.expect_said("1 new, 4 changed, 4 deleted");
            assert!(dst.join("extra").exists() && !dst.join("new").exists());
            let without = both.sync(&["-i"], &dst).expect(0);
            assert!(dst.join("extra").exists());
            let deleted = both.sync(&["-i", "--delete"], &dst).expect(0);
            let mut done = [lines(&without), lines(&deleted)].concat();
            done.sort();
            assert_eq!(lines(&planned), done);
            for line in ["*deleting   a/b/link", ">f+++++++++ new", ".f...p..... -rf"] {
                assert!(done.iter().any(|done| done == line), "{line} in {done:#?}");
            }
            are_equal(&source, &dst);
        }
    });
}

/// Makes random changes of files that have several names.
fn link_and_write(dice: &mut Dice, root: &Path) {
    let path = |dice: &mut Dice| {
        let folder = ["", "d", "d/e"][dice.below(3) as usize];
        fs::create_dir_all(root.join(folder)).unwrap();
        root.join(folder).join(["a", "b", "c", "z"][dice.below(4) as usize])
    };
    for _ in 0..12 {
        let (one, other) = (path(dice), path(dice));
        match dice.below(4) {
            0 => {
                let _ = fs::remove_file(&one);
                bytes::write(&one, dice.below(1000), dice.below(5000));
            }
            1 if one.exists() => bytes::write(&one, dice.below(1000), 5000),
            2 => drop(fs::remove_file(&one)),
            _ => drop(fs::hard_link(&one, &other)),
        }
    }
}

#[test]
fn files_with_several_names_are_linked_as_by_a_local_sync() {
    let test = "files_with_several_names_are_linked";
    over_each(test, |scratch, machine| {
        let mut dice = Dice::fixed(test, 40);
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let dst = scratch.join(&format!("dst{is_push}"));
            let local = scratch.join(&format!("local{is_push}"));
            let both = BothWays { machine, source: source.clone(), is_push };
            for _ in 0..8_u64.div_ceil(sample_share(4)) {
                link_and_write(&mut dice, &source);
                let planned = lines(&both.sync(&["-n", "--delete", "--force"], &dst).expect(0));
                let done = lines(&both.sync(&["-i", "--delete", "--force"], &dst).expect(0));
                assert_eq!(planned, done);
                run(thalweg().args(["sync", "--delete", "--force"]).args([&source, &local]))
                    .expect(0);
                let wanted = record(&source);
                assert_eq!(record(&local), wanted);
                assert_eq!(record(&dst), wanted);
                assert!(lines(&both.sync(&["-i"], &dst).expect(0)).is_empty());
            }
        }
    });
}

#[test]
fn state_files_of_earlier_syncs_are_not_copied() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.folder(&format!("dst{is_push}"));
        fs::create_dir(source.join("d")).unwrap();
        fs::write(source.join("d/f"), "x").unwrap();
        for folder in [source.clone(), source.join("d")] {
            fs::write(folder.join(".thalweg-sync"), "thalweg sync 1\nsource 1-2\n").unwrap();
        }
        fs::write(dst.join(".thalweg-sync"), "own").unwrap();
        let both = BothWays { machine: &machine, source, is_push };
        both.sync(&["--delete"], &dst).expect(0);
        assert_eq!(fs::read(dst.join(".thalweg-sync")).unwrap(), b"own", "push: {is_push}");
        assert_eq!(names(&dst.join("d")), ["f"]);
        assert!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)).is_empty());
    }
}

#[test]
fn a_command_whose_first_process_waits_for_more_input_ends() {
    let scratch = Scratch::new();
    let rsh = scratch.join("through-tee");
    script(&rsh, "#!/bin/sh\nshift\ntee sent | \"$@\" | tee received\n");
    let (source, dst) = (scratch.folder("source"), scratch.join("dst"));
    bytes::write(&source.join("f"), 1, 100_000);
    for is_push in [true, false] {
        let mut command = thalweg();
        command.current_dir(scratch.path()).args(["sync", "-e"]).arg(&rsh);
        command.args(["--remote-program", env!("CARGO_BIN_EXE_thalweg")]);
        let far = |path: &Path| format!("h:{}", path.display());
        if is_push {
            command.arg(&source).arg(far(&dst));
        } else {
            command.arg(far(&source)).arg(scratch.join("pulled"));
        }
        run(&mut command).expect(0);
    }
    are_equal(&source, &dst);
}

#[test]
fn nothing_is_deleted_if_there_is_a_reason_not_to() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.folder(&format!("dst{is_push}"));
        for n in 0..120 {
            fs::write(dst.join(n.to_string()), "kept").unwrap();
        }
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let kept = |ran: Ran, said: &str| {
            ran.expect(1).expect_said(said);
            assert_eq!(names(&dst).iter().filter(|name| *name != "f").count(), 120);
        };
        kept(both.sync(&["--delete"], &dst), "nothing was deleted: the source is empty");
        fs::write(source.join("f"), "x").unwrap();
        kept(both.sync(&["--delete"], &dst), "120 of 120 entries would be deleted, more than 60");
        kept(both.sync(&["--delete", "--max-delete=119"], &dst), "more than 119");
        let nowhere = BothWays { machine: &machine, source: scratch.join("none"), is_push };
        kept(nowhere.sync(&["--delete"], &dst), "no such file or directory");
        // The server leaves out a FIFO, so that its counterpart is unknown.
        run(Command::new("mkfifo").arg(source.join("pipe"))).expect(0);
        kept(both.sync(&["--delete", "--max-delete=200"], &dst), "not sent by the server");
        fs::remove_file(source.join("pipe")).unwrap();
        let ran = both.sync(&["--delete", "--max-delete=120", "--json"], &dst).expect(0);
        assert_eq!(ran.json()["sync"]["deleted"], 120, "{}", ran.said());
        assert_eq!(names(&dst), ["f"]);
    }
}

#[test]
fn an_interrupted_sync_deletes_nothing() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.folder(&format!("dst{is_push}"));
        bytes::write(&source.join("large"), 1, 20_000_000);
        fs::write(dst.join("extra"), "x").unwrap();
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let words = ["--delete", "--limit=4M"];
        let mut running = Running::start(&mut both.command(&words, &dst));
        while names(&dst).len() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(300));
        drop(running.child().kill());
        drop(running.finish());
        // The other process ends when its stream is closed.
        thread::sleep(Duration::from_millis(500));
        assert!(dst.join("extra").exists() && !dst.join("large").exists());
        both.sync(&["--delete"], &dst).expect(0);
        assert_eq!(names(&dst), ["large"]);
        are_equal(&source, &dst);
    }
}

/// An option that was ignored would copy or delete what the user excluded.
#[test]
fn no_option_is_ignored_between_machines() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    fs::write(source.join("f"), "x").unwrap();
    let words = "--detect-renames";
    let copy = "--verify=device --manifest=m --inplace --dry-run --tune --sparse=always --reflink=never --parents \
                --backup -b --suffix=.old --update=none --no-clobber --interactive --link --symbolic-link --debug \
                --attributes-only --copy-contents --remove-destination --keep-directory-symlink";
    for is_push in [false, true] {
        let dst = scratch.join(&format!("dst{is_push}"));
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        for word in words.split_whitespace() {
            let name = word.split('=').next().unwrap();
            let said = format!("{name} cannot be used with another machine");
            both.sync(&[word], &dst).expect(2).expect_said(&said);
            assert!(!dst.exists(), "{word}");
        }
        for word in copy.split_whitespace() {
            let name =
                if word == "--verify=device" { word } else { word.split('=').next().unwrap() };
            let said = format!("{name} cannot be used with another machine");
            let mut command = machine.copy(&[word, "-r"]);
            if is_push {
                command.arg(&source).arg(machine.at(&dst));
            } else {
                command.arg(machine.at(&source)).arg(&dst);
            }
            run(&mut command).expect(2).expect_said(&said);
            assert!(!dst.exists(), "{word}");
        }
    }
}

/// The receiving side has one connection, for the hashes and for the files.
#[test]
fn a_checksum_replaces_files_of_equal_size_and_time() {
    over_each("a_checksum_replaces_files_of_equal_size_and_time", |scratch, machine| {
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let dst = scratch.folder(&format!("dst{is_push}"));
            for number in 0..70_u8 {
                for (root, content) in [(&source, number), (&dst, number & !1)] {
                    let path = root.join(number.to_string());
                    fs::write(&path, [content; 100]).unwrap();
                    let file = fs::File::options().append(true).open(&path).unwrap();
                    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
                }
            }
            for root in [&source, &dst] {
                let directory = fs::File::open(root).unwrap();
                directory.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
            }
            let both = BothWays { machine, source: source.clone(), is_push };
            let changed = lines(&both.sync(&["--checksum", "-i"], &dst).expect(0));
            let files = changed.iter().filter(|line| line.starts_with(['>', '<'])).count();
            assert_eq!(files, 35, "{changed:#?}");
            are_equal(&source, &dst);
            let again = lines(&both.sync(&["--checksum", "-i"], &dst).expect(0));
            assert!(again.is_empty(), "{again:#?}");
        }
    });
}
