//! Extended attributes, access control lists and holes between machines.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command, thread, time::Duration};

use rustix::fs::{XattrFlags, setxattr};
use thalweg_testing::script;

use crate::{
    remote_syncs::BothWays,
    support::{
        Ran, Running, Scratch, bytes, names, run, shell,
        skip::{has_tools, is_root, skip},
        sshd::OtherMachine,
        thalweg,
    },
    sync_trees::{lines, record},
};

/// An access control list that gives a user more than the group has.
fn access_list(user: u32) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, may, id) in
        [(1_u16, 6_u16, none), (2, 6, user), (4, 4, none), (16, 6, none), (32, 0, none)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

#[test]
fn attributes_and_access_control_lists_are_those_of_the_source() {
    let test = "attributes_and_access_control_lists_are_those_of_the_source";
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.join(&format!("dst{is_push}"));
        shell(
            &source,
            "mkdir d; touch plain d/f; head -c 20000000 /dev/zero >large; chmod 400 plain",
        )
        .expect(0);
        let value = vec![7; 2000];
        let names = ["plain", "d", "d/f", "large", ""];
        if !names.iter().all(|name| set(&source.join(name), "user.x", &value)) {
            return skip(test, "the file system has no extended attributes");
        }
        if !set(&source.join("d/f"), "system.posix_acl_access", &access_list(1000)) {
            return skip(test, "the file system has no access control lists");
        }
        set(&source.join("d"), "system.posix_acl_default", &access_list(1001));
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        both.sync(&["-aAX"], &dst).expect(0);
        assert_eq!(record(&dst), record(&source));
        assert!(lines(&both.sync(&["-i"], &dst).expect(0)).is_empty());
        // Only attributes differ. DST also has one that the source does not have.
        set(&source.join("plain"), "user.y", b"new");
        set(&dst.join("large"), "user.z", b"extra");
        set(&source.join("d/f"), "system.posix_acl_access", &access_list(1002));
        let planned = lines(&both.sync(&["-n"], &dst).expect(0));
        assert_eq!(planned, [".f........x large", ".f........x plain", ".f.......a. d/f"]);
        assert_eq!(lines(&both.sync(&["-i"], &dst).expect(0)), planned);
        assert_eq!(record(&dst), record(&source));
        // New files in DST inherit the default ACL of DST, which the source does not have. The sync must remove what
        // they inherit.
        set(&dst, "system.posix_acl_default", &access_list(1003));
        bytes::write(&source.join("d/new"), 1, 100);
        bytes::write(&source.join("other"), 1, 100);
        both.sync(&[], &dst).expect(0);
        assert_eq!(record(&dst), record(&source));
    }
}

#[test]
fn a_copy_keeps_attributes_with_a_only() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let file = scratch.join("file");
    fs::write(&file, "x").unwrap();
    if !set(&file, "user.x", b"value") {
        return skip(
            "a_copy_keeps_attributes_with_a_only",
            "the file system has no extended attributes",
        );
    }
    for (words, count) in [(&["-a"][..], 1), (&[], 0)] {
        for is_push in [false, true] {
            let dst = scratch.join(&format!("copy-{count}-{is_push}"));
            run(&mut machine.between(("copy", words), is_push, [&file, &dst])).expect(0);
            let mut names = [0; 100];
            let length = rustix::fs::listxattr(&dst, &mut names).unwrap();
            let found = names[..length]
                .split_inclusive(|byte| *byte == 0)
                .filter(|name| name.starts_with(b"user."));
            assert_eq!(found.count(), count, "{words:?}, push: {is_push}");
        }
    }
}

/// Runs a line of shell beside `s`, a file with one attribute, and `ram`, which has no attributes. `$E` reaches the
/// "other" machine.
fn beside_ram(test: &str, line: &str) -> Option<Ran> {
    if !is_root(test) || !has_tools(test, &["unshare", "setfattr"]) {
        return None;
    }
    let scratch = Scratch::new();
    script(&scratch.join("rsh"), "#!/bin/sh\nshift\nexec \"$@\"\n");
    let setup = "mkdir -p s/d ram; echo 1 >s/f; setfattr -n user.k -v 1 s/f; setfattr -n user.k -v 1 s/d; \
                 mount -t ramfs ram ram; E=\"-e ./rsh --remote-program $T\"";
    let line = format!("unshare --mount --propagation=slave bash -c '{setup}; {line}'");
    Some(shell(scratch.path(), &line))
}

#[test]
fn attributes_that_the_destination_refuses_are_reported() {
    let test = "attributes_that_the_destination_refuses_are_reported";
    for line in [
        "$T sync $E s h:$PWD/ram/d",
        "$T sync $E h:$PWD/s ram/d",
        "mkdir ram/d; $T sync $E h:$PWD/s ram/d",
    ] {
        let Some(ran) = beside_ram(test, line) else { return };
        ran.expect(0)
            .expect_said("the file system refused 2 extended attributes; copied without them");
    }
    let Some(ran) = beside_ram(test, "$T copy -a --json $E h:$PWD/s/f ram/f") else { return };
    assert_eq!(ran.expect(0).json()["attributes_dropped"], 1);
}

/// A server that may not read the attributes of a file must not make the other side remove them.
#[test]
fn attributes_that_the_sender_cannot_read_stay_in_the_destination() {
    let test = "attributes_that_the_sender_cannot_read_stay_in_the_destination";
    if !is_root(test) || !has_tools(test, &["setpriv", "setfattr", "getfattr"]) {
        return;
    }
    let scratch = Scratch::new();
    let rsh = "#!/bin/sh\nshift\nexec setpriv --reuid=54321 --regid=54321 --clear-groups \"$@\"\n";
    script(&scratch.join("rsh"), rsh);
    let line = "chmod 755 .; mkdir s; echo 1 >s/f; echo 2 >s/g; setfattr -n user.k -v 1 s/f; chmod 600 s/f; cp -a s d; cp $T t; \
                $T sync -q -e ./rsh --remote-program $PWD/t h:$PWD/s d; echo $?; getfattr --only-values -n user.k d/f";
    let ran = shell(scratch.path(), line);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n1", "{}", ran.said());
}

/// The receiving side resolves names and applies both options, as a local sync does.
#[test]
fn owners_and_modes_can_be_given() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    shell(
        &source,
        "mkdir d; echo 1 >f; echo 2 >d/g; ln -s f l; chmod 640 f; chmod 755 d/g; chmod 750 d .",
    )
    .expect(0);
    let mut given = vec!["--chmod=D2711,Fgo-w,u+X,o=r"];
    if is_root("owners_and_modes_can_be_given") {
        given.push("--chown=daemon:3");
    }
    let local = scratch.join("local");
    run(thalweg().args(["sync"]).args(&given).arg(&source).arg(&local)).expect(0);
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let dst = scratch.join(&format!("dst{is_push}"));
        let sync = |words: &[&str]| both.sync(&[&given[..], words].concat(), &dst);
        let planned = lines(&sync(&["-n"]).expect(0));
        assert_eq!(lines(&sync(&["-i"]).expect(0)), planned);
        assert_eq!(record(&dst), record(&local));
        assert!(lines(&sync(&["-i"]).expect(0)).is_empty());
        for (word, why) in
            [("--chown=no:such", "unknown user 'no'"), ("--chmod=9", "expected a mode")]
        {
            sync(&[word]).expect(2).expect_said(why);
        }
    }
    run(thalweg().args(["fetch", "--chmod=F600", "http://127.0.0.1:9/f"])).expect(2);
}

/// The printed lines and the trees must equal those of a local sync with `--reference`.
#[test]
fn files_of_an_earlier_snapshot_are_linked() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    let setup = "mkdir -p d/e; for name in same changed touched mode d/e/deep; do echo $name >$name; done; ln -s same link";
    shell(&source, setup).expect(0);
    shell(scratch.path(), "cp -a source one; ln -s one/d one/d/e/out").expect(0);
    shell(&source, "echo CHANGED >changed; touch touched; chmod 600 mode; echo new >new; rm -r d/e; mkdir d/e; cp -a ../one/d/e/deep d/e")
        .expect(0);
    let reference = format!("--reference={}", scratch.join("one").display());
    let local = scratch.join("local");
    let sync = |words: &[&str]| {
        lines(&run(thalweg().arg("sync").args(words).arg(&source).arg(&local)).expect(0))
    };
    let expected = sync(&["-i", &reference]);
    assert!(expected.iter().any(|line| line == "hf+++++++++ same"), "{expected:#?}");
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let dst = scratch.join(&format!("dst{is_push}"));
        assert_eq!(lines(&both.sync(&["-n", &reference], &dst).expect(0)), expected);
        let ran = both.sync(&["-i", &reference], &dst).expect(0);
        ran.expect_said("8 new, 2 linked, 0 changed");
        assert_eq!(lines(&ran), expected);
        assert_eq!(record(&dst), record(&local));
        let inode = |root: &Path, name: &str| fs::metadata(root.join(name)).unwrap().ino();
        for (name, is_linked) in [
            ("same", true),
            ("d/e/deep", true),
            ("changed", false),
            ("touched", false),
            ("mode", false),
        ] {
            let is_equal = inode(&dst, name) == inode(&scratch.join("one"), name);
            assert_eq!(is_equal, is_linked, "{name}, push: {is_push}");
        }
        // A file that DST already has does not become a link.
        fs::remove_file(dst.join("same")).unwrap();
        shell(scratch.path(), &format!("cp -p source/same {}", dst.display())).expect(0);
        both.sync(&[&reference], &dst).expect(0);
        assert_ne!(inode(&dst, "same"), inode(&scratch.join("one"), "same"));
        both.sync(&["--reference=no/such", "-n"], &dst).expect(2).expect_said("no/such");
    }
}

#[test]
fn a_file_that_an_earlier_snapshot_shares_gets_a_new_inode_before_its_attributes_change() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    shell(&source, "echo x >one-name; echo y >two-names; chmod 644 *; ln two-names other")
        .expect(0);
    shell(scratch.path(), "cp -a source one").expect(0);
    let (one, before) = (scratch.join("one"), record(&source));
    let reference = format!("--reference={}", one.display());
    for is_push in [false, true] {
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let dst = scratch.join(&format!("dst{is_push}"));
        shell(&source, "chmod 644 *").expect(0);
        both.sync(&["-i", &reference], &dst).expect(0).expect_said("2 linked");
        shell(&source, "chmod 600 *").expect(0);
        let planned = lines(&both.sync(&["-n"], &dst).expect(0));
        assert_eq!(lines(&both.sync(&["-i"], &dst).expect(0)), planned);
        assert!(planned.iter().any(|line| line == ">f...p..... one-name"), "{planned:#?}");
        assert_eq!(record(&dst), record(&source));
        assert_eq!(record(&one), before);
        // Without other names, the attributes of a file change in place.
        let inode = fs::metadata(dst.join("one-name")).unwrap().ino();
        shell(&source, "chmod 640 *").expect(0);
        both.sync(&[], &dst).expect(0);
        assert_eq!(fs::metadata(dst.join("one-name")).unwrap().ino(), inode);
        assert_eq!(record(&dst), record(&source));
    }
}

const LONG: u64 = 60 << 20;

fn on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Makes a file with little data.
fn make_sparse(path: &Path, len: u64) {
    fs::File::create(path).unwrap().set_len(len).unwrap();
    for (n, at) in [len / 3, len / 2 + 1].into_iter().enumerate() {
        bytes::write_at(path, n as u64, at, 30_000);
    }
}

#[test]
fn holes_of_the_source_are_not_filled() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let source = scratch.folder(&format!("source{is_push}"));
        let dst = scratch.join(&format!("dst{is_push}"));
        make_sparse(&source.join("long"), LONG);
        make_sparse(&source.join("short"), 3_000_000);
        fs::File::create(source.join("empty")).unwrap().set_len(LONG + 77).unwrap();
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        both.sync(&[], &dst).expect(0);
        let is_same = |name: &str| {
            run(Command::new("cmp").args([source.join(name), dst.join(name)])).expect(0);
            let most = on_disk(&source.join(name)) + (2 << 20);
            assert!(on_disk(&dst.join(name)) <= most, "{name}, push: {is_push}");
        };
        ["long", "short", "empty"].into_iter().for_each(is_same);
        // The sync must write the changed blocks, and keep the holes.
        bytes::write_at(&source.join("long"), 9, LONG / 4, 100_000);
        assert_eq!(lines(&both.sync(&["-i"], &dst).expect(0)), [">f..t...... long"]);
        is_same("long");
        assert!(lines(&both.sync(&["-i"], &dst).expect(0)).is_empty());
    }
    let (one, copy) = (scratch.join("one"), scratch.join("copy"));
    make_sparse(&one, LONG);
    run(machine.copy(&[]).arg(machine.at(&one)).arg(&copy)).expect(0);
    run(Command::new("cmp").args([&one, &copy])).expect(0);
    assert!(on_disk(&copy) <= on_disk(&one) + (2 << 20));
}

#[test]
fn a_sparse_file_continues_after_a_kill() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
    make_sparse(&source.join("long"), LONG);
    bytes::write_at(&source.join("long"), 5, 7_000_000, 20_000_000);
    let both = BothWays { machine: &machine, source: source.clone(), is_push: false };
    let mut running = Running::start(&mut both.command(&["--limit=6M"], &dst));
    let partial = || {
        fs::read_dir(&dst)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            // The file may be renamed in the meantime.
            .find(|path| fs::metadata(path).is_ok_and(|meta| meta.blocks() * 512 > 8 << 20))
    };
    while partial().is_none() {
        thread::sleep(Duration::from_millis(10));
    }
    drop(running.child().kill());
    drop(running.finish());
    both.sync(&["-v"], &dst).expect(0);
    run(Command::new("cmp").args([source.join("long"), dst.join("long")])).expect(0);
    assert!(on_disk(&dst.join("long")) <= on_disk(&source.join("long")) + (2 << 20));
    assert_eq!(names(&dst), ["long"]);
}
