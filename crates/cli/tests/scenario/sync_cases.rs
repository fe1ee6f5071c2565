//! Cases that other programs once synced wrongly, from issues of rclone and unison.

use crate::support::{Scratch, run, shell, skip::is_root, thalweg};

/// A case: the trees `s` and `t`, the options, the exit status, and the shell line that must succeed afterwards.
struct SyncCase {
    name: &'static str,
    trees: &'static str,
    options: &'static str,
    status: i32,
    holds: &'static str,
}

const CASES: &[SyncCase] = &[
    SyncCase {
        name: "a directory that became a file is replaced, and its files go to the trash (rclone 2231, 6264)",
        trees: "mkdir -p s t/a/b; echo f >s/a; echo k >t/a/b/k; echo x >t/a/x",
        options: "--delete --trash trash",
        status: 0,
        holds: "test $(cat t/a) = f && test $(cat trash/a/b/k) = k && test $(cat trash/a/x) = x",
    },
    SyncCase {
        name: "a file that became a directory goes to the trash (rclone 9438)",
        trees: "mkdir -p s/a t; echo f >s/a/f; echo k >t/a",
        options: "--delete --trash trash",
        status: 0,
        holds: "test $(cat t/a/f) = f && test $(cat trash/a) = k",
    },
    SyncCase {
        name: "an excluded entry of a directory that became a file stays (rclone pull request 9696)",
        trees: "mkdir -p s t/a; echo f >s/a; echo k >t/a/k.o",
        options: "--delete --exclude *.o",
        status: 1,
        holds: "test $(cat t/a/k.o) = k",
    },
    SyncCase {
        name: "an empty source deletes nothing (rclone 1186, unison 262)",
        trees: "mkdir s t; echo k >t/k",
        options: "--delete",
        status: 1,
        holds: "test $(cat t/k) = k",
    },
    SyncCase {
        name: "a source that leads nowhere deletes nothing (unison 206)",
        trees: "ln -s nowhere s; mkdir t; echo k >t/k",
        options: "--delete",
        status: 1,
        holds: "test $(cat t/k) = k",
    },
    SyncCase {
        name: "a link that became a directory is kept as a link, and not followed (unison 30)",
        trees: "mkdir -p s/bin t out; echo b >s/bin/bin; echo o >out/bin; ln -s ../out t/bin",
        options: "--delete --trash trash",
        status: 0,
        holds: "test $(cat t/bin/bin) = b && test $(cat out/bin) = o && test $(readlink trash/bin) = ../out",
    },
    SyncCase {
        name: "names that differ only in their Unicode normalization are two names (rclone 1431)",
        trees: "mkdir s t; echo 1 >s/$(printf 'e\\314\\201'); echo 22 >s/$(printf '\\303\\251'); \
                echo 3 >t/$(printf '\\303\\251')",
        options: "--delete",
        status: 0,
        holds: "diff -r -x .thalweg-sync s t && test $(ls t | wc -l) = 2",
    },
    SyncCase {
        name: "the trash cannot be the destination (rclone --backup-dir)",
        trees: "mkdir s t; echo f >s/f; echo k >t/k",
        options: "--delete --trash t",
        status: 1,
        holds: "test $(cat t/k) = k",
    },
    SyncCase {
        name: "the trash cannot be in the source (rclone --backup-dir)",
        trees: "mkdir s t; echo f >s/f; echo k >t/k",
        options: "--delete --trash s/trash",
        status: 1,
        holds: "test $(cat t/k) = k && test $(ls s) = f",
    },
    SyncCase {
        name: "the counterpart of an excluded directory is protected (rclone filters)",
        trees: "mkdir -p s/c t/c/d; echo f >s/f; echo x >s/c/x; echo k >t/c/d/k",
        options: "--delete --exclude /c",
        status: 0,
        holds: "test $(cat t/c/d/k) = k && ! test -e t/c/x",
    },
    SyncCase {
        name: "a copy of a skipped size stays (rclone --max-size with --delete-excluded)",
        trees: "mkdir s t; head -c 5000 /dev/zero >s/large; echo 1 >s/f; echo k >t/large; echo x >t/x",
        options: "--delete-excluded --max-size 1K",
        status: 0,
        holds: "test $(cat t/large) = k && ! test -e t/x",
    },
    SyncCase {
        name: "times before 1970 and after 2106 are kept, and equal in the next run (rclone modtimes)",
        trees: "mkdir s t; touch -d 1902-01-01 s/old; touch -d 2200-01-01 s/future; touch -d @0 s/epoch",
        options: "--delete",
        status: 0,
        holds: "for name in old future epoch; do test $(stat -c %Y s/$name) = $(stat -c %Y t/$name) || exit 1; done",
    },
    SyncCase {
        name: "a link out of the destination keeps its old content (rclone hard links)",
        trees: "mkdir s t; echo newer >s/a; echo old >t/a; ln t/a outside",
        options: "--delete",
        status: 0,
        holds: "test $(cat t/a) = newer && test $(cat outside) = old",
    },
];

#[test]
fn what_others_got_wrong_is_right() {
    for case in CASES {
        let scratch = Scratch::new();
        shell(scratch.path(), case.trees).expect(0);
        let sync = || {
            let mut command = thalweg();
            command.arg("sync").args(case.options.split(' ')).args(["s", "t"]);
            run(command.current_dir(scratch.path()))
        };
        let ran = sync();
        assert_eq!(ran.code(), case.status, "{}: {}", case.name, ran.said());
        let held = shell(scratch.path(), case.holds);
        assert_eq!(held.code(), 0, "{}: {}", case.name, held.said());
        // The next run has the same result.
        let again = sync();
        assert_eq!(again.code(), case.status, "{}: {}", case.name, again.said());
        let held = shell(scratch.path(), case.holds);
        assert_eq!(held.code(), 0, "{} again: {}", case.name, held.said());
    }
}

/// Issue 1101 of rclone: a directory cannot be read. The sync must copy the other directories, and delete nothing in
/// the copy of this one.
#[test]
fn an_unreadable_directory_keeps_no_other_from_being_copied() {
    if !is_root("an_unreadable_directory_keeps_no_other_from_being_copied") {
        return;
    }
    let scratch = Scratch::public();
    let line = "mkdir -p s/u s/r t/u; echo 1 >s/u/f; echo 2 >s/r/g; echo 1 >t/u/f; echo k >t/u/only; echo e >t/extra; \
                chmod 0 s/u; chown -R 54321:54321 s t";
    shell(scratch.path(), line).expect(0);
    for options in [&["--delete"][..], &["--delete", "--force"]] {
        let mut command = thalweg();
        command.arg("sync").args(options).args(["s", "t"]).current_dir(scratch.path());
        std::os::unix::process::CommandExt::uid(&mut command, 54_321);
        std::os::unix::process::CommandExt::gid(&mut command, 54_321);
        run(&mut command).expect(1);
        let is_forced = options.len() > 1;
        let kept = shell(scratch.path(), "cat t/r/g t/u/f t/u/only && ls t");
        assert_eq!(kept.code(), 0, "{}", kept.said());
        assert_eq!(scratch.join("t/extra").exists(), !is_forced);
    }
}
