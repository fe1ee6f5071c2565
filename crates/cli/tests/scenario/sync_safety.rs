//! A sync deletes nothing that it should not, even if the source fails, the sync is killed, or another process replaces
//! entries.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{FileTypeExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use thalweg_testing::{Dice, from_env, script};

use crate::{
    support::{
        Running, Scratch, names, run, shell,
        skip::{has_tools, is_root},
        thalweg,
    },
    sync_trees::{edit, lines, record},
    syncs::sync,
};

/// A user without privileges, for whom modes count.
const USER: u32 = 54_321;

fn all_below(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if fs::symlink_metadata(&found[at]).unwrap().is_dir() {
            let entries = fs::read_dir(&found[at]).unwrap().map(|entry| entry.unwrap().path());
            found.extend(entries.collect::<Vec<_>>());
        }
        at += 1;
    }
    found
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Random modes in the source make some opendir, open and stat calls fail.
#[test]
fn a_source_that_fails_at_random_costs_the_destination_nothing() {
    let test = "a_source_that_fails_at_random_costs_the_destination_nothing";
    if !is_root(test) {
        return;
    }
    let mut dice = Dice::fixed(test, 7);
    for case in 0..from_env("THALWEG_CASES", 50) {
        let scratch = Scratch::public();
        let [source, copy] = ["source", "copy"].map(|name| scratch.folder(name));
        edit(&mut dice, &source, 60);
        shell(scratch.path(), "cp -a source/. copy").expect(0);
        edit(&mut dice, &copy, 20);
        for path in all_below(scratch.path()) {
            std::os::unix::fs::lchown(&path, Some(USER), Some(USER)).unwrap();
        }
        let entries = all_below(&source);
        for path in &entries[1..] {
            let meta = fs::symlink_metadata(path).unwrap();
            if meta.is_symlink() || dice.below(8) > 0 {
                continue;
            }
            // A user can list a directory of mode 0400, but not examine its entries. Mode 0 permits neither.
            let modes = if meta.is_dir() { [0o000, 0o400] } else { [0o000, 0o200] };
            set_mode(path, modes[dice.below(2) as usize]);
        }
        let (before, wanted) = (record(&copy), record(&source));
        let mut command = thalweg();
        command.args(["sync", "--delete", "--max-delete=1000000"]).args([&source, &copy]);
        std::os::unix::process::CommandExt::uid(&mut command, USER);
        std::os::unix::process::CommandExt::gid(&mut command, USER);
        let ran = run(&mut command).expect_no_panic();
        let after = record(&copy);
        if ran.code() == 0 {
            assert!(after.entries.len() <= entries.len(), "case {case}");
            continue;
        }
        let gone: Vec<_> =
            before.entries.keys().filter(|path| !after.entries.contains_key(*path)).collect();
        // An entry may be missing only if a directory of the source replaced a file.
        let gone: Vec<_> = gone.into_iter().filter(|path| !copy.join(path).exists()).collect();
        let is_wrong = |path: &&&PathBuf| wanted.entries.contains_key(**path);
        assert_eq!(gone.iter().find(is_wrong), None, "case {case}: {}", ran.said());
        // A started deletion may fail at a directory of the destination, because its modes are random, too.
        let has_begun = ran.stderr.contains("cannot remove");
        assert!(gone.is_empty() || has_begun, "case {case}: {gone:?}\n{}", ran.said());
    }
}

#[test]
fn a_killed_run_deletes_only_what_the_source_does_not_have_and_the_next_one_ends_the_work() {
    let mut dice = Dice::new("sync kills");
    let scratch = Scratch::new();
    for _ in 0..from_env("THALWEG_KILLS", 5) {
        let line = "rm -rf source copy; mkdir -p source/d copy/old/e copy/d; \
                    for i in $(seq 300); do echo $i >source/d/$i; echo x >copy/old/e/$i; echo $i >copy/d/x$i; done; \
                    echo keep >copy/d/1";
        shell(scratch.path(), line).expect(0);
        let mut command = thalweg();
        command.args(["sync", "--delete", "--force", "source", "copy"]);
        let mut running = Running::start(command.current_dir(scratch.path()));
        thread::sleep(Duration::from_millis(dice.below(60)));
        drop(running.child().kill());
        drop(running.finish());
        // The deletion starts only after every file of the source was copied.
        let has_deleted = fs::read_dir(scratch.join("copy/old/e")).map_or(0, Iterator::count) < 300;
        let is_copied = (1..=300).all(|n| scratch.join("copy/d").join(n.to_string()).exists());
        assert!(!has_deleted || is_copied);
        let mut again = thalweg();
        again.args(["sync", "--delete", "--force", "source", "copy"]);
        run(again.current_dir(scratch.path())).expect(0);
        shell(scratch.path(), "diff -r -x .thalweg-sync -x '.*.thalweg-part*' source copy")
            .expect(0);
    }
}

#[test]
fn the_state_file_of_another_user_counts_for_nothing_and_is_never_followed() {
    let test = "the_state_file_of_another_user_counts_for_nothing_and_is_never_followed";
    if !is_root(test) {
        return;
    }
    let scratch = Scratch::new();
    let plant = |line: &str| {
        shell(
            scratch.path(),
            "rm -rf source copy victim; mkdir source copy; echo 1 >source/f; echo v >victim",
        )
        .expect(0);
        shell(scratch.path(), line).expect(0);
        fs::write(scratch.join("copy/extra"), "").unwrap();
    };
    let state = "copy/.thalweg-sync";
    for line in [
        "ln -s ../victim copy/.thalweg-sync",
        "ln victim copy/.thalweg-sync",
        "mkfifo copy/.thalweg-sync",
        "printf 'thalweg sync 1\\nsource 0-0\\n' >copy/.thalweg-sync; chmod 666 copy/.thalweg-sync",
        "head -c 100000 /dev/zero >copy/.thalweg-sync",
    ] {
        plant(line);
        if line.contains("666") {
            chown(scratch.join(state), Some(USER), Some(USER)).unwrap();
        }
        let mut command = thalweg();
        command.args(["sync", "--delete", "source", "copy"]);
        run(command.current_dir(scratch.path())).expect(0);
        assert!(!scratch.join("copy/extra").exists(), "{line}");
        assert_eq!(fs::read_to_string(scratch.join("victim")).unwrap(), "v\n", "{line}");
        let kept = fs::read_to_string(scratch.join(state)).unwrap();
        assert!(kept.starts_with("thalweg sync 1\nsource "), "{line}: {kept}");
    }
    // A state file of the source is not copied.
    shell(scratch.path(), "cp copy/.thalweg-sync source/; rm copy/.thalweg-sync").expect(0);
    run(thalweg().args(["sync", "source", "copy"]).current_dir(scratch.path())).expect(0);
    assert!(!scratch.join(state).exists());
}

#[test]
fn the_trash_keeps_what_goes_and_never_replaces_what_it_has() {
    let scratch = Scratch::new();
    let sync = |words: &str| sync(scratch.path(), words).expect(0);
    let line = "mkdir -p source/d copy/old/e; echo newer >source/d/f; ln -s x source/l; \
                echo 1 >copy/old/e/g; mkdir copy/d; echo old >copy/d/f; ln -s y copy/l; echo q >copy/q; mkdir source/q";
    shell(scratch.path(), line).expect(0);
    sync("--delete --force --trash trash source copy");
    let read = |name: &str| fs::read_to_string(scratch.join("trash").join(name)).unwrap();
    assert_eq!(
        (read("d/f"), read("old/e/g"), read("q")),
        ("old\n".into(), "1\n".into(), "q\n".into())
    );
    assert_eq!(fs::read_link(scratch.join("trash/l")).unwrap(), Path::new("y"));
    shell(scratch.path(), "diff -r --no-dereference -x .thalweg-sync source copy").expect(0);
    shell(scratch.path(), "echo newest >>source/d/f").expect(0);
    sync("--delete --trash trash source copy");
    assert_eq!((read("d/f"), read("d/f.~1~")), ("old\n".into(), "newer\n".into()));
    // A trash inside the destination is neither deleted nor counted.
    shell(scratch.path(), "echo x >copy/x").expect(0);
    sync("--delete --trash copy/trash source copy");
    sync("--delete --trash copy/trash source copy");
    assert_eq!(fs::read_to_string(scratch.join("copy/trash/x")).unwrap(), "x\n");
}

#[test]
fn filters_limits_and_given_attributes() {
    let scratch = Scratch::new();
    let sync = |words: &str| sync(scratch.path(), words).expect(0);
    let line = "mkdir -p s/d; echo 1 >s/a.c; echo 2 >s/a.o; echo 3 >s/d/b.c; echo '*.o' >s/.ignore; \
                echo '!a.o' >s/d/.ignore; echo 4 >s/d/a.o; echo 5 >s/d/b.o; head -c 5000 /dev/zero >s/big; \
                touch -d 2001-01-01 s/a.c; mkdir -p t/d; echo 6 >t/d/b.o";
    shell(scratch.path(), line).expect(0);
    sync("--delete --filter-file .ignore --max-size 1000 s t");
    let has = |name: &str| scratch.join("t").join(name).exists();
    assert!(has("a.c") && has("d/a.o") && !has("a.o") && !has("big"));
    assert_eq!(fs::read_to_string(scratch.join("t/d/b.o")).unwrap(), "6\n", "protected");
    sync("--include *.c --include */ --exclude * s u");
    assert_eq!(names(&scratch.join("u")), ["a.c", "d"]);
    sync("--newer-than 1d s v");
    assert!(!scratch.join("v/a.c").exists() && scratch.join("v/a.o").exists());
    sync("--chmod D711,F604 s w");
    let mode = |name: &str| fs::metadata(scratch.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("w/d"), mode("w/a.c")), (0o711, 0o604));
    assert_eq!(sync("-i --chmod D711,F604 s w").stdout, b"");
}

/// With `-L`, the target of a link may be unmounted. The sync must not delete the copy of the target with any options.
#[test]
fn the_copy_of_a_target_that_is_gone_is_not_deleted() {
    for (line, said) in
        [("rm -r out", "no such file"), ("rm -r out; ln -s out out", "too many levels")]
    {
        let scratch = Scratch::new();
        let setup =
            "mkdir -p source out/d; ln -s ../out source/l; echo 1 | tee out/f out/d/g >source/h";
        shell(scratch.path(), setup).expect(0);
        let (source, dst) = (scratch.join("source"), scratch.join("dst"));
        let sync = |words: &[&str]| run(thalweg().arg("sync").args(words).args([&source, &dst]));
        sync(&["-L", "--delete"]).expect(0);
        shell(scratch.path(), line).expect(0);
        fs::write(dst.join("l/extra"), "").unwrap();
        fs::write(dst.join("extra"), "").unwrap();
        for words in [&["-L", "--delete"][..], &["-L", "--delete", "--force"]] {
            sync(words).expect(1).expect_said(said);
            assert_eq!(names(&dst.join("l")), ["d", "extra", "f"]);
        }
        assert!(!dst.join("extra").exists());
    }
}

/// The sync can follow the link to a directory, but cannot list the directory.
#[test]
fn the_copy_of_an_unreadable_target_keeps_its_entries() {
    let test = "the_copy_of_an_unreadable_target_keeps_its_entries";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let setup = "umask 022; chmod 755 .; mkdir -p source shut dst/l; ln -s ../shut source/l; touch source/a shut/f dst/l/f
        touch dst/extra; chmod 700 shut; chown -R 54321 dst; R=\"-e ./rsh --remote-program $T\"";
    for names in ["source dst", "$R h:source dst", "$R source h:dst"] {
        let scratch = Scratch::new();
        script(&scratch.join("rsh"), "#!/bin/sh\nshift\nexec \"$@\"\n");
        let sync = format!(
            "setpriv --reuid={USER} --regid={USER} --clear-groups $T sync -L --delete --force {names}"
        );
        let ran =
            shell(scratch.path(), &format!("{setup}; {sync}; [ $? != 0 ]; echo $?; ls dst dst/l"));
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(printed, "0\ndst:\na\nl\n\ndst/l:\nf\n", "{names}: {}", ran.said());
    }
}

/// A followed link may lead to a FIFO, as in `rsync -L`.
#[test]
fn the_fifo_at_the_end_of_a_followed_link_is_copied() {
    let scratch = Scratch::new();
    shell(scratch.path(), "mkdir source; mkfifo -m 640 fifo; ln -s ../fifo source/l").expect(0);
    for command in [&["sync", "-L"][..], &["copy", "-a", "-L", "-T"]] {
        let dst = scratch.join(command[0]);
        run(thalweg().args(command).args([&scratch.join("source"), &dst])).expect(0);
        let copied = fs::symlink_metadata(dst.join("l")).unwrap();
        assert!(copied.file_type().is_fifo());
        assert_eq!(copied.permissions().mode() & 0o777, 0o640);
    }
}

#[test]
fn a_dry_run_lists_the_deletions_that_a_sync_refuses() {
    let scratch = Scratch::new();
    let line = "mkdir s; cd s; seq 200 | xargs touch; cp -a . ../t; ls | head -150 | xargs rm";
    shell(scratch.path(), line).expect(0);
    let sync = |words: &[&str]| {
        let mut command = thalweg();
        command.arg("sync").args(words).args(["--delete", "s", "t"]).current_dir(scratch.path());
        run(&mut command).expect(1)
    };
    let deletions = |words, mark| {
        let ran = sync(words);
        String::from_utf8_lossy(&ran.stdout).lines().filter(|line| line.contains(mark)).count()
    };
    assert_eq!(deletions(&["-n"], "*deleting   "), 150);
    assert_eq!(deletions(&["-n", "--json"], r#""change":"delete""#), 150);
    assert_eq!(deletions(&["-i"], "*deleting"), 0, "a sync lists only what it did");
    let refused = "'t': nothing was deleted: 150 of 200 entries would be deleted (limit: 100)";
    sync(&["-n"]).expect_said(refused);
    assert_eq!(fs::read_dir(scratch.join("t")).unwrap().count(), 200);
}

#[test]
fn a_renamed_file_is_linked_before_its_old_name_goes() {
    let scratch = Scratch::new();
    let line = "mkdir -p s/d; head -c 100000 /dev/urandom >s/d/big; head -c 100000 /dev/urandom >s/other; \
                cp -a s t; mkdir s/new; mv s/d/big s/new/moved; cp -a s/other s/twin; mv s/other s/third; stat -c %i t/d/big >inode";
    shell(scratch.path(), line).expect(0);
    let sync = |words: &str| sync(scratch.path(), words).expect(0);
    let lines = |words: &str| lines(&sync(words));
    assert_eq!(lines("-n --delete s t"), lines("-i --delete s t"));
    // Two new files have the bytes of a deleted one. Only one of them may become a hard link to it, otherwise both
    // would be one file.
    let line = "diff -r -x .thalweg-sync s t && test $(stat -c %i t/new/moved) = $(cat inode) && \
                test $(stat -c %h t/new/moved) = 1 && ! test t/twin -ef t/third";
    shell(scratch.path(), line).expect(0);
    shell(scratch.path(), "mv s/twin s/again; stat -c %i t/twin >inode").expect(0);
    sync("--delete --no-detect-renames s t");
    shell(scratch.path(), "test $(stat -c %i t/again) != $(cat inode)").expect(0);
}

#[test]
fn a_snapshot_shares_what_did_not_change() {
    let scratch = Scratch::new();
    let sync = |words: &str| sync(scratch.path(), words).expect(0);
    shell(scratch.path(), "mkdir -p s/d b; echo 1 >s/d/f; echo 2 >s/g; echo 3 >s/h").expect(0);
    sync("s b/1");
    shell(scratch.path(), "echo 22 >s/g; chmod 600 s/h").expect(0);
    let lines = |words: &str| {
        let ran = sync(words);
        (lines(&ran), ran.stderr)
    };
    let (foreseen, said) = lines("-n --reference b/1 s b/2");
    assert!(said.contains("4 new, 1 linked, 0 changed, 0 deleted"), "{said}");
    let (printed, said) = lines("-i --reference b/1 s b/2");
    assert!(said.contains("4 new, 1 linked, 0 changed, 0 deleted"), "{said}");
    assert_eq!(foreseen, printed);
    let expected =
        ["cd+++++++++ ./", "cd+++++++++ d/", ">f+++++++++ g", ">f+++++++++ h", "hf+++++++++ d/f"];
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(printed, expected);
    let line = "diff -r s b/2 && test b/1/d/f -ef b/2/d/f && ! test b/1/g -ef b/2/g && ! test b/1/h -ef b/2/h \
                && test $(cat b/1/g) = 2 && test $(stat -c %a b/1/h) != 600";
    shell(scratch.path(), line).expect(0);
    // A later sync into the snapshot leaves the earlier one alone.
    shell(scratch.path(), "chmod 640 s/d/f; echo more >>s/d/f").expect(0);
    sync("s b/2");
    shell(scratch.path(), "diff -r s b/2 && test $(cat b/1/d/f) = 1").expect(0);
    shell(scratch.path(), "chmod 600 s/g").expect(0);
}

#[test]
fn a_new_hard_link_in_the_source_changes_no_earlier_snapshot() {
    let scratch = Scratch::new();
    let line = "mkdir s; echo 1 >s/f; chmod 644 s/f; $T sync s a1; $T sync --reference a1 s a2; ln s/f s/g; chmod 600 s/f
        $T sync -n --jobs=1 s a2 >dry; $T sync -i --jobs=1 s a2 >real; diff dry real
        test $(stat -c %a a1/f) = 644 && test $(stat -c %a%h a2/g) = 6002 && test a2/f -ef a2/g";
    shell(scratch.path(), line).expect(0);
    // All names of one file get new attributes together, and one of them is printed.
    let line = "chmod 640 s/f; $T sync -n --jobs=1 s a2 >dry; $T sync -i --jobs=1 s a2 >real; diff dry real
        test $(wc -l <real) = 1 && test $(stat -c %a%h a2/g) = 6402 && test a2/f -ef a2/g";
    shell(scratch.path(), line).expect(0);
}
