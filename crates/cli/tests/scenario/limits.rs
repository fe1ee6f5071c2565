//! Limits of a process: file sizes, CPUs, privileges, descriptors.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use crate::support::{
    Scratch, bytes, file_methods, names, run,
    run::{quiet_environment, wrapped},
    scratch::open_to_all,
    skip::{has_tools, is_root},
};
use thalweg_testing::from_env;

const MIB: u64 = 1 << 20;

#[test]
fn a_file_over_the_size_limit_is_an_error_and_not_a_death() {
    let test = "a_file_over_the_size_limit_is_an_error_and_not_a_death";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let methods = file_methods();
    let mut refused = 0;
    for way in methods.iter().map(|name| vec!["--method", name]).chain([vec![], vec!["--resume"]]) {
        let scratch = Scratch::new();
        let source = scratch.join("source");
        bytes::write(&source, 1, 4 * MIB);
        let mut copy = wrapped(&["prlimit", "--fsize=1048576"]);
        copy.arg("copy").args(&way).args([&source, &scratch.join("copy")]);
        let ran = run(&mut copy).expect_no_panic();
        assert!(!scratch.join("copy").exists(), "{way:?}: something partial");
        if ran.code() == 4 {
            continue;
        }
        // With --resume, the exit status is 3, because the copy can be resumed.
        let ran = ran.expect(if way == ["--resume"] { 3 } else { 1 });
        assert!(ran.stderr.contains("EFBIG"), "{way:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("/copy"), "{way:?} does not name it: {}", ran.stderr);
        if way != ["--resume"] {
            assert_eq!(names(scratch.path()), ["source"], "{way:?}");
        }
        refused += 1;
    }
    assert!(refused >= 3, "only {refused} ways met the limit");
}

#[test]
fn a_stream_over_the_size_limit_is_an_error_and_not_a_death() {
    let test = "a_stream_over_the_size_limit_is_an_error_and_not_a_death";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, 4 * MIB);
    let out = scratch.join("out");
    // The shell opens the output file, so thalweg can only report the error.
    let shell = "exec prlimit --fsize=1048576 \"$1\" pipe <\"$2\" >\"$3\"";
    let mut pipe = Command::new("sh");
    pipe.args(["-c", shell, "sh", env!("CARGO_BIN_EXE_thalweg")]).args([&source, &out]);
    quiet_environment(&mut pipe);
    run(&mut pipe).expect(1).expect_said("EFBIG");
    bytes::expect(&out, 1, MIB);
}

#[test]
fn one_processor_is_enough() {
    let test = "one_processor_is_enough";
    if !has_tools(test, &["taskset"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, 8 * MIB);
    let tree = scratch.folder("tree");
    for n in 0..20 {
        bytes::write(&tree.join(n.to_string()), n, n * 5000);
    }
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let one = || wrapped(&["taskset", "-c", &first.to_string()]);
    for name in file_methods() {
        let copy = scratch.join("copy");
        let ran = run(one().args(["copy", "--method", &name]).args([&source, &copy]));
        match ran.code() {
            0 => bytes::expect(&copy, 1, 8 * MIB),
            4 => continue,
            _ => panic!("{name}: {}", ran.said()),
        }
        fs::remove_file(&copy).unwrap();
    }
    run(one().args(["copy", "-a", "--jobs", "4"]).args([&tree, &scratch.join("tree-copy")]))
        .expect(0);
    for n in 0..20 {
        bytes::expect(&scratch.join("tree-copy").join(n.to_string()), n, n * 5000);
    }
    let mut pipe = one();
    pipe.args(["pipe", "--tee"]).arg(scratch.join("tee")).stdin(fs::File::open(&source).unwrap());
    assert!(run(&mut pipe).expect(0).stdout == bytes::of(1, 8 << 20));
    bytes::expect(&scratch.join("tee"), 1, 8 * MIB);
}

#[test]
fn a_user_that_may_not_give_files_away_keeps_the_rest() {
    let test = "a_user_that_may_not_give_files_away_keeps_the_rest";
    if !is_root(test) || !has_tools(test, &["setpriv", "cp", "diff"]) {
        return;
    }
    let scratch = Scratch::public();
    let binary = scratch.binary();
    let tree = scratch.folder("tree");
    open_to_all(&tree);
    for (name, mode) in [("plain", 0o644), ("set-id", 0o6755), ("mine-only", 0o444)] {
        bytes::write(&tree.join(name), 3, 70_000);
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("plain", tree.join("link")).unwrap();
    let user = |program: &str, copy: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(if program == "thalweg" { binary.as_os_str() } else { program.as_ref() });
        if program == "thalweg" {
            command.arg("copy");
        }
        command.arg("-aT").args([&tree, &scratch.join(copy)]);
        quiet_environment(&mut command);
        command.env("THALWEG_PROFILE", scratch.join("profile.json"));
        run(&mut command)
    };
    user("cp", "by-cp").expect(0);
    user("thalweg", "by-us").expect(0);
    for name in names(&tree) {
        let [cp, us] = ["by-cp", "by-us"].map(|copy| {
            let found = fs::symlink_metadata(scratch.join(copy).join(&name)).unwrap();
            (found.mode(), found.uid(), found.gid(), found.len(), found.mtime(), found.mtime_nsec())
        });
        assert_eq!(us, cp, "{name}");
    }
    let diff = ["-r", "--no-dereference"];
    run(Command::new("diff").args(diff).args([tree, scratch.join("by-us")])).expect(0);
}

#[test]
fn a_deep_tree_raises_the_number_of_descriptors() {
    let test = "a_deep_tree_raises_the_number_of_descriptors";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut deepest = scratch.folder("tree");
    for n in 0..100 {
        deepest.push(n.to_string());
        fs::create_dir(&deepest).unwrap();
    }
    bytes::write(&deepest.join("file"), 4, 100_000);
    let copy = scratch.join("copy");
    let mut command = wrapped(&["prlimit", "--nofile=64:1024"]);
    command.args(["copy", "-a", "--jobs", "2"]).args([&scratch.join("tree"), &copy]);
    run(&mut command).expect(0);
    let inside = deepest.strip_prefix(scratch.join("tree")).unwrap();
    bytes::expect(&copy.join(inside).join("file"), 4, 100_000);
}

/// Makes a chain of nested directories. Each has a directory `side` with a file, and the next directory `d`.
fn comb(top: &Path, depth: usize) {
    let open = |path: &Path| fs::File::open(path).unwrap();
    fs::create_dir(top).unwrap();
    let mut at: std::os::fd::OwnedFd = open(top).into();
    for n in 0..depth {
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        for name in ["d", "side"] {
            rustix::fs::mkdirat(&at, name, mode).unwrap();
        }
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let file = rustix::fs::openat(&at, "side/file", flags, mode).unwrap();
        fs::File::from(file).write_all(n.to_string().as_bytes()).unwrap();
        let below = rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "d", below, rustix::fs::Mode::empty()).unwrap();
    }
}

/// Compares two chains of [`comb`] level by level, and removes them. Most tools fail on their long paths.
fn expect_combs(tops: [&Path; 2], depth: usize) {
    use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, unlinkat};
    let open = |at: &std::os::fd::OwnedFd, name: &str| {
        openat(at, name, OFlags::DIRECTORY, Mode::empty()).unwrap()
    };
    let mut at = tops.map(|top| std::os::fd::OwnedFd::from(fs::File::open(top).unwrap()));
    for n in 0..depth {
        let found = at.each_ref().map(|at| {
            let file = openat(at, "side/file", OFlags::RDONLY, Mode::empty()).unwrap();
            let mut file = fs::File::from(file);
            let mut text = Vec::new();
            file.read_to_end(&mut text).unwrap();
            let stat = fstat(at).unwrap();
            let file = fstat(&file).unwrap();
            (text, stat.st_mode, stat.st_mtime, file.st_mode, file.st_mtime)
        });
        assert_eq!(found[0], found[1], "level {n}");
        assert_eq!(found[0].0, n.to_string().as_bytes());
        at = at.each_ref().map(|at| open(at, "d"));
    }
    // Removes from the bottom up, because `remove_dir_all` would hold a descriptor for every level.
    for at in &mut at {
        for n in (0..=depth).rev() {
            if n < depth {
                unlinkat(&*at, "side/file", AtFlags::empty()).unwrap();
                unlinkat(&*at, "side", AtFlags::REMOVEDIR).unwrap();
                unlinkat(&*at, "d", AtFlags::REMOVEDIR).unwrap();
            }
            if n > 0 {
                *at = open(at, "..");
            }
        }
    }
}

#[test]
fn a_tree_far_deeper_than_there_are_descriptors_is_copied() {
    let test = "a_tree_far_deeper_than_there_are_descriptors_is_copied";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    // The time of the test grows with the square of the depth.
    let depth = from_env("THALWEG_DEPTH", 500) as usize;
    for limits in [
        &["prlimit", "--nofile=16:16"][..],
        &["prlimit", "--nofile=16:16", "--stack=65536:65536"],
        &["prlimit", "--nofile=64:64"],
        &["prlimit", "--nofile=256:256"],
    ] {
        let scratch = Scratch::new();
        let (from, to) = (scratch.join("from"), scratch.join("to"));
        comb(&from, depth);
        run(wrapped(limits).args(["copy", "-a", "--jobs", "4"]).args([&from, &to])).expect(0);
        expect_combs([&from, &to], depth);
    }
}

#[test]
fn a_wide_tree_is_copied_by_many_workers_with_few_descriptors() {
    let test = "a_wide_tree_is_copied_by_many_workers_with_few_descriptors";
    if !has_tools(test, &["prlimit", "diff"]) {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    for n in 0..300 {
        let folder = tree.join(format!("{}/{}", n % 20, n));
        fs::create_dir_all(&folder).unwrap();
        bytes::write(&folder.join("file"), n, n * 300);
        fs::hard_link(folder.join("file"), tree.join(format!("{}/link-{n}", n % 20))).unwrap();
    }
    for limit in ["16", "24", "40"] {
        let copy = scratch.join(&format!("copy-{limit}"));
        let mut command = wrapped(&["prlimit", &format!("--nofile={limit}:{limit}")]);
        command.args(["copy", "-a", "--verify", "--jobs", "16"]).args([&tree, &copy]);
        run(&mut command).expect(0);
        run(Command::new("diff").arg("-r").args([&tree, &copy])).expect(0);
    }
}

/// Returns the command with a limit on open files.
fn with_descriptors(limit: u32) -> Command {
    wrapped(&["prlimit", &format!("--nofile={limit}:{limit}")])
}

#[test]
fn many_threads_compare_and_hash_with_few_descriptors() {
    let test = "many_threads_compare_and_hash_with_few_descriptors";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let (tree, copy, sums) = (scratch.folder("tree"), scratch.join("copy"), scratch.join("sums"));
    // The tree is deep and wide, so that each thread works in another directory.
    for n in 0..8 {
        let deep = (0..60).fold(tree.join(n.to_string()), |at, level| at.join(level.to_string()));
        fs::create_dir_all(&deep).unwrap();
        for above in deep.ancestors().take(60) {
            fs::write(above.join("file"), above.as_os_str().as_encoded_bytes()).unwrap();
        }
    }
    run(with_descriptors(16).args(["copy", "-aq"]).args([&tree, &copy])).expect(0);
    let many = ["--jobs", "16"];
    run(with_descriptors(16).arg("verify").args(many).args([&tree, &copy])).expect(0);
    run(with_descriptors(16).args(["manifest", "-o"]).arg(&sums).args(many).arg(&tree)).expect(0);
    assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), 480);
    let against = ["verify", "--manifest"];
    run(with_descriptors(16).args(against).arg(&sums).args(many).arg(&copy)).expect(0);
}

#[test]
fn more_large_files_than_descriptors_are_compared_and_hashed() {
    let test = "more_large_files_than_descriptors_are_compared_and_hashed";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let (tree, copy, sums) = (scratch.folder("tree"), scratch.folder("copy"), scratch.join("sums"));
    for folder in [&tree, &copy] {
        for n in 0..40 {
            fs::File::create(folder.join(n.to_string())).unwrap().set_len(9 << 20).unwrap();
        }
    }
    for jobs in ["1", "2"] {
        let many = ["--jobs", jobs];
        let ran = run(with_descriptors(24).arg("verify").args(many).args([&tree, &copy]));
        assert!(ran.expect(0).stdout.starts_with(b"40 files equal"));
        run(with_descriptors(24).args(["manifest", "-o"]).arg(&sums).args(many).arg(&tree))
            .expect(0);
        assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), 40);
        let against = ["verify", "--manifest"];
        run(with_descriptors(24).args(against).arg(&sums).args(many).arg(&copy)).expect(0);
    }
}

#[test]
fn a_leftover_far_deeper_than_there_are_descriptors_is_removed() {
    let test = "a_leftover_far_deeper_than_there_are_descriptors_is_removed";
    if !has_tools(test, &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let (from, to) = (scratch.folder("from"), scratch.join("to"));
    fs::write(from.join("file"), "new").unwrap();
    // Simulates the staging directory of a killed copy of another tree. Its paths are longer than PATH_MAX.
    comb(&scratch.join(".to.thalweg-part"), 3000);
    run(with_descriptors(16).args(["copy", "-aq"]).args([&from, &to])).expect(0);
    assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "new");
    assert_eq!(names(scratch.path()), ["from", "to"]);
}
