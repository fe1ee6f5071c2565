//! Every command that creates files, with every trap of the other user.

use super::{
    arena::Arena,
    attacker::as_attacker,
    check::{Case, entries, outside},
    commands::{ROWS, Row},
    lurker::Lurker,
    traps::{Held, Place, TRAPS, Trap},
    victim::Victim,
};
use crate::support::skip::is_root;

/// Runs one command in one trap and returns everything that is wrong afterwards.
pub fn spring(arena: &Arena, row: &Row, trap: &Trap) -> Vec<String> {
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
    let ran = arena.run(row.line);
    held.races.clear();
    case.problems(&ran, &held, lurker)
}

fn every_command(test: &str, place: Place, rows: impl Fn(&Row) -> bool) {
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    arena.save_result();
    let mut failed = Vec::new();
    let mut count = 0;
    for row in ROWS.iter().filter(|row| rows(row)) {
        for trap in TRAPS.iter().filter(|trap| trap.place == place && trap.fits(row)) {
            count += 1;
            let wrong = spring(&arena, row, trap);
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
        let wrong = spring(&arena, row, &none);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", row.name);
    }
}

#[test]
fn traps_under_hidden_names_gain_nothing_when_one_file_is_written() {
    let test = "traps_under_hidden_names_gain_nothing_when_one_file_is_written";
    every_command(test, Place::Hidden, |row| !row.makes_tree());
}

#[test]
fn traps_under_hidden_names_gain_nothing_when_a_tree_is_written() {
    let test = "traps_under_hidden_names_gain_nothing_when_a_tree_is_written";
    every_command(test, Place::Hidden, Row::makes_tree);
}

#[test]
fn traps_under_the_final_name_gain_nothing() {
    every_command("traps_under_the_final_name_gain_nothing", Place::Target, |_| true);
}

#[test]
fn entries_that_are_swapped_while_a_command_runs_gain_nothing() {
    let test = "entries_that_are_swapped_while_a_command_runs_gain_nothing";
    every_command(test, Place::Swapped, |_| true);
}
