//! Transfers without faults: every pair and tuning of each mechanism, sizes near those of a page
//! and a buffer, offsets, and sources that end early. The last test overwrites the source
//! afterwards, to check the guarantee `stable`.

use std::path::Path;

use thalweg_core::{
    Kind, Mechanism, StepDown,
    alias::{self, Alias},
    scratch::ScratchSite,
};
use thalweg_sys::fault::Script;

use crate::{
    case::{Ask, Case, folders, movers},
    ends::Room,
};
use thalweg_testing::{Sample, skip};

const SIZES: [usize; 6] = [0, 1, 4095, 4096, 4097, (1 << 20) + 1];

/// (source, sink): aligned, unaligned by the same distance, and unaligned by different distances.
const OFFSETS: [(u64, u64); 4] = [(0, 0), (4097, 1), (3, 8190), (0, 4096)];

/// Reports a mechanism as skipped if the kernel refused its call, because the driver then moved the
/// bytes by another one.
fn note_refusals(case: &Case, steps: &[StepDown]) {
    for step in steps {
        assert!(!step.errno.is_empty(), "{}: {step:?}", case.name());
        let pair = format!("{} -> {}", case.pair.source, case.pair.sink);
        let place = if step.at == 0 { "refused" } else { "refused the rest" };
        skip(&format!("{} {pair}", step.from), &format!("{place}: {}: {}", step.call, step.reason));
    }
}

fn moves_everything(case: &Case) {
    let done = case.run(&Script::default());
    let (report, error) = (&done.outcome.report, &done.outcome.error);
    assert!(error.is_none(), "{}: {error:?}", case.name());
    assert_eq!(report.bytes, done.due, "{}: {report:?}", case.name());
    note_refusals(case, &report.steps_down);
}

fn every_variant(case: &Case, sample: &mut Sample) {
    let mut moves_everything = |case: &Case| {
        if sample.takes() {
            moves_everything(case);
        }
    };
    let addressed = |kind| kind == Kind::File;
    let offsets = |case: &Case| (addressed(case.pair.source), addressed(case.pair.sink));
    for size in SIZES {
        for ask in [Ask::Exactly, Ask::All, Ask::More, Ask::Fewer] {
            moves_everything(&Case { size, ask, ..case.clone() });
        }
        for (source_at, sink_at) in OFFSETS {
            if offsets(case) == (false, false) {
                break;
            }
            for room in [Room::AtTheEnd, Room::Within] {
                moves_everything(&Case { size, source_at, sink_at, room, ..case.clone() });
            }
        }
    }
}

/// `make test` runs one of `SHARE` variants. The variants differ in size, offsets or form.
const SHARE: u64 = 3;

fn every_tuning(mechanism: &'static dyn Mechanism, folder: &Path, only: Option<(Kind, Kind)>) {
    let mut sample = Sample::new(mechanism.info().name, SHARE);
    for pair in mechanism.info().pairs {
        if only.is_some_and(|kinds| kinds != (pair.source, pair.sink)) {
            continue;
        }
        let Some(case) = Case::fitting(mechanism, *pair, folder.to_path_buf()) else { continue };
        for tuning in mechanism.info().tunings() {
            let case = Case { tuning, ..case.clone() };
            // The two forms of a run differ only in how they wait. Transfers between files do not
            // wait, so one form is enough.
            let forms = if only.is_some() { 1 } else { 2 };
            case.in_both_forms().take(forms).for_each(|case| every_variant(&case, &mut sample));
        }
    }
}

#[test]
fn every_claimed_pair_moves_every_size_with_every_tuning() {
    std::thread::scope(|scope| {
        for mechanism in movers() {
            scope.spawn(move || every_tuning(mechanism, &std::env::temp_dir(), None));
        }
    });
}

#[test]
fn files_move_on_every_file_system() {
    for folder in folders().iter().skip(1) {
        for mechanism in movers() {
            every_tuning(mechanism, folder, Some((Kind::File, Kind::File)));
        }
    }
}

#[test]
fn mechanisms_in_turns_move_every_size_on_every_file_system() {
    let mut sample = Sample::new("mechanisms_in_turns_move_every_size_on_every_file_system", SHARE);
    for folder in folders() {
        for mechanism in movers() {
            for pair in mechanism.info().pairs {
                let case = Case::fitting(mechanism, *pair, folder.clone());
                let by_turns = case.and_then(|case| case.by_turns());
                if let Some(case) = by_turns {
                    every_variant(&case, &mut sample);
                }
            }
        }
    }
}

#[test]
fn a_promise_of_a_copy_is_kept_when_the_source_is_written_afterwards() {
    for folder in folders() {
        let site = ScratchSite::at(&folder);
        for mechanism in movers() {
            for pair in mechanism.info().pairs.iter().filter(|pair| alias::applies(**pair)) {
                let what = format!("{} {} -> {}", mechanism.info().name, pair.source, pair.sink);
                match alias::probe(mechanism, *pair, &site) {
                    Ok(Alias::Shared) => assert!(!pair.gives.stable, "{what} shares its pages"),
                    Ok(Alias::Copied) => {}
                    Err(unfit) => skip(&format!("promise of {what}"), &unfit.reason),
                }
            }
        }
    }
}
