//! A dry run opens no source, moves no byte and no offset, and says what would be copied.

use std::fs;

use crate::support::{Scratch, names, shell};

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
    // The next reader of the same standard input finds all of it.
    let ran = shell(scratch.path(), "{ $T copy -q --dry-run - x; cat; } <d").expect(0);
    assert!(String::from_utf8_lossy(&ran.stdout).ends_with("data"));
    shell(scratch.path(), "$T copy --dry-run gone x").expect(1).expect_said("ENOENT");
    shell(scratch.path(), "$T copy --dry-run gone -").expect(1).expect_said("ENOENT");
}
