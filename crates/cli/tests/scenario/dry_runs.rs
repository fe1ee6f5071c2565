//! A dry run opens no source, moves no bytes and no file offset, and prints what would be copied.

use std::fs;

use crate::support::{Ran, Scratch, bytes, mounts, names, run, shell, thalweg};

#[test]
fn a_dry_run_waits_for_no_pipe_and_changes_nothing() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    shell(scratch.path(), "mkfifo f; mkdir tree; mkfifo tree/g; echo x >tree/h").expect(0);
    let before = names(scratch.path());
    for (line, said) in [
        ("$T copy --dry-run f x", "would copy 'f' -> 'x'"),
        ("$T copy --dry-run f f2 d tree", "would copy 'f' -> 'tree/f'"),
        ("$T copy --dry-run f -", "would copy 'f' -> standard output"),
        ("$T copy --dry-run d f", "would copy 'd' -> 'f'"),
        ("$T copy --dry-run -r tree x", "would copy 'tree/g' -> 'x/g'"),
        ("$T copy --dry-run /dev/zero x", "would copy '/dev/zero' -> 'x'"),
        ("$T copy --dry-run - x <f2; cat f2", "would copy '/dev/stdin' -> 'x'"),
    ] {
        shell(scratch.path(), "rm -f f2; echo hello >f2").expect(0);
        let ran = shell(scratch.path(), line).expect(0);
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(text.contains(said), "{line}: {text}");
        fs::remove_file(scratch.join("f2")).unwrap();
        assert_eq!(names(scratch.path()), before, "{line}");
        assert_eq!(names(&scratch.join("tree")), ["g", "h"]);
    }
    // The dry run leaves all of standard input to the next reader.
    let ran = shell(scratch.path(), "{ $T copy -q --dry-run - x; cat; } <d").expect(0);
    assert!(String::from_utf8_lossy(&ran.stdout).ends_with("data"));
    shell(scratch.path(), "$T copy --dry-run gone x").expect(1).expect_said("ENOENT");
    shell(scratch.path(), "$T copy --dry-run gone -").expect(1).expect_said("ENOENT");
}

#[test]
fn a_dry_run_warns_of_a_file_system_without_room_for_the_copy() {
    let test = "a_dry_run_warns_of_a_file_system_without_room_for_the_copy";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let (scratch, place) = (Scratch::new(), Scratch::within(disk));
    let source = scratch.folder("source");
    for n in 0..3 {
        bytes::write(&source.join(n.to_string()), n, 3 << 20);
    }
    fs::hard_link(source.join("0"), source.join("twin")).unwrap();
    fs::File::create(scratch.join("hole")).unwrap().set_len(1 << 30).unwrap();
    let dry = |words: &[&str], from: &str, to: &str| -> Ran {
        let mut command = thalweg();
        command.args(["copy", "--dry-run"]).args(words);
        run(command.arg(scratch.join(from)).arg(place.join(to))).expect(0)
    };
    let warned = |ran: &Ran| ran.stderr.contains("warning:") && ran.stderr.contains(" free there");
    for words in [&["-r"][..], &["-a"], &["-rq"], &["-r", "--json"]] {
        let ran = dry(words, "source", "copy");
        assert!(warned(&ran), "{words:?}: {}", ran.said());
    }
    // The warning counts a file with two names once. There is no warning for a single file, a hole or symbolic links,
    // which fit.
    assert!(dry(&["-a"], "source", "copy").stderr.contains("(9437184 bytes), but only "));
    for (words, from) in [(&[][..], "source/0"), (&[], "hole"), (&["-rs"], "source")] {
        let ran = dry(words, from, "copy");
        assert_eq!(ran.stderr, "", "{words:?} {from}");
    }
    // The old file takes space until the new one is complete, except with --inplace.
    bytes::write(&place.join("old"), 7, 5 << 20);
    bytes::write(&scratch.join("new"), 8, 5 << 20);
    assert!(warned(&dry(&[], "new", "old")));
    assert_eq!(dry(&["--inplace"], "new", "old").stderr, "");
    assert_eq!(names(place.path()), ["old"]);
}
