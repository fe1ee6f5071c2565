//! Syncs in which `strace` makes random calls fail, locally or at either end of a connection. No entry of the source
//! may disappear from the destination, and exit status 0 means that both are equal.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};
use thalweg_testing::{Dice, from_env};

use crate::{
    support::{Scratch, run, shell, skip::has_tools, sshd::OtherMachine, thalweg},
    sync_trees::{TreeRecord, edit, record},
};

/// Calls that list, examine, open, create, name and remove entries.
const CALLS: [&str; 10] = [
    "getdents64",
    "statx,newfstatat",
    "openat,openat2",
    "fstat",
    "fstatfs",
    "renameat2,linkat",
    "unlinkat",
    "utimensat",
    "flistxattr,llistxattr,fgetxattr",
    "mkdirat,symlinkat",
];
const ERRORS: [&str; 5] = ["EIO", "EACCES", "ENOENT", "ESTALE", "ENOMEM"];

/// Returns the command under strace, which makes one kind of call fail once or repeatedly.
fn failing(dice: &mut Dice, command: &Command) -> Command {
    let mut choose = |of: &[&str]| of[dice.below(of.len() as u64) as usize].to_owned();
    let (calls, error) = (choose(&CALLS), choose(&ERRORS));
    let (first, again) = (1 + dice.below(80), 1 + dice.below(20));
    let when = if dice.below(2) == 0 { first.to_string() } else { format!("{first}+{again}") };
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={calls}"));
    traced.arg("-e").arg(format!("inject={calls}:error={error}:when={when}"));
    traced.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// The connection between the source and the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Local,
    Push,
    Pull,
}

fn command(way: Way, machine: &OtherMachine, source: &Path, copy: &Path) -> Command {
    let words = ["--delete"];
    match way {
        Way::Local => {
            let mut command = thalweg();
            command.arg("sync").args(words).args([source, copy]);
            command
        }
        Way::Push => {
            let mut command = machine.run("sync", &words);
            command.arg(source).arg(machine.at(copy));
            command
        }
        Way::Pull => {
            let mut command = machine.run("sync", &words);
            command.arg(machine.at(source)).arg(copy);
            command
        }
    }
}

fn paths(tree: &TreeRecord) -> BTreeSet<&PathBuf> {
    let is_own = |path: &&PathBuf| !path.to_string_lossy().contains(".thalweg-");
    tree.entries.keys().filter(is_own).collect()
}

#[test]
fn calls_that_fail_at_random_cost_the_destination_nothing() {
    let test = "calls_that_fail_at_random_cost_the_destination_nothing";
    if !has_tools(test, &["strace"]) {
        return;
    }
    let mut dice = Dice::fixed(test, 39);
    let mut successes = 0;
    for case in 0..from_env("THALWEG_CASES", 50) {
        let scratch = Scratch::new();
        let machine = OtherMachine::by_script(scratch.path());
        let [source, copy] = ["source", "copy"].map(|name| scratch.folder(name));
        edit(&mut dice, &source, 60);
        shell(scratch.path(), "cp -a source/. copy").expect(0);
        edit(&mut dice, &copy, 20);
        edit(&mut dice, &source, 5);
        let (before, wanted) = (record(&copy), record(&source));
        let way = [Way::Local, Way::Local, Way::Push, Way::Pull][dice.below(4) as usize];
        let mut traced = failing(&mut dice, &command(way, &machine, &source, &copy));
        let ran = run(&mut traced).expect_no_panic();
        let after = record(&copy);
        let what = || format!("case {case}, {way:?}: {traced:?}\n{}", ran.said());
        assert_eq!(record(&source), wanted, "{}", what());
        let (old, new, now) = (paths(&before), paths(&wanted), paths(&after));
        // thalweg deletes a directory before another entry replaces it. If the copy of this entry fails, only the next
        // run creates it.
        let is_replaced = |path: &PathBuf| {
            before.entries[path].is_directory() && !wanted.entries[path].is_directory()
        };
        let lost = old.intersection(&new).filter(|path| !now.contains(*path) && !is_replaced(path));
        let lost: Vec<_> = lost.collect();
        assert!(lost.is_empty(), "{lost:?}: {}", what());
        if ran.status.code() == Some(0) {
            successes += 1;
            assert_eq!(now, new, "{}", what());
            assert!(way != Way::Local || after == wanted, "{}", what());
        }
    }
    eprintln!("{test}: {successes} ended with exit status 0");
}
