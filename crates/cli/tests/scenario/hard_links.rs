//! A file with several names is one file in the copy, too, whatever an earlier run left in the destination.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::Command,
    time::{Duration, SystemTime},
};

use crate::support::{
    Scratch, bytes, run, shell, skip,
    skip::{has_tools, is_root},
};

const NAMES: [&str; 3] = ["f1", "g1", "zz"];

/// Makes a file with three names, and in the destination a separate copy of each name in `there`.
fn scratch_with(there: &[&str], len: u64) -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("from")).unwrap();
    fs::create_dir(scratch.join("to")).unwrap();
    bytes::write(&scratch.join("from/f1"), 7, len);
    let copies = format!("for name in {}; do cp -p from/f1 to/$name; done", there.join(" "));
    shell(scratch.path(), &format!("ln from/f1 from/g1; ln from/f1 from/zz; {copies}")).expect(0);
    scratch
}

fn inodes(scratch: &Scratch) -> Vec<u64> {
    NAMES.map(|name| fs::metadata(scratch.join("to").join(name)).unwrap().ino()).to_vec()
}

#[test]
fn copies_of_an_earlier_run_become_names_of_one_file() {
    for options in ["-aT --resume", "-aT --resume --verify", "-auT", "-aT --resume --jobs 1"] {
        for len in [100, 300_000, 3 << 20] {
            for there in [&NAMES[..1], &NAMES[1..2], &NAMES[2..], &NAMES[..2], &NAMES[..]] {
                let scratch = scratch_with(there, len);
                let line = format!("$T copy {options} from to");
                shell(scratch.path(), &line).expect(0);
                let own = inodes(&scratch);
                assert!(own.iter().all(|ino| *ino == own[0]), "{options} {len} {there:?}: {own:?}");
                bytes::expect(&scratch.join("to/zz"), 7, len);
                shell(scratch.path(), "$T verify --attributes -T from to").expect(0);
                shell(scratch.path(), &line).expect(0);
                assert_eq!(inodes(&scratch), own, "{options}: nothing is left to be done");
                assert_eq!(fs::read_dir(scratch.join("to")).unwrap().count(), NAMES.len());
            }
        }
    }
}

#[test]
fn what_is_newer_stays_and_is_never_made_a_name_of_something_older() {
    for there in NAMES {
        let scratch = scratch_with(&[there], 300_000);
        let path = scratch.join("to").join(there);
        fs::write(&path, "newer").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
        shell(scratch.path(), "$T copy -auT from to").expect(0);
        assert_eq!(fs::read(scratch.join("to").join(there)).unwrap(), b"newer", "{there}");
    }
}

#[test]
fn a_link_that_leads_to_the_copy_is_no_name_that_others_get() {
    for options in ["-aT --resume", "-auT"] {
        let scratch = scratch_with(&[], 300_000);
        let setup = "cd from; mkdir a b; mv f1 a; mv g1 zz b; cd ..; mkdir to/a; \
            cp -p from/a/f1 to/a/real; ln -s real to/a/f1";
        shell(scratch.path(), setup).expect(0);
        shell(scratch.path(), &format!("$T copy {options} from to"));
        for name in ["b/g1", "b/zz"] {
            let path = scratch.join("to").join(name);
            assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{options} {name}");
            bytes::expect(&path, 7, 300_000);
        }
    }
}

#[test]
fn a_copy_stays_apart_where_nothing_may_be_replaced_or_links_are_not_kept() {
    for options in ["-anT", "-aT --resume --no-preserve=links", "-auT --no-preserve=links"] {
        for name in NAMES {
            let scratch = scratch_with(&[name], 300_000);
            let before = fs::metadata(scratch.join("to").join(name)).unwrap().ino();
            shell(scratch.path(), &format!("$T copy {options} from to")).expect(0);
            let after = fs::metadata(scratch.join("to").join(name)).unwrap();
            assert_eq!((after.ino(), after.nlink()), (before, 1), "{options} {name}");
            bytes::expect(&scratch.join("to/f1"), 7, 300_000);
        }
    }
}

#[test]
fn links_and_special_files_of_an_earlier_run_become_names_of_one_too() {
    // cp copies the links as they are. The test then replaces some names with separate entries.
    let setup = "mkdir from; ln -s nowhere from/l1; ln from/l1 from/l2; ln from/l1 from/l3
        mkfifo from/p1; ln from/p1 from/p2; cp -a from to";
    for options in ["-auT", "-aT --resume", "-auT --jobs 1", "-auT --verify"] {
        for apart in ["l1", "l2", "l3", "l1 l2", "l1 l2 l3", "p1", "p2", "p1 p2"] {
            let scratch = Scratch::new();
            shell(scratch.path(), setup).expect(0);
            let part = format!(
                "cd to; for name in {apart}; do rm $name
                    case $name in l*) ln -s nowhere $name;; p*) mkfifo $name;; esac
                    touch -h -r ../from/$name $name; done"
            );
            shell(scratch.path(), &part).expect(0);
            let line = format!("$T copy {options} from to");
            shell(scratch.path(), &line).expect(0);
            shell(scratch.path(), "$T verify --attributes -T from to").expect(0);
            let count = "find to -links 3 -name 'l?' | wc -l; find to -links 2 -name 'p?' | wc -l";
            let counted = shell(scratch.path(), count).expect(0).stdout;
            assert_eq!(counted, b"3\n2\n", "{options} {apart}");
        }
    }
}

#[test]
fn a_newer_link_stays_and_is_never_made_a_name_of_an_older_one() {
    let scratch = Scratch::new();
    let setup = "mkdir from; ln -s nowhere from/l1; ln from/l1 from/l2; touch -h -d @1000 from/l1
        cp -a from to; rm to/l2; ln -s elsewhere to/l2";
    shell(scratch.path(), setup).expect(0);
    shell(scratch.path(), "$T copy -auT from to").expect(0);
    assert_eq!(fs::read_link(scratch.join("to/l2")).unwrap().as_os_str(), "elsewhere");
}

#[test]
fn a_name_that_cannot_be_updated_keeps_no_other_name_from_being_linked() {
    let test = "a_name_that_cannot_be_updated_keeps_no_other_name_from_being_linked";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    let line =
        "mkdir -p s/new s/two d/two; echo x >s/a; ln s/a s/new/c; ln s/a s/two/e; cp -p s/a d/a
        chmod 0 d/a; touch -d @1000 s/two; chown -R 54321:54321 s d
        setpriv --reuid=54321 --regid=54321 --clear-groups ./thalweg sync --jobs=1 s d
        test $? = 1 && test $(stat -c %i d/new/c) = $(stat -c %i d/a) || exit 9
        test $(stat -c %Y d/two) = 1000 && test \"$(ls -A d | xargs)\" = 'a new two'";
    shell(scratch.path(), line).expect(0).expect_said("cannot open 'd/a'");
}

#[test]
fn a_name_that_is_retried_for_lack_of_descriptors_does_not_wait_for_itself() {
    let test = "a_name_that_is_retried_for_lack_of_descriptors_does_not_wait_for_itself";
    if !has_tools(test, &["strace"]) {
        return;
    }
    if run(Command::new("strace").args(["-o", "/dev/null", "true"])).code() != 0 {
        return skip(test, "strace cannot trace here");
    }
    let mut retried = 0;
    for nth in 1..200 {
        let scratch = Scratch::new();
        let line = format!(
            "mkdir -p s/new d; echo x >s/a; ln s/a s/b; ln s/a s/new/c; cp -p s/a d/a; ln d/a d/b; chmod 600 d/a
             strace -f -qq -o trace -e inject=openat:error=EMFILE:when={nth} $T sync --jobs=1 s d
             code=$?; grep -q INJECTED trace || exit 77; test $code = 0 || exit 78
             test $(stat -c %h d/new/c) = 3 && test $(stat -c %a d/a) = $(stat -c %a s/a)"
        );
        match shell(scratch.path(), &line).code() {
            0 => retried += 1,
            77 => break,
            // The open that failed is not retried.
            78 => {}
            _ => panic!("{nth}: a name is missing, or separate"),
        }
    }
    assert!(retried > 0);
}

/// The other name may be a file of root, to which another user made a hard link in a directory for all.
#[test]
fn a_file_with_names_elsewhere_is_replaced_and_not_changed_in_place() {
    let test = "a_file_with_names_elsewhere_is_replaced_and_not_changed_in_place";
    if !is_root(test) {
        return;
    }
    let setup = "mkdir s; mkdir -m 1777 shared; echo text >s/f; cp -p s/f secret; chmod 600 secret
        ln secret shared/f; chown 65534 s/f; chmod 644 s/f; ";
    let check =
        "; test \"$(stat -c '%u %a %h' secret shared/f | xargs)\" = \"0 600 1 65534 644 $names\"";
    for (copy, names) in [
        ("$T copy -a --resume s/f shared/", 1),
        ("$T copy -aT --resume s shared", 1),
        ("$T sync s shared", 1),
        ("ln s/f s/g; $T sync s shared", 2),
        ("ln s/f s/g; $T copy -aT --resume s shared", 2),
        ("setfattr -n user.x -v 1 s/f; $T copy -a --resume s/f shared/", 1),
    ] {
        let scratch = Scratch::new();
        shell(scratch.path(), &format!("names={names}; {setup}{copy}{check}")).expect(0);
        shell(scratch.path(), "$T verify --attributes s/f shared/f && cmp s/f shared/f").expect(0);
    }
}
