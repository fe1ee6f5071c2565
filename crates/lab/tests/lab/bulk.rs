//! Opens and runs arms of the work `bulk` as a session does: every arm that this machine supports,
//! with every kind of memory, alone and in a study. Other tests plant wrong bytes and helpers that
//! do not work, and check the map of winners of study 102.

use crate::planted;

use std::{fmt::Write, fs, path::Path};
use thalweg_channel::bulk::MECHANISMS;
use thalweg_core::{Guarantees, Unfit, alias::Alias};
use thalweg_lab::{
    arms::{Arm, ArmJob, CATALOGUE},
    report::{ReportInput, drawings},
    study::{file::StudyFile, result::ClaimVerdict},
};

use planted::{PROGRAM, really, settings, simulated, simulated::World, skip};

fn open_by(program: &str, with: &str, bytes: u64, at: &Path) -> Result<Box<dyn Arm>, Unfit> {
    let with: toml::Table = with.parse().unwrap();
    let (scratch, studies, program) = (at, at, Path::new(program));
    let job = ArmJob { arm: "arm", with: &with, bytes, scratch, studies, program };
    CATALOGUE.arm_kind("bulk").unwrap().open(&job)
}

fn open(with: &str, bytes: u64, at: &Path) -> Result<Box<dyn Arm>, Unfit> {
    open_by(PROGRAM, with, bytes, at)
}

/// Returns the arms that work here. The others count as skipped.
fn working() -> Vec<&'static str> {
    let works = |arm: &&&dyn thalweg_channel::bulk::Mechanism| match arm.probe() {
        Ok(()) => true,
        Err(why) => {
            skip("bulk", &format!("{}: {why}", arm.info().name));
            false
        }
    };
    MECHANISMS.iter().filter(works).map(|arm| arm.info().name).collect()
}

/// Uses an arm as a session does.
fn used(piece: &mut dyn Arm, bytes: u64, what: &str) {
    piece.warm_up().unwrap_or_else(|e| panic!("{what}: {e}"));
    for repeats in [1, 3, 300] {
        let sample = piece.sample(repeats).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(sample.bytes, bytes * u64::from(repeats), "{what}");
        assert!(sample.wall.as_nanos() > 0 && sample.user >= sample.far_user, "{what}");
    }
    for _ in 0..2 {
        piece.check().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(piece.alias(), Some(Ok(Alias::Copied)), "{what}");
    }
    assert_eq!(piece.promises(), Some(Guarantees::COPIED), "{what}");
}

#[test]
fn every_arm_moves_odd_numbers_of_bytes_from_everywhere_to_everywhere() {
    let bytes = 70_001;
    let arms = working();
    for residency in ["resident", "fresh", "huge"] {
        for source in ["private", "born"] {
            let scratch = tempfile::tempdir().unwrap();
            let also = ["auto", "one-memcpy", "vmsplice-memcpy"];
            // All arms are open at the same time, as in a session.
            let mut pieces = Vec::new();
            for (n, arm) in arms.iter().chain(&also).enumerate() {
                let read = n % 2 == 0;
                let what = format!(
                    "arm = {arm:?}\nresidency = {residency:?}\nsource = {source:?}\nread = {read}"
                );
                match open(&what, bytes, scratch.path()) {
                    Ok(piece) => pieces.push((piece, what)),
                    Err(unfit) => skip("bulk", &format!("{arm}: {unfit}")),
                }
            }
            assert!(pieces.len() > 2, "{residency} {source}");
            for (piece, what) in &mut pieces {
                assert_eq!(piece.is_fresh(), residency != "resident", "{what}");
                used(piece.as_mut(), bytes, what);
            }
            drop(pieces);
            assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{residency} {source}");
        }
    }
}

#[test]
fn a_wrong_byte_is_found_wherever_it_comes_from() {
    let scratch = tempfile::tempdir().unwrap();
    for with in ["arm = 'ring'", "arm = 'pull'\nsource = 'born'", "arm = 'one-memcpy'"] {
        let mut piece = open(&format!("{with}\nspoil = true"), 9000, scratch.path()).unwrap();
        piece.warm_up().unwrap();
        assert!(piece.sample(2).is_ok());
        let wrong = piece.check().unwrap_err();
        assert!(wrong.reason.contains("wrong byte arrived at 4500 of 9000"), "{with}: {wrong}");
    }
}

#[test]
fn what_is_no_arm_no_size_or_no_helper_is_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |program: &str, with: &str, bytes| {
        open_by(program, with, bytes, scratch.path()).err().unwrap().reason
    };
    assert!(refused(PROGRAM, "arm = 'rong'", 1).contains("unknown arm"));
    assert!(refused(PROGRAM, "arm = 'ring'", 0).contains("0 bytes"));
    assert!(refused("/no/such", "arm = 'ring'", 1).contains("/no/such"));
    let ended = refused("/bin/true", "arm = 'ring'", 1);
    assert!(ended.contains("ended"), "{ended}");
    let mut piece = open("arm = 'ring'", (1 << 40) - 1, scratch.path()).unwrap();
    let reason = piece.warm_up().unwrap_err().reason;
    assert!(reason.contains("MiB"), "{reason}");
}

/// Returns a study of these arms of the work `bulk`, each with its parameters.
fn study(arms: &[(&str, &str)], rest: &str) -> String {
    let names: Vec<&str> = arms.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "schema = 1\nid = \"test\"\ntitle = \"a test\"\nsummary = \"of bulk transfers\"\n\
         [source]\ntitle = \"nothing\"\n\
         [[cell]]\nname = \"resident\"\nsizes = [\"4097\", \"1MiB\"]\narms = {names:?}\n\
         [[cell]]\nname = \"fresh\"\nsizes = [\"1MiB\"]\nwith = {{ residency = \"fresh\" }}\n\
         arms = {names:?}\n"
    );
    for (name, with) in arms {
        let _ = write!(text, "[[arm]]\nname = {name:?}\nwork = \"bulk\"\nwith = {{ {with} }}\n");
    }
    text + rest
}

#[test]
fn a_study_of_all_arms_runs_and_its_best_is_judged() {
    let parameters: Vec<(&str, String)> =
        working().iter().map(|arm| (*arm, format!("arm = {arm:?}"))).collect();
    let mut arms = vec![("one-memcpy", "arm = \"one-memcpy\""), ("auto", "arm = \"auto\"")];
    arms.extend(parameters.iter().map(|(name, with)| (*name, with.as_str())));
    let claim = "[[claim]]\nid = \"1\"\nkind = \"ratio\"\ntext = \"the choice is good\"\n\
                 [[claim.check]]\ntest = \"against-best\"\narm = \"auto\"\nrivals = [\"ring\"]\n\
                 cells = [\"resident\", \"fresh\"]\nwithin = [0.0, 1e90]\n";
    let result = really(&study(&arms, claim), &settings(2, 3)).unwrap();
    assert!(result.missing.len() < result.arms.len(), "{:?}", result.missing);
    let claim = &result.claims[0];
    // Two sessions on a busy machine can have an interval that is wider than any range.
    let judged = [ClaimVerdict::Reproduced, ClaimVerdict::Undecided].contains(&claim.verdict);
    assert!(judged && claim.evidence.len() == 3, "{:?} {:?}", claim.verdict, claim.evidence);
    for arm in &result.arms {
        assert_eq!(arm.alias.as_deref(), Some("copied"), "{}", arm.name);
        assert_eq!(arm.promises, Some(Guarantees::COPIED), "{}", arm.name);
        let far = arm.far_cpu_s_per_gb.is_some();
        assert!(far == (arm.name != "one-memcpy") || arm.place.bytes < 1 << 20, "{}", arm.name);
    }
    let warm = result.arms.iter().filter(|arm| arm.place.cell == "fresh");
    assert!(warm.clone().all(|arm| arm.faults_per_gb > 1e9 / 65536.0), "its parameters are used");
}

#[test]
fn the_map_of_study_102_has_a_row_for_each_destination_and_a_column_for_each_size() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/102-bulk.toml");
    let study = StudyFile::parse(&fs::read_to_string(path).unwrap(), &CATALOGUE).unwrap();
    // `auto` ties with the cheapest arm everywhere except in fresh memory of the largest size.
    let cost = |arm: &str, place: &thalweg_lab::study::result::Condition| match arm {
        "coop" if place.cell == "fresh" && place.size == "1GiB" => 0.002,
        "auto" | "ring" => 0.01,
        _ => 0.02,
    };
    let world = World { sigma: 0.01, ..World::default() };
    let result = simulated::run(&study, (4, 5), (world, 3), &cost);
    let columns = study.cell("resident").unwrap().sizes.len();
    let origin = "102.json".to_owned();
    let pages = drawings(&[ReportInput { result, origin, study: Some(study) }]).unwrap();
    assert_eq!(pages[0].name, "102.html");
    let maps: Vec<&str> = pages[0].html.split("<div class=\"map\">").skip(1).collect();
    assert_eq!(maps.len(), 2, "one for the clock, one for processor time");
    let map = maps[0].split("</table>").next().unwrap();
    assert_eq!(map.matches("<tr").count(), 1 + 6, "{map}");
    for cell in ["resident", "fresh", "huge", "born-resident", "born-huge", "read"] {
        assert!(map.contains(&format!("{cell}, ")), "{cell}");
    }
    assert_eq!(map.matches("class=\"win ").count(), 6 * columns, "{map}");
    assert!(map.matches(" tie\"").count() >= 5 * columns - 6 && map.contains("coop"), "{map}");
}
