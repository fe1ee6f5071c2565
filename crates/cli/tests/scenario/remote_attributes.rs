//! Extended attributes, access control lists and holes between machines.

use std::{fs, path::Path};

use rustix::fs::{XattrFlags, setxattr};

use crate::{
    remote_syncs::{BothWays, lines},
    support::{Scratch, bytes, run, shell, skip::skip, sshd::OtherMachine},
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
