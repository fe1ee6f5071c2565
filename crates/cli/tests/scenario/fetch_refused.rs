//! `thalweg fetch` to a full or read-only disk, or with a limit on the size of files. It prints what to do next, and no
//! partial file has the final name.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    fetch_trees::are_equal,
    support::{
        Ran, Scratch, Served, bytes, mounts, names, run,
        run::{quiet_environment, wrapped},
        scratch::open_to_all,
        skip,
        skip::{has_tools, is_root},
        thalweg,
    },
};

const MIB: u64 = 1 << 20;

/// Makes a directory with a file of 4 MiB, and a tree.
fn shared(scratch: &Scratch) -> PathBuf {
    let root = scratch.folder("shared");
    bytes::write(&root.join("file"), 1, 4 * MIB);
    fs::create_dir_all(root.join("tree/below")).unwrap();
    for n in 0..6 {
        bytes::write(&root.join(format!("tree/{n}")), n, 500_000 + n);
        bytes::write(&root.join(format!("tree/below/{n}")), n, 100 + n);
    }
    root
}

fn fetch(url: &str, to: &Path) -> Ran {
    run(thalweg().args(["fetch", "--json", url]).arg(to))
}

fn fetch_tree(served: &Served, to: &Path) -> Ran {
    run(thalweg().args(["fetch", "-r", "--json", &served.at("tree/")]).arg(to))
}

/// Writes until the disk is full.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let mut most = 1 << 20;
    while most > 0 {
        if file.write_all(&vec![1; most]).is_err() {
            most /= 2;
        }
    }
    file.sync_all().unwrap();
}

#[test]
fn a_disk_that_runs_full_keeps_the_part_and_the_same_command_goes_on_once_there_is_room() {
    let test = "a_disk_that_runs_full_keeps_the_part_and_the_same_command_goes_on";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let (scratch, place) = (Scratch::new(), Scratch::within(disk));
    let served = Served::on(&shared(&scratch));
    open_to_all(place.path());
    bytes::write(&place.join("ballast"), 6, 4 * MIB);
    let path = place.join("copy");
    for connections in ["1", "3"] {
        let mut command = thalweg();
        command.args(["fetch", "--connections", connections, &served.at("file")]).arg(&path);
        let ran = run(&mut command).expect(3);
        ran.expect_said("ENOSPC");
        ran.expect_said("free some space there");
        ran.expect_said("run the same command again to continue");
        ran.expect_said("/copy'");
        let part = [".copy.thalweg-journal", ".copy.thalweg-part", "ballast"];
        assert_eq!(names(place.path()), part, "{connections}");
    }
    fs::remove_file(place.join("ballast")).unwrap();
    let second = fetch(&served.at("file"), &path).expect(0).json();
    assert!(second["bytes"].as_u64().unwrap() < 4 * MIB, "{second}");
    bytes::expect(&path, 1, 4 * MIB);
    assert_eq!(names(place.path()), ["copy"]);
}

#[test]
fn a_disk_that_is_full_takes_nothing_and_what_was_there_stays() {
    let test = "a_disk_that_is_full_takes_nothing_and_what_was_there_stays";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let (scratch, place) = (Scratch::new(), Scratch::within(disk));
    let served = Served::on(&shared(&scratch));
    let old = place.join("old");
    bytes::write(&old, 3, 1000);
    fill(&place.join("ballast"));
    for path in [&old, &place.join("new")] {
        let ran = fetch(&served.at("file"), path).expect_no_panic();
        // The exit status is 3 if the file system stored a byte before it was full, otherwise 1.
        assert!([1, 3].contains(&ran.code()), "{}", ran.said());
        ran.expect_said("ENOSPC");
        ran.expect_said("free some space there");
        assert!(!place.join("new").exists());
    }
    bytes::expect(&old, 3, 1000);
    // Not even the list of the tree fits on the disk.
    let ran = fetch_tree(&served, &place.join("tree")).expect(1);
    ran.expect_said("/tree': no space left on device");
    ran.expect_said("free some space there");
    assert!(!place.join("tree").exists() && !place.join(".tree.thalweg-part").exists());
    fs::remove_file(place.join("ballast")).unwrap();
    fetch(&served.at("file"), &old).expect(0);
    bytes::expect(&old, 1, 4 * MIB);
}

#[test]
fn a_tree_that_does_not_fit_waits_whole_file_by_whole_file_for_the_same_command() {
    let test = "a_tree_that_does_not_fit_waits_whole_file_by_whole_file";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let (scratch, place) = (Scratch::new(), Scratch::within(disk));
    let root = shared(&scratch);
    let served = Served::on(&root);
    bytes::write(&place.join("ballast"), 6, 5 * MIB);
    let dst = place.join("dst");
    for is_there in [false, true] {
        if is_there {
            fs::create_dir(&dst).unwrap();
        }
        let ran = fetch_tree(&served, &dst).expect(3);
        ran.expect_said("ENOSPC");
        ran.expect_said("free some space there");
        ran.expect_said("run the same command again to continue");
        if is_there {
            // Every file with its final name is complete.
            for name in names(&dst).into_iter().filter(|name| name != "below") {
                let n = name.parse().expect("only files of the tree");
                bytes::expect(&dst.join(&name), n, 500_000 + n);
            }
        } else {
            assert_eq!(names(place.path()), [".dst.thalweg-part", "ballast"]);
        }
        fs::remove_file(place.join("ballast")).unwrap();
        let second = fetch_tree(&served, &dst).expect(0).json();
        let all = (0..6).map(|n| 500_000 + n + 100 + n).sum::<u64>();
        assert!(second["bytes"].as_u64().unwrap() < all, "{second}");
        are_equal(&root.join("tree"), &dst);
        assert_eq!(names(place.path()), ["dst"]);
        fs::remove_dir_all(&dst).unwrap();
        bytes::write(&place.join("ballast"), 6, 5 * MIB);
    }
}

/// Runs the command in a mount namespace in which this directory is read-only.
fn read_only(folder: &Path, words: &[&str], to: &Path) -> Ran {
    let line =
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=slave", "sh", "-c", line, "sh"]).arg(folder);
    command.arg(env!("CARGO_BIN_EXE_thalweg")).args(words).arg(to);
    quiet_environment(&mut command);
    run(&mut command)
}

#[test]
fn a_read_only_file_system_is_named_and_what_is_there_stays() {
    let test = "a_read_only_file_system_is_named_and_what_is_there_stays";
    if !is_root(test) || !has_tools(test, &["unshare", "mount"]) {
        return;
    }
    let may_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        return skip(test, "no mounts of one's own");
    }
    let scratch = Scratch::new();
    let served = Served::on(&shared(&scratch));
    let place = scratch.folder("place");
    bytes::write(&place.join("old"), 3, 1000);
    let folder = place.join("folder");
    fs::create_dir(&folder).unwrap();
    let (file, tree) = (served.at("file"), served.at("tree/"));
    for (words, to) in [
        (&["fetch", &*file][..], &place.join("new")),
        (&["fetch", &*file], &place.join("old")),
        (&["fetch", &*file], &folder),
        (&["fetch", "-r", &*tree], &place.join("new")),
        (&["fetch", "-r", &*tree], &folder),
    ] {
        let ran = read_only(&place, words, to).expect(1);
        ran.expect_said("EROFS");
        ran.expect_said("mount the file system read-write");
        assert_eq!(names(&place), ["folder", "old"], "{words:?}");
        assert_eq!(names(&folder), Vec::<String>::new(), "{words:?}");
        bytes::expect(&place.join("old"), 3, 1000);
    }
}

#[test]
fn a_limit_on_file_sizes_holds_for_lists_streams_and_what_is_replaced() {
    let test = "a_limit_on_file_sizes_holds_for_lists_streams_and_what_is_replaced";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let served = Served::on(&shared(&scratch));
    let place = scratch.folder("place");
    let limited = |bytes: u64, words: &[&str], to: &Path| {
        let mut command = wrapped(&["prlimit", &format!("--fsize={bytes}"), "--"]);
        run(command.args(words).arg(to))
    };
    // The list of the tree is longer than the limit.
    let ran = limited(100, &["fetch", "-r", &served.at("tree/")], &place.join("new")).expect(1);
    ran.expect_said("EFBIG");
    ran.expect_said("ulimit -f");
    assert_eq!(names(&place), Vec::<String>::new());
    // Not even a journal fits within the limit.
    let ran = limited(0, &["fetch", &served.at("file")], &place.join("new")).expect(1);
    ran.expect_said("EFBIG");
    assert_eq!(names(&place), Vec::<String>::new());
    bytes::write(&place.join("old"), 3, 1000);
    let ran = limited(MIB, &["fetch", &served.at("file")], &place.join("old")).expect(3);
    ran.expect_said("EFBIG");
    ran.expect_said("ulimit -f");
    ran.expect_said("run the same command again to continue");
    bytes::expect(&place.join("old"), 3, 1000);
    let second = fetch(&served.at("file"), &place.join("old")).expect(0).json();
    assert_eq!(second["bytes"], 3 * MIB, "what came before is not sent again");
    bytes::expect(&place.join("old"), 1, 4 * MIB);
    // The shell opens the output file, so thalweg can only report the error.
    let line = "exec prlimit --fsize=1048576 \"$1\" fetch \"$2\" - >\"$3\"";
    let mut stream = Command::new("sh");
    stream.args(["-c", line, "sh", env!("CARGO_BIN_EXE_thalweg"), &served.at("file")]);
    stream.arg(place.join("out"));
    quiet_environment(&mut stream);
    run(&mut stream).expect(1).expect_said("EFBIG");
    bytes::expect(&place.join("out"), 1, MIB);
}
