//! What the system allows a process: file sizes, processors, rights, descriptors.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

use crate::support::{
    Scratch, bytes, file_methods, names, run,
    run::{quiet_environment, wrapped},
    scratch::open_to_all,
    skip::{has_tools, is_root},
};

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
        // What --resume left can be gone on with.
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
    // The output is a file of whoever started it: only how it ends is ours.
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
fn a_user_who_may_not_give_files_away_keeps_the_rest() {
    let test = "a_user_who_may_not_give_files_away_keeps_the_rest";
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
