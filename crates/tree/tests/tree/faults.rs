//! Tests system calls that fail, move too few bytes or are cancelled. Afterwards, each file with its final name must be
//! complete, and no incomplete file may exist.

use crate::support;

use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{Listener, contents, large, names, noise, problems, recursive};
use thalweg_core::Request;
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script, ScriptRun},
};
use thalweg_tree::{CopyOptions, Ending, Fsync, Halt, Hash, Target, TreeReport, When};

fn run(
    rules: Vec<Rule>,
    source: &Path,
    destination: &Path,
    options: &CopyOptions,
) -> ScriptRun<TreeReport> {
    Script::new(rules).run(|| support::copy(source, destination, options))
}

/// Creates two directories with small and large files.
fn sample(at: &Path) -> PathBuf {
    let src = at.join("src");
    fs::create_dir_all(src.join("sub")).unwrap();
    for n in 0..8 {
        fs::write(src.join(format!("small{n}")), noise(1000 * n + 1, n as u64)).unwrap();
        fs::write(src.join(format!("sub/large{n}")), noise(large() + n, n as u64)).unwrap();
    }
    src
}

/// Checks that every file of the copy equals a file of the source, and that no other entry exists.
/// Returns the number of files.
fn only_whole_files(src: &Path, to: &Path) -> usize {
    let (truth, mut copy) = (contents(src), contents(to));
    // The journal of a staging directory identifies its source, so no source file equals it.
    copy.remove(&b".thalweg-journal"[..]);
    for (path, entry) in &copy {
        assert_eq!(truth.get(path), Some(entry), "{}", String::from_utf8_lossy(path));
    }
    copy.values().filter(|(kind, _)| *kind == 'f').count()
}

#[test]
fn a_full_destination_ends_the_run_and_leaves_only_whole_files() {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
        let place = tempfile::tempdir().unwrap();
        let src = sample(place.path());
        let calls = [Call::Write, Call::Pwrite, Call::CopyFileRange, Call::Sendfile, Call::Splice];
        let rule = |call| Rule { call, nth: 3, effect: Effect::Errno(errno), repeat: true };
        let options = CopyOptions { jobs: 1, ..recursive() };
        let rules = calls.map(rule).to_vec();
        let report = run(rules, &src, &place.path().join("to"), &options).value;
        assert_eq!((report.halted, report.ending()), (Some(Halt::Full), Ending::Partial));
        assert_eq!(report.error_count, 1, "{}", problems(&report));
        let text = problems(&report);
        assert!(text.contains("write") && text.contains("/to/"), "{text}");
        let stage = place.path().join(".to.thalweg-part");
        assert_eq!(names(place.path()), [".to.thalweg-part", "src"]);
        assert_eq!(report.unfinished, std::slice::from_ref(&stage));
        assert!(only_whole_files(&src, &stage) < 16);
    }
}

#[test]
fn a_kernel_that_refuses_to_copy_costs_nothing_but_time() {
    let effects = [Effect::Zero, Effect::Short(10)]
        .into_iter()
        .chain([Errno::NOSYS, Errno::XDEV, Errno::IO, Errno::INTR].map(Effect::Errno));
    for (effect, nth) in effects.flat_map(|effect| [(effect, 1), (effect, 3)]) {
        let place = tempfile::tempdir().unwrap();
        let src = sample(place.path());
        // The copy repeats a call after EINTR. If every call failed with EINTR, the copy would never end.
        let repeat = !matches!(effect, Effect::Errno(Errno::INTR));
        let rule = Rule { call: Call::CopyFileRange, nth, effect, repeat };
        let report = run(vec![rule], &src, &place.path().join("to"), &recursive()).value;
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(contents(&src), contents(&place.path().join("to")));
    }
}

#[test]
fn any_other_error_costs_one_file() {
    for (call, errno) in
        [(Call::Read, Errno::IO), (Call::Write, Errno::IO), (Call::Pwrite, Errno::FBIG)]
    {
        let place = tempfile::tempdir().unwrap();
        let src = sample(place.path());
        let rule =
            Rule { call, nth: 3, effect: Effect::Errno(errno), repeat: call == Call::Pwrite };
        let request = Request { only: Some("read-write".to_owned()), ..Request::default() };
        let options = CopyOptions { request, ..recursive() };
        let outcome = run(vec![rule], &src, &place.path().join("to"), &options);
        let report = outcome.value;
        assert_eq!(report.halted, None);
        assert!(report.error_count >= 1, "{call:?}");
        let whole = only_whole_files(&src, &place.path().join("to"));
        assert_eq!(whole as u64 + report.error_count, 16, "{}", problems(&report));
    }
}

#[test]
fn short_counts_and_interruptions_change_nothing() {
    let effects = [Effect::Short(1000), Effect::Errno(Errno::INTR)];
    for (effect, call) in effects
        .into_iter()
        .flat_map(|e| [Call::Read, Call::Write, Call::Pread, Call::Pwrite].map(|call| (e, call)))
    {
        for sparse in [When::Auto, When::Always] {
            let place = tempfile::tempdir().unwrap();
            let src = sample(place.path());
            let repeat = matches!(effect, Effect::Short(_));
            let rule = Rule { call, nth: 2, effect, repeat };
            let options = CopyOptions { sparse, ..recursive() };
            let outcome = run(vec![rule], &src, &place.path().join("to"), &options);
            assert_eq!(outcome.value.error_count, 0, "{}", problems(&outcome.value));
            assert_eq!(contents(&src), contents(&place.path().join("to")));
        }
    }
}

#[test]
fn a_name_that_cannot_be_given_leaves_nothing() {
    for call in [Call::Rename, Call::Link] {
        let place = tempfile::tempdir().unwrap();
        let src = place.path().join("src");
        let into = place.path().join("into");
        fs::create_dir(&into).unwrap();
        for (name, len) in [("small", 10), ("large", large())] {
            fs::write(&src, noise(len, 4)).unwrap();
            let rule = Rule::always(call, Effect::Errno(Errno::IO));
            let outcome = run(vec![rule], &src, &into.join(name), &CopyOptions::default());
            let failed = outcome.value.error_count;
            assert_eq!(outcome.fired, failed, "{call:?} {name}");
            assert_eq!(names(&into).len() as u64, 1 - failed);
            let _ = fs::remove_file(into.join(name));
        }
    }
}

#[test]
fn a_run_that_is_stopped_leaves_only_whole_files() {
    for stop_after in [0, 1, 7, 15, 30] {
        let place = tempfile::tempdir().unwrap();
        let src = sample(place.path());
        let to = place.path().join("to");
        let listener = Listener { stop_after: Some(stop_after), ..Listener::default() };
        let report =
            thalweg_tree::copy(std::slice::from_ref(&src), &to, &recursive(), &listener).unwrap();
        if report.halted.is_none() {
            assert_eq!(contents(&src), contents(&to));
            continue;
        }
        assert_eq!((report.halted, report.ending()), (Some(Halt::Cancelled), Ending::Partial));
        let left = names(place.path());
        assert!(left == [".to.thalweg-part", "src"] || left == ["src"], "{left:?}");
        if left.len() == 2 {
            only_whole_files(&src, &place.path().join(".to.thalweg-part"));
        }
    }
}

#[test]
fn a_copy_that_differs_is_not_published() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    fs::write(src.join("small"), noise(100, 1)).unwrap();
    fs::write(src.join("large"), noise(large(), 2)).unwrap();
    for hash in [Hash::Blake3, Hash::Xxh3] {
        let options = CopyOptions { verify: Some(hash), jobs: 1, ..recursive() };
        let report = support::copy(&src, &to, &options);
        assert_eq!((report.verified.same, report.error_count), (2, 0), "{}", problems(&report));
        fs::remove_dir_all(&to).unwrap();
        // The first read of the verification returns 0 bytes, so the copy seems to be empty.
        let plain = CopyOptions { verify: None, ..options.clone() };
        let reads = run(Vec::new(), &src.join("small"), &place.path().join("x"), &plain);
        let rule = Rule::once(Call::Pread, reads.calls[Call::Pread] + 1, Effect::Zero);
        let outcome = run(vec![rule], &src.join("small"), &to, &options);
        assert_eq!(outcome.value.ending(), Ending::Differ, "{}", problems(&outcome.value));
        assert!(!to.exists());
        assert_eq!(outcome.value.differing, 1);
    }
}

#[test]
fn what_was_asked_to_be_synced_and_could_not_be_is_not_published() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("f"), noise(large(), 1)).unwrap();
    let options = CopyOptions { fsync: Fsync::Always, ..CopyOptions::default() };
    let rule = Rule::always(Call::Fsync, Effect::Errno(Errno::IO));
    let outcome = run(vec![rule], &place.path().join("f"), &place.path().join("g"), &options);
    assert!(problems(&outcome.value).contains("fsync: EIO"), "{}", problems(&outcome.value));
    assert_eq!(names(place.path()), ["f"]);
    // An `fsync` that was interrupted is repeated.
    let rules = (1..4).map(|nth| Rule::once(Call::Fsync, nth, Effect::Errno(Errno::INTR)));
    let (from, to) = (place.path().join("f"), place.path().join("g"));
    let outcome = run(rules.collect(), &from, &to, &options);
    // Three interrupted calls, one call for the file, and one for the directory that contains its name.
    assert_eq!((outcome.value.error_count, outcome.calls[Call::Fsync]), (0, 5));
    fs::remove_file(to).unwrap();
    // One syncfs(2) covers the new tree before it gets its name. Another one covers everything at the end.
    let all = CopyOptions { fsync: Fsync::Always, ..recursive() };
    let (src, to) = (sample(place.path()), place.path().join("to"));
    let outcome = run(Vec::new(), &src, &to, &all);
    assert_eq!((outcome.calls[Call::Syncfs], outcome.calls[Call::Fsync]), (2, 1));
    // In an existing tree, each file is synced before it gets its name.
    let merge = CopyOptions { target: Target::Exact, ..all };
    let outcome = run(Vec::new(), &src, &to, &merge);
    assert!(outcome.calls[Call::Syncfs] >= 1 && outcome.calls[Call::Fsync] >= 8, "8 are large");
}

#[test]
fn a_tree_with_a_failed_sync_is_not_published_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let options = CopyOptions { fsync: Fsync::Always, resume: true, ..recursive() };
    let rule = Rule::once(Call::Syncfs, 1, Effect::Errno(Errno::IO));
    let outcome = run(vec![rule], &sample(place.path()), &place.path().join("to"), &options);
    assert!(problems(&outcome.value).contains("syncfs: EIO"), "{}", problems(&outcome.value));
    // The copy does not retry syncfs(2): a second call would succeed, but the lost data would stay lost.
    assert_eq!(outcome.value.ending(), Ending::Partial);
    assert_eq!(names(place.path()), ["src"]);
}

#[test]
fn only_data_that_replaces_a_file_is_synced_by_default() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (sample(place.path()), place.path().join("to"));
    let default = CopyOptions { target: Target::Exact, ..recursive() };
    let syncs = |options: &CopyOptions| {
        let outcome = run(Vec::new(), &src, &to, options);
        assert_eq!(outcome.value.error_count, 0, "{}", problems(&outcome.value));
        outcome.calls[Call::Fsync] + outcome.calls[Call::Syncfs]
    };
    assert_eq!(syncs(&default), 0, "all is new");
    assert!(syncs(&default) > 0, "all is replaced");
    fs::remove_file(to.join("small1")).unwrap();
    let missing = CopyOptions { no_clobber: true, ..default.clone() };
    assert_eq!(syncs(&missing), 0, "one new file");
    let never = CopyOptions { fsync: Fsync::Never, ..default };
    assert_eq!(syncs(&never), 0, "by request");
}

#[test]
fn a_file_without_a_name_that_cannot_get_one_is_written_with_one() {
    let place = tempfile::tempdir().unwrap();
    let src = place.path().join("src");
    fs::create_dir(place.path().join("into")).unwrap();
    for len in [0, 10, 100_000] {
        fs::write(&src, noise(len, 4)).unwrap();
        let rule = Rule::always(Call::Link, Effect::Errno(Errno::NOENT));
        let into = place.path().join("into");
        let report = run(vec![rule], &src, &into, &CopyOptions::default()).value;
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert!(fs::read(into.join("src")).unwrap() == fs::read(&src).unwrap());
        fs::remove_file(into.join("src")).unwrap();
        assert_eq!(names(&into).len(), 0);
    }
}

#[test]
fn where_there_are_no_hard_links_every_name_is_a_copy_and_they_are_counted() {
    for errno in [Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP, Errno::XDEV, Errno::NOSYS] {
        let place = tempfile::tempdir().unwrap();
        let (src, to) = (place.path().join("src"), place.path().join("to"));
        fs::create_dir_all(src.join("sub")).unwrap();
        for len in [10, large()] {
            fs::write(src.join(format!("f{len}")), noise(len, 1)).unwrap();
            for n in 0..3 {
                let name = src.join(format!("sub/{len}-{n}"));
                fs::hard_link(src.join(format!("f{len}")), name).unwrap();
            }
        }
        std::os::unix::fs::symlink("f10", src.join("l")).unwrap();
        support::hard_link_of_link(&src.join("l"), &src.join("m"));
        let refused = || vec![Rule::always(Call::Link, Effect::Errno(errno))];
        let report = run(refused(), &src, &to, &CopyOptions::archive()).value;
        assert_eq!((report.error_count, report.unlinked), (0, 7), "{}", problems(&report));
        assert_eq!((report.files, report.links), (8, 2));
        assert_eq!(contents(&src), contents(&to), "{errno}");
        // In an existing tree, the copy is complete too, and no temporary name remains.
        let exact = CopyOptions { target: Target::Exact, ..CopyOptions::archive() };
        let report = run(refused(), &src, &to, &exact).value;
        assert_eq!((report.error_count, report.unlinked), (0, 7), "{}", problems(&report));
        assert_eq!(contents(&src), contents(&to), "{errno}");
    }
}

#[test]
fn where_nothing_can_be_renamed_a_file_is_written_into_and_a_tree_keeps_its_temporary_name() {
    for errno in [Errno::PERM, Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP] {
        let place = tempfile::tempdir().unwrap();
        let src = sample(place.path());
        let old = place.path().join("old");
        for name in ["small3", "sub/large3"] {
            fs::write(&old, "old").unwrap();
            let rules = vec![Rule::always(Call::Rename, Effect::Errno(errno))];
            let options = CopyOptions { verify: Some(Hash::Xxh3), ..CopyOptions::default() };
            let report = run(rules, &src.join(name), &old, &options).value;
            assert_eq!((report.error_count, report.verified.same), (0, 1), "{}", problems(&report));
            assert_eq!(fs::read(&old).unwrap(), fs::read(src.join(name)).unwrap());
        }
        let rules = vec![Rule::always(Call::Rename, Effect::Errno(errno))];
        let report = run(rules, &src, &place.path().join("to"), &recursive()).value;
        let stage = place.path().join(".to.thalweg-part");
        assert_eq!(report.unfinished, std::slice::from_ref(&stage), "{}", problems(&report));
        assert_eq!(only_whole_files(&src, &stage), 16);
        assert_eq!(names(place.path()), [".to.thalweg-part", "old", "src"]);
        // Only one renameat2(2) fails. The copy falls back to other system calls and loses nothing.
        let once = |nth| Rule::once(Call::Rename, nth, Effect::Errno(errno));
        let options = CopyOptions { resume: true, ..recursive() };
        let report = run(vec![once(1)], &src, &place.path().join("to"), &options).value;
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(contents(&src), contents(&place.path().join("to")));
    }
}

/// Creates enough small files of one size for a comparison of read and write with its rival.
fn many_small(at: &Path) -> PathBuf {
    let src = at.join("src");
    fs::create_dir_all(&src).unwrap();
    for n in 0..100 {
        fs::write(src.join(format!("small{n}")), noise(4096, n)).unwrap();
    }
    src
}

#[test]
fn a_small_file_whose_mechanism_is_refused_leaves_a_step_down() {
    let place = tempfile::tempdir().unwrap();
    let src = many_small(place.path());
    let options = CopyOptions { jobs: 1, ..recursive() };
    let refused = Effect::Errno(Errno::OPNOTSUPP);
    let rule = Rule { call: Call::CopyFileRange, nth: 5, effect: refused, repeat: true };
    let outcome = run(vec![rule], &src, &place.path().join("to"), &options);
    assert_eq!(outcome.value.error_count, 0, "{}", problems(&outcome.value));
    assert_eq!(contents(&src), contents(&place.path().join("to")));
    if outcome.fired == 0 {
        support::skip(
            "the contest of small files",
            "the scratch directory is on no local file system",
        );
        return;
    }
    // The copy does not try a mechanism again that the kernel refused.
    let steps = &outcome.value.steps_down;
    let [step] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((step.from, step.to, step.at), ("copy-file-range", "read-write", 0));
    assert_eq!(step.errno, "EOPNOTSUPP");
}

#[test]
fn small_files_are_not_left_to_what_may_clone_where_clones_are_forbidden() {
    let place = tempfile::tempdir().unwrap();
    let src = many_small(place.path());
    let options = CopyOptions { jobs: 1, reflink: When::Never, ..recursive() };
    let report = run(vec![], &src, &place.path().join("to"), &options).value;
    let names: Vec<_> = report.shares.iter().map(|share| share.mechanism).collect();
    assert_eq!(names, ["read-write"]);
}

#[test]
fn a_name_that_is_linked_at_its_second_try_leaves_the_others_names_of_one_file() {
    use std::os::unix::fs::MetadataExt;
    let names = ["a", "b", "c", "d"];
    for (nth, effect) in [(1, Errno::MFILE), (2, Errno::MFILE), (1, Errno::NFILE)]
        .map(|(n, e)| (n, Effect::Errno(e)))
    {
        let place = tempfile::tempdir().unwrap();
        let (src, to) = (place.path().join("src"), place.path().join("to"));
        fs::create_dir(&src).unwrap();
        fs::write(src.join("a"), "one").unwrap();
        for name in &names[1..] {
            fs::hard_link(src.join("a"), src.join(name)).unwrap();
        }
        let options = CopyOptions { jobs: 1, target: Target::Exact, ..CopyOptions::archive() };
        // The first round copies to a new directory. The second one replaces files that are not linked.
        for _ in 0..2 {
            let rule = Rule { call: Call::Link, nth, effect, repeat: false };
            let report = run(vec![rule], &src, &to, &options).value;
            assert_eq!(report.error_count, 0, "{}", problems(&report));
            let inodes = names.map(|name| fs::metadata(to.join(name)).unwrap().ino());
            assert!(inodes.iter().all(|ino| *ino == inodes[0]), "{nth}: {inodes:?}");
            fs::remove_dir_all(&to).unwrap();
            fs::create_dir(&to).unwrap();
            for name in names {
                fs::write(to.join(name), "old").unwrap();
            }
        }
    }
}

#[test]
fn a_link_that_cannot_be_made_although_the_copy_is_there_is_a_copy_that_is_counted() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    fs::write(src.join("a"), "one").unwrap();
    fs::hard_link(src.join("a"), src.join("b")).unwrap();
    let rule = Rule::always(Call::Link, Effect::Errno(Errno::NOENT));
    let report = run(vec![rule], &src, &to, &CopyOptions::archive()).value;
    assert_eq!((report.error_count, report.unlinked), (0, 1), "{}", problems(&report));
    assert_eq!(contents(&src), contents(&to));
}

#[test]
fn what_is_verified_on_the_device_is_synced_and_read_from_there() {
    // This directory is on a disk, because the default temporary directory may be in memory.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::write(&src, noise(large(), 1)).unwrap();
    let options =
        CopyOptions { verify: Some(Hash::Xxh3), verify_device: true, ..CopyOptions::default() };
    let outcome = run(Vec::new(), &src, &to, &options);
    let verified = outcome.value.verified;
    assert_eq!((verified.same, outcome.calls[Call::Fsync]), (1, 1), "{}", problems(&outcome.value));
    // If the disk does not accept the bytes, the copy detects that and removes its file.
    fs::remove_file(&to).unwrap();
    let rule = Rule::once(Call::Fsync, 1, Effect::Errno(Errno::IO));
    let failed = run(vec![rule], &src, &to, &options).value;
    assert!(problems(&failed).contains("fdatasync: EIO"), "{}", problems(&failed));
    assert!(!to.exists());
}

/// Creates a tree of small files and an older copy of it. Returns both paths, and the options that replace the copy.
fn many_replaced(at: &Path, files: usize) -> (PathBuf, PathBuf, CopyOptions) {
    let (src, to) = (at.join("src"), at.join("to"));
    fs::create_dir_all(src.join("sub")).unwrap();
    fs::create_dir_all(to.join("sub")).unwrap();
    for n in 0..files {
        let name = format!("{}f{n}", ["", "sub/"][n % 2]);
        fs::write(src.join(&name), noise(1000 + n, n as u64)).unwrap();
        fs::write(to.join(&name), "old").unwrap();
    }
    (src, to, CopyOptions { target: Target::Exact, jobs: 1, ..recursive() })
}

#[test]
fn many_small_files_that_are_replaced_wait_for_one_sync() {
    for fsync in [Fsync::Auto, Fsync::Always] {
        let place = tempfile::tempdir().unwrap();
        let (src, to, options) = many_replaced(place.path(), 300);
        let options = CopyOptions { fsync, ..options };
        let outcome = run(Vec::new(), &src, &to, &options);
        let report = &outcome.value;
        assert_eq!((report.files, report.error_count), (300, 0), "{}", problems(report));
        assert_eq!(contents(&src), contents(&to));
        let syncs = (outcome.calls[Call::Syncfs], outcome.calls[Call::Fsync]);
        assert!((1..10).contains(&syncs.0) && syncs.1 < 10, "{syncs:?}");
    }
}

#[test]
fn where_one_sync_for_all_fails_every_file_that_it_covers_keeps_its_old_contents() {
    let place = tempfile::tempdir().unwrap();
    let (src, to, options) = many_replaced(place.path(), 20);
    // A sync of each file would succeed, because the kernel has written its pages already.
    let rules = vec![Rule::once(Call::Syncfs, 1, Effect::Errno(Errno::IO))];
    let report = run(rules, &src, &to, &options).value;
    assert_eq!((report.files, report.error_count), (0, 20), "{}", problems(&report));
    assert!(problems(&report).contains("syncfs: EIO"), "{}", problems(&report));
    let (truth, copy) = (contents(&src), contents(&to));
    assert_eq!(copy.values().filter(|(_, bytes)| bytes == b"old").count(), 20);
    assert_eq!(copy.len(), truth.len(), "no part is left");
}

#[test]
fn where_one_sync_for_all_is_refused_each_file_is_synced() {
    let place = tempfile::tempdir().unwrap();
    let (src, to, options) = many_replaced(place.path(), 20);
    let rules = vec![Rule::always(Call::Syncfs, Effect::Errno(Errno::NOSYS))];
    let outcome = run(rules, &src, &to, &options);
    assert_eq!(outcome.value.error_count, 0, "{}", problems(&outcome.value));
    assert!(outcome.calls[Call::Fsync] >= 20);
    assert_eq!(contents(&src), contents(&to));
}

#[test]
fn a_file_that_waited_and_cannot_be_replaced_is_written_into() {
    let place = tempfile::tempdir().unwrap();
    let (src, to, options) = many_replaced(place.path(), 20);
    let rule = Rule::once(Call::Rename, 3, Effect::Errno(Errno::BUSY));
    let outcome = run(vec![rule], &src, &to, &options);
    let report = outcome.value;
    // The file is copied again, and this time it can be replaced.
    assert_eq!((report.files, report.error_count), (20, 0), "{}", problems(&report));
    assert_eq!(contents(&src), contents(&to));
}
