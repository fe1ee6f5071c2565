//! Copies of a changed file over ssh, in both directions: thalweg sends only the ranges that differ.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};
use thalweg_testing::{Dice, Sample, script};

use crate::{
    remote_copies::over_each,
    support::{
        Running, Scratch, bytes, names, run, scratch::unfinished, skip::has_tools,
        sshd::OtherMachine,
    },
};

const LEN: u64 = 64 << 20;

/// Makes a command that connects as `rsh` does, and counts the bytes in both directions.
pub fn counting(scratch: &Scratch, rsh: &Path) -> PathBuf {
    let counting = scratch.join("counting");
    let (up, down) = (scratch.join("up"), scratch.join("down"));
    let text = format!(
        "#!/bin/sh\ntee -a '{}' | '{}' \"$@\" | tee -a '{}'\n",
        up.display(),
        rsh.display(),
        down.display()
    );
    script(&counting, &text);
    counting
}

/// Returns the number of counted bytes, and resets it.
pub fn counted(scratch: &Scratch) -> u64 {
    let files = ["up", "down"].map(|name| scratch.join(name));
    let bytes = files.iter().map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum();
    for file in files {
        drop(fs::remove_file(file));
    }
    bytes
}

/// Changes one percent of a file in blocks of this size at random offsets.
fn change(file: &Path, block: u64, dice: &mut Dice) {
    for n in 0..LEN / 100 / block {
        let at = dice.below(LEN - block);
        bytes::write_at(file, 100 + n, at, block as usize);
    }
}

/// Returns the bytes that rsync sends and receives for this change.
fn by_rsync(scratch: &Scratch, source: &Path, old: &Path) -> u64 {
    let copy = scratch.join("by-rsync");
    fs::create_dir_all(&copy).unwrap();
    fs::write(copy.join("file"), fs::read(old).unwrap()).unwrap();
    let mut rsync = Command::new("rsync");
    rsync
        .args(["-a", "--no-whole-file", "--stats", "--ignore-times"])
        .arg(source)
        .arg(copy.join("file"));
    let ran = run(&mut rsync).expect(0);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let total = |what: &str| {
        let line = text.lines().find(|line| line.starts_with(what)).expect("a figure");
        line.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    total("Total bytes sent:") + total("Total bytes received:")
}

#[test]
fn a_changed_file_costs_no_more_bytes_than_with_rsync() {
    let test = "a_changed_file_costs_no_more_bytes_than_with_rsync";
    if !has_tools(test, &["rsync"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut machine = OtherMachine::by_script(scratch.path());
    machine.rsh = counting(&scratch, &machine.rsh);
    let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
    let mut dice = Dice::seeded(7);
    for block in [4 << 10, 64 << 10, 600 << 10] {
        bytes::write(&dst.join("file"), 1, LEN);
        fs::write(source.join("file"), fs::read(dst.join("file")).unwrap()).unwrap();
        change(&source.join("file"), block, &mut dice);
        let theirs = by_rsync(&scratch, &source.join("file"), &dst.join("file"));
        counted(&scratch);
        run(machine.run("sync", &[]).arg(machine.at(&source)).arg(&dst)).expect(0);
        let ours = counted(&scratch);
        run(Command::new("cmp").arg(source.join("file")).arg(dst.join("file"))).expect(0);
        assert_eq!(names(&dst), ["file"]);
        let context = format!("blocks of {block}: {ours} bytes, rsync {theirs}");
        eprintln!("{context}");
        assert!(ours * 10 <= theirs * 11, "{context}");
    }
}

#[test]
fn many_changes_are_sent_to_another_machine() {
    over_each("many_changes_are_sent_to_another_machine", |scratch, machine| {
        let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
        bytes::write(&dst.join("file"), 1, LEN);
        fs::write(source.join("file"), fs::read(dst.join("file")).unwrap()).unwrap();
        change(&source.join("file"), 1 << 10, &mut Dice::seeded(8));
        run(machine.run("sync", &[]).arg(&source).arg(machine.at(&dst))).expect(0);
        run(Command::new("cmp").arg(source.join("file")).arg(dst.join("file"))).expect(0);
        assert_eq!(names(&dst), ["file"]);
    });
}

#[test]
fn blocks_are_found_where_they_moved_and_the_new_file_is_right() {
    over_each("blocks_are_found_where_they_moved", |scratch, machine| {
        let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
        let counted_machine = machine.through(counting(scratch, &machine.rsh));
        let old = bytes::of(1, 24 << 20);
        let cases: [(&str, Vec<u8>); 5] = [
            ("inserted at the start", [b"new", &old[..]].concat()),
            ("removed at the start", old[12_345..].to_vec()),
            ("swapped", [&old[12 << 20..], &old[..12 << 20]].concat()),
            ("twice", [&old[..], &old[..]].concat()),
            ("nothing in common", bytes::of(2, 24 << 20)),
        ];
        for (what, new) in Sample::new("blocks_are_found_where_they_moved", 3).of(cases) {
            fs::write(dst.join("file"), &old).unwrap();
            fs::write(source.join("file"), &new).unwrap();
            fs::set_permissions(source.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
            run(machine.copy(&["-a"]).arg(source.join("file")).arg(machine.at(&dst))).expect(0);
            assert!(fs::read(dst.join("file")).unwrap() == new, "push: {what}");
            fs::write(dst.join("file"), &old).unwrap();
            let mut pull = counted_machine.copy(&["-a"]);
            run(pull.arg(machine.at(source.join(""))).arg(&dst)).expect(0);
            assert!(fs::read(dst.join("file")).unwrap() == new, "pull: {what}");
            // If a block had been written to a wrong offset, the whole file would have been sent.
            let sent = counted(scratch);
            assert!(sent < 1 << 20 || what == "nothing in common", "pull: {what}: {sent} bytes");
            let mode = fs::metadata(dst.join("file")).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o640, "{what}");
            assert_eq!(names(&dst), ["file"], "{what}");
        }
    });
}

#[test]
fn a_kill_leaves_the_old_file_and_the_same_command_completes_the_new_one() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (source, dst) = (scratch.folder("source"), scratch.folder("dst"));
    for milliseconds in [0, 100, 400] {
        bytes::write(&dst.join("file"), 1, LEN);
        bytes::write(&source.join("file"), 1, LEN);
        change(&source.join("file"), 64 << 10, &mut Dice::seeded(milliseconds));
        let command = |words: &[&str]| {
            let mut command = machine.run("sync", words);
            command.arg(machine.at(&source)).arg(&dst);
            command
        };
        let mut running = Running::start(&mut command(&["--limit=128K"]));
        running.wait_until_open(|path| path.to_string_lossy().contains("thalweg-part"));
        thread::sleep(Duration::from_millis(milliseconds));
        drop(running.child().kill());
        running.finish();
        bytes::expect(&dst.join("file"), 1, LEN);
        run(&mut command(&[])).expect(0);
        run(Command::new("cmp").arg(source.join("file")).arg(dst.join("file"))).expect(0);
        assert_eq!(unfinished(&dst), Vec::<PathBuf>::new());
    }
}
