//! All pairs of real file systems: every mechanism copies or reports why it cannot, and clones share their blocks.

use std::{fs, path::Path, process::Command};

use crate::support::{
    Scratch, bytes, file_methods, mounts,
    mounts::{ROOMY, free},
    names, run, shell, skip,
    skip::has_tools,
    thalweg,
};

/// Length of a file. It is not a multiple of a block, so the last block is not full.
const LEN: u64 = 2 * 1024 * 1024 + 4097;
/// Length of a cloned file. The clone saves more space than other tests use at the same time.
const BIG: u64 = 32 << 20;

/// Returns all pairs of mounted file systems, source first.
fn pairs(test: &str) -> Vec<[(&'static str, &'static Path); 2]> {
    let here = |name| mounts().get(test, name).map(|path| (name, path));
    let there: Vec<_> = ROOMY.into_iter().filter_map(here).collect();
    there.iter().flat_map(|from| there.iter().map(|to| [*from, *to])).collect()
}

#[test]
fn every_mechanism_copies_between_all_file_systems_or_says_why_not() {
    let test = "every_mechanism_copies_between_all_file_systems_or_says_why_not";
    let pairs = pairs(test);
    let mut never_worked = file_methods();
    let mut ran_at_all = false;
    for [(from, source_root), (to, copy_root)] in pairs {
        let (there, here) = (Scratch::within(source_root), Scratch::within(copy_root));
        let source = there.join("source");
        bytes::write(&source, 1, LEN);
        for method in file_methods() {
            let copy = here.join("copy");
            let context = format!("{method}, {from} to {to}");
            let ran = run(thalweg().args(["copy", "--method", &method]).args([&source, &copy]));
            match ran.code() {
                0 => {
                    run(Command::new("cmp").args([&source, &copy])).expect(0);
                    assert_eq!(names(here.path()), ["copy"], "{context}");
                    fs::remove_file(&copy).unwrap();
                    never_worked.retain(|other| *other != method);
                }
                4 => {
                    assert!(ran.stderr.contains(&method), "{context}: {}", ran.said());
                    assert_eq!(names(here.path()), Vec::<String>::new(), "{context}");
                }
                _ => panic!("{context}: {}", ran.said()),
            }
        }
        let copy = here.join("copy");
        run(thalweg().args(["copy", "--verify"]).args([&source, &copy])).expect(0);
        bytes::expect(&copy, 1, LEN);
        ran_at_all = true;
    }
    assert!(!ran_at_all || never_worked.is_empty(), "these worked nowhere: {never_worked:?}");
}

/// Returns `true` if FIEMAP reports every extent of a file as shared.
fn is_shared(file: &Path) -> bool {
    let ran = run(Command::new("filefrag").args(["-s", "-v"]).arg(file)).expect(0);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let is_extent =
        |line: &&str| line.split_once(':').is_some_and(|(n, _)| n.trim().parse::<u64>().is_ok());
    let mut extents = text.lines().filter(is_extent).peekable();
    assert!(extents.peek().is_some(), "no extents in {text}");
    extents.all(|line| line.contains("shared"))
}

#[test]
fn a_clone_shares_its_blocks_and_is_a_copy_all_the_same() {
    let test = "a_clone_shares_its_blocks_and_is_a_copy_all_the_same";
    if !has_tools(test, &["filefrag"]) {
        return;
    }
    for root in ["xfs", "btrfs"].into_iter().filter_map(|name| mounts().get(test, name)) {
        let scratch = Scratch::within(root);
        let source = scratch.join("source");
        bytes::write(&source, 1, BIG);
        for (options, shares) in
            [(vec!["--reflink=always"], true), (vec![], true), (vec!["--reflink=never"], false)]
        {
            let copy = scratch.join("copy");
            let before = free(root);
            let ran = run(thalweg().args(["copy", "--json"]).args(&options).args([&source, &copy]));
            assert_eq!(ran.expect(0).json()["bytes"], BIG);
            let used = before.saturating_sub(free(root));
            assert_eq!(is_shared(&copy), shares, "{options:?} on {}", root.display());
            assert!(!shares || used < BIG, "{options:?}: a clone used {used} bytes");
            bytes::expect(&copy, 1, BIG);
            bytes::write_at(&source, 9, 0, 4096);
            bytes::expect(&copy, 1, BIG);
            bytes::write_at(&source, 1, 0, 4096);
            fs::remove_file(&copy).unwrap();
        }
    }
}

#[test]
fn a_clone_has_no_name_and_no_journal_before_it_has_its_own() {
    let test = "a_clone_has_no_name_and_no_journal_before_it_has_its_own";
    if shell(Path::new("/tmp"), "command -v strace && strace -o /dev/null true").code() != 0 {
        return skip(test, "strace cannot trace here");
    }
    for root in ["xfs", "btrfs"].into_iter().filter_map(|name| mounts().get(test, name)) {
        let scratch = Scratch::within(root);
        bytes::write(&scratch.join("source"), 1, BIG);
        for (options, name) in [("--reflink=always", "a"), ("", "b"), ("-a", "c")] {
            let line = format!("strace -f -o trace $T copy {options} source {name}");
            shell(scratch.path(), &line).expect(0);
            let trace = fs::read_to_string(scratch.join("trace")).unwrap();
            assert!(trace.contains("FICLONE"), "{trace}");
            // The copy looks for partial files and journals of earlier copies (ENOENT), but makes none itself.
            let is_of_ours =
                |line: &&str| line.contains("thalweg-part") || line.contains("-journal");
            let made = trace.lines().filter(is_of_ours).find(|line| !line.contains("ENOENT"));
            assert_eq!(made, None, "{trace}");
            bytes::expect(&scratch.join(name), 1, BIG);
        }
        assert_eq!(names(scratch.path()), ["a", "b", "c", "source", "trace"]);
    }
}

#[test]
fn small_files_of_a_tree_are_cloned_where_that_is_possible() {
    let test = "small_files_of_a_tree_are_cloned_where_that_is_possible";
    if !has_tools(test, &["filefrag"]) {
        return;
    }
    for root in ["xfs", "btrfs"].into_iter().filter_map(|name| mounts().get(test, name)) {
        let scratch = Scratch::within(root);
        let source = scratch.join("source");
        fs::create_dir(&source).unwrap();
        let file = |number: u64| format!("{number:03}");
        for number in 0..200 {
            bytes::write(&source.join(file(number)), number, 16384 + number);
        }
        rustix::fs::sync();
        let cloned = |options: &[&str], to: &str| {
            let copy = scratch.join(to);
            run(thalweg().args(["copy", "-r"]).args(options).args([&source, &copy])).expect(0);
            let all = (0..200).inspect(|n| bytes::expect(&copy.join(file(*n)), *n, 16384 + n));
            all.filter(|number| is_shared(&copy.join(file(*number)))).count()
        };
        // The copy does not try to clone the first few small files.
        assert!(cloned(&[], "copy") >= 100, "{}", root.display());
        assert_eq!(cloned(&["--reflink=never"], "own"), 0, "{}", root.display());
    }
}

#[test]
fn a_clone_that_is_impossible_is_refused_and_nothing_is_left() {
    let test = "a_clone_that_is_impossible_is_refused_and_nothing_is_left";
    let cannot_clone = |from: &str, to: &str| from != to || from == "ext4" || from == "tmpfs";
    for [(from, source_root), (to, copy_root)] in pairs(test) {
        if !cannot_clone(from, to) {
            continue;
        }
        let (there, here) = (Scratch::within(source_root), Scratch::within(copy_root));
        bytes::write(&there.join("source"), 1, LEN);
        let mut copy = thalweg();
        copy.args(["copy", "--reflink=always"]).args([there.join("source"), here.join("copy")]);
        let ran = run(&mut copy).expect_no_panic();
        assert!([3, 4].contains(&ran.code()), "{from} to {to}: {}", ran.said());
        assert!(!ran.stderr.is_empty());
        assert_eq!(names(here.path()), Vec::<String>::new(), "{from} to {to}");
    }
}
