//! An interrupted copy leaves nothing under a final name, and the same command with `--resume` completes it.

use rustix::process::Signal;
use std::{fs, os::unix::process::CommandExt, process::Command, thread, time::Duration};

use crate::support::{
    Running, Scratch, bytes,
    deny::{NAMELESS, start_without},
    interrupted, mounts, names, run, shell, skip,
    skip::{has_tools, is_root},
    thalweg,
};

const BIG: u64 = 4 << 20;

fn tree(scratch: &Scratch) {
    let tree = scratch.folder("tree");
    fs::create_dir(tree.join("sub")).unwrap();
    for n in 0..5 {
        bytes::write(&tree.join(n.to_string()), n, 1000 + n);
        bytes::write(&tree.join(format!("sub/{n}")), n, 300_000 + n);
    }
    bytes::write(&tree.join("big"), 9, BIG);
}

#[track_caller]
fn expect_same(scratch: &Scratch, copy: &str) {
    run(Command::new("diff").arg("-r").args([scratch.join("tree"), scratch.join(copy)])).expect(0);
}

#[test]
fn an_interrupted_new_tree_keeps_its_temporary_name_and_a_resume_finishes_it() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        for first in [&[][..], &["--resume"], &["-p"]] {
            let scratch = Scratch::new();
            tree(&scratch);
            let said = interrupted(&scratch, first, signal).stderr;
            assert_eq!(names(scratch.path()), [".new.thalweg-part", "tree"], "{said}");
            for word in ["'.new.thalweg-part'", "with --resume to continue", "`rm -r`"] {
                let word = if first == ["--resume"] {
                    word.trim_start_matches("with --resume ")
                } else {
                    word
                };
                assert!(said.contains(word), "{word}: {said}");
            }
            let mut again = thalweg();
            again.current_dir(scratch.path()).args(["copy", "-r", "--resume"]);
            again.args(first.iter().filter(|option| **option == "-p")).args(["tree", "new"]);
            run(&mut again).expect(0);
            assert_eq!(names(scratch.path()), ["new", "tree"]);
            expect_same(&scratch, "new");
        }
    }
}

#[test]
fn an_interrupted_merge_says_what_is_unfinished_in_it_and_a_resume_finishes_it() {
    let scratch = Scratch::new();
    tree(&scratch);
    fs::create_dir_all(scratch.join("there/tree")).unwrap();
    let mut copy = thalweg();
    copy.current_dir(scratch.path()).args([
        "copy",
        "-r",
        "--resume",
        "--limit=256K",
        "tree",
        "there",
    ]);
    let mut running = Running::start(&mut copy);
    let journal = scratch.join("there/tree/.big.thalweg-journal");
    while fs::metadata(&journal).map_or(0, |found| found.len()) == 0 {
        assert!(!running.has_ended(), "over before there was a journal");
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(Signal::INT);
    let ran = running.finish().expect(130);
    ran.expect_said("there/tree/.big.thalweg-part'");
    ran.expect_said("run the same command again to continue");
    shell(scratch.path(), "$T copy -r --resume tree there").expect(0);
    expect_same(&scratch, "there/tree");
}

#[test]
fn an_interrupted_file_leaves_nothing_and_says_so() {
    let scratch = Scratch::new();
    tree(&scratch);
    let mut copy = thalweg();
    copy.current_dir(scratch.path()).args(["copy", "--limit=256K", "tree/big", "new"]);
    let mut running = Running::start(&mut copy);
    assert!(running.wait_until_open(|path| path.ends_with(".new.thalweg-part")));
    running.signal(Signal::TERM);
    running.finish().expect(143).expect_said("nothing was copied");
    assert_eq!(names(scratch.path()), ["tree"]);
}

#[test]
fn an_interrupted_file_that_a_resume_continues_is_named_with_its_journal() {
    let scratch = Scratch::new();
    tree(&scratch);
    let mut copy = thalweg();
    copy.current_dir(scratch.path());
    copy.args(["copy", "--resume", "--progress=always", "--limit=1M", "tree/big", "new"]);
    let mut running = Running::start(&mut copy);
    let part = scratch.join(".new.thalweg-part");
    while fs::metadata(&part).map_or(0, |meta| meta.len()) < 1 << 20 {
        assert!(!running.has_ended(), "over before it had begun");
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(Signal::INT);
    let ran = running.finish().expect(130);
    ran.expect_said("no file copied completely, ");
    ran.expect_said("the file was not copied completely; unfinished: '.new.thalweg-part'");
    let left = names(scratch.path());
    let unnamed: Vec<&String> =
        left.iter().filter(|name| *name != "tree" && !ran.stderr.contains(*name)).collect();
    assert_eq!(unnamed, [""; 0], "{}", ran.stderr);
    assert!(left.contains(&".new.thalweg-journal".to_owned()), "{left:?}");
    let resumed = shell(scratch.path(), "$T copy --resume tree/big new").expect(0);
    resumed.expect_said("copied by an earlier run");
    bytes::expect(&scratch.join("new"), 9, BIG);
    assert_eq!(names(scratch.path()), ["new", "tree"]);
}

#[test]
fn one_file_that_cannot_be_read_fails_the_command_and_the_rest_of_the_tree_is_published() {
    let test =
        "one_file_that_cannot_be_read_fails_the_command_and_the_rest_of_the_tree_is_published";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    tree(&scratch);
    let line = "chmod 0 tree/sub/2; setpriv --reuid=1234 --regid=1234 --clear-groups ./thalweg copy -r tree new";
    shell(scratch.path(), line).expect(1).expect_said("tree/sub/2");
    assert_eq!(names(&scratch.join("new/sub")), ["0", "1", "3", "4"]);
    assert_eq!(names(scratch.path()), ["new", "thalweg", "tree"]);
}

#[test]
fn what_a_killed_receive_leaves_is_not_copied_as_data() {
    let test = "what_a_killed_receive_leaves_is_not_copied_as_data";
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("into")).unwrap();
    bytes::write(&scratch.join("data"), 1, BIG);
    let mut receive = thalweg();
    receive.current_dir(scratch.path()).args(["receive", "--from", "./s", "into/copy"]);
    // With O_TMPFILE, a killed receiver leaves no file, so the test makes O_TMPFILE fail.
    let mut receiving = match start_without(&[&NAMELESS], libc::EOPNOTSUPP, &mut receive) {
        Ok(receiving) => receiving,
        Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
    };
    let line = "(cat data; exec sleep 1000) | $T send --to ./s -";
    let mut send = Command::new("bash");
    send.args(["-c", line]).env("T", env!("CARGO_BIN_EXE_thalweg")).process_group(0);
    let sending = Running::start(send.current_dir(scratch.path()));
    assert!(receiving.wait_until_open(|path| path.ends_with(".copy.thalweg-part")));
    receiving.child().kill().unwrap();
    drop(receiving.finish());
    sending.signal_group(Signal::KILL);
    drop(sending.finish());
    // Without O_TMPFILE, the receiver makes an empty file to learn the mode of new files. A kill may leave this file
    // behind.
    let into = || {
        let all = names(&scratch.join("into")).into_iter();
        all.filter(|name| !name.starts_with(".new.thalweg-part.")).collect::<Vec<_>>()
    };
    assert_eq!(into(), [".copy.thalweg-part"]);
    let copied = shell(scratch.path(), "$T copy -r into again; ls -A again").expect(0);
    copied.expect_said("the name is reserved for partial files");
    assert_eq!(names(&scratch.join("again")), Vec::<String>::new());
    // The next receiver with the same destination starts again, and replaces the partial file.
    let receiving = start_without(&[&NAMELESS], libc::EOPNOTSUPP, &mut receive).unwrap();
    shell(scratch.path(), "$T send --to ./s data").expect(0);
    receiving.finish().expect(0);
    assert_eq!(into(), ["copy"]);
    bytes::expect(&scratch.join("into/copy"), 1, BIG);
}

#[test]
fn a_leftover_that_is_copied_to_its_final_name_is_not_taken_for_one() {
    for options in ["", "--resume", "--jobs=1", "--verify"] {
        let scratch = Scratch::new();
        tree(&scratch);
        let copy = |more: &str, from: &str, to: &str| {
            shell(scratch.path(), &format!("$T copy -q {options} {more} {from} {to}"))
        };
        fs::rename(scratch.join("tree"), scratch.join(".new.thalweg-part")).unwrap();
        copy("-r", ".new.thalweg-part", "new").expect(0);
        fs::rename(scratch.join(".new.thalweg-part"), scratch.join("tree")).unwrap();
        expect_same(&scratch, "new");
        // The source is inside a directory with a reserved name.
        fs::remove_dir_all(scratch.join("new")).unwrap();
        fs::create_dir(scratch.join(".new.thalweg-part")).unwrap();
        fs::rename(scratch.join("tree"), scratch.join(".new.thalweg-part/tree")).unwrap();
        copy("-r", ".new.thalweg-part/tree", "new").expect(0);
        fs::rename(scratch.join(".new.thalweg-part/tree"), scratch.join("tree")).unwrap();
        expect_same(&scratch, "new");
        // The source is a file with a reserved name. The limit makes its copy fail.
        fs::rename(scratch.join("tree/big"), scratch.join(".big.thalweg-part")).unwrap();
        let line = format!("ulimit -f 1000; $T copy -q {options} .big.thalweg-part big");
        assert_ne!(shell(scratch.path(), &line).code(), 0);
        bytes::expect(&scratch.join(".big.thalweg-part"), 9, BIG);
        copy("", ".big.thalweg-part", "big").expect(0);
        for name in [".big.thalweg-part", "big"] {
            bytes::expect(&scratch.join(name), 9, BIG);
        }
    }
}

#[test]
fn a_leftover_of_one_tree_is_not_mixed_with_another() {
    let scratch = Scratch::new();
    tree(&scratch);
    interrupted(&scratch, &["--jobs=1"], Signal::TERM);
    let other = scratch.folder("other");
    fs::write(other.join("alone"), "alone").unwrap();
    shell(scratch.path(), "$T copy -r --resume other new").expect(0);
    assert_eq!(names(&scratch.join("new")), ["alone"]);
    assert_eq!(names(scratch.path()), ["new", "other", "tree"]);
}

#[test]
fn a_file_that_is_written_in_place_and_not_to_its_end_is_named() {
    let scratch = Scratch::new();
    tree(&scratch);
    bytes::write(&scratch.join("old"), 3, 100);
    let mut copy = thalweg();
    copy.current_dir(scratch.path()).args(["copy", "--inplace", "--limit=256K", "tree/big", "old"]);
    let mut running = Running::start(&mut copy);
    while fs::metadata(scratch.join("old")).unwrap().len() <= 100 {
        assert!(!running.has_ended(), "over before it had begun");
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(Signal::INT);
    running.finish().expect(130).expect_said("partly written: 'old', ");
}

#[test]
fn a_part_of_a_killed_copy_goes_when_its_name_becomes_a_hard_link() {
    let scratch = Scratch::new();
    // If a file has two names, thalweg copies the one that it finds first, and links the other to the copy.
    let line = "mkdir s d; echo old | tee d/one >d/two; echo text >s/one; ln s/one s/two; echo half | tee d/.one.thalweg-part >d/.two.thalweg-part; \
        $T copy -aT s d";
    shell(scratch.path(), line).expect(0);
    assert_eq!(names(&scratch.join("d")), ["one", "two"]);
}

#[test]
fn a_part_of_a_killed_copy_goes_when_the_next_one_needs_none() {
    let leave = "for n in d/big d/small; do part=${n%/*}/.${n#*/}; echo half >$part.thalweg-part; \
        echo journal >$part.thalweg-journal; done";
    let setup = format!("head -c 3000000 /dev/urandom >big; echo s >small; mkdir d; {leave}");
    let copies = ["$T copy big small d", "$T copy big d/big; $T copy small d/small"];
    let test = "a_part_of_a_killed_copy_goes_when_the_next_one_needs_none";
    // On file systems with clones, a clone needs no partial file.
    for place in ["btrfs", "xfs", "ext4"] {
        let Some(root) = mounts().get(test, place) else { continue };
        for copy in copies {
            let scratch = Scratch::within(root);
            shell(scratch.path(), &format!("{setup}; {copy}; cmp big d/big")).expect(0);
            assert_eq!(names(&scratch.join("d")), ["big", "small"], "{place}: {copy}");
        }
        // The same must hold for a tree that is copied into an existing directory.
        let scratch = Scratch::within(root);
        shell(scratch.path(), &format!("{setup}; mkdir t; mv big t; $T copy -rT t d")).expect(0);
        let left = names(&scratch.join("d"));
        assert!(!left.iter().any(|name| name.starts_with(".big")), "{place}: {left:?}");
    }
    // A partial file that a running copy has locked stays, and so does a source with such a name.
    let scratch = Scratch::new();
    let line = format!("{setup}; exec 9<d/.small.thalweg-part; flock 9; $T copy small d");
    shell(scratch.path(), &line).expect(0);
    assert!(scratch.join("d/.small.thalweg-part").exists());
    shell(scratch.path(), "rm d/small; $T copy d/.small.thalweg-part d/small").expect(0);
    assert_eq!(fs::read_to_string(scratch.join("d/small")).unwrap(), "half\n");
    assert!(scratch.join("d/.small.thalweg-part").exists());
}
