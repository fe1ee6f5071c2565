//! Copies random trees with `-a`, and compares them with independent programs. `THALWEG_CASES=200` tries more trees.

use proptest::{
    prelude::ProptestConfig,
    test_runner::{TestCaseError, TestRunner},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    Scratch,
    growth::{entries, grow},
    mounts,
    mounts::ROOMY,
    names, run,
    skip::has_tools,
    thalweg,
};
use thalweg_testing::from_env;

const TOOLS: [&str; 4] = ["diff", "getfattr", "find", "rsync"];

/// Returns the sorted records that a program lists for everything in `folder`.
fn listing(folder: &Path, program: &str, words: &[&str], separator: &[u8]) -> Vec<String> {
    let mut command = Command::new(program);
    let ran = run(command.args(words).current_dir(folder).env("LC_ALL", "C")).expect(0);
    let mut rest = &ran.stdout[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let found = rest.windows(separator.len()).position(|window| window == separator);
        let end = found.unwrap_or(rest.len());
        records.push(rest[..end].escape_ascii().to_string());
        rest = &rest[(end + separator.len()).min(rest.len())..];
    }
    records.sort();
    records
}

/// Returns the differences that independent programs find.
fn differences(tree: &Path, copy: &Path) -> Vec<String> {
    let mut found = Vec::new();
    // diff reports any two FIFOs as different.
    let words = ["-r", "--no-dereference", "-x", "*fifo"];
    let diff = run(Command::new("diff").args(words).args([tree, copy]));
    if diff.code() != 0 {
        found.push(format!("diff: {}", diff.said()));
    }
    // The size and the link count of a directory depend on the file system.
    let stat = "%P %y %m %U %G %T@ %l";
    let of_files = format!("{stat} %s %n\\0");
    let of_folders = format!("{stat}\\0");
    let finds =
        [vec!["!", "-type", "d", "-printf", &of_files], vec!["-type", "d", "-printf", &of_folders]];
    for words in &finds {
        let words = [&["."][..], words].concat();
        compare("find", [tree, copy].map(|top| listing(top, "find", &words, b"\0")), &mut found);
    }
    let words = ["-d", "-R", "-P", "-h", "-m", "-", "-e", "hex", "."];
    let attributes = [tree, copy].map(|top| {
        let records = listing(top, "getfattr", &words, b"\n\n");
        if is_xfs(top) {
            records.iter().map(|record| without_views(record)).collect()
        } else {
            records
        }
    });
    compare("getfattr", attributes, &mut found);
    let slashed = |path: &Path| path.join("");
    // This filter replaces rsync's default filter, which omits attributes that an ordinary user cannot set.
    let filter = rustix::process::geteuid().is_root().then_some("--filter=-x trusted.SGI_*");
    let words = ["-anciHAX", "--delete"].into_iter().chain(filter);
    let rsync = run(Command::new("rsync").args(words).args([slashed(tree), slashed(copy)]));
    if rsync.code() != 0 || !rsync.stdout.is_empty() {
        found.push(format!("rsync: {}", rsync.said()));
    }
    found
}

fn is_xfs(path: &Path) -> bool {
    const XFS: i64 = 0x5846_5342;
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == XFS)
}

/// Removes the attributes under which XFS shows every ACL a second time.
fn without_views(record: &str) -> String {
    let lines = record.split("\\n").filter(|line| !line.starts_with("trusted.SGI_"));
    lines.collect::<Vec<_>>().join("\\n")
}

fn compare(tool: &str, [tree, copy]: [Vec<String>; 2], found: &mut Vec<String>) {
    let missing = tree.iter().filter(|record| !copy.contains(record));
    let extra = copy.iter().filter(|record| !tree.contains(record));
    found.extend(missing.map(|record| format!("{tool}, only in the tree: {record}")));
    found.extend(extra.map(|record| format!("{tool}, only in the copy: {record}")));
    if tree.len() != copy.len() {
        found.push(format!("{tool}: {} records and {}", tree.len(), copy.len()));
    }
}

/// Gives a directory a default ACL and set-group-ID, so that new entries inherit an ACL and a group.
fn make_generous(folder: &Path) {
    use std::os::unix::fs::{PermissionsExt, chown};
    // Failures are ignored: without root the group stays, and some file systems have no ACLs.
    drop(chown(folder, None, Some(4321)));
    fs::set_permissions(folder, fs::Permissions::from_mode(0o2775)).unwrap();
    drop(Command::new("setfacl").args(["-d", "-m", "u:55:rwx"]).arg(folder).output());
}

/// Makes trees in one directory, copies them to another one, and compares them.
fn try_trees(from: &Path, to: &Path, cases: u32, options: &[&str]) {
    let as_root = rustix::process::geteuid().is_root();
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        // A shrink step takes a second or more, and 15 steps make the tree small enough.
        max_shrink_iters: 15,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&entries(), |entries| {
        let (there, here) = (Scratch::within(from), Scratch::within(to));
        let (tree, copy) = (there.folder("tree"), here.join("copy"));
        grow(&tree, &entries, as_root);
        make_generous(here.path());
        let ran = run(thalweg().arg("copy").arg("-aq").args(options).args([&tree, &copy]));
        let mut found = differences(&tree, &copy);
        if ran.status.code() != Some(0) || !ran.stderr.is_empty() {
            found.push(format!("{}: {}", ran.status, ran.said()));
        }
        if names(here.path()) != ["copy"] && from != to {
            found.push(format!("left behind: {:?}", names(here.path())));
        }
        // A second copy onto the first one must leave it correct.
        let ran = run(thalweg().args(["copy", "-aT"]).args(options).args([&tree, &copy]));
        if ran.status.code() != Some(0) {
            found.push(format!("the second time {}: {}", ran.status, ran.said()));
        }
        found.extend(differences(&tree, &copy).into_iter().map(|text| format!("second: {text}")));
        if found.is_empty() { Ok(()) } else { Err(TestCaseError::fail(found.join("\n"))) }
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn a_random_tree_is_the_same_to_every_program_that_compares() {
    let test = "a_random_tree_is_the_same_to_every_program_that_compares";
    if !has_tools(test, &TOOLS) {
        return;
    }
    let cases = from_env("THALWEG_CASES", 8) as u32;
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    try_trees(&here, &here, cases.div_ceil(2), &[]);
    try_trees(&here, &here, cases.div_ceil(4), &["--jobs=1", "--resume"]);
    try_trees(&here, &here, cases.div_ceil(4), &["--sparse=always", "--verify"]);
}

#[test]
fn a_random_tree_survives_the_way_to_another_file_system() {
    let test = "a_random_tree_survives_the_way_to_another_file_system";
    if !has_tools(test, &TOOLS) {
        return;
    }
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let roots: Vec<_> = ROOMY.into_iter().filter_map(|name| mounts().get(test, name)).collect();
    let cases = from_env("THALWEG_CASES", 8).div_ceil(8) as u32;
    for (n, to) in roots.iter().enumerate() {
        let from = if n == 0 { here.as_path() } else { roots[n - 1] };
        try_trees(from, to, cases, &[]);
    }
}
