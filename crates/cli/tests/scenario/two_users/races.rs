//! Races against the other user, many rounds each. `THALWEG_RACES=10000` makes them longer.

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    arena::{Arena, chmod},
    attacker::{Race, as_attacker},
    check::outside,
    commands::Row,
    lurker::Lurker,
    product::{Kernel, spring},
    swaps,
    traps::Trap,
};
use crate::support::{Scratch, run, skip::is_root, sshd::OtherMachine};
use thalweg_testing::from_env;

/// Rounds of each race in `make test`, as a smoke test.
const FEW: u64 = 3;

fn rounds() -> u64 {
    from_env("THALWEG_RACES", FEW)
}

/// Runs the commands in turn while a thread of the attacker swaps entries.
fn race(test: &str, trap: &str, rows: &[&str]) {
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    if rows.contains(&"report") {
        arena.save_result();
    }
    for (round, row) in (0..rounds()).zip(rows.iter().cycle()) {
        let wrong = spring(&arena, Row::named(row), Trap::named(trap), Kernel::Usual);
        let wrong = wrong.unwrap().wrong;
        assert!(wrong.is_empty(), "round {round}, {row} / {trap}: {wrong:#?}");
    }
    eprintln!("{test}: {} rounds", rounds());
}

#[test]
fn a_part_that_is_swapped_gains_nothing() {
    let rows = ["copy --resume", "fetch --sha256", "copy into", "fetch here"];
    race("a_part_that_is_swapped_gains_nothing", "part swapped", &rows);
}

#[test]
fn a_journal_that_is_swapped_gains_nothing() {
    let rows = ["copy --resume", "fetch"];
    race("a_journal_that_is_swapped_gains_nothing", "journal swapped", &rows);
}

#[test]
fn a_staging_directory_that_is_swapped_gains_nothing() {
    let rows = ["copy --resume tree", "fetch -r", "copy -a tree", "fetch -r -a"];
    race("a_staging_directory_that_is_swapped_gains_nothing", "staging directory swapped", &rows);
}

#[test]
fn a_fleet_directory_that_is_swapped_gains_nothing() {
    let test = "a_fleet_directory_that_is_swapped_gains_nothing";
    race(test, "fleet directory swapped", &["copy --shard"]);
}

#[test]
fn a_destination_that_becomes_a_symbolic_link_between_two_looks_gains_nothing() {
    let test = "a_destination_that_becomes_a_symbolic_link_between_two_looks_gains_nothing";
    race(
        test,
        "target swapped",
        &["copy", "fetch", "manifest", "receive", "report", "copy --resume"],
    );
}

/// Copies into a directory of the attacker while the attacker replaces entries. Root's files elsewhere must not change,
/// and the attacker must not read secrets. The final content of the directory is not checked.
fn copy_into_their_directory(
    test: &str,
    line: &str,
    arena: &Arena,
    swap: fn(PathBuf, &Arena) -> Race,
) {
    let (mut swaps, rounds) = (0, rounds());
    for round in 0..rounds {
        arena.reset();
        let tree = arena.d().join("tree");
        as_attacker(|| {
            fs::create_dir(&tree).unwrap();
            chmod(&tree, 0o777);
        });
        let before = outside(arena);
        let (racing, lurker) = (swap(tree, arena), Lurker::start(&arena.d()));
        let ran = arena.run(line);
        swaps += racing.steps();
        racing.stop();
        let stolen = lurker.stop();
        assert!(stolen.is_empty(), "round {round}: {stolen:#?}");
        assert_ne!(ran.status.code(), Some(124), "round {round} hangs: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked at"), "round {round}: {}", ran.stderr);
        assert_eq!(outside(arena), before, "round {round}: {}", ran.stderr);
    }
    eprintln!("{test}: {rounds} rounds, {swaps} swaps");
}

#[test]
fn a_fifo_that_is_swapped_for_a_link_does_not_change_the_mode_of_a_file_of_root() {
    let test = "a_fifo_that_is_swapped_for_a_link_does_not_change_the_mode_of_a_file_of_root";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let source = arena.own("special");
    fs::create_dir(&source).unwrap();
    for n in 0..SPECIAL {
        let (kind, device) = match n % 2 {
            0 => (FileType::Fifo, 0),
            // A device that does nothing: /dev/null.
            _ => (FileType::CharacterDevice, makedev(1, 3)),
        };
        let path = source.join(n.to_string());
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device).unwrap();
        chmod(&path, 0o666);
    }
    copy_into_their_directory(test, "$T copy -aT $OWN/special $D/tree", &arena, |tree, arena| {
        let secret = arena.canary().join("secret");
        let mut turn = 0;
        Race::start(move || {
            turn = (turn + 1) % SPECIAL;
            let path = tree.join(turn.to_string());
            if fs::remove_file(&path).is_ok() {
                let _ = symlink(&secret, &path);
            }
        })
    });
}

/// Number of FIFOs and devices in the source tree.
const SPECIAL: u64 = 20;

#[test]
fn a_copy_into_a_directory_of_another_user_changes_nothing_elsewhere() {
    let test = "a_copy_into_a_directory_of_another_user_changes_nothing_elsewhere";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    copy_into_their_directory(test, "$T copy -aT $OWN/tree $D/tree", &arena, |tree, arena| {
        swaps::entries_for_links(tree, arena.canary())
    });
}

/// Makes extra entries, which a sync of root's tree deletes, and replaces every entry with a symbolic link.
fn extra_entries_for_links(tree: PathBuf, arena: &Arena) -> Race {
    // Root's directory has entries with these names, too, which a deletion through a link would remove.
    as_attacker(|| {
        for extra in 0..20 {
            let folder = tree.join(format!("extra{extra}"));
            fs::create_dir_all(folder.join("folder")).unwrap();
            for name in ["inside", "secret", "config", "folder/inside"] {
                fs::write(folder.join(name), "").unwrap();
            }
        }
    });
    swaps::entries_for_links(tree, arena.canary())
}

#[test]
fn a_deletion_in_a_directory_of_another_user_deletes_nothing_elsewhere() {
    let test = "a_deletion_in_a_directory_of_another_user_deletes_nothing_elsewhere";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    for line in [
        "$T sync --delete --force $OWN/tree $D/tree",
        "$T sync --delete --force --trash $D/trash $OWN/tree $D/tree",
    ] {
        copy_into_their_directory(test, line, &arena, extra_entries_for_links);
    }
}

#[test]
fn a_sync_over_a_connection_into_a_directory_of_another_user_changes_nothing_elsewhere() {
    let test =
        "a_sync_over_a_connection_into_a_directory_of_another_user_changes_nothing_elsewhere";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let (_there, over_connection) = other_machine();
    for ends in ["$OWN/tree elsewhere:$D/tree", "elsewhere:$OWN/tree $D/tree"] {
        let line = format!("{over_connection} --delete --force {ends}");
        copy_into_their_directory(test, &line, &arena, extra_entries_for_links);
    }
}

/// Returns a command that syncs with a simulated other machine, and the directory of the script that connects.
fn other_machine() -> (Scratch, String) {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let line = format!("$T sync -e {} --remote-program=$PROGRAM", machine.rsh.display());
    (scratch, line)
}

/// Copies from a directory of the attacker while the attacker exchanges entries and symbolic links. Targets of the
/// links must not be copied or deleted.
fn read_their_directory(test: &str, line: &str, arena: &Arena) {
    let (mut swaps, rounds) = (0, rounds());
    let copy = Scratch::within(Path::new("/dev/shm"));
    let line = line.replace("$COPY", &copy.join("copy").display().to_string());
    for round in 0..rounds {
        arena.reset();
        drop(fs::remove_dir_all(copy.join("copy")));
        let tree = arena.d().join("tree");
        let pairs = as_attacker(|| swaps::plant_pairs(&tree, &arena.canary()));
        let before = outside(arena);
        let racing = swaps::exchange_pairs(pairs);
        let ran = arena.run(&line);
        swaps += racing.steps();
        racing.stop();
        assert_ne!(ran.status.code(), Some(124), "round {round} hangs: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked at"), "round {round}: {}", ran.stderr);
        assert_eq!(outside(arena), before, "round {round}: {}", ran.stderr);
        let mut grep = Command::new("grep");
        let found = run(grep.args(["-rlE", "SECRET|root's"]).arg(copy.path()));
        assert_eq!(found.stdout, b"", "round {round}: {}", String::from_utf8_lossy(&found.stdout));
    }
    eprintln!("{test}: {rounds} rounds, {swaps} swaps");
}

#[test]
fn a_source_of_another_user_leads_to_no_file_of_root() {
    let test = "a_source_of_another_user_leads_to_no_file_of_root";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let (_there, over_connection) = other_machine();
    for line in [
        "$T sync --delete $D/tree $COPY".to_owned(),
        "$T move $D/tree $COPY".to_owned(),
        format!("{over_connection} --delete $D/tree elsewhere:$COPY"),
        format!("{over_connection} --delete elsewhere:$D/tree $COPY"),
    ] {
        read_their_directory(test, &line, &arena);
    }
}
