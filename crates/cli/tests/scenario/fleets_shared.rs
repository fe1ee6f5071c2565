//! Ranks of `copy --shard` on file systems that machines share: without locks, O_TMPFILE and RENAME_NOREPLACE, with
//! cached attributes, and with different clocks.

use rustix::{
    fs::{FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat_with},
    io::Errno,
    process::Signal,
};
use std::{fs, path::Path, process::Command, thread, time::Duration};

use crate::support::{
    Running, Scratch,
    fleet::{
        SHARD, expect_copied, fleet, has_plan, number, of_fleet, plant, rank, start_slowly, status,
    },
    fuse::shared::SharedMount,
    run,
    run::wrapped,
    skip,
    skip::{has_tools, is_root},
    thalweg,
};
use thalweg_testing::{Dice, from_env};

/// Makes a directory, and mounts it once for each machine. Records a skip without FUSE.
fn machines(test: &str, count: usize) -> Option<(Scratch, Vec<SharedMount>)> {
    let shared = Scratch::new();
    plant(shared.path());
    let mounts: Option<Vec<_>> = (0..count).map(|_| SharedMount::of(test, shared.path())).collect();
    Some((shared, mounts?))
}

/// Starts a rank on each of these machines.
fn on_each(mounts: &[SharedMount], options: &[&str]) -> Vec<Running> {
    let size = mounts.len() as u64;
    let start = |(n, mount): (u64, &SharedMount)| {
        Running::start(&mut rank(mount.folder(), n, size, options))
    };
    (0..).zip(mounts).map(start).collect()
}

/// Checks that the file system refuses O_TMPFILE, locks and RENAME_NOREPLACE.
fn expect_little(folder: &Path) {
    let dir = fs::File::open(folder).unwrap();
    let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o600));
    assert_eq!(openat(&dir, ".", flags, mode).err(), Some(Errno::OPNOTSUPP));
    let file = fs::File::create(folder.join("tried")).unwrap();
    let lock = flock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(lock.err(), Some(Errno::NOLCK));
    let renamed = renameat_with(&dir, "tried", &dir, "again", RenameFlags::NOREPLACE);
    assert_eq!(renamed.err(), Some(Errno::INVAL));
    fs::remove_file(folder.join("tried")).unwrap();
}

#[test]
fn a_folder_without_locks_and_with_old_attributes_gets_the_whole_tree() {
    let test = "a_folder_without_locks_and_with_old_attributes_gets_the_whole_tree";
    let Some((shared, mounts)) = machines(test, 3) else { return };
    expect_little(mounts[0].folder());
    let said: Vec<_> =
        on_each(&mounts, &[]).into_iter().map(|one| one.finish().expect(0).json()).collect();
    assert!(said.iter().any(|said| of_fleet(said, "end") == "finished"), "{said:?}");
    expect_copied(shared.path());
}

#[test]
fn machines_that_die_over_such_a_folder_are_followed_and_no_byte_is_wrong() {
    let test = "machines_that_die_over_such_a_folder_are_followed_and_no_byte_is_wrong";
    let mut dice = Dice::new(test);
    let kills = from_env("THALWEG_KILLS", 2);
    let mut landed = 0;
    while landed < kills {
        let Some((shared, mounts)) = machines(test, 3) else { return };
        let mut all = on_each(&mounts, &["--limit=4M", "--jobs=2"]);
        while !has_plan(shared.path()) && !all[0].has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(dice.within(0..900)));
        let (which, all_die) = (dice.within(0..3) as usize, dice.within(0..2) == 0);
        for (n, one) in all.iter_mut().enumerate() {
            if (n == which || all_die) && !one.has_ended() {
                one.signal(Signal::KILL);
                landed += 1;
            }
        }
        for one in all {
            let ran = one.finish();
            assert!(matches!(ran.status.code(), None | Some(0)), "{}", ran.said());
        }
        for one in on_each(&mounts[1..], &[]) {
            one.finish().expect(0);
        }
        expect_copied(shared.path());
    }
}

#[test]
fn a_dead_finisher_is_replaced_on_a_file_system_without_locks() {
    let test = "a_dead_finisher_is_replaced_on_a_file_system_without_locks";
    let Some((shared, mounts)) = machines(test, 2) else { return };
    // The finisher, the rank that completes the copy, copies files with several names. With this rate limit, it needs
    // some time for a large file.
    let large = shared.join("tree/folder-0/deeper/large");
    fs::hard_link(&large, shared.join("tree/folder-1/twin")).unwrap();
    let mut one = on_each(&mounts[..1], &["--limit=2M"]).remove(0);
    let finisher = shared.join(".copy.thalweg-fleet/finisher");
    while !finisher.exists() {
        assert!(!one.has_ended(), "over before it was killed");
        thread::sleep(Duration::from_millis(1));
    }
    one.signal(Signal::KILL);
    assert!(one.finish().status.code().is_none());
    let said = run(&mut rank(mounts[1].folder(), 0, 1, &[])).expect(0).json();
    assert_eq!(of_fleet(&said, "end"), "finished");
    expect_copied(shared.path());
}

#[test]
fn clocks_an_hour_apart_change_nothing() {
    let test = "clocks_an_hour_apart_change_nothing";
    if !has_tools(test, &["faketime"]) {
        return;
    }
    let shifted = |by: &str| {
        let mut command = wrapped(&["faketime", "-f", by]);
        // Shifts only the wall clock. The monotonic clock and the times of files stay correct.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        command
    };
    let scratch = Scratch::new();
    plant(scratch.path());
    let slow = ["--limit=2500K", "--jobs=2"];
    let behind = |rank: &str, options: &[&str]| {
        let mut command = shifted("-1h");
        command.args(["copy", "-a", "--json", SHARD, "--shard", rank]).args(options);
        command.args(["tree", "copy"]).current_dir(scratch.path());
        Running::start(&mut command)
    };
    let mut ahead = rank(scratch.path(), 1, 2, &slow);
    let mut all = [behind("0/2", &slow), Running::start(&mut ahead)];
    let mut seen = Vec::new();
    while !scratch.join("copy").exists() {
        let is_over = all.iter_mut().all(Running::has_ended);
        assert!(!is_over || scratch.join("copy").exists(), "no rank completed the copy");
        let fleet = |mut command: Command| {
            run(command.args(["fleet", "--json", "copy"]).current_dir(scratch.path()))
        };
        for command in [shifted("-1h"), thalweg(), shifted("+1h")] {
            let ran = fleet(command);
            if ran.code() == 0 {
                seen.push(ran.all_json());
            }
        }
    }
    for one in all {
        one.finish().expect(0);
    }
    expect_copied(scratch.path());
    let mut done = 0;
    for status in seen {
        assert!(number(&status["done"]) >= done, "{status}");
        done = number(&status["done"]);
        for worker in status["workers"].as_array().unwrap() {
            let (seconds, silent) = (&worker["seconds"], &worker["silent"]);
            assert!(seconds.as_f64().is_some_and(|s| (0.0..600.0).contains(&s)), "{worker}");
            // `silent` is measured by the clock of the observer. If that clock is behind, no worker seems silent.
            assert!(silent.as_f64().is_some_and(|s| (0.0..4200.0).contains(&s)), "{worker}");
        }
    }
    assert!(done > 0, "nobody looked while they worked");
}

/// Exports a directory with NFS, and mounts it on this machine. Returns the reason if that fails.
fn mount_nfs(exported: &Path, at: &Path) -> Result<(), String> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = |name: &str| known.lines().any(|line| line.ends_with(&format!("\t{name}")));
    for module in ["nfs4", "nfsd"] {
        let loaded = Command::new("modprobe").arg(module.trim_end_matches('4')).output();
        if !is_known(module) && !loaded.is_ok_and(|ran| ran.status.success()) {
            return Err(format!("this kernel has no {module}"));
        }
    }
    let line = "exportfs -o rw,no_root_squash,insecure,fsid=77 \"127.0.0.1:$1\" && mount -t nfs4 -o vers=4.2 \"127.0.0.1:$1\" \"$2\"";
    let ran = Command::new("bash").args(["-c", line, "bash"]).args([exported, at]).output();
    match ran {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn over_nfs_ranks_copy_the_whole_tree() {
    let test = "over_nfs_ranks_copy_the_whole_tree";
    if !is_root(test) {
        return;
    }
    let (exported, at) = (Scratch::new(), Scratch::new());
    if let Err(why) = mount_nfs(exported.path(), at.path()) {
        return skip(test, &format!("no NFS over loopback: {why}"));
    }
    plant(exported.path());
    let mut all = start_slowly(at.path(), 3, &[]);
    drop(all[2].child().kill());
    all.into_iter().take(2).for_each(|one| drop(one.finish().expect(0)));
    let left = status(at.path());
    fleet(at.path(), 2, &[]);
    let umount = run(Command::new("umount").arg(at.path()));
    run(Command::new("exportfs").arg("-u").arg(format!("127.0.0.1:{}", exported.path().display())));
    umount.expect(0);
    assert!(left.is_none(), "{left:?}");
    expect_copied(exported.path());
}
