//! `thalweg sync` from and to other machines.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use thalweg_testing::{Dice, sample_share, script};

use crate::{
    fetch_trees::are_equal,
    moves::elsewhere,
    remote_copies::{odd_names, over_each},
    support::{
        Ran, Running, Scratch, bytes, names, run, run::GUARD, shell, sshd::OtherMachine, thalweg,
    },
    sync_trees::{STATE, lines, record},
};

/// Both directions between a source and a destination.
pub struct BothWays<'a> {
    pub machine: &'a OtherMachine,
    pub source: PathBuf,
    pub is_push: bool,
}

impl BothWays<'_> {
    pub fn command(&self, words: &[&str], dst: &Path) -> Command {
        self.machine.between(("sync", words), self.is_push, [&self.source, dst])
    }

    pub fn sync(&self, words: &[&str], dst: &Path) -> Ran {
        run(&mut self.command(words, dst))
    }
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
            assert_eq!(record(&dst), record(&source));
            assert!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)).is_empty());

            fs::write(source.join("a/b/c"), "changed").unwrap();
            fs::write(source.join("new"), "new").unwrap();
            fs::remove_file(source.join("a/b/link")).unwrap();
            fs::create_dir_all(dst.join("extra/deep")).unwrap();
            fs::write(dst.join("extra/deep/file"), "x").unwrap();
            fs::set_permissions(source.join("-rf"), PermissionsExt::from_mode(0o600)).unwrap();
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
            assert_eq!(record(&dst), record(&source));
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
        match dice.below(5) {
            0 => {
                let _ = fs::remove_file(&one);
                bytes::write(&one, dice.below(1000), dice.below(5000));
            }
            4 if one.exists() => {
                let mode = [0o600, 0o640, 0o644][dice.below(3) as usize];
                fs::set_permissions(&one, fs::Permissions::from_mode(mode)).unwrap();
            }
            1 if one.exists() => bytes::write(&one, dice.below(1000), 5000),
            2 | 4 => drop(fs::remove_file(&one)),
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

/// Only hashes show which of these files are replaced. The other names of a replaced file are linked again.
#[test]
fn a_dry_run_with_hashes_prints_the_other_names_of_a_replaced_file() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    let setup = "for name in changed partial same touched; do echo new >$name; ln $name $name-2; ln $name $name-3; \
                 done; touch -d @1000000000 * .";
    shell(&source, setup).expect(0);
    let edit = "echo old >changed; echo old >partial; rm partial-2 partial-3 same-3; cp partial partial-3; \
                cp same same-3; touch -d @1000000000 *; touch -d @1 touched; touch -d @1000000000 .";
    for option in ["--checksum", "--verify"] {
        for is_push in [false, true] {
            let dst = scratch.join(&format!("dst{option}{is_push}"));
            shell(scratch.path(), &format!("cp -a source {}", dst.display())).expect(0);
            shell(&dst, edit).expect(0);
            let both = BothWays { machine: &machine, source: source.clone(), is_push };
            let planned = lines(&both.sync(&["-n", option], &dst).expect(0));
            let done = lines(&both.sync(&["-i", option], &dst).expect(0));
            assert_eq!(planned, done, "{option}, push: {is_push}");
            let linked = ["changed", "partial", "touched"].map(|name| {
                let is_other = |line: &&String| line.starts_with('h') && line.contains(name);
                done.iter().filter(is_other).count()
            });
            assert_eq!(linked, [2; 3], "{option}, push: {is_push}: {done:#?}");
            assert_eq!(record(&dst), record(&source));
            assert!(lines(&both.sync(&["-i", option], &dst).expect(0)).is_empty());
        }
    }
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
            fs::write(folder.join(STATE), "thalweg sync 1\nsource 1-2\n").unwrap();
        }
        fs::write(dst.join(STATE), "own").unwrap();
        let both = BothWays { machine: &machine, source, is_push };
        both.sync(&[], &dst).expect(0);
        assert_eq!(fs::read(dst.join(STATE)).unwrap(), b"own", "push: {is_push}");
        both.sync(&["--delete"], &dst).expect(0);
        assert!(!fs::read_to_string(dst.join(STATE)).unwrap().contains("source 1-2"));
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
    for name in ["a", "b"] {
        bytes::write(&scratch.folder(&format!("source/{name}")).join("large"), 2, 18 << 20);
    }
    for (is_push, connections) in [(true, "1"), (true, "3"), (false, "1")] {
        let mut command = thalweg();
        command
            .current_dir(scratch.path())
            .args(["sync", "--connections", connections, "-e"])
            .arg(&rsh);
        command.args(["--remote-program", env!("CARGO_BIN_EXE_thalweg")]);
        let far = |path: &Path| format!("h:{}", path.display());
        if is_push {
            drop(fs::remove_dir_all(&dst));
            command.arg(&source).arg(far(&dst));
        } else {
            command.arg(far(&source)).arg(scratch.join("pulled"));
        }
        run(command.args(["--jobs=3", "--limit=64M"])).expect(0);
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
            let is_kept = |name: &&String| *name != "f" && *name != STATE;
            assert_eq!(names(&dst).iter().filter(is_kept).count(), 120);
        };
        kept(both.sync(&["--delete"], &dst), "nothing was deleted: the source is empty");
        fs::write(source.join("f"), "x").unwrap();
        kept(both.sync(&["--delete"], &dst), "120 of 120 entries would be deleted (limit: 60)");
        kept(both.sync(&["--delete", "--max-delete=119"], &dst), "limit: 119");
        let nowhere = BothWays { machine: &machine, source: scratch.join("none"), is_push };
        kept(nowhere.sync(&["--delete"], &dst), "no such file or directory");
        // With -L, the server omits a link without a target, so the client does not know the kind of its copy.
        symlink("nowhere", source.join("link")).unwrap();
        kept(both.sync(&["-L", "--delete", "--max-delete=200"], &dst), "not sent by the server");
        fs::remove_file(source.join("link")).unwrap();
        let ran = both.sync(&["--delete", "--max-delete=120", "--json"], &dst).expect(0);
        assert_eq!(ran.json()["sync"]["deleted"], 120, "{}", ran.said());
        assert_eq!(names(&dst), [STATE, "f"]);
    }
}

/// If a disk is not mounted, its mount point is a directory of another file system.
#[test]
fn a_source_on_another_file_system_than_before_deletes_nothing() {
    let scratch = Scratch::new();
    let test = "a_source_on_another_file_system_than_before_deletes_nothing";
    let Some(disk) = elsewhere(test, &scratch) else { return };
    let machine = OtherMachine::by_script(scratch.path());
    shell(disk.path(), "mkdir d; echo 1 >d/f; echo 2 >g").expect(0);
    let (unmounted, local) = (scratch.folder("unmounted"), scratch.join("local"));
    fs::write(unmounted.join("README"), "not mounted").unwrap();
    run(thalweg().args(["sync", "--delete"]).args([disk.path(), &local])).expect(0);
    for is_push in [false, true] {
        let dst = scratch.join(&format!("dst{is_push}"));
        let mounted = BothWays { machine: &machine, source: disk.path().to_owned(), is_push };
        let both = BothWays { machine: &machine, source: unmounted.clone(), is_push };
        mounted.sync(&["--delete"], &dst).expect(0);
        let state = |place: &Path| fs::read_to_string(place.join(STATE)).unwrap();
        assert_eq!(state(&dst), state(&local));
        // The local sync reads the state that the sync between machines recorded.
        run(thalweg().args(["sync", "--delete"]).args([disk.path(), &*dst])).expect(0);
        for words in [&["-n", "--delete"][..], &["--delete"]] {
            let ran = both.sync(words, &dst).expect(1);
            ran.expect_said("nothing was deleted: the source is on another file system");
            assert_eq!(names(&dst.join("d")), ["f"], "push: {is_push}, {words:?}");
        }
        assert_eq!(state(&dst), state(&local));
        mounted.sync(&["--delete"], &dst).expect(0);
        both.sync(&["--delete", "--force"], &dst).expect(0);
        assert_eq!(names(&dst), [STATE, "README"]);
        assert_ne!(state(&dst), state(&local));
        both.sync(&["--delete"], &dst).expect(0);
    }
}

#[test]
fn a_file_or_link_replaces_a_directory_as_by_a_local_sync() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    let line = "mkdir d; echo 1 >file; ln -s file link; echo 2 >d/file; echo 3 >b; ln b z; ln b d/y; touch -d @1 d .";
    shell(&source, line).expect(0);
    let setup = "mkdir -p file/x/y link d/file b d/y kept; echo old >file/x/y/z; echo old >d/file/w; touch d/o; find . -exec touch -d @2 {} +";
    let all: [&[&str]; 7] = [
        &[],
        &["--delete"],
        &["--delete", "--max-delete=8"],
        &["--delete", "--checksum"],
        &["--delete", "--exclude=w"],
        &["--delete", "--trash=TRASH"],
        &["--delete-excluded", "--delete", "--exclude=w", "--jobs=1"],
    ];
    for (case, words) in all.into_iter().enumerate() {
        let local = scratch.folder(&format!("local{case}"));
        shell(&local, setup).expect(0);
        let trash = |name: &str| scratch.join(&format!("{name}{case}"));
        let given = |name: &str| -> Vec<String> {
            let trash = trash(name).display().to_string();
            words.iter().map(|word| word.replace("TRASH", &trash)).collect()
        };
        let wanted = run(thalweg().args(["sync", "-i"]).args(given("a")).args([&source, &local]));
        for is_push in [false, true] {
            eprintln!("{words:?}, push: {is_push}");
            let dst = scratch.folder(&format!("dst{case}{is_push}"));
            shell(&dst, setup).expect(0);
            let both = BothWays { machine: &machine, source: source.clone(), is_push };
            let name = if is_push { "b" } else { "c" };
            let words = given(name);
            let words: Vec<_> =
                ["-i"].into_iter().chain(words.iter().map(|word| &**word)).collect();
            let planned = both.sync(&[&["-n"], &words[..]].concat(), &dst);
            let done = both.sync(&words, &dst);
            assert_eq!(done.status.code(), wanted.status.code(), "{}", done.said());
            // In a dry run, a directory with an excluded entry counts as removed.
            if done.status.success() {
                assert_eq!(lines(&planned), lines(&done));
                assert_eq!(record(&dst).links, record(&local).links);
            }
            assert_eq!(with_links_as_files(&done), with_links_as_files(&wanted));
            assert_eq!(record(&dst).entries, record(&local).entries);
            if trash(name).exists() {
                // The local sync first copies `z`, and keeps this copy when it links `z` to `b`.
                let _ = fs::remove_file(trash("a").join("z"));
                let names = |root: &Path| record(root).entries.into_keys().collect::<Vec<_>>();
                assert_eq!(names(&trash(name)), names(&trash("a")));
            }
        }
    }
}

/// Returns the lines with hard links shown as files, because the two kinds of sync choose different names of a file as
/// the first.
fn with_links_as_files(ran: &Ran) -> Vec<String> {
    let mut lines: Vec<_> = lines(ran).into_iter().map(|line| line.replace("hf", ">f")).collect();
    lines.sort();
    lines
}

/// thalweg must print the reason of the refusal, although entries that would replace directories fail, too.
#[test]
fn a_refused_deletion_replaces_no_directory() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    shell(&source, "echo 1 >a; ln a b").expect(0);
    for is_push in [false, true] {
        let dst = scratch.folder(&format!("dst{is_push}"));
        shell(&dst, "mkdir a; touch a/x a/y").expect(0);
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        for words in [&["-n", "--delete", "--max-delete=2"][..], &["--delete", "--max-delete=2"]] {
            let ran = both.sync(words, &dst).expect(1);
            ran.expect_said("cannot overwrite directory with non-directory");
            ran.expect_said("would be deleted (limit: 2)");
            assert_eq!(names(&dst.join("a")), ["x", "y"]);
        }
        assert_eq!(fs::read(dst.join("b")).unwrap(), b"1\n");
        both.sync(&["--delete", "--max-delete=3"], &dst).expect(0);
        assert_eq!(record(&dst), record(&source));
    }
}

/// Waits until the process of the other machine has ended. Its parent may not have waited for it, so it may be a
/// zombie.
fn wait_for_other_end(scratch: &Scratch) {
    let pid = fs::read_to_string(scratch.join("pid")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let began = Instant::now();
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < GUARD, "the other process does not end");
        thread::sleep(Duration::from_millis(1));
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
            assert!(!running.has_ended(), "over before it was killed");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(300));
        drop(running.child().kill());
        drop(running.finish());
        // The other process ends when its stream is closed.
        wait_for_other_end(&scratch);
        assert!(dst.join("extra").exists() && !dst.join("large").exists());
        both.sync(&["--delete"], &dst).expect(0);
        assert_eq!(names(&dst), [STATE, "large"]);
        assert_eq!(record(&dst), record(&source));
    }
}

/// An option that was ignored would copy or delete what the user excluded.
#[test]
fn no_option_is_ignored_between_machines() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    fs::write(source.join("f"), "x").unwrap();
    let copy = "--verify=device --manifest=m --inplace --dry-run --tune --sparse=always --reflink=never --parents \
                --backup -b --suffix=.old --update=none --no-clobber --interactive --link --symbolic-link --debug \
                --attributes-only --copy-contents --remove-destination --keep-directory-symlink";
    for is_push in [false, true] {
        let dst = scratch.join(&format!("dst{is_push}"));
        for word in copy.split_whitespace() {
            let name =
                if word == "--verify=device" { word } else { word.split('=').next().unwrap() };
            let said = format!("{name} cannot be used with a remote source or destination");
            let words: &[&str] = &[word, "-r"];
            let mut command = machine.between(("copy", words), is_push, [&source, &dst]);
            run(&mut command).expect(2).expect_said(&said);
            assert!(!dst.exists(), "{word}");
        }
    }
}

/// The receiving side requests the hashes and the files over one connection.
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
