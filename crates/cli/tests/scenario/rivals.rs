//! Copies that race for one name: the result is one complete copy.

use std::{fs, sync::Barrier, thread};

use crate::support::{Scratch, bytes, names, run, thalweg};

const LEN: u64 = 24 << 20;

/// Copies these sources to one name at the same time, and returns the exit statuses.
fn race(scratch: &Scratch, sources: &[&str], options: &[&str]) -> Vec<i32> {
    let barrier = Barrier::new(sources.len());
    thread::scope(|scope| {
        let start = |source: &&str| {
            let mut copy = thalweg();
            copy.arg("copy").args(options).args([scratch.join(source), scratch.join("copy")]);
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                run(&mut copy).expect_no_panic().code()
            })
        };
        let racing: Vec<_> = sources.iter().map(start).collect();
        racing.into_iter().map(|racer| racer.join().unwrap()).collect()
    })
}

#[test]
fn of_two_copies_to_one_name_one_remains_whole() {
    let scratch = Scratch::new();
    // The lengths differ, so that a mixture is noticed even if it changes at a block boundary.
    bytes::write(&scratch.join("a"), 1, LEN);
    bytes::write(&scratch.join("b"), 2, LEN + 4096);
    let copy = scratch.join("copy");
    for round in 0..6 {
        if round % 2 == 0 {
            drop(fs::remove_file(&copy));
        }
        let options: &[&str] = if round < 3 { &[] } else { &["--limit=200M"] };
        let codes = race(&scratch, &["a", "b"], options);
        assert!(codes.contains(&0), "nobody won: {codes:?}");
        assert!(codes.iter().all(|code| [0, 1].contains(code)), "{codes:?}");
        assert!(
            bytes::is(&copy, 1, LEN) || bytes::is(&copy, 2, LEN + 4096),
            "round {round}: a mixture under the final name"
        );
        assert_eq!(names(scratch.path()), ["a", "b", "copy"]);
    }
}

#[test]
fn two_resumable_copies_of_one_source_do_not_spoil_each_other() {
    let scratch = Scratch::new();
    bytes::write(&scratch.join("a"), 1, LEN);
    for _ in 0..3 {
        drop(fs::remove_file(scratch.join("copy")));
        let codes = race(&scratch, &["a", "a", "a"], &["--resume", "--limit=200M"]);
        assert!(codes.contains(&0), "nobody won: {codes:?}");
        bytes::expect(&scratch.join("copy"), 1, LEN);
        assert_eq!(names(scratch.path()), ["a", "copy"]);
    }
}

#[test]
fn trees_that_race_for_one_name_leave_whole_files() {
    let scratch = Scratch::new();
    for (seed, tree) in [(1, "a"), (2, "b")] {
        let tree = scratch.folder(tree);
        for n in 0..40 {
            bytes::write(&tree.join(n.to_string()), seed, 1000 * n * n);
        }
    }
    let copy = scratch.join("copy");
    for round in 0..4 {
        drop(fs::remove_dir_all(&copy));
        let codes = race(&scratch, &["a", "b"], &["-rT", "--jobs=2"]);
        assert!(codes.contains(&0), "nobody won: {codes:?}");
        for n in 0..40_u64 {
            let (file, len) = (copy.join(n.to_string()), 1000 * n * n);
            let whole = bytes::is(&file, 1, len) || bytes::is(&file, 2, len);
            assert!(whole, "round {round}: file {n} is a mixture, or missing; exits {codes:?}");
        }
        assert_eq!(names(&copy).len(), 40);
        assert_eq!(names(scratch.path()), ["a", "b", "copy"]);
    }
}
