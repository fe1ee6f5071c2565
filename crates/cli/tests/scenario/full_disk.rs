//! A destination that becomes full: the message has the true errno and the right name, no file stays, and the space is
//! free again.

use std::{
    fs,
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Scratch, bytes, file_methods, mounts,
    mounts::free,
    names, run,
    run::{GUARD, Ran},
    scratch::{open_to_all, unfinished},
    shell,
    skip::{has_tools, is_root},
    thalweg,
};

const TOO_BIG: u64 = 20 << 20;

/// The names on a disk, and its free bytes.
type Left = (Vec<String>, u64);

fn left(disk: &Path) -> Left {
    (names(disk), free(disk))
}

/// Waits until a disk has its earlier names and free space. The kernel may release the open files of a process shortly
/// after its end.
#[track_caller]
fn expect_left(disk: &Path, before: &Left, what: &str) {
    let began = Instant::now();
    while left(disk) != *before && began.elapsed() < GUARD {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(&left(disk), before, "{what}: names and free bytes, now and before");
}

/// Copies a file that does not fit, and checks that the disk is then as before.
#[track_caller]
fn copy_too_much(source: &Path, disk: &Path, options: &[&str]) -> Ran {
    let before = left(disk);
    let copy = disk.join("copy");
    let ran = run(thalweg().arg("copy").args(options).args([source, &copy])).expect_no_panic();
    expect_left(disk, &before, &format!("{options:?}"));
    ran
}

#[test]
fn a_full_disk_is_named_with_its_true_errno_and_gets_its_space_back() {
    let test = "a_full_disk_is_named_with_its_true_errno_and_gets_its_space_back";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, TOO_BIG);
    let methods = file_methods();
    let ways = methods.iter().map(|name| vec!["--method", name]);
    let ways = ways.chain([vec![], vec!["--jobs=1"], vec!["--sparse=always"], vec!["--direct"]]);
    let mut full = 0;
    for way in ways {
        let ran = copy_too_much(&source, disk, &way);
        if ran.code() == 4 {
            // The mechanism does not work on this file system, and reported this.
            assert!(way.contains(&"--method"), "{way:?}: {}", ran.said());
            continue;
        }
        let ran = ran.expect(1);
        assert!(ran.stderr.contains("ENOSPC"), "{way:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("small8/copy"), "{way:?} does not name it: {}", ran.stderr);
        full += 1;
    }
    assert!(full >= 4, "only {full} ways came as far as the full disk");
}

#[test]
fn an_old_copy_survives_a_new_one_that_does_not_fit() {
    let test = "an_old_copy_survives_a_new_one_that_does_not_fit";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, TOO_BIG);
    let old = disk.join("copy");
    bytes::write(&old, 2, 1 << 20);
    let before = left(disk);
    run(thalweg().arg("copy").args([&source, &old])).expect(1).expect_said("ENOSPC");
    expect_left(disk, &before, test);
    bytes::expect(&old, 2, 1 << 20);
    fs::remove_file(&old).unwrap();
}

#[test]
fn a_stream_that_does_not_fit_leaves_nothing() {
    let test = "a_stream_that_does_not_fit_leaves_nothing";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, TOO_BIG);
    let before = left(disk);
    let mut copy = thalweg();
    copy.args(["copy", "-"]).arg(disk.join("copy")).stdin(fs::File::open(&source).unwrap());
    let ran = run(&mut copy).expect(1);
    ran.expect_said("ENOSPC");
    ran.expect_said("small8/copy");
    expect_left(disk, &before, test);
}

#[test]
fn a_tree_that_does_not_fit_keeps_its_whole_files_and_no_others() {
    let test = "a_tree_that_does_not_fit_keeps_its_whole_files_and_no_others";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    let sizes: Vec<u64> = (0..40).map(|n| 1000 + n * n * 400).collect();
    for (n, size) in sizes.iter().enumerate() {
        bytes::write(&tree.join(format!("small-{n}")), n as u64, *size);
    }
    bytes::write(&tree.join("big"), 99, TOO_BIG);
    for (already_there, jobs) in [(false, "1"), (false, "4"), (true, "1"), (true, "4")] {
        let copy = disk.join("tree");
        let before = left(disk);
        if already_there {
            fs::create_dir(&copy).unwrap();
        }
        let mut command = thalweg();
        command.args(["copy", "-rT", "--jobs", jobs]).args([&tree, &copy]);
        let ran = run(&mut command).expect(3);
        ran.expect_said("ENOSPC");
        ran.expect_said("run the same command with --resume to continue");
        // An incomplete new tree does not have its final name. An existing directory has only complete files.
        let (there, left) = if already_there {
            (copy.clone(), vec![])
        } else {
            let stage = disk.join(".tree.thalweg-part");
            ran.expect_said(".tree.thalweg-part");
            (stage.clone(), vec![stage])
        };
        let mut found = unfinished(disk);
        found.retain(|path| !path.ends_with(".thalweg-journal"));
        assert_eq!(found, left);
        for name in names(&there).into_iter().filter(|name| name != ".thalweg-journal") {
            let n: usize = name.strip_prefix("small-").expect("only whole files").parse().unwrap();
            bytes::expect(&there.join(&name), n as u64, sizes[n]);
        }
        fs::remove_dir_all(&there).unwrap();
        expect_left(disk, &before, "after the tree has been removed");
    }
}

#[test]
fn a_resumable_copy_finishes_once_there_is_room() {
    let test = "a_resumable_copy_finishes_once_there_is_room";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::within(disk);
    open_to_all(scratch.path());
    let (source, ballast) = (scratch.join("source"), scratch.join("ballast"));
    let outside = Scratch::new();
    let source_outside = outside.join("source");
    bytes::write(&source_outside, 5, 4 << 20);
    bytes::write(&ballast, 6, 4 << 20);
    let mut copy = thalweg();
    copy.args(["copy", "--resume", "--json"]).args([&source_outside, &source]);
    run(&mut copy).expect(3).expect_said("ENOSPC");
    assert!(!source.exists(), "something partial under the final name");
    fs::remove_file(&ballast).unwrap();
    run(&mut copy).expect(0);
    bytes::expect(&source, 5, 4 << 20);
    assert_eq!(names(scratch.path()), ["source"]);
}

#[test]
fn a_new_tree_that_did_not_fit_is_finished_by_the_same_command_with_resume() {
    let test = "a_new_tree_that_did_not_fit_is_finished_by_the_same_command_with_resume";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    for n in 0..6 {
        bytes::write(&tree.join(n.to_string()), n, 500_000 + n);
    }
    for first in [&[][..], &["--resume"]] {
        let place = Scratch::within(disk);
        bytes::write(&place.join("ballast"), 6, 5 << 20);
        let mut copy = thalweg();
        copy.args(["copy", "-r"]).args(first).args([&tree, &place.join("new")]);
        let ran = run(&mut copy).expect(3);
        ran.expect_said(".new.thalweg-part'\nhint: run the same command");
        assert_eq!(names(place.path()), [".new.thalweg-part", "ballast"]);
        fs::remove_file(place.join("ballast")).unwrap();
        let mut again = thalweg();
        run(again.args(["copy", "-r", "--resume"]).args([&tree, &place.join("new")])).expect(0);
        assert_eq!(names(place.path()), ["new"]);
        for n in 0..6 {
            bytes::expect(&place.join("new").join(n.to_string()), n, 500_000 + n);
        }
        assert_eq!(names(&place.join("new")).len(), 6);
    }
}

/// Makes 8 directories with 24 files in `src`, and runs a line that may mount file systems.
fn run_with_mounts(line: &str) -> Ran {
    let scratch = Scratch::new();
    let setup = "mkdir dst bound; for d in 0 1 2 3 4 5 6 7; do mkdir -p src/$d
        for f in a b c; do head -c 100000 /dev/zero >src/$d/$f; done; done";
    shell(scratch.path(), setup).expect(0);
    shell(scratch.path(), &format!("unshare --mount --propagation=slave sh -c '{line}'"))
}

fn can_mount(test: &str) -> bool {
    is_root(test) && has_tools(test, &["unshare", "mount"])
}

#[test]
fn a_full_or_read_only_mount_inside_the_destination_costs_only_its_own_files() {
    let test = "a_full_or_read_only_mount_inside_the_destination_costs_only_its_own_files";
    if !can_mount(test) {
        return;
    }
    for (mount, errno) in [
        ("mount -t tmpfs -o ro none dst/src/3", "EROFS"),
        ("mount -t tmpfs -o size=64k none dst/src/3", "ENOSPC"),
        ("mount --bind bound dst/src/3 && mount -o remount,bind,ro dst/src/3", "EROFS"),
    ] {
        for jobs in ["1", "4"] {
            let line = format!(
                "mkdir -p dst/src/3 && {mount} && {{ $T copy -a --jobs={jobs} src dst; test $? = 1; }} &&
                 test $(find dst -type f | wc -l) = 21"
            );
            let ran = run_with_mounts(&line).expect(0);
            for file in ["a", "b", "c"] {
                ran.expect_said(&format!("'dst/src/3/{file}'"));
            }
            ran.expect_said(errno);
        }
    }
    // The destination of one of several sources is full.
    let line = "cp -r src more; mkdir dst/src; mount -t tmpfs -o size=64k none dst/src
        $T copy -a --jobs=1 src more dst; test $? = 1 && test $(find dst/more -type f | wc -l) = 24";
    run_with_mounts(line).expect(0).expect_said("ENOSPC");
}

#[test]
fn a_full_link_target_or_device_costs_only_its_own_file() {
    let scratch = Scratch::new();
    let line = "mkdir -p src dst/src; for f in a b c d e; do echo $f >src/$f; done; ln -s /dev/full dst/src/c
        $T copy -r --jobs=1 src dst; test $? = 1 && cd dst/src && test \"$(cat a b d e | xargs)\" = 'a b d e'";
    shell(scratch.path(), line).expect(0).expect_said("ENOSPC");
}

#[test]
fn a_destination_that_is_a_full_or_read_only_mount_stops_the_copy_at_once() {
    let test = "a_destination_that_is_a_full_or_read_only_mount_stops_the_copy_at_once";
    if !can_mount(test) {
        return;
    }
    for (mount, errno) in [("-o size=224k", "ENOSPC"), ("-o ro", "EROFS")] {
        for command in ["copy -aT", "sync"] {
            let line = format!(
                "mount -t tmpfs {mount} none dst && $T {command} --jobs=1 src dst 2>said; code=$?; cat said >&2
                 test $(grep -c \"cannot.*dst/.*{errno}\" said) = 1 && exit $code"
            );
            // Nothing was copied to the read-only mount.
            let code = if (command, errno) == ("copy -aT", "EROFS") { 1 } else { 3 };
            run_with_mounts(&line).expect(code);
        }
    }
}

#[test]
fn on_a_full_disk_no_template_of_a_study_is_written_and_no_method_is_blamed() {
    let test = "on_a_full_disk_no_template_of_a_study_is_written_and_no_method_is_blamed";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let full = Scratch::within(disk);
    let mut filler = fs::File::create(full.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    let study = run(thalweg().args(["study", "--new"]).arg(full.join("mine"))).expect(1);
    assert!(study.said().contains("ENOSPC"), "{}", study.said());
    assert_eq!(names(full.path()), ["filler"]);
    let doctor = run(thalweg().args(["doctor", "--at"]).arg(full.path())).expect(1);
    let said = doctor.said();
    assert!(said.contains("ENOSPC") && !said.contains("does not work"), "{said}");
}
