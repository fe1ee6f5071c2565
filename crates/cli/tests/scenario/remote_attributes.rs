//! Extended attributes, access control lists and holes between machines.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command, thread, time::Duration};

use rustix::fs::{XattrFlags, setxattr};

use crate::{
    remote_syncs::{BothWays, lines},
    support::{Running, Scratch, bytes, names, run, shell, skip::skip, sshd::OtherMachine},
    sync_trees::record,
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
        // Only attributes differ, also those that the source does not have.
        set(&source.join("plain"), "user.y", b"new");
        set(&dst.join("large"), "user.z", b"extra");
        set(&source.join("d/f"), "system.posix_acl_access", &access_list(1002));
        let planned = lines(&both.sync(&["-n"], &dst).expect(0));
        assert_eq!(planned, [".f........x large", ".f........x plain", ".f.......a. d/f"]);
        assert_eq!(lines(&both.sync(&["-i"], &dst).expect(0)), planned);
        assert_eq!(record(&dst), record(&source));
        // New files inherit the list of the directory, which this source does not have.
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
            let mut command = machine.copy(words);
            if is_push {
                command.arg(&file).arg(machine.at(&dst));
            } else {
                command.arg(machine.at(&file)).arg(&dst);
            }
            run(&mut command).expect(0);
            let mut names = [0; 100];
            let length = rustix::fs::listxattr(&dst, &mut names).unwrap();
            let found = names[..length]
                .split_inclusive(|byte| *byte == 0)
                .filter(|name| name.starts_with(b"user."));
            assert_eq!(found.count(), count, "{words:?}, push: {is_push}");
        }
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
        // A changed file has other blocks, and the holes stay.
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
            .find(|path| on_disk(path) > 8 << 20)
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
