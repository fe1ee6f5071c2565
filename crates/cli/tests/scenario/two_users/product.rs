//! Combines every command that creates files with the traps of the other user. Each run tries a random part of the
//! traps with each command; `THALWEG_SAMPLE=1` tries all.

use super::{
    arena::Arena,
    attacker::as_attacker,
    check::{Case, entries, outside},
    commands::{ROWS, Row},
    lurker::Lurker,
    traps::{Held, Place, TRAPS, Trap},
    victim::Victim,
};
use crate::support::{
    Ran,
    deny::{NAMELESS, run_without},
    skip,
    skip::is_root,
};
use thalweg_testing::{Dice, sample_share};

/// Features of the kernel that the command can use.
#[derive(Clone, Copy)]
pub enum Kernel {
    Usual,
    /// The kernel refuses O_TMPFILE, as on NFS, so every command writes a partial file.
    NoTmpfile,
}

/// The result of a command that ran while a trap was laid, and the problems that were found.
pub struct Sprung {
    pub ran: Ran,
    pub wrong: Vec<String>,
}

/// Lays one trap, runs one command, and judges the result.
pub fn spring(arena: &Arena, row: &Row, trap: &Trap, kernel: Kernel) -> Result<Sprung, String> {
    arena.reset();
    let victim = Victim::of(arena, row);
    let mut held = Held::default();
    as_attacker(|| (trap.lay)(&victim, &mut held));
    let case = Case {
        arena,
        row,
        before: entries(&arena.d()),
        outside: outside(arena),
        races: trap.place == Place::Swapped,
        may_refuse: trap.may_block(row),
    };
    let lurker = Lurker::start(&arena.d());
    let ran = match kernel {
        Kernel::Usual => arena.run(row.line),
        Kernel::NoTmpfile => {
            run_without(&[&NAMELESS], libc::EOPNOTSUPP, &mut arena.command(row.line))?
        }
    };
    held.races.clear();
    let wrong = case.problems(&ran, &held, lurker);
    Ok(Sprung { ran, wrong })
}

fn every_command(test: &str, place: Place, kernel: Kernel, rows: impl Fn(&Row) -> bool) {
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    arena.save_result();
    let mut failed = Vec::new();
    // Tries every `step`-th trap of each command, with an offset that differs by command, so that a run covers most
    // commands and most traps.
    let step = sample_share(10) as usize;
    let start = Dice::new(test).within(0..step as u64) as usize;
    let mut count = 0;
    for (n, row) in ROWS.iter().filter(|row| rows(row)).enumerate() {
        let traps = TRAPS.iter().filter(|trap| trap.place == place && trap.fits(row));
        for trap in traps.skip((start + n) % step).step_by(step) {
            count += 1;
            let wrong = match spring(&arena, row, trap, kernel) {
                Ok(sprung) => sprung.wrong,
                Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
            };
            failed.extend(wrong.iter().map(|what| format!("{} / {}: {what}", row.name, trap.name)));
        }
    }
    eprintln!("{test}: {count} runs, {} problems", failed.len());
    assert!(failed.is_empty(), "{} problems:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn without_traps_every_command_makes_what_it_should() {
    let test = "without_traps_every_command_makes_what_it_should";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    arena.save_result();
    let none = Trap { name: "none", place: Place::Hidden, lay: |_, _| {} };
    for row in ROWS {
        let wrong = spring(&arena, row, &none, Kernel::Usual).unwrap().wrong;
        assert!(wrong.is_empty(), "{}: {wrong:#?}", row.name);
    }
}

#[test]
fn traps_under_hidden_names_gain_nothing_when_one_file_is_written() {
    let test = "traps_under_hidden_names_gain_nothing_when_one_file_is_written";
    every_command(test, Place::Hidden, Kernel::Usual, |row| !row.makes_tree());
}

#[test]
fn traps_under_hidden_names_gain_nothing_when_a_tree_is_written() {
    let test = "traps_under_hidden_names_gain_nothing_when_a_tree_is_written";
    every_command(test, Place::Hidden, Kernel::Usual, Row::makes_tree);
}

#[test]
fn traps_under_the_final_name_gain_nothing() {
    let test = "traps_under_the_final_name_gain_nothing";
    every_command(test, Place::Target, Kernel::Usual, |_| true);
}

#[test]
fn entries_that_are_swapped_while_a_command_runs_gain_nothing() {
    let test = "entries_that_are_swapped_while_a_command_runs_gain_nothing";
    every_command(test, Place::Swapped, Kernel::Usual, |_| true);
}

#[test]
fn traps_gain_nothing_where_every_file_needs_a_name() {
    let test = "traps_gain_nothing_where_every_file_needs_a_name";
    // The other commands make a partial file in any case.
    let rows = ["copy", "copy -r", "copy -a tree", "receive into", "manifest", "study --csv"];
    every_command(test, Place::Hidden, Kernel::NoTmpfile, |row| rows.contains(&row.name));
}
