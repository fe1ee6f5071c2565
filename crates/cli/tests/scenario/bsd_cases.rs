//! The situations that FreeBSD's own tests of `cp` cover, rewritten as shell lines for `thalweg copy`.
//!
//! If GNU cp differs from FreeBSD's cp, `thalweg copy` behaves like GNU cp, and a comment at the case describes the
//! difference.

use crate::{
    cp_flags::holds,
    support::{Scratch, shell, skip},
};

/// A situation: lines of shell with `$T` as the command.
struct BsdCase {
    name: &'static str,
    setup: &'static str,
    line: &'static str,
    code: i32,
    check: &'static str,
}

const fn case(
    name: &'static str,
    setup: &'static str,
    line: &'static str,
    code: i32,
    check: &'static str,
) -> BsdCase {
    BsdCase { name, setup, line, code, check }
}

/// Cases with files and links.
const FILES: &[BsdCase] = &[
    case("basic", "echo 123 >a", "$T copy a b", 0, "test $(stat -c %s b) = 4"),
    case("basic_symlink", "echo 1 >a; ln -s a l", "$T copy l b", 0, "! test -L b && cmp a b"),
    case("chrdev: truncates", "echo 1 >b", "$T copy /dev/null b", 0, "test -f b && ! test -s b"),
    case("chrdev: and back", "echo 1 >a; :>b", "$T copy a b", 0, "cmp a b"),
    case("hardlink", "echo 1 >a", "$T copy -l a b", 0, "test a -ef b"),
    case(
        "hardlink_exists",
        "echo 1 >a; echo 2 >b",
        "$T copy -l a b 2>said",
        1,
        "test $(cat b) = 2 && grep -q exists said && ! test a -ef b",
    ),
    case("hardlink_exists_force", "echo 1 >a; echo 2 >b", "$T copy -fl a b", 0, "test a -ef b"),
    case(
        "symlink",
        "echo 1 >a",
        "$T copy -s a b",
        0,
        "test $(readlink b) = a && test $(cat b) = 1",
    ),
    case(
        "symlink_exists",
        "echo 1 >a; echo 2 >b",
        "$T copy -s a b 2>said",
        1,
        "test $(cat b) = 2 && grep -q exists said",
    ),
    case(
        "symlink_exists_force",
        "echo 1 >a; echo 2 >b",
        "$T copy -fs a b",
        0,
        "test $(readlink b) = a",
    ),
    case("standalone_Pflag", "echo 1 >a; ln -s a l", "$T copy -P l b", 0, "test -L b"),
    case(
        "samefile: itself",
        "echo 1 >a; ln -s a l",
        "$T copy l l",
        1,
        "test $(cat a) = 1 && test -L l",
    ),
    case("samefile: link to it", "echo 1 >a; ln -s a l", "$T copy l a", 1, "test $(cat a) = 1"),
    case("samefile: hard link", "echo 1 >a; ln a b", "$T copy a b", 1, "test $(cat a) = 1"),
    case("samefile: both", "echo 1 >a; ln a b; ln -s b l", "$T copy l a", 1, "test $(cat a) = 1"),
    case("to_nondir: one", "echo 1 >a; echo 2 >b", "$T copy a b", 0, "cmp a b"),
    // FreeBSD exits with 1. Usage errors of thalweg exit with 2 (docs/decisions/029).
    case(
        "to_nondir: two",
        "echo 1 >a; echo 2 >b; echo 3 >c",
        "$T copy a b c 2>said",
        2,
        "test $(cat c) = 3 && grep -q 'not a directory' said",
    ),
    // FreeBSD creates the target of a dangling link. GNU cp and thalweg refuse to write through it.
    case("to_deadlink", "echo 1 >a; ln -s gone l", "$T copy a l", 1, "test -L l && ! test -e gone"),
    case(
        "to_deadlink_append",
        "echo 1 >a; mkdir d; ln -s gone d/a",
        "$T copy a d; $T copy a d/",
        1,
        "test -L d/a && ! test -e d/gone",
    ),
    case(
        "to_deadlink_append: absolute",
        "echo 1 >a; mkdir d; ln -s $PWD/gone d/a",
        "$T copy a d/",
        1,
        "test -L d/a && ! test -e gone",
    ),
];

/// Cases with directories and their entries.
const DIRECTORIES: &[BsdCase] = &[
    // FreeBSD copies the earlier content into foo/foo. GNU cp and thalweg refuse. No program recurses without end.
    case(
        "matching_srctgt",
        "mkdir d; echo 1 >d/a",
        "$T copy -R d d",
        1,
        "! test -e d/d/d && cat d/a",
    ),
    case(
        "matching_srctgt_contained",
        "mkdir -p d/e; echo 1 >d/a",
        "$T copy -R d d/e",
        1,
        "! test -e d/e/d/e/d && cat d/a",
    ),
    case(
        "matching_srctgt_link",
        "mkdir d; echo 1 >d/a; ln -s d l",
        "$T copy -RH l d",
        1,
        "! test -e d/l/l/a && cat d/a",
    ),
    case(
        "matching_srctgt_nonexistent",
        "mkdir d; echo 1 >d/a",
        "$T copy -R d d/new",
        1,
        "! test -e d/new/new && cat d/a",
    ),
    case("recursive_link_dflt", LINKED, "$T copy -R d m && $T copy -R d m", 0, KEEPS_LINK),
    case("recursive_link_Hflag", LINKED, "$T copy -R d m && $T copy -RH d m", 0, KEEPS_LINK),
    case(
        "recursive_link_Lflag",
        LINKED,
        "$T copy -RL d m && $T copy -RL d m",
        0,
        "test -d m/d/l && ! test -L m/d/l",
    ),
    case(
        "directory_to_symlink",
        "mkdir d e; ln -s .. d/e; touch e/a",
        "$T copy -R e d 2>said",
        1,
        "test -L d/e && ! test -e a && grep -q 'cannot overwrite' said",
    ),
    case(
        "overwrite_directory: file",
        "mkdir -p d/a/b; touch a",
        "$T copy a d 2>said",
        1,
        "test -d d/a/b && grep -q 'cannot overwrite directory' said",
    ),
    case(
        "overwrite_directory: directory",
        "mkdir -p d/a/b a; touch a/b",
        "$T copy -R a d 2>said",
        1,
        "test -d d/a/b && grep -q 'cannot overwrite directory' said",
    ),
    case("to_dir_dne", "mkdir d; echo 1 >d/a", "$T copy -r d new", 0, "cmp d/a new/a"),
    case("to_dirlink", LINKED_TO, "$T copy -r s l && $T copy -r s l/", 0, "cmp s/a d/s/a"),
    // FreeBSD copies the content of `s/`. GNU cp and thalweg copy the directory itself.
    case("to_dirlink: slash", LINKED_TO, "$T copy -r s/ l", 0, "cmp s/a d/s/a"),
    case("to_dirlink: slashes", LINKED_TO, "$T copy -r s/ l/", 0, "cmp s/a d/s/a"),
    case("to_deaddirlink", DEAD, "$T copy -r s l", 1, STAYS_DEAD),
    case("to_deaddirlink: slash", DEAD, "$T copy -R s/ l", 1, STAYS_DEAD),
    case("to_deaddirlink: target slash", DEAD, "$T copy -r s l/", 1, STAYS_DEAD),
    // The link leads to a file that does not exist, outside of the destination.
    case(
        "to_link_outside",
        "mkdir -p s d/s; echo 1 >s/a; ln -s ../../a d/s/a",
        "$T copy -r s d",
        1,
        "test -L d/s/a && ! test -e a",
    ),
    case(
        "dstmode",
        "mkdir -m 755 s; echo 1 >s/a",
        "umask 177; $T copy -R s d",
        0,
        "test $(stat -c %a d) = 600 && chmod 700 d && cmp s/a d/a",
    ),
    case(
        "root",
        "mkdir d",
        "$T copy / d 2>said",
        1,
        "grep -q -e '-r not specified' said && ! ls d/*",
    ),
    // FreeBSD follows links below a directory with -r. GNU cp and thalweg copy them, so there is no loop without -L.
    case(
        "dirloop",
        "mkdir -p s/a s/b; ln -s ../b s/a; ln -s ../a s/b",
        "$T copy -r s d",
        0,
        "test -L d/a/b && test -L d/b/a",
    ),
    case(
        "dirloop: followed",
        "mkdir -p s/a s/b; ln -s ../b s/a; ln -s ../a s/b",
        "$T copy -rL s d 2>said",
        1,
        "test -d d/a/b && test -d d/b/a && ! test -e d/a/b/a && ! test -e d/b/a/b",
    ),
    // After a name, `-p` is another name to FreeBSD, and an option to GNU cp and thalweg.
    case("nopermute", "mkdir s d", "$T copy -R s -p d", 0, "test -d d/s"),
];

const LINKED: &str = "mkdir -p d/b m; ln -s b d/l";
const KEEPS_LINK: &str = "test -L m/d/l && test -d m/d/l";
const LINKED_TO: &str = "mkdir s d; echo 1 >s/a; ln -s d l";
const DEAD: &str = "mkdir s; echo 1 >s/a; ln -s gone l";
const STAYS_DEAD: &str = "test -L l && ! test -e gone";

fn hold(cases: &[BsdCase]) {
    for BsdCase { name, setup, line, code, check } in cases {
        eprintln!("{name}");
        holds(setup, line, *code, check);
    }
}

#[test]
fn files_and_links() {
    hold(FILES);
}

#[test]
fn directories() {
    hold(DIRECTORIES);
}

/// Files with three pieces of data, and with holes before, between and after them.
#[test]
fn sparse_files() {
    let data = |at: &str| format!("truncate -s {at} a; seq -f%015g 65536 >>a;");
    let end = "truncate -s 67M a";
    for setup in [
        data("16M"),
        data("16M") + &data("33M") + &data("50M") + end,
        "truncate -s 16M a".to_owned(),
        data("0") + "truncate -s 17M a",
    ] {
        let same = "cmp a b && test $(stat -c %b b) -le $(stat -c %b a)";
        holds(&setup, "$T copy a b", 0, same);
        holds(&setup, "$T copy a /dev/stdout >b", 0, "cmp a b");
    }
}

/// Only `-p` copies modes and ACLs. FreeBSD's `nodump` flag corresponds to one of chattr(1), which neither GNU cp nor
/// thalweg copies.
#[test]
fn access_lists() {
    let scratch = Scratch::new();
    let setup = "mkdir d; ln -s d l; echo 1 >d/a; setfacl -m u:1:r d d/a";
    if shell(scratch.path(), setup).code() != 0 {
        return skip("access_lists", "no access control lists");
    }
    let has = |path: &str| format!("getfacl -n {path} | grep -q user:1:");
    for (source, below) in [("d/a", ""), ("d", "/a"), ("l/", "/a")] {
        let line = format!("$T copy -r {source} x");
        holds(setup, &line, 0, &format!("! {{ {}; }}", has(&format!("x{below}"))));
        let line = format!("$T copy -rp {source} x");
        holds(setup, &line, 0, &format!("{} && {}", has(&format!("x{below}")), has("x")));
    }
}

/// Entries that the user may not read, and a directory that the user may not write.
#[test]
fn unreadable_entries() {
    let scratch = Scratch::public();
    scratch.binary();
    let as_user = if rustix::process::geteuid().is_root() {
        "setpriv --reuid=1234 --regid=1234 --clear-groups"
    } else {
        ""
    };
    let setup = "mkdir -p s/a s/b s/c u; for d in a b c; do echo $d >s/$d/f; echo $d >u/$d; done; \
                 chmod 0 s/b u/b; chmod 777 .";
    shell(scratch.path(), setup).expect(0);
    let line = format!("{as_user} ./thalweg copy -R s d");
    shell(scratch.path(), &line).expect(1).expect_said("permission denied");
    shell(scratch.path(), "cmp s/a/f d/a/f && cmp s/c/f d/c/f && ! test -e d/b/f").expect(0);
    let line = format!("{as_user} ./thalweg copy -R u e");
    shell(scratch.path(), &line).expect(1).expect_said("permission denied");
    shell(scratch.path(), "cmp u/a e/a && cmp u/c e/c && ! test -e e/b").expect(0);
    for root in ["/", "//"] {
        let line =
            format!("{as_user} ./thalweg copy u/a {root}thalweg-test-{}", std::process::id());
        if !as_user.is_empty() {
            shell(scratch.path(), &line).expect(1).expect_said("permission denied");
        }
    }
}
