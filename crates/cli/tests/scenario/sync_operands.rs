//! Operands of `thalweg sync` and `thalweg move` from public bug reports of cp, mv and rsync: repetitions, equal names,
//! and names that suggest another file type.

use thalweg_testing::{Dice, from_env};

use crate::cp_flags::{after, holds};

#[test]
fn two_sources_with_one_name_never_replace_each_other() {
    let files = "mkdir d x; echo 1 >a; echo 2 >x/a";
    let check = "test $(cat a) = 1 && test $(cat x/a) = 2 && test -z \"$(ls -A d)\"";
    holds(files, "$T move a x/a d", 2, check);
    let check = "test $(cat a) = 1 && test $(cat x/a) = 2 && test $(cat d/a) = 1";
    holds(files, "$T sync a x/a d", 1, check);
    let trees = "mkdir -p d x/s s; echo 1 >s/a; echo 2 >x/s/b; echo 3 >x/s/a";
    let check = "test $(cat s/a x/s/b x/s/a | tr -d '\\n') = 123";
    holds(trees, "$T move s x/s d", 2, check);
    holds(trees, "$T move x/s/ ./s d 2>said", 2, "grep -q 'would have the same name' said");
    holds(trees, "$T sync --delete s x/s d", 2, "test -z \"$(ls -A d)\"");
    holds("mkdir -p d x/s s; echo 1 >s/a; echo 2 >x/s/b", "$T sync s x/s d", 0, "cat d/s/a d/s/b");
}

#[test]
fn a_source_that_is_named_twice_is_moved_once() {
    for sources in ["s ./s", "s s/", "s $PWD/s", "s s s"] {
        let line = format!("$T move {sources} d 2>said");
        let check = "cat d/s/a && ! test -e s && grep -q 'is given twice' said";
        holds("mkdir s d; echo 1 >s/a", &line, 0, check);
        let line = format!("$T sync --delete {sources} d");
        holds("mkdir s d; echo 1 >s/a", &line, 0, "cat d/s/a s/a");
    }
    holds("mkdir d; echo 1 >a", "$T move a ./a d", 0, "cat d/a && ! test -e a");
    // Two hard links to one file are two operands, and both are moved.
    holds("mkdir d; echo 1 >a; ln a b", "$T move a b d", 0, "test d/a -ef d/b && ! test -e a");
}

#[test]
fn a_file_is_never_replaced_by_the_directory_itself() {
    for made in ["echo 1 >d", "mkfifo d"] {
        let check = "! test -d d && test -e s/a && grep -q 'cannot overwrite non-directory' said";
        for command in ["sync", "sync --delete", "sync --delete --trash t", "move", "sync -n"] {
            let setup = format!("mkdir s; echo 1 >s/a; {made}");
            holds(&setup, &format!("$T {command} s d 2>said"), 1, check);
        }
    }
}

#[test]
fn a_filter_file_is_a_small_regular_file_with_a_plain_name() {
    let kinds = ["mkdir s/.f", "mkfifo s/.f", "truncate -s 2M s/.f", "ln -s /dev/zero s/.f"];
    for kind in kinds {
        let setup = format!("mkdir s d; echo 1 >s/a; echo 2 >d/b; {kind}");
        let line = "timeout 100 $T sync --delete --filter-file .f s d 2>said";
        holds(&setup, line, 1, "cat d/b && ! grep -q ulimit said && grep -q \"'s/.f'\" said");
    }
    for name in ["", ".", "..", "a/b", "/x", "f/"] {
        let line = format!("$T sync --filter-file '{name}' s d");
        holds("mkdir s; echo 1 >s/a", &line, 2, "! test -e d");
    }
}

#[test]
fn a_state_file_of_another_type_is_ignored_or_named() {
    let line = "timeout 100 $T sync --delete s d 2>said";
    for state in ["mkfifo $F", "ln -s /dev/zero $F", "truncate -s 3G $F", "printf '\\377\\0' >$F"] {
        let setup = format!("mkdir s d; echo 1 >s/a; touch d/b; F=d/.thalweg-sync; {state}");
        holds(&setup, line, 0, "test $(head -n 1 d/.thalweg-sync | wc -c) = 15 && ! test -e d/b");
    }
    let check = "grep -q \"'d/.thalweg-sync'\" said && ! test -e d/b";
    holds("mkdir -p s d/.thalweg-sync; echo 1 >s/a; touch d/b", line, 1, check);
}

#[test]
fn a_source_is_no_reference_for_its_own_copy() {
    for reference in ["s", "./s/", "l"] {
        let line = format!("$T sync --reference {reference} s d 2>said");
        let check = "test $(stat -c %h s/a) = 1 && ! test -e d && grep -q 'is the source' said";
        holds("mkdir s; echo 1 >s/a; ln -s s l", &line, 2, check);
    }
}

#[test]
fn a_command_that_fails_without_a_word_is_named() {
    for sides in ["s a:b", "a:b s"] {
        for code in [1, 2, 3, 4, 9] {
            let line = format!("$T sync -e 'sh -c \"exit {code}\" {{}}' {sides} 2>said");
            let (_, ran) = after("mkdir s; echo 1 >s/a", &format!("{line}; cat said >&2; exit 7"));
            assert_eq!(ran.code(), 7);
            ran.expect_said(&format!("a: exited with status {code}"));
        }
    }
}

#[test]
fn no_owner_is_the_number_that_means_unchanged() {
    for owner in ["4294967295", "0:4294967295", ":4294967295", "4294967296", "-1", ":", "1:2:3"] {
        let line = format!("$T sync --chown={owner} s d");
        holds("mkdir s; echo 1 >s/a", &line, 2, "! test -e d");
    }
}

/// Returns a word of `count` random letters.
fn letters(dice: &mut Dice, of: &str, count: u64) -> String {
    let pick = |_| of.as_bytes()[dice.below(of.len() as u64) as usize] as char;
    (0..count).map(pick).collect()
}

/// Random changes of the read, write and execute bits.
#[test]
fn random_changes_of_modes_are_those_of_chmod() {
    let test = "random_changes_of_modes_are_those_of_chmod";
    let mut dice = Dice::of_campaign(test, "THALWEG_CASES");
    for _ in 0..from_env("THALWEG_CASES", 30) {
        let mut change = || {
            let counts = [dice.below(3), dice.below(4)];
            let class = letters(&mut dice, "ugoa", counts[0]);
            class + &letters(&mut dice, "+-=", 1) + &letters(&mut dice, "rwxX", counts[1])
        };
        let changes = [change(), change(), change()].join(",");
        let [file, directory] = [dice.below(0o1000), dice.below(0o1000) | 0o700];
        let setup = format!(
            "umask 027; mkdir -p s/d c/d; touch s/f c/f; \
             chmod {file:o} s/f c/f; chmod {directory:o} s/d c/d"
        );
        let line = format!("$T sync --chmod='{changes}' s t && chmod -- '{changes}' c/f c/d; true");
        let check = "test \"$(stat -c %a t/f t/d)\" = \"$(stat -c %a c/f c/d)\"";
        holds(&setup, &line, 0, check);
    }
}
