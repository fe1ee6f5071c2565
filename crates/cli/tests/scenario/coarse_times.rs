//! Destinations that store times less precisely than the source. A copy counts as up to date if its times equal those
//! of the source at the precision of the destination.

use std::{fs, path::Path, process::Command};

use crate::{
    remote_copies::over_each,
    remote_deltas::{counted, counting},
    remote_syncs::BothWays,
    support::{Scratch, bytes, loop_disk::MountedDisk, names, run, shell, skip, skip::has_tools},
    sync_trees::{STATE, lines},
};

/// With small inodes, ext4 stores whole seconds in 32 bits.
const EXT4: (&str, &[&str]) = ("mkfs.ext4", &["-qF", "-I", "128"]);
/// FAT stores even seconds from 1980 on, and has no change time apart from the modification time.
const FAT: (&str, &[&str]) = ("mkfs.vfat", &[]);
/// exFAT stores multiples of 10 ms.
const EXFAT: (&str, &[&str]) = ("mkfs.exfat", &[]);

/// Mounts a new file system below `scratch`. If that fails, records a skip and returns `None`.
fn disk(test: &str, scratch: &Scratch, (maker, words): (&str, &[&str])) -> Option<MountedDisk> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "needs root");
        return None;
    }
    if !has_tools(test, &[maker]) {
        return None;
    }
    let (image, folder) = (scratch.join("image"), scratch.folder("disk"));
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run(Command::new(maker).args(words).arg(&image)).expect(0);
    let disk = MountedDisk::of_image(&image, &folder, "rw");
    disk.inspect_err(|why| skip(test, &format!("no {maker}: {why}"))).ok()
}

fn said(folder: &Path, line: &str) -> String {
    let ran = shell(folder, line);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    ran.expect(0);
    text
}

/// Copies a tree with these times, and checks that later copies skip all files.
fn expect_up_to_date(folder: &Path, times: &[&str]) {
    fs::create_dir(folder.join("s")).unwrap();
    for (number, time) in times.iter().enumerate() {
        said(folder, &format!("echo {number} >s/{number}; touch -d '{time}' s/{number}"));
    }
    said(folder, "$T copy -rp s/. disk/u; $T copy -rp s disk/r");
    for again in [
        "$T copy -rpuvv s/. disk/u",
        "$T copy -rpvv --resume s/. disk/r",
        "$T copy -pvv --resume s/* disk/r",
    ] {
        let ran = shell(folder, again);
        assert_eq!(ran.stdout, b"", "{again}: {}", ran.said());
        assert_eq!(ran.stderr.matches("skipped '").count(), times.len(), "{}", ran.said());
        ran.expect(0);
    }
}

#[test]
fn a_copy_with_whole_seconds_is_up_to_date() {
    let test = "a_copy_with_whole_seconds_is_up_to_date";
    let scratch = Scratch::new();
    let Some(_disk) = disk(test, &scratch, EXT4) else { return };
    let times =
        ["2024-01-01 00:00:00.7", "2024-01-01", "1969-12-31 23:59:58.5", "2100-01-01", "now"];
    expect_up_to_date(scratch.path(), &times);
    said(scratch.path(), "$T verify --attributes -T s disk/u && $T manifest -o m s --attributes");
    said(scratch.path(), "$T verify --attributes --manifest m disk/u");
    // Changes the file after it was copied.
    said(scratch.path(), "echo new >s/0; touch -d '2024-01-01 00:00:01' s/0");
    said(scratch.path(), "$T copy -rpu s/. disk/u; cmp s/0 disk/u/0");
    shell(
        scratch.path(),
        "touch -d '2023-12-31 23:59:59.9' disk/u/0; $T verify --attributes -T s disk/u",
    )
    .expect(1);
}

#[test]
fn a_copy_on_fat_or_exfat_is_up_to_date() {
    let test = "a_copy_on_fat_or_exfat_is_up_to_date";
    for kind in [FAT, EXFAT] {
        let scratch = Scratch::new();
        let Some(_disk) = disk(test, &scratch, kind) else { continue };
        let times = ["2024-01-01 00:00:01.7", "2024-01-01 00:00:00.019", "1970-01-01", "now"];
        expect_up_to_date(scratch.path(), &times);
    }
}

#[test]
fn a_precise_file_system_is_compared_precisely() {
    let scratch = Scratch::new();
    let line = "echo old >a; echo new >b; touch -d '2024-01-01' a; touch -d '2024-01-01 00:00:00.7' b; \
                $T copy -pu b a; cat a";
    assert_eq!(said(scratch.path(), line), "new\n");
    let line = "echo ol2 >a; touch -d '2024-01-01' a; $T copy -p --resume b a; cat a";
    assert_eq!(said(scratch.path(), line), "new\n");
    assert_eq!(names(scratch.path()), ["a", "b"]);
    shell(scratch.path(), "touch -d '2024-01-01' a; $T verify --attributes b a").expect(1);
}

#[test]
fn a_sync_between_machines_finds_a_copy_with_whole_seconds_up_to_date() {
    let test = "a_sync_between_machines_finds_a_copy_with_whole_seconds_up_to_date";
    over_each(test, |scratch, machine| {
        let Some(_disk) = disk(test, scratch, EXT4) else { return };
        let source = scratch.folder("s");
        for (name, time) in [("a", "2024-01-01 00:00:00.7"), ("b", "1969-12-31 23:59:58.5")] {
            said(&source, &format!("mkdir d{name}; echo x >d{name}/{name}; ln -s x l{name}"));
            said(&source, &format!("touch -hd '{time}' d{name}/{name} l{name} d{name}"));
        }
        for is_push in [false, true] {
            let dst = scratch.join(&format!("disk/{is_push}"));
            let both = BothWays { machine, source: source.clone(), is_push };
            assert!(!lines(&both.sync(&["-i"], &dst).expect(0)).is_empty());
            let again = lines(&both.sync(&["-i"], &dst).expect(0));
            assert!(again.is_empty(), "push {is_push}: {again:?}");
            said(&source, "touch -d '2024-01-01 00:00:01.2' da/a");
            let changed = lines(&both.sync(&["-i"], &dst).expect(0));
            assert_eq!(changed.len(), 1, "push {is_push}: {changed:?}");
            said(&source, "touch -d '2024-01-01 00:00:00.7' da/a");
        }
    });
}

#[test]
fn a_renamed_file_with_a_coarse_time_is_not_sent_again() {
    const LEN: u64 = 2 << 20;
    let test = "a_renamed_file_with_a_coarse_time_is_not_sent_again";
    for kind in [EXT4, FAT] {
        over_each(test, |scratch, machine| {
            let Some(_disk) = disk(test, scratch, kind) else { return };
            let machine = &machine.through(counting(scratch, &machine.rsh));
            let source = scratch.folder("s");
            bytes::write(&source.join("a"), 1, LEN);
            said(&source, "touch -d '2024-01-01 00:00:01.7' a");
            for is_push in [false, true] {
                let dst = scratch.join(&format!("disk/{is_push}"));
                let both = BothWays { machine, source: source.clone(), is_push };
                both.sync(&[], &dst).expect(0);
                said(&source, "mv a b");
                counted(scratch);
                both.sync(&["--delete"], &dst).expect(0);
                let sent = counted(scratch);
                assert!(sent < LEN / 8, "{kind:?}, push {is_push}: {sent} bytes");
                assert_eq!(names(&dst), [STATE, "b"]);
                bytes::expect(&dst.join("b"), 1, LEN);
                said(&source, "mv b a");
            }
        });
    }
}
