//! Copies after a restart of the machine: thalweg must not trust data of earlier boots. Namespaces make the command see
//! a recent boot with another boot id.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::support::{
    Running, Scratch, bytes,
    fleet::{listing, manifest, plant_some, rank},
    names, run,
    run::wrapped,
    skip,
    skip::{has_tools, is_root},
    thalweg,
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// With this option, unmounts of other tests also reach the namespace, which would otherwise keep their file systems
/// mounted.
const SLAVE: &str = "--propagation=slave";

/// Returns the command as on a machine that booted a second ago. Returns `None` if the test cannot create the
/// namespaces for this.
fn after_a_restart(scratch: &Scratch, test: &str) -> Option<Command> {
    if !is_root(test) || !has_tools(test, &["unshare"]) {
        return None;
    }
    let id = scratch.join(".boot_id");
    fs::write(&id, "11111111-2222-3333-4444-555555555555\n").expect("a boot id");
    let up = fs::read_to_string("/proc/uptime").expect("/proc/uptime");
    let up: u64 = up.split('.').next().and_then(|up| up.parse().ok()).expect("seconds");
    let offset = format!("--boottime=-{}", up.saturating_sub(1));
    let script = format!("mount --bind '{}' {BOOT_ID} && exec \"$@\"", id.display());
    let words = ["unshare", "--mount", SLAVE, "--time", &offset, "sh", "-c", &script, "sh"];
    let probe = Command::new(words[0]).args(&words[1..]).arg("true").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip(test, "no time and mount namespaces");
        return None;
    }
    Some(wrapped(&words))
}

/// Replaces the data of a file with zeros, and keeps its size and time, as a power cut may.
fn lose_data(path: &Path) {
    let file = File::options().write(true).open(path).expect("a copy");
    let meta = file.metadata().expect("fstat");
    file.write_all_at(&vec![0; meta.len() as usize], 0).expect("zeros");
    file.set_modified(meta.modified().expect("a time")).expect("futimens");
}

/// Waits, so that the simulated boot of the next command is later than all writes.
fn a_moment_passes() {
    thread::sleep(Duration::from_millis(2100));
}

#[test]
fn after_a_restart_files_of_earlier_boots_are_compared_with_their_sources() {
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("lost"), vec![7; 100_000]).expect("a file");
    fs::write(source.join("kept"), vec![8; 3_000_000]).expect("a file");
    run(thalweg().args(["copy", "-a"]).args([&source, &copy])).expect(0);
    lose_data(&copy.join("lost"));
    a_moment_passes();
    let words = ["copy", "-aT", "--resume", "--json"];
    // In the same boot, thalweg trusts the page cache and does not read the copy again.
    let account = run(thalweg().args(words).args([&source, &copy])).expect(0).json();
    assert_eq!(account["files"], 0);
    let test = "files of earlier boots are compared";
    let Some(mut command) = after_a_restart(&scratch, test) else { return };
    let ran = run(command.args(words).args([&source, &copy])).expect(0);
    ran.expect_said("copied again");
    assert_eq!(ran.json()["files"], 1);
    run(Command::new("diff").arg("-r").args([&source, &copy])).expect(0);
}

/// Calls `each` for every file below a directory.
fn files(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        if entry.file_type().expect("a type").is_dir() {
            files(&entry.path(), each);
        } else {
            each(&entry.path());
        }
    }
}

/// Kills the only worker of a fleet when its journal has three tasks. Returns the directory of the fleet.
fn killed_after_three_tasks(scratch: &Scratch) -> PathBuf {
    let mut one = Running::start(rank(scratch.path(), 0, 1, &["--limit=1M"]).arg("--quiet"));
    let fleet = scratch.join(".copy.thalweg-fleet");
    let is_journal = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("journal.")
            && entry.metadata().is_ok_and(|meta| meta.len() >= 4 * 69)
    };
    while !fs::read_dir(&fleet).is_ok_and(|all| all.flatten().any(|entry| is_journal(&entry))) {
        assert!(!one.has_ended(), "over before there was a journal");
        thread::sleep(Duration::from_millis(2));
    }
    one.child().kill().expect("a kill");
    drop(one.finish());
    fleet
}

/// The rank that completes the copy (the finisher) publishes a large file when the journals contain all of its tasks. A
/// power cut may undo a journal entry but not the rename. A worker may then have started another partial file, which
/// has holes.
#[test]
fn a_large_file_that_was_placed_is_completed_or_kept_and_not_replaced_by_a_part() {
    for is_whole in [false, true] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.join("tree")).expect("mkdir");
        bytes::write(&scratch.join("tree/large"), 5, 8 << 20);
        let fleet = killed_after_three_tasks(&scratch);
        let parts = names(&fleet.join("parts"));
        assert_eq!(parts.len(), 1, "{parts:?}");
        let placed = fleet.join("tree/large");
        if is_whole {
            run(thalweg().args(["copy", "-a"]).args([&scratch.join("tree/large"), &placed]))
                .expect(0);
        } else {
            fs::rename(fleet.join("parts").join(&parts[0]), &placed).expect("rename");
        }
        // The published file has a mode with which its owner may not write it, as a source may have.
        fs::set_permissions(&placed, fs::Permissions::from_mode(0o400)).expect("chmod");
        run(&mut rank(scratch.path(), 0, 1, &[])).expect(0);
        assert_eq!(manifest(&scratch.join("copy")), manifest(&scratch.join("tree")));
        assert_eq!(listing(&scratch.join("copy")), listing(&scratch.join("tree")));
        assert_eq!(names(scratch.path()), ["copy", "tree"]);
    }
}

#[test]
fn after_a_restart_the_tasks_of_a_worker_are_done_again() {
    let scratch = Scratch::new();
    plant_some(scratch.path(), 2, 4 << 20);
    let fleet = killed_after_three_tasks(&scratch);
    let mut lost = 0;
    for folder in ["tree", "parts"] {
        files(&fleet.join(folder), &mut |path| {
            lose_data(path);
            lost += 1;
        });
    }
    assert!(lost > 0);
    a_moment_passes();
    let Some(mut command) = after_a_restart(&scratch, "tasks of an earlier boot") else { return };
    let words = ["copy", "-a", "--json", "--shard", "0/1", "tree", "copy"];
    let account = run(command.args(words).current_dir(scratch.path())).expect(0).json();
    assert_eq!(account["error"], serde_json::Value::Null, "{account}");
    assert_eq!(manifest(&scratch.join("copy")), manifest(&scratch.join("tree")));
}
