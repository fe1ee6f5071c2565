//! Syncs between machines with `--delete`: the content of a renamed file is not sent again.

use std::{
    fs,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    remote_copies::over_each,
    remote_deltas::{counted, counting},
    remote_syncs::BothWays,
    support::bytes,
    sync_trees::record,
};

const LEN: u64 = 2 << 20;

fn set_time(file: &Path) {
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
}

#[test]
fn renamed_files_are_not_sent_again() {
    over_each("renamed_files_are_not_sent_again", |scratch, machine| {
        let machine = &machine.through(counting(scratch, &machine.rsh));
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let dst = scratch.join(&format!("dst{is_push}"));
            let both = BothWays { machine, source: source.clone(), is_push };
            fs::create_dir(source.join("a")).unwrap();
            for number in 0..3 {
                let file = source.join(format!("a/{number}"));
                bytes::write(&file, number, LEN);
                // All files have the same size and time, so only their contents identify a renamed file.
                set_time(&file);
            }
            both.sync(&[], &dst).expect(0);
            for (to, options, may_be) in [
                ("b", &["--delete"][..], 0..LEN / 8),
                ("c", &["--delete", "--no-detect-renames"][..], 3 * LEN..u64::MAX),
                // Without --delete, both names remain, so the sync sends the new file.
                ("d", &[][..], 3 * LEN..u64::MAX),
            ] {
                let from = fs::read_dir(&source).unwrap().next().unwrap().unwrap().path();
                fs::rename(from, source.join(to)).unwrap();
                counted(scratch);
                both.sync(options, &dst).expect(0);
                let sent = counted(scratch);
                assert!(may_be.contains(&sent), "{options:?}, push {is_push}: {sent} bytes");
                let below = if options.is_empty() { to } else { "" };
                assert_eq!(record(&dst.join(below)), record(&source.join(below)), "{options:?}");
            }
        }
    });
}

/// The deleted file has the size and time of two new files, but only one of them has its bytes.
#[test]
fn a_deleted_file_that_only_looks_like_the_new_one_changes_nothing() {
    over_each("a_deleted_file_that_only_looks_like_the_new_one", |scratch, machine| {
        for is_push in [false, true] {
            let source = scratch.folder(&format!("source{is_push}"));
            let dst = scratch.folder(&format!("dst{is_push}"));
            for (path, seed) in [(source.join("x"), 1), (source.join("y"), 2), (dst.join("z"), 2)] {
                bytes::write(&path, seed, LEN);
                set_time(&path);
            }
            let both = BothWays { machine, source: source.clone(), is_push };
            both.sync(&["--delete"], &dst).expect(0);
            bytes::expect(&dst.join("x"), 1, LEN);
            bytes::expect(&dst.join("y"), 2, LEN);
            assert_eq!(record(&dst), record(&source));
        }
    });
}
