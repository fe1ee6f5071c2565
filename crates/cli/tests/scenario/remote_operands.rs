//! Several sources, and files, as operands of `thalweg sync` between machines.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::UNIX_EPOCH,
};

use crate::{
    remote_copies::over_each,
    support::{Ran, Scratch, bytes, names, run, sshd::OtherMachine, thalweg},
    sync_trees::{lines, record},
};

/// Syncs these sources in one direction.
fn sync(machine: &OtherMachine, is_push: bool, words: &[&str], all: &[PathBuf], to: &Path) -> Ran {
    let mut command: Command = machine.run("sync", words);
    for source in all {
        if is_push {
            command.arg(source)
        } else {
            command.arg(machine.at(source))
        };
    }
    if is_push {
        command.arg(machine.at(to))
    } else {
        command.arg(to)
    };
    run(&mut command)
}

/// Creates two directories and two files, one of them executable. Returns their paths.
fn sources(scratch: &Scratch, name: &str) -> Vec<PathBuf> {
    let root = scratch.folder(name);
    for folder in ["one", "two"] {
        fs::create_dir_all(root.join(folder).join("d")).unwrap();
        bytes::write(&root.join(folder).join("d/f"), 3, 5000);
    }
    bytes::write(&root.join("file"), 4, 100_000);
    bytes::write(&root.join("-rf $x"), 5, 10);
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o755)).unwrap();
    ["one", "two", "file", "-rf $x"].map(|entry| root.join(entry)).to_vec()
}

#[test]
fn several_sources_become_entries_as_by_a_local_sync() {
    over_each("several_sources_become_entries", |scratch, machine| {
        for is_push in [false, true] {
            let all = sources(scratch, &format!("source{is_push}"));
            let [dst, local] =
                ["dst", "local"].map(|name| scratch.folder(&format!("{name}{is_push}")));
            let synced = |words: &[&str]| {
                let ours = lines(&sync(machine, is_push, words, &all, &dst).expect(0));
                let local = run(thalweg().arg("sync").args(words).args(&all).arg(&local)).expect(0);
                assert_eq!(ours, lines(&local), "{words:?}");
                ours
            };
            let planned = synced(&["-n"]);
            assert_eq!(names(&dst), Vec::<String>::new());
            assert_eq!(synced(&["-i"]), planned);
            assert_eq!(names(&dst), ["-rf $x", "file", "one", "two"]);
            assert!(planned.iter().any(|line| line == ">f+++++++++ one/d/f"), "{planned:#?}");
            assert!(synced(&["-i"]).is_empty());

            fs::write(all[0].join("d/new"), "new").unwrap();
            fs::set_permissions(&all[2], fs::Permissions::from_mode(0o600)).unwrap();
            for dst in [&dst, &local] {
                fs::write(dst.join("extra"), "x").unwrap();
            }
            // Sets the times of the directories, so that both syncs see the same times.
            for changed in ["d", ""].map(|name| all[0].join(name)) {
                fs::File::open(changed).unwrap().set_modified(UNIX_EPOCH).unwrap();
            }
            let changed = synced(&["-i"]);
            for line in [">f+++++++++ one/d/new", ".f...p..... file"] {
                assert!(changed.iter().any(|done| done == line), "{line} in {changed:#?}");
            }
            assert!(dst.join("extra").exists());
            assert_eq!(record(&dst.join("two")), record(&all[1]));
        }
    });
}

#[test]
fn a_file_becomes_an_entry_and_changes_nothing_beside_it() {
    over_each("a_file_becomes_an_entry", |scratch, machine| {
        for is_push in [false, true] {
            let all = sources(scratch, &format!("source{is_push}"));
            let file = &all[2..3];
            let dst = scratch.folder(&format!("dst{is_push}"));
            fs::write(dst.join("other"), "kept").unwrap();
            fs::set_permissions(&dst, fs::Permissions::from_mode(0o711)).unwrap();
            let sync = |words: &[&str]| sync(machine, is_push, words, file, &dst);
            assert_eq!(lines(&sync(&["-i"]).expect(0)), [">f+++++++++ file"]);
            assert_eq!(names(&dst), ["file", "other"]);
            assert_eq!(fs::metadata(&dst).unwrap().mode() & 0o777, 0o711);
            assert_eq!(fs::read(&file[0]).unwrap(), fs::read(dst.join("file")).unwrap());
            let [there, here] =
                [&dst.join("file"), &file[0]].map(|path| fs::metadata(path).unwrap());
            assert_eq!((there.mode(), there.mtime_nsec()), (here.mode(), here.mtime_nsec()));
            assert!(lines(&sync(&["-i"]).expect(0)).is_empty());

            // The changed byte leaves the size and the time as they were, so only `-c` finds it.
            let mut content = fs::read(&file[0]).unwrap();
            content[50_000] ^= 1;
            fs::write(&file[0], content).unwrap();
            let written = fs::File::options().append(true).open(&file[0]).unwrap();
            written.set_modified(here.modified().unwrap()).unwrap();
            assert!(lines(&sync(&["-i"]).expect(0)).is_empty());
            assert_eq!(lines(&sync(&["-i", "-c"]).expect(0)), [">fc........ file"]);
            assert_eq!(fs::read(&file[0]).unwrap(), fs::read(dst.join("file")).unwrap());

            let refused = sync(&["--delete"]).expect(2);
            refused.expect_said("not a directory; --delete requires a directory");
            sync(&["--filter-file=.f"]).expect(2).expect_said("--filter-file requires a directory");
            fs::remove_file(dst.join("file")).unwrap();
            sync(&["--exclude=file"]).expect(0);
            assert_eq!(names(&dst), ["other"]);
            // As in a local sync, a pattern with a slash does not match a source.
            sync(&["--exclude=/file"]).expect(0);
            assert_eq!(names(&dst), ["file", "other"]);
        }
    });
}

#[test]
fn operands_that_would_mix_sources_are_refused() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (one, two) = (sources(&scratch, "one"), sources(&scratch, "two"));
    for is_push in [false, true] {
        let none = scratch.join("none");
        let said = format!("'{}': not a directory", none.display());
        for all in [&one[..2], &one[2..3]] {
            let ran = sync(&machine, is_push, &[], all, &none).expect(2);
            ran.expect_said(&said);
            assert!(!none.exists());
        }
        let dst = scratch.folder(&format!("dst{is_push}"));
        let twice = [one[0].clone(), two[0].clone()];
        let ran = sync(&machine, is_push, &[], &twice, &dst).expect(2);
        ran.expect_said("would have the same name in the destination");
        let ran = sync(&machine, is_push, &[], &[one[0].clone(), "/".into()], &dst).expect(2);
        ran.expect_said("cannot be one of several sources");
        for word in ["--delete", "--trash=t", "--reference=r", "--filter-file=.f"] {
            let ran = sync(&machine, is_push, &[word], &one, &dst).expect(2);
            ran.expect_said("cannot be used with several sources");
        }
        assert_eq!(names(&dst), Vec::<String>::new());
        // The sync must not follow a link in the destination.
        let elsewhere = scratch.folder(&format!("elsewhere{is_push}"));
        symlink(&elsewhere, dst.join("two")).unwrap();
        let ran = sync(&machine, is_push, &[], &one[..2], &dst).expect(2);
        ran.expect_said("/two': not a directory");
        assert_eq!(names(&elsewhere), Vec::<String>::new());
        assert_eq!(names(&dst), ["one", "two"]);
    }
}

#[test]
fn copies_that_would_replace_each_other_are_refused() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (one, two) = (sources(&scratch, "one"), sources(&scratch, "two"));
    let twice = [&one[2], &two[2]];
    for is_push in [false, true] {
        let dst = scratch.folder(&format!("dst{is_push}"));
        let mut command = machine.run("copy", &[]);
        if is_push {
            command.args(twice).arg(machine.at(&dst));
        } else {
            command.args(twice.map(|path| machine.at(path))).arg(&dst);
        }
        run(&mut command).expect(2).expect_said("would have the same name in the destination");
        assert_eq!(names(&dst), Vec::<String>::new());
    }
}
