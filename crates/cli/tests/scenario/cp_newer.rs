//! Behaviour that `cp` acquired after coreutils 9.1, and the lines that `-v` prints.

use crate::cp_flags::{after, holds};

#[test]
fn a_declined_question_exits_with_1_and_the_others_are_copied() {
    let setup = "echo a >a; echo b >b; mkdir d; echo old >d/a; echo n >no; echo y >yes";
    holds(setup, "$T copy -i a b d <no", 1, "test $(cat d/a) = old && test $(cat d/b) = b");
    holds(setup, "$T copy -i a b d </dev/null", 1, "test $(cat d/a) = old");
    holds(setup, "$T copy -i a b d <yes", 0, "test $(cat d/a) = a");
    holds(setup, "$T copy -i --manifest m a b d <no", 1, "test -f m");
    holds(setup, "touch -d @5 d/a; $T copy -ui a b d <no", 1, "test $(cat d/a) = old");
}

#[test]
fn what_cp_removes_is_named_before_its_copy() {
    let setup = "echo a >a; echo b >b; ln -s a l; ln -s b m; ln b c; mkdir d; mkfifo p";
    for (words, said) in [
        ("--remove-destination a b", "removed 'b'\n'a' -> 'b'\n"),
        ("--remove-destination a m", "removed 'm'\n'a' -> 'm'\n"),
        ("-P l b", "removed 'b'\n'l' -> 'b'\n"),
        ("-P l m", "removed 'm'\n'l' -> 'm'\n"),
        ("-a a b", "removed 'b'\n'a' -> 'b'\n"),
        ("-R p b", "removed 'b'\n'p' -> 'b'\n"),
        ("-l --remove-destination a b", "removed 'b'\n'a' -> 'b'\n"),
        ("-lf a b", "'a' -> 'b'\n"),
        ("-sf a b", "'a' -> 'b'\n"),
        ("a b", "'a' -> 'b'\n"),
        ("--remove-destination -b a b", "'a' -> 'b' (backup: 'b~')\n"),
    ] {
        let (_scratch, ran) = after(setup, &format!("$T copy -v {words}"));
        assert_eq!(ran.expect(0).stdout, said.as_bytes(), "{words}");
    }
}

#[test]
fn v_prints_no_methods_and_debug_does() {
    let line = "mkdir d; echo a >a; $T copy --reflink=auto FLAG a d";
    let (_scratch, ran) = after("", &line.replace("FLAG", "-v"));
    let ran = ran.expect(0);
    assert_eq!(ran.stderr, "", "{}", ran.said());
    let (_scratch, ran) = after("", &line.replace("FLAG", "--debug"));
    let ran = ran.expect(0);
    assert_eq!(ran.stdout, b"'a' -> 'd/a'\n");
    assert!(ran.stderr.contains("1 file copied (2 B)"), "{}", ran.said());
}

#[test]
fn a_source_is_refused_only_if_its_backup_would_destroy_it() {
    let setup = "echo s >a~; echo a >a; ln a~ z; ln -s a~ q; mkdir d; ln a~ d/a~";
    for source in ["a~", "./a~", "q", "d/a~"] {
        let line = format!("$T copy --backup=simple {source} a");
        holds(setup, &line, 1, "test $(cat a) = a && test $(cat a~) = s");
    }
    for flag in ["", "-l"] {
        let line = format!("$T copy {flag} --backup=simple z a");
        holds(setup, &line, 0, "test $(cat a z a~ | tr -d '\\n') = ssa");
    }
}
