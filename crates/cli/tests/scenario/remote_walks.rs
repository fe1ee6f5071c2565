//! `-L`, `-x` and `--verify` of syncs and copies between machines, compared with those on one machine.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

use thalweg_testing::script;

use crate::{
    remote_copies::over_each,
    remote_syncs::BothWays,
    support::{
        Ran, Scratch, bytes, loop_disk::MountedDisk, names, run, shell, skip, sshd::OtherMachine,
        thalweg,
    },
    sync_trees::{STATE, lines, record},
};

/// Returns the sorted lines of a local sync, with hard links shown as files.
fn local_lines(words: &[&str], source: &Path, dst: &Path) -> Vec<String> {
    plain(lines(&local(words, source, dst).expect(0)))
}

/// Returns the lines with hard links (`hf`) shown as files (`>f`), because a sync between machines may print another
/// name of a file as the first.
fn plain(lines: Vec<String>) -> Vec<String> {
    let plain = |line: String| match line.strip_prefix("hf") {
        Some(rest) => format!(">f{rest}"),
        None => line,
    };
    let mut lines: Vec<String> = lines.into_iter().map(plain).collect();
    lines.sort();
    lines
}

/// Runs `thalweg sync` on this machine.
fn local(words: &[&str], source: &Path, dst: &Path) -> Ran {
    run(thalweg().arg("sync").args(words).args([source, dst]))
}

/// Makes a tree with links to files and directories, inside and outside.
fn linked_tree(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let line = "mkdir -p SRC/sub/deep out/d other; seq 7 >other/o; seq 100 >SRC/file; seq 200 >SRC/sub/deep/g; seq 300 >out/secret
        seq 400 >out/d/h; chmod 640 out/secret; touch -d @1000000000 out/secret out/d; setfattr -n user.x -v 1 out/d/h
        ln -s ../out/secret SRC/to-file; ln -s ../../out/d SRC/sub/to-dir; ln -s to-dir SRC/sub/chain
        ln -s \"$PWD/other\" SRC/absolute";
    shell(scratch.path(), &line.replace("SRC", name)).expect(0);
    scratch.join(name)
}

#[test]
fn links_are_followed_as_by_a_local_sync() {
    over_each("links_are_followed_as_by_a_local_sync", |scratch, machine| {
        for is_push in [false, true] {
            let source = linked_tree(scratch, &format!("source{is_push}"));
            let (dst, here) = (scratch.join(&format!("dst{is_push}")), scratch.join("here"));
            let _ = fs::remove_dir_all(&here);
            let both = BothWays { machine, source: source.clone(), is_push };
            let words = ["-L", "-i", "--delete"];
            let compare = || {
                let planned = lines(&both.sync(&["-L", "-n", "--delete"], &dst).expect(0));
                let done = lines(&both.sync(&words, &dst).expect(0));
                assert_eq!(planned, done);
                assert_eq!(plain(done.clone()), local_lines(&words, &source, &here));
                let copied = record(&dst);
                assert_eq!(copied, record(&here));
                assert!(copied.entries.contains_key(Path::new("absolute/o")));
                assert!(lines(&both.sync(&words, &dst).expect(0)).is_empty());
            };
            compare();
            fs::write(scratch.join("out/secret"), "changed").unwrap();
            fs::remove_file(source.join("sub/chain")).unwrap();
            fs::create_dir(source.join("sub/new")).unwrap();
            compare();
            // Without the option, the links themselves are copied.
            let links = scratch.join(&format!("links{is_push}"));
            both.sync(&[], &links).expect(0);
            assert!(links.join("to-file").is_symlink() && links.join("absolute").is_symlink());
            fs::remove_dir_all(scratch.join("out")).unwrap();
        }
    });
}

#[test]
fn a_copy_follows_links_like_a_local_copy() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = linked_tree(&scratch, "source");
    let at = |name: &str| scratch.join(name);
    run(thalweg().args(["copy", "-a", "-L"]).args([&source, &at("here")])).expect(0);
    run(machine.copy(&["-a", "-L"]).arg(machine.at(&source)).arg(at("pulled"))).expect(0);
    run(machine.copy(&["-a", "-L"]).arg(&source).arg(machine.at(at("pushed")))).expect(0);
    let wanted = record(&at("here"));
    assert_eq!(record(&at("pulled")), wanted);
    assert_eq!(record(&at("pushed")), wanted);
    // A source that is a link is followed with -H, and also without it.
    symlink("source", at("link")).unwrap();
    run(machine.copy(&["-a", "-H"]).arg(machine.at(at("link"))).arg(at("named"))).expect(0);
    assert!(at("named/to-file").is_symlink());
}

/// Two names that lead to one file become hard links, as with `rsync -aHL`.
#[test]
fn names_that_lead_to_one_file_are_linked_as_by_a_local_sync() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let line =
        "mkdir source; seq 100 >source/a; ln -s a source/b; ln source/a source/c; seq 9 >source/d";
    shell(scratch.path(), line).expect(0);
    let source = scratch.join("source");
    local(&["-L"], &source, &scratch.join("here")).expect(0);
    let wanted = record(&scratch.join("here"));
    assert_eq!(wanted.links.len(), 1);
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let dst = scratch.join(&format!("dst{is_push}"));
        both.sync(&["-L"], &dst).expect(0);
        assert_eq!(record(&dst), wanted);
        assert!(lines(&both.sync(&["-L", "-i"], &dst).expect(0)).is_empty());
    }
}

/// Runs a sync on this machine, from another one, and to another one. Compares its lines, those of its dry run, and the
/// results.
fn in_all_ways(scratch: &Scratch, words: &[&str], code: i32) -> Vec<String> {
    let machine = OtherMachine::by_script(scratch.path());
    let (source, here) = (scratch.join("source"), scratch.join("dst"));
    for is_push in [false, true] {
        let dst = scratch.join(&format!("dst{is_push}"));
        run(std::process::Command::new("cp").arg("-a").args([&here, &dst])).expect(0);
    }
    let wanted = plain(lines(&local(words, &source, &here).expect(code)));
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let dst = scratch.join(&format!("dst{is_push}"));
        let planned = plain(lines(&both.sync(&[&["-n"], words].concat(), &dst).expect(code)));
        assert_eq!(plain(lines(&both.sync(words, &dst).expect(code))), wanted, "{is_push}");
        assert_eq!(planned, wanted, "{is_push}");
        assert_eq!(record(&dst), record(&here), "{is_push}");
        fs::remove_dir_all(dst).unwrap();
    }
    wanted
}

#[test]
fn filter_files_below_followed_links_have_the_meaning_that_they_have_locally() {
    let scratch = Scratch::new();
    let line = "mkdir -p source/real out/d dst/in dst/l; echo 1 | tee source/a >source/real/x.o; touch out/d/x.o out/d/y
        ln -s ../out/d source/l; ln -s real source/in; echo '*.o' >out/d/.f; ln -s ../../out/d/.f source/real/.f
        touch dst/l/kept.o dst/l/extra dst/in/kept.o dst/in/extra";
    shell(scratch.path(), line).expect(0);
    let done = in_all_ways(&scratch, &["-L", "-i", "--delete", "--filter-file=.f"], 0);
    let deleted: Vec<_> = done.iter().filter(|line| line.starts_with('*')).collect();
    assert_eq!(deleted, ["*deleting   in/extra", "*deleting   l/extra"]);
    assert_eq!(names(&scratch.join("dst/l")), [".f", "kept.o", "y"]);
    // A link to a FIFO or a device is not opened, and protects all entries of its directory.
    let line =
        "mkfifo out/fifo; ln -sf /dev/zero source/.f; ln -s ../out/fifo source/.g; touch dst/extra";
    shell(scratch.path(), line).expect(0);
    for filter in ["--filter-file=.f", "--filter-file=.g"] {
        let ran = local(&["-L", "--delete", filter], &scratch.join("source"), &scratch.join("dst"));
        ran.expect(1).expect_said("not a regular file");
        assert!(scratch.join("dst/extra").exists());
    }
}

/// The destination has links, because an earlier sync without `-L` copied the links themselves.
#[test]
fn a_directory_replaces_a_link_without_following_it() {
    for words in [&["-L", "-i"][..], &["-L", "-i", "--delete", "--force"]] {
        let scratch = Scratch::new();
        let line = "mkdir -p source out/d/e dst victim; seq 9 >out/d/e/f; ln -s ../out/d source/l; ln -s d/e out/to
            ln -s ../victim dst/l; echo kept >victim/e; mkdir source/d; echo old >dst/d";
        shell(scratch.path(), line).expect(0);
        let done = in_all_ways(&scratch, words, 0);
        assert!(done.contains(&"cd+++++++++ l/".to_owned()), "{done:?}");
        assert!(scratch.join("dst/l/e/f").exists());
        assert_eq!(fs::read_to_string(scratch.join("victim/e")).unwrap(), "kept\n");
    }
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    shell(scratch.path(), "mkdir -p source/d/e trash dst; echo old >dst/d").expect(0);
    let both = BothWays { machine: &machine, source: scratch.join("source"), is_push: false };
    let trash = format!("--trash={}", scratch.join("trash").display());
    both.sync(&["--delete", &trash], &scratch.join("dst")).expect(0);
    assert_eq!(fs::read_to_string(scratch.join("trash/d")).unwrap(), "old\n");
    assert!(scratch.join("dst/d/e").is_dir());
}

/// The source has a link to a directory above itself, and a link that leads nowhere.
#[test]
fn a_cycle_and_a_dangling_link_fail_alone_and_keep_the_rest_from_being_deleted() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let line = "mkdir -p source/a/b other; ln -s ../.. source/a/b/top; ln -s ../../a source/a/b/up; seq 9 >source/a/f
        ln -s nowhere source/dangling; ln -s \"$PWD\" source/whole";
    shell(scratch.path(), line).expect(0);
    let source = scratch.join("source");
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        // The destination is not below the target of a link of the source. Otherwise the sync would copy it into
        // itself.
        let place = Scratch::new();
        let dst = place.join("dst");
        fs::create_dir_all(dst.join("old")).unwrap();
        both.sync(&["-L", "--delete"], &dst).expect(1);
        assert!(dst.join("a/f").exists() && dst.join("old").exists());
        assert!(dst.join("whole/other").is_dir());
        for missing in ["a/b/top", "a/b/up", "dangling", "whole/source"] {
            assert!(fs::symlink_metadata(dst.join(missing)).is_err(), "{missing}");
        }
    }
}

#[test]
fn another_file_system_is_left_out_as_by_a_local_sync() {
    let test = "another_file_system_is_left_out";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "needs root");
    }
    over_each(test, |scratch, machine| {
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let (dst, here) =
                (scratch.join(&format!("dst{is_push}")), scratch.join(&format!("here{is_push}")));
            fs::create_dir_all(source.join("d/mount")).unwrap();
            fs::write(source.join("d/f"), "f").unwrap();
            let _mounted = MountedDisk::of_memory(&source.join("d/mount"), "size=1m");
            fs::write(source.join("d/mount/inside"), "inside").unwrap();
            symlink("mount", source.join("d/link")).unwrap();
            let both = BothWays { machine, source: source.clone(), is_push };
            for words in [&["-x", "-i", "--delete"][..], &["-x", "-L", "-i", "--delete"]] {
                let planned = [&["-n"], words].concat();
                let planned = lines(&both.sync(&planned, &dst).expect(0));
                let done = lines(&both.sync(words, &dst).expect(0));
                assert_eq!(plain(done.clone()), local_lines(words, &source, &here));
                assert_eq!(planned, done);
                assert_eq!(record(&dst), record(&here));
                assert!(names(&dst.join("d/mount")).is_empty());
                // Entries in the copy of the mount point do not belong to the sync, so `--delete` keeps them.
                for place in [&dst, &here] {
                    fs::write(place.join("d/mount/own"), "own").unwrap();
                    fs::write(place.join("extra"), "extra").unwrap();
                }
                let done = lines(&both.sync(words, &dst).expect(0));
                assert_eq!(plain(done.clone()), local_lines(words, &source, &here));
                assert!(done.iter().any(|line| line == "*deleting   extra"), "{done:?}");
                for place in [&dst, &here] {
                    assert_eq!(names(&place.join("d/mount")), ["own"]);
                    fs::remove_file(place.join("d/mount/own")).unwrap();
                    fs::remove_file(place.join("d/link"))
                        .or_else(|_| fs::remove_dir(place.join("d/link")))
                        .unwrap();
                }
            }
            both.sync(&["--delete"], &dst).expect(0);
            assert_eq!(names(&dst.join("d/mount")), ["inside"]);
        }
    });
}

#[test]
fn a_file_system_below_the_destination_keeps_its_entries_as_in_rsync() {
    let test = "a_file_system_below_the_destination_keeps_its_entries";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "needs root");
    }
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    shell(scratch.path(), "mkdir -p source/d/e dst/d; echo 1 | tee source/d/f >source/d/e/g")
        .expect(0);
    let (source, dst) = (scratch.join("source"), scratch.join("dst"));
    let _mounted = MountedDisk::of_memory(&dst.join("d"), "size=1m");
    for is_push in [None, Some(false), Some(true)] {
        let sync = |words: &[&str]| match is_push {
            None => local(words, &source, &dst),
            Some(is_push) => {
                BothWays { machine: &machine, source: source.clone(), is_push }.sync(words, &dst)
            }
        };
        shell(&dst, "mkdir -p d/e d/own; touch d/own/x d/e/own extra").expect(0);
        let done = lines(&sync(&["-x", "-i", "--delete"]).expect(0));
        assert!(done.contains(&"*deleting   extra".to_owned()), "{done:?}");
        assert_eq!(names(&dst.join("d")), ["e", "f", "own"]);
        assert_eq!(names(&dst.join("d/e")), ["g", "own"]);
        sync(&["--delete"]).expect(0);
        assert_eq!(names(&dst.join("d")), ["e", "f"]);
    }
}

#[test]
fn a_verified_sync_finds_what_time_and_size_hide_as_a_local_one() {
    over_each("a_verified_sync_finds_what_time_and_size_hide", |scratch, machine| {
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            for (name, length) in [("small", 100), ("large", 17 << 20), ("d/other", 9000)] {
                fs::create_dir_all(source.join("d")).unwrap();
                bytes::write(&source.join(name), length, length);
            }
            let (dst, here) =
                (scratch.join(&format!("dst{is_push}")), scratch.join(&format!("here{is_push}")));
            let both = BothWays { machine, source: source.clone(), is_push };
            let words = ["--verify", "-i"];
            let compare = || {
                let done = lines(&both.sync(&words, &dst).expect(0));
                assert_eq!(plain(done.clone()), local_lines(&words, &source, &here));
                assert_eq!(record(&dst), record(&source));
                done
            };
            assert_eq!(compare().len(), 5);
            assert_eq!(compare().len(), 0);
            for place in [&dst, &here] {
                bytes::spoil(&place.join("small"), 7);
                bytes::spoil(&place.join("large"), 7);
            }
            assert!(lines(&both.sync(&["-i"], &dst).expect(0)).is_empty());
            let before = fs::metadata(dst.join("d/other")).unwrap().ino();
            // A dry run compares the hashes too.
            let planned = lines(&both.sync(&["--verify", "-n"], &dst).expect(0));
            assert_eq!(local_lines(&["--verify", "-n"], &source, &here), planned);
            assert_eq!(planned.len(), 2);
            assert_eq!(compare(), planned);
            assert_eq!(fs::metadata(dst.join("d/other")).unwrap().ino(), before);
            both.sync(&["--verify", "--reference=here"], &dst).expect(2);
        }
    });
}

#[test]
fn a_copy_is_verified_by_the_digests_of_the_other_side() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    bytes::write(&source.join("f"), 1, 70_000);
    for (words, from) in
        [(&["-a", "--verify"][..], source.clone()), (&["--verify"], source.join("f"))]
    {
        let (pulled, pushed) = (scratch.join("pulled"), scratch.join("pushed"));
        run(machine.copy(words).arg("-T").arg(machine.at(&from)).arg(&pulled)).expect(0);
        run(machine.copy(words).arg("-T").arg(&from).arg(machine.at(&pushed))).expect(0);
        shell(scratch.path(), "diff -r pulled pushed && rm -r pulled pushed").expect(0);
    }
    // Starts a server without hashes, as the command of a restricted key may do.
    let rsh = scratch.join("forced");
    let binary = env!("CARGO_BIN_EXE_thalweg");
    script(&rsh, &format!("#!/bin/sh\nexec '{binary}' serve --stdio '{}'\n", source.display()));
    let forced = machine.through(rsh);
    let ran = run(forced.copy(&["-a", "--verify"]).arg(forced.at(&source)).arg(scratch.join("to")));
    ran.expect(4).expect_said("--hash");
    run(forced.copy(&["--verify=device"]).arg(forced.at(&source)).arg(scratch.join("to")))
        .expect(2);
}

/// The command of a restricted key decides which links are followed, whatever the client asks for.
#[test]
fn a_restricted_server_follows_only_the_links_that_its_own_options_allow() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = linked_tree(&scratch, "source");
    let binary = env!("CARGO_BIN_EXE_thalweg");
    let forced = |follow: &str| {
        let rsh = scratch.join(&format!("forced{}", follow.len()));
        let text = format!(
            "#!/bin/sh\nexec '{binary}' serve --stdio --read-only --hidden {follow} '{}'\n",
            source.display()
        );
        script(&rsh, &text);
        machine.through(rsh)
    };
    let pull = |machine: &OtherMachine, dst: &str| {
        let mut command = machine.run("sync", &["-L", "--delete"]);
        run(command.arg(machine.at("anything")).arg(scratch.join(dst)))
    };
    let ran = pull(&forced("--follow=none"), "none").expect(4);
    ran.expect_said("does not follow symbolic links");
    assert!(!scratch.join("none").exists());
    // By default, and with `--follow=inside`, only links that stay inside are followed; the others are missing.
    symlink("file", source.join("inner")).unwrap();
    for (follow, dst) in [("", "default"), ("--follow=inside", "inside")] {
        pull(&forced(follow), dst).expect(1).expect_said("not sent by the server");
        let dst = scratch.join(dst);
        assert_eq!(names(&dst), [STATE, "file", "inner", "sub"]);
        assert!(!dst.join("inner").is_symlink());
        assert_eq!(names(&dst.join("sub")), ["deep"]);
    }
    pull(&forced("--follow=any"), "any").expect(0);
    assert_eq!(
        fs::read(scratch.join("any/to-file")).unwrap(),
        fs::read(scratch.join("out/secret")).unwrap()
    );
}

/// The receiving side of a copy cannot make the sending side follow links.
#[test]
fn a_receiver_gets_the_targets_of_links_only_if_the_sender_allows_it() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = linked_tree(&scratch, "source");
    let binary = env!("CARGO_BIN_EXE_thalweg");
    let rsh = scratch.join("greedy");
    let text = format!(
        "#!/bin/sh\nexec '{binary}' fetch --stdio -a --all-links --copy-links '{}'\n",
        scratch.join("taken").display()
    );
    script(&rsh, &text);
    let greedy = machine.through(rsh);
    run(greedy.run("sync", &[]).arg(&source).arg(greedy.at("anything")))
        .expect(4)
        .expect_said("does not follow symbolic links");
    assert!(!scratch.join("taken").exists());
}

#[test]
fn the_log_has_the_lines_and_the_summary_of_both_directions() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    bytes::write(&source.join("f"), 1, 100);
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let (dst, log) =
            (scratch.join(&format!("dst{is_push}")), scratch.join(&format!("log{is_push}")));
        let option = format!("--log={}", log.display());
        assert!(lines(&both.sync(&["-q", &option], &dst).expect(0)).is_empty());
        fs::write(source.join("g"), "new").unwrap();
        let printed = lines(&both.sync(&["-i", &option], &dst).expect(0));
        let logged = fs::read_to_string(&log).unwrap();
        let logged: Vec<&str> =
            logged.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert!(logged.contains(&">f+++++++++ f"), "{logged:?}");
        assert!(printed.iter().all(|line| logged.contains(&&**line)), "{logged:?}, {printed:?}");
        let summaries = logged.iter().filter(|line| line.contains(" unchanged; ")).count();
        assert_eq!(summaries, 2, "{logged:?}");
        fs::remove_file(source.join("g")).unwrap();
        // The sync is complete, but it cannot write its log.
        let full = ["--delete", "--log=/dev/full"];
        both.sync(&full, &dst).expect(1).expect_said("no space left on device");
        assert_eq!(record(&dst), record(&source));
        local(&full, &source, &scratch.join("here")).expect(1).expect_said("no space left");
    }
}

#[test]
fn a_sync_by_checksum_prints_the_lines_of_a_local_one_and_so_does_its_dry_run() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let line = "mkdir -p source/d; for name in same time mode bytes size; do seq 100 >source/d/$name; done; seq 9 >source/new";
    shell(scratch.path(), line).expect(0);
    let source = scratch.join("source");
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let (dst, here) =
            (scratch.join(&format!("dst{is_push}")), scratch.join(&format!("here{is_push}")));
        for place in [&dst, &here] {
            run(std::process::Command::new("cp").arg("-a").args([&source, place])).expect(0);
            let line = "rm new; touch -d @1 d/time; chmod 600 d/mode; seq 5 >>d/size; touch -r d/same d/size d";
            shell(place, line).expect(0);
            bytes::spoil(&place.join("d/bytes"), 7);
        }
        let planned = lines(&both.sync(&["-n", "--checksum"], &dst).expect(0));
        let done = lines(&both.sync(&["-i", "--checksum"], &dst).expect(0));
        assert_eq!(plain(done.clone()), local_lines(&["-i", "--checksum"], &source, &here));
        assert_eq!(planned, done);
        assert_eq!(record(&dst), record(&source));
    }
}
