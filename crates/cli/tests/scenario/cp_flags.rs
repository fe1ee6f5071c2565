//! The flags of `cp`, one by one.

use crate::support::{
    Scratch, run,
    run::{Ran, quiet_environment},
    shell, skip,
    skip::{has_tools, is_root},
    thalweg,
};
use std::{fs, process::Command};

#[test]
fn no_clobber_wins_over_force_and_interactive_in_any_order() {
    for words in [["-n", "-f"], ["-f", "-n"], ["-n", "-i"], ["-i", "-n"], ["-nf", "-i"]] {
        let scratch = Scratch::new();
        fs::write(scratch.join("new"), "new").unwrap();
        fs::write(scratch.join("old"), "old").unwrap();
        fs::write(scratch.join("yes"), "y\n").unwrap();
        let yes = fs::File::open(scratch.join("yes")).unwrap();
        let mut command = thalweg();
        command.arg("copy").args(words).args(["new", "old"]).current_dir(scratch.path());
        let ran = run(command.stdin(yes)).expect(0);
        assert_eq!(fs::read(scratch.join("old")).unwrap(), b"old", "{words:?}: {}", ran.said());
    }
}

/// Runs a shell line in a new directory; `$T` is the command.
pub fn after(setup: &str, line: &str) -> (Scratch, Ran) {
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    quiet_environment(&mut command);
    command.env("T", env!("CARGO_BIN_EXE_thalweg")).env_remove("VERSION_CONTROL");
    let line = format!("umask 022; {setup}\n{line}");
    let ran = run(command.arg("-c").arg(line).current_dir(scratch.path()));
    (scratch, ran.expect_no_panic())
}

/// Runs `line`, which must exit with `code`, and then `check`, which must succeed.
#[track_caller]
pub fn holds(setup: &str, line: &str, code: i32, check: &str) {
    let (scratch, ran) = after(setup, line);
    assert_eq!(ran.code(), code, "{line}: {}", ran.said());
    let mut command = Command::new("sh");
    let found = run(command.args(["-ec", check]).current_dir(scratch.path()));
    assert!(found.status.success(), "after {line}: not {check}\n{}", ran.said());
}

#[test]
fn attributes_alone_never_touch_a_byte() {
    let setup = "echo long >old; chmod 600 old; echo s >src; chmod 754 src; touch -d @99 src";
    for flags in ["", "-p", "-a", "-pf"] {
        let line = format!("$T copy {flags} --attributes-only src old");
        holds(setup, &line, 0, "test \"$(cat old)\" = long");
    }
    holds(setup, "$T copy -p --attr src old", 0, "test $(stat -c %a,%Y old) = 754,99");
    holds(setup, "$T copy --attributes-only src new", 0, "test -f new && test ! -s new");
    holds(setup, "$T copy -b --attributes-only src old", 0, "test \"$(cat old~)\" = long");
    let link = "ln -s src l; $T copy -a --attributes-only l old";
    holds(setup, link, 1, "test \"$(cat old)\" = long");
}

#[test]
fn links_are_made_of_the_source_and_replace_a_file_only_by_force() {
    let setup = "mkdir d; echo a >a; echo b >b; ln -s a l";
    holds(setup, "$T copy -l a d", 0, "test a -ef d/a");
    holds(setup, "$T copy -l l d", 0, "test a -ef d/l && test ! -L d/l");
    holds(setup, "$T copy -lP l d", 0, "test -L d/l && test $(stat -c %h l) = 2");
    holds(setup, "$T copy -s $PWD/a d", 0, "test -L d/a && test a -ef d/a");
    holds(setup, "$T copy -s a d", 1, "test ! -e d/a");
    holds(setup, "$T copy -s a c", 0, "test $(readlink c) = a");
    holds(setup, "$T copy -l a b", 1, "test $(cat b) = b");
    holds(setup, "$T copy -lf a b; ls -A | grep -c thalweg", 1, "test a -ef b");
    holds(setup, "$T copy -l a a", 0, "test $(cat a) = a");
    holds(setup, "$T copy -l -s a c", 2, "test ! -e c");
    holds("mkdir -p t/u; echo x >t/u/x", "$T copy -rl t n", 0, "test t/u/x -ef n/u/x");
    holds("mkdir -p t/u; echo x >t/u/x", "$T copy -rs $PWD/t n", 0, "test -L n/u/x && cat n/u/x");
}

#[test]
fn a_hard_link_to_a_link_replaces_what_is_there_as_with_cp() {
    let setup = "echo 1 >a; echo 2 >b; ln -s a s1; ln -s b s2; ln -s a s3; mkfifo p; mkdir d";
    for flags in ["-Pl", "-dl", "-Pfl", "-Ps"] {
        let target = if flags == "-Ps" { "s1" } else { "a" };
        for there in ["s2", "s3", "b", "p"] {
            let check = format!("test $(readlink {there}) = {target} && test $(cat a) = 1");
            holds(setup, &format!("$T copy {flags} s1 {there}"), 0, &check);
        }
    }
    holds(setup, "$T copy -Pl p b", 0, "test p -ef b");
    // Only with `-f`, a hard link to a regular file replaces an existing file. With -L, the same rule applies to the
    // target of a symbolic link.
    holds(setup, "$T copy -Pl a b", 1, "test $(cat b) = 2");
    holds(setup, "$T copy -Lls s1 b", 2, "test $(cat b) = 2");
    holds(setup, "$T copy -Ll s1 b", 1, "test $(cat b) = 2");
    holds(setup, "$T copy -Pln s1 s2", 0, "test $(readlink s2) = b");
}

#[test]
fn a_home_that_cannot_be_entered_is_not_mentioned_by_every_copy() {
    let scratch = Scratch::public();
    scratch.binary();
    let as_user = if rustix::process::geteuid().is_root() {
        "setpriv --reuid=1234 --regid=1234 --clear-groups"
    } else {
        ""
    };
    let setup = "echo a >a; mkdir home; chmod 0 home; chmod 777 .";
    shell(scratch.path(), setup).expect(0);
    for home in ["home", "/dev/null", "a", "gone"] {
        let line = format!("env -u THALWEG_PROFILE HOME={home} {as_user} ./thalweg copy a b");
        assert_eq!(shell(scratch.path(), &line).expect(0).stderr, "", "{home}");
        let line = format!("THALWEG_PROFILE={home}/x {as_user} ./thalweg copy a b");
        let is_reported = shell(scratch.path(), &line).expect(0).stderr.contains("cannot open");
        assert_eq!(is_reported, home != "gone", "a profile that was asked for: {home}");
    }
}

#[test]
fn parents_keep_the_path_and_its_attributes() {
    let setup = "mkdir -p a/b d; echo c >a/b/c; echo e >a/e; chmod 700 a/b; touch -d @77 a/b a";
    holds(
        setup,
        "$T copy --parents a/b/c a/e d",
        0,
        "test -f d/a/b/c -a -f d/a/e; test $(stat -c %a d/a/b) = 700",
    );
    holds(
        setup,
        "$T copy -p --par a/b/c d",
        0,
        "test $(stat -c %Y d/a/b) = 77 -a $(stat -c %Y d/a) = 77",
    );
    holds(setup, "$T copy --parents $PWD/a/b/c d", 0, "test -f d$PWD/a/b/c");
    holds(setup, "$T copy -r --parents ./a//b d", 0, "test -f d/a/b/c");
    holds(
        "mkdir -p a/t d; echo x >a/t/x; ln -s t a/l",
        "$T copy -r --parents a/l/ d",
        0,
        "cat d/a/l/x; test ! -L d/a/l",
    );
    holds(setup, "$T copy --parents a/e new", 2, "test ! -e new");
    holds(setup, "echo f >d/a; $T copy --parents a/e d", 1, "test \"$(cat d/a)\" = f");
    holds(setup, "$T copy --parents a/../a/e d", 2, "test ! -e d/a");
    holds(setup, "$T copy -rT --parents a/b d", 2, "test -z \"$(ls d)\"");
    let (_, ran) = after(setup, "$T copy -v --parents a/b/c d");
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "'a' -> 'd/a'\n'a/b' -> 'd/a/b'\n'a/b/c' -> 'd/a/b/c'\n"
    );
}

#[test]
fn update_says_what_may_be_replaced() {
    let setup =
        "echo s >s; touch -d @100 s; echo old >o; touch -d @50 o; echo new >n; touch -d @150 n";
    let contents = "test $(cat o)$(cat n) =";
    for (flag, code, expected) in [
        ("-u", 0, "snew"),
        ("--update", 0, "snew"),
        ("--update=older", 0, "snew"),
        ("--update=all", 0, "ss"),
        ("--update=none", 0, "oldnew"),
        ("--update=none-fail", 1, "oldnew"),
        ("-u --update=all", 0, "ss"),
        ("--update=all -n", 0, "oldnew"),
    ] {
        let line = format!("$T copy {flag} s o; a=$?; $T copy {flag} s n; exit $((a | $?))");
        holds(setup, &line, code, &format!("{contents} {expected}"));
    }
}

#[test]
fn backups_follow_the_flags_and_the_environment() {
    let setup = "echo n >n; echo o >o";
    for (line, backup) in [
        ("$T copy -b n o", "o~"),
        ("$T copy -S .bak n o", "o.bak"),
        ("SIMPLE_BACKUP_SUFFIX=.env $T copy -b n o", "o.env"),
        ("SIMPLE_BACKUP_SUFFIX=a/b $T copy -b n o", "o~"),
        ("VERSION_CONTROL=numbered $T copy -b n o", "o.~1~"),
        ("VERSION_CONTROL=t $T copy --backup=simp n o", "o~"),
        ("$T copy --backup=num n o", "o.~1~"),
        ("$T copy --backup=simple --backup=numbered n o", "o.~1~"),
    ] {
        holds(setup, line, 0, &format!("test $(cat {backup})$(cat o) = on"));
    }
    holds(setup, "$T copy -f -b o o", 0, "test $(cat o~)$(cat o) = oo");
    holds(setup, "$T copy -b -n n o", 2, "test $(cat o) = o");
    holds(setup, "VERSION_CONTROL=what $T copy -b n o", 2, "test $(cat o) = o");
}

#[test]
fn a_destination_that_is_removed_keeps_nothing_and_no_link_is_followed() {
    let setup =
        "echo n >n; echo o >o; chmod 600 o; ln -s o l; ln -s gone g; ln -s loop loop; ln n twin";
    holds(
        setup,
        "$T copy --remove-destination n l",
        0,
        "test ! -L l && test $(cat o)$(cat l) = on",
    );
    holds(setup, "$T copy --remove-destination n g", 0, "test ! -L g && test ! -e gone");
    holds(setup, "$T copy --remove-destination n o", 0, "test $(stat -c %a o) = 644");
    holds(setup, "$T copy n o", 0, "test $(stat -c %a o) = 600");
    holds(setup, "$T copy -f n loop", 0, "test $(cat loop) = n");
    holds(setup, "$T copy --remove-destination n n", 1, "test $(cat n) = n");
    holds(setup, "$T copy --remove-destination n twin", 0, "test $(stat -c %h n) = 1; cat twin");
}

#[test]
fn a_link_that_leads_nowhere_is_written_through_for_posix_alone() {
    let setup =
        "echo n >n; mkdir d; ln -s d/gone g; ln -s g twice; ln -s none/x far; ln -s d/gone/ bad";
    holds(setup, "$T copy n g", 1, "test ! -e d/gone && test -L g");
    let posix = "POSIXLY_CORRECT= $T copy";
    for flags in ["", "-f", "-p", "-n", "--inplace", "--resume", "--verify", "-u"] {
        let there = "test -L g && test $(cat d/gone) = n && test $(ls -A d) = gone";
        holds(setup, &format!("{posix} {flags} n g"), 0, there);
        holds(setup, &format!("{posix} {flags} n twice"), 0, &format!("{there} && test -L twice"));
    }
    holds(setup, "head -c 3M /dev/zero >n; POSIXLY_CORRECT= $T copy n g", 0, "cmp n d/gone");
    holds(setup, &format!("{posix} --dry-run n g"), 0, "test ! -e d/gone");
    holds(setup, &format!("{posix} n far"), 1, "test -L far && test ! -e none");
    holds(setup, &format!("{posix} n bad"), 1, "test -L bad && test -z \"$(ls -A d)\"");
    holds(
        setup,
        &format!("{posix} --remove-destination n g"),
        0,
        "test ! -L g && test ! -e d/gone",
    );
    // Small files of a tree wait for a common sync, before which they have no name.
    let setup = "mkdir -p src dst/src; echo n >src/g; ln -s gone dst/src/g";
    for fsync in ["always", "auto"] {
        let line = format!("{posix} -r --fsync={fsync} src dst");
        holds(setup, &line, 0, "test -L dst/src/g && test $(cat dst/src/gone) = n");
    }
}

#[test]
fn special_files_are_created_again_or_read() {
    let setup = "mkdir t; mkfifo t/p";
    holds(setup, "$T copy -r t n", 0, "test -p n/p");
    holds(
        setup,
        "echo x >t/p & $T copy -r --copy-contents t n; r=$?; wait; exit $r",
        0,
        "test x = $(cat n/p)",
    );
}

#[test]
fn words_may_be_cut_short_and_the_last_one_wins() {
    let setup = "mkdir t; echo f >t/f; chmod 750 t; ln -s f t/l";
    holds(setup, "$T copy --rec --pres=mode t n", 0, "test $(stat -c %a n) = 750; test -L n/l");
    holds(setup, "$T copy -a --no-pres=mode t n", 0, "test $(stat -c %a n) = 755");
    holds(setup, "$T copy -r -P -L t n", 0, "test ! -L n/l");
    holds(setup, "$T copy -L -a t n", 0, "test -L n/l");
    holds(setup, "$T copy --reflink=always --reflink=never --sparse=al -q -q t/f n", 0, "cat n");
    holds(setup, "$T copy --reflink=always --sparse=always t/f n", 2, "test ! -e n");
    holds(setup, "$T copy --strip-trailing-slashes -P t/l/ n", 0, "test -L n");
    holds(setup, "ln -s t d; $T copy -rT t/. d", 1, "test -L d");
    let kept = "mkdir -p s/t d; echo x >s/t/x; mkdir real; ln -s ../real d/t";
    holds(kept, "$T copy -r --keep-directory-symlink s/. d", 0, "test -L d/t && test -f real/x");
    holds(kept, "$T copy -r s/. d", 1, "test ! -e real/x");
}

#[test]
fn standard_output_has_what_was_asked_for_and_nothing_else() {
    let setup = "echo a >a; echo b >b";
    for (line, out) in [
        ("$T copy a c", ""),
        ("$T copy -v a c", "'a' -> 'c'\n"),
        ("$T copy -vb a b", "'a' -> 'b' (backup: 'b~')\n"),
        ("$T copy -vn a b", ""),
        ("$T copy --verify a b", ""),
        ("mkdir d; $T copy -vr d e; $T copy -vrT d e", "'d' -> 'e'\n"),
    ] {
        let (_, ran) = after(setup, line);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), out, "{line}");
    }
    let (_, ran) = after(setup, "$T copy a c; $T copy -q --verify a d");
    assert_eq!(ran.stderr, "");
    let (_, ran) = after(setup, "$T copy --progress=always a c");
    ran.expect_said("1 file copied");
}

#[test]
fn labels_are_refused_or_ignored_where_there_is_no_selinux() {
    if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        let test = "labels_are_refused_or_ignored_where_there_is_no_selinux";
        return skip(test, "this kernel has SELinux enabled");
    }
    let (_, ran) = after("echo a >a", "$T copy -Z a b && cat b");
    assert_eq!((ran.code(), &ran.stdout[..]), (0, &b"a\n"[..]), "{}", ran.said());
    ran.expect_said("-Z is ignored");
    holds("echo a >a", "$T copy --preserve=context a b", 1, "test ! -e b");
}

#[test]
fn a_file_that_was_named_twice_is_copied_once_and_said() {
    let setup = "mkdir d x; echo 1 >a; echo 2 >x/a";
    holds(
        setup,
        "$T copy a a d 2>said",
        0,
        "test $(cat d/a) = 1 && grep -q \"'a' is given twice\" said",
    );
    for again in ["./a", "$PWD/a", "x/../a", ".//a"] {
        for flags in ["", "-n", "-u", "-P", "-l", "-p"] {
            let line = format!("$T copy {flags} a {again} d 2>said");
            holds(setup, &line, 0, "test $(cat d/a) = 1 && grep -q 'is given twice' said");
        }
    }
    // The second source would replace the copy of the first one.
    holds(setup, "$T copy a x/a d", 1, "test $(cat d/a) = 1");
    holds(setup, "ln -f a x/a; $T copy a x/a d", 1, "test $(cat d/a) = 1");
    // With numbered backups, each copy keeps the one before it.
    let kept = "test $(cat d/a) = 2 && test $(cat d/a.~1~) = 1";
    holds(setup, "$T copy --backup=numbered a x/a d", 0, kept);
    holds(setup, "$T copy --backup=numbered a a d", 0, "test $(cat d/a d/a.~1~ | wc -l) = 2");
    holds(setup, "$T copy --backup=simple a a d", 1, "test $(cat d/a) = 1");
}

#[test]
fn what_the_first_of_two_sources_became_is_kept() {
    let setup = "mkdir d x; echo 1 >a; echo 2 >x/a; touch -d 2020-01-01 a";
    for (flags, code) in [
        ("-n", 0),
        ("-rn", 0),
        ("-u", 0),
        ("-fu", 0),
        ("--update=none", 0),
        ("--update=none-fail", 1),
        // The second source is newer than the copy of the first.
        ("-pu", 1),
        ("-b", 1),
        ("-bu", 1),
        ("-f", 1),
    ] {
        holds(setup, &format!("$T copy {flags} a x/a d"), code, "test $(cat d/a) = 1");
    }
    holds(setup, "$T copy -pu x/a a d", 0, "test $(cat d/a) = 2");
    // The copy of the first source is not replaced even if the user answers yes.
    holds(
        setup,
        "yes | $T copy -i a x/a d 2>said",
        1,
        "test $(cat d/a) = 1 && grep -q overwrite said",
    );
    holds(
        setup,
        "yes n | $T copy -i a x/a d 2>said",
        1,
        "test $(cat d/a) = 1 && grep -q overwrite said",
    );
}

#[test]
fn an_empty_name_is_no_file_and_the_others_are_copied() {
    holds("echo a >a; mkdir d", "$T copy '' a d", 1, "test -f d/a");
    holds("echo a >a; mkdir d", "$T copy --parents '' a d", 1, "test -f d/a");
    holds("echo a >a; mkdir d", "$T copy -r -t d ''", 1, "test -z \"$(ls d)\"");
    holds("echo a >a", "$T copy a ''", 1, "test \"$(ls)\" = a");
}

#[test]
fn a_word_after_a_suffix_is_the_suffix_whatever_it_looks_like() {
    let setup = "echo a >a; echo b >b";
    holds(setup, "$T copy -S -v a b", 0, "test \"$(cat b b-v)\" = \"$(echo a; echo b)\"");
}

#[test]
fn a_folder_goes_into_itself_but_for_what_it_becomes() {
    let setup = "mkdir -p s/x; echo a >s/a; echo f >s/x/f";
    let whole = "test \"$(cat new/a new/x/f)\" = \"$(echo a; echo f)\"; test ! -e new/new; \
        test -z \"$(find . -name '*thalweg*')\"";
    holds(setup, "cd s; $T copy -r . new", 1, &format!("cd s; {whole}"));
    holds(setup, "cd s; $T copy -r . x/new", 1, "cd s; test ! -e x/new/x/new; cat x/new/x/f");
    holds(setup, "cd s; $T copy -r --exclude /x . x/new", 0, "cd s; cmp a x/new/a");
    // Depending on the order of the copies, the copy of one source would contain the copy of the other.
    holds(setup, "$T copy -r s s/x s/x", 1, "test ! -e s/x/s");
    let (_scratch, ran) = after(setup, "cd s; $T copy -r . new");
    assert!(ran.stderr.contains("into itself"), "{}", ran.said());
    // The message has the names that the user gave, not the name of the staging directory.
    let (_scratch, ran) = after(setup, "$T copy -r s s/new");
    ran.expect_said("'s': cannot copy a directory into itself, 's/new'");
}

#[test]
fn a_folder_in_the_way_is_asked_for_before_it_is_refused() {
    let setup = "echo a >a; mkdir -p d/a; echo n >no; echo y >yes";
    holds(setup, "$T copy -i a d <no", 1, "test -d d/a");
    holds(setup, "$T copy -i a d <yes", 1, "test -d d/a");
}

#[test]
fn a_link_is_not_set_aside_to_be_read() {
    for flags in ["-b", "-S.old", "-b --attributes-only"] {
        let line = format!("$T copy {flags} l l");
        holds(
            "echo a >a; ln -s a l",
            &line,
            1,
            "test -h l; test \"$(ls)\" = \"$(echo a; echo l)\"",
        );
    }
}

#[test]
fn by_force_what_may_not_be_opened_gives_way_to_a_new_file() {
    let test = "by_force_what_may_not_be_opened_gives_way_to_a_new_file";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    let binary = scratch.binary();
    for (mode, flags) in [("444", "-f"), ("0", "-f"), ("444", "-f --inplace"), ("444", "-fp")] {
        let script = format!(
            "umask 022; rm -rf w; mkdir w; cd w; echo new >a; chmod 640 a; echo old >b; chmod {mode} b
            ln b twin; ln -s b l; {binary} copy {flags} a b && test $(stat -c %a b) = 640 || exit 1
            test $(cat b) = new && test $(stat -c %a twin) = {mode} || exit 2
            rm b; ln twin b; {binary} copy {flags} a l && test ! -h l && test $(stat -c %a l) = 640 || exit 3
            cmp a l && chmod 600 b && test $(cat b) = old || exit 4",
            binary = binary.display()
        );
        let mut command = Command::new("setpriv");
        quiet_environment(&mut command);
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", &script]);
        run(command.current_dir(scratch.path())).expect(0);
    }
}

#[test]
fn a_program_that_gets_other_contents_no_longer_runs_as_its_owner() {
    let test = "a_program_that_gets_other_contents_no_longer_runs_as_its_owner";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let after = |copy: &str, by: &str, mode: &str| {
        let scratch = Scratch::public();
        let copy = copy.replace("$T", &scratch.binary().to_string_lossy());
        let line = format!(
            "chmod 777 .; echo old >p; chown 1000:1000 p; chmod {mode} p; echo new >n; chmod 644 n; {by} {copy} n p; \
            cat p; stat -c %a:%u:%g p"
        );
        String::from_utf8(shell(scratch.path(), &line).expect(0).stdout).unwrap()
    };
    for by in ["", "setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/nowhere"] {
        for mode in ["4755", "6755", "2755", "2745", "6644", "1755", "755"] {
            let [ours, theirs] = ["$T copy", "cp"].map(|copy| after(copy, by, mode));
            assert_eq!(ours, theirs, "{by} {mode}");
        }
    }
}
