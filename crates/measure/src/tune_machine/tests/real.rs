//! Sessions between real ends, in this process.

use super::*;
use crate::{
    arms::transfer::{TunedMechanism, WholeArm},
    schedule::{Arm, SampledArm},
};
use std::path::Path;

fn job(ends: &str, sizes: &[u64]) -> ContestJob {
    ContestJob {
        ends: ends.parse().unwrap(),
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        sizes: sizes.to_vec(),
        ways: WantedMethods::These(Vec::new()),
        rounds: 2,
        budget: Duration::from_secs(1),
        seed: 1,
        exact: false,
    }
}

fn is_clean(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn every_kind_of_pair_is_measured_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path().display();
    let pairs = [
        format!("file:file@{here}"),
        format!("file:pipe@{here}"),
        format!("file:tcp@{here}"),
        format!("file:unix@{here}"),
        format!("file:memory@{here}"),
        format!("pipe:file@{here}"),
        format!("tcp:file@{here}"),
        "pipe:pipe".to_owned(),
        "memory:pipe".to_owned(),
        "memory:tcp".to_owned(),
        "unix:memory".to_owned(),
        "memory:memory".to_owned(),
        "fill:memory".to_owned(),
    ];
    for pair in pairs {
        let log = InProcess.run(&job(&pair, &[5000, 300_001]), &|| Ok(()));
        assert!(log.done && log.failed.is_none(), "{pair}: {:?}", log.failed);
        // On a busy machine, the second size may not fit into the budget. The session then reports
        // it as skipped.
        assert_eq!(log.sizes.len() + log.skipped.len(), 2, "{pair}: {:?}", log.skipped);
        assert_eq!(log.sizes[0].size, 5000, "{pair}");
        for size in &log.sizes {
            assert!(size.transfers >= 1 && !size.log.rounds.is_empty(), "{pair}");
            let bytes = size.size * size.transfers;
            // Copies and fills of memory are of several lengths, up to the size.
            let right = |moved: u64| match pair.as_str() {
                "memory:memory" | "fill:memory" => moved > bytes / 2 && moved <= bytes,
                _ => moved == bytes,
            };
            assert!(size.log.samples(0).all(|sample| right(sample.bytes)), "{pair}");
        }
        let wrong = log.unfit.iter().find(|(_, reason)| reason.contains("wrong byte"));
        assert!(wrong.is_none(), "{pair}: {wrong:?}");
        assert!(is_clean(place.path()), "{pair}");
    }
}

#[test]
fn fills_are_measured_against_memset_and_become_bands() {
    let log = InProcess.run(&job("fill:memory", &[5000]), &|| Ok(()));
    assert!(log.done, "{log:?}");
    let ways = &log.sizes[0].ways;
    assert_eq!(ways[0], TunedMethod::plain("libc"));
    assert!(ways.len() > 1 && !ways.contains(&TunedMethod::plain("tuned")), "{ways:?}");
    let (ends, load, sink_state) = ("fill:memory".parse().unwrap(), Load::Idle, SinkState::Fresh);
    let survey = PairSurvey { ends, load, sink_state, sessions: vec![log.clone(), log] };
    let mut profile = Profile::new();
    profile.replace(survey.cells("now"));
    let bands = profile.fill_bands(Load::Idle, Prefer::Wall);
    assert_eq!(bands.last().map(|band| band.upto), Some(5000));
    assert!(profile.kernel_bands(Load::Idle, Prefer::Wall).is_empty());
    let rows = rows(&survey, &profile, Prefer::Wall);
    assert_eq!(rows.len(), 1, "sharing pages is no choice: {rows:?}");
    assert!(profile.kernels(Load::Idle, Prefer::Wall).is_ok());
}

#[test]
fn a_sink_that_is_there_is_written_over() {
    let place = tempfile::tempdir().unwrap();
    let pair = format!("file:file@{}", place.path().display());
    let job = ContestJob { sink_state: SinkState::Resident, ..job(&pair, &[70_000]) };
    let log = InProcess.run(&job, &|| Ok(()));
    assert!(log.done, "{log:?}");
    assert!(log.sizes[0].ways.len() > 1);
    assert!(is_clean(place.path()));
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let log = InProcess.run(&job("file:pipe@/no/such/folder", &[4096]), &|| Ok(()));
    let reason = log.failed.unwrap();
    assert!(reason.contains("/no/such/folder") && reason.contains("No such file"), "{reason}");
}

#[test]
fn what_does_not_fit_the_budget_is_left_out_by_name() {
    let place = tempfile::tempdir().unwrap();
    let pair = format!("file:file@{}", place.path().display());
    let job = ContestJob { budget: Duration::from_millis(1), ..job(&pair, &[4096, 64 << 20]) };
    let log = InProcess.run(&job, &|| Ok(()));
    assert_eq!(log.sizes.len(), 1);
    assert!(log.skipped[&(64 << 20)].contains("budget"), "{:?}", log.skipped);
}

#[test]
fn the_ends_are_named_as_the_planner_names_them() {
    let place = tempfile::tempdir().unwrap();
    let ends: EndPair = format!("file:unix@{}", place.path().display()).parse().unwrap();
    let (facts, keys) = contest::look_at(&ends).unwrap();
    assert_eq!((keys.source, keys.sink.as_str()), (facts.source.key(), "socket:unix"));
    assert_eq!(keys.options[0], facts.source.options());
    assert!(is_clean(place.path()));
}

#[test]
fn a_whole_survey_teaches_the_planner() {
    let place = tempfile::tempdir().unwrap();
    let pair = format!("file:pipe@{}", place.path().display());
    let plan = SurveyPlan {
        loads: vec![Load::Idle],
        budget: Duration::from_secs(2),
        ..plan_of(&[&pair], &|| Ok(()))
    };
    let found = survey(&plan, &mut InProcess, &mut |_| ()).unwrap();
    assert!(found.troubles.is_empty(), "{:?}", found.troubles);
    let mut profile = Profile::new();
    found.teach(&mut profile);
    let text = serde_json::to_vec(&profile).unwrap();
    assert_eq!(Profile::parse(&text).unwrap().cells.len(), profile.cells.len());
    let rows = rows(&found.surveys[0], &profile, Prefer::Wall);
    assert!(rows.iter().any(|row| !row.zero_copy), "{rows:?}");
    let looks = sentinel::look(&profile, place.path(), &|| Ok(()));
    assert!(looks.len() <= 1, "one pair: {looks:?}");
    assert!(is_clean(place.path()));
}

/// A mechanism that delivers the right number of bytes, but zeros.
struct Zeros;

static ZEROS: thalweg_core::Info = thalweg_core::Info {
    name: "zeros",
    summary: "delivers other bytes",
    calls: &[],
    pairs: &[],
    knobs: &[],
    role: thalweg_core::Role::Mover,
    nature: thalweg_core::Nature::PLAIN,
};

struct ZerosRun<'a>(thalweg_core::Sink<'a>);

impl thalweg_core::Mechanism for Zeros {
    fn info(&self) -> &'static thalweg_core::Info {
        &ZEROS
    }

    fn open<'a>(
        &self,
        transfer: thalweg_core::Transfer<'a>,
        _: &Tuning,
    ) -> Result<Box<dyn thalweg_core::Mover + 'a>, thalweg_core::Error> {
        Ok(Box::new(ZerosRun(transfer.sink)))
    }
}

impl thalweg_core::Mover for ZerosRun<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, thalweg_core::Error> {
        let zeros = vec![0; budget as usize];
        match &mut self.0 {
            thalweg_core::Sink::Fd(end) => Ok(end.write(&zeros).unwrap() as u64),
            thalweg_core::Sink::Memory(to) => {
                to.fill(0);
                Ok(to.len() as u64)
            }
        }
    }
}

#[test]
fn a_planted_wrong_byte_is_found_at_every_kind_of_sink() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path().display();
    for sink in ["file", "pipe", "unix", "tcp", "memory"] {
        let ends: EndPair = format!("file:{sink}@{here}").parse().unwrap();
        let mut bench = contest::whole(&ends, SinkState::Fresh, &|| Ok(())).unwrap();
        bench.resize(50_000).unwrap();
        let mut check =
            |mechanism| bench.check(TunedMechanism { mechanism, tuning: &Tuning::default() });
        assert!(check(thalweg_core::mechanisms::LAST_RESORT).is_ok(), "{ends}");
        let failure = check(&Zeros).unwrap_err();
        let crate::schedule::SampleFailure::Unfit(unfit) = failure else { panic!("{failure:?}") };
        assert!(unfit.reason.contains("delivered a wrong byte"), "{ends}: {unfit}");
    }
}

#[test]
fn a_way_faster_than_the_reference_fills_its_samples_with_more_transfers() {
    let place = tempfile::tempdir().unwrap();
    let ends: EndPair = format!("file:file@{}", place.path().display()).parse().unwrap();
    let bench = contest::whole(&ends, SinkState::Fresh, &|| Ok(())).unwrap();
    let mut site: Box<dyn contest::Arena> =
        Box::new(contest::Between(std::cell::RefCell::new(bench)));
    site.resize(4096).unwrap();
    let (mut arm, _) = site.try_out(&TunedMethod::plain("read-write")).unwrap();
    let moved = |arm: &mut SampledArm<'_>| arm.arm.sample(arm.repeats).unwrap().bytes;
    arm.repeats = 3;
    assert_eq!(moved(&mut arm), 3 * 4096);
    // A sample of this duration reaches the maximum number of transfers on any machine.
    site.fill(&mut arm, Duration::from_secs(3600), 3);
    assert!(moved(&mut arm) > 100 * 4096);
    site.fill(&mut arm, Duration::ZERO, 3);
    assert_eq!(moved(&mut arm), 3 * 4096, "never fewer than the reference has");
    drop(arm);
    drop(site);
    assert!(is_clean(place.path()));
}

struct Nothing;

impl thalweg_core::Mechanism for Nothing {
    fn info(&self) -> &'static thalweg_core::Info {
        &ZEROS
    }

    fn open<'a>(
        &self,
        _: thalweg_core::Transfer<'a>,
        _: &Tuning,
    ) -> Result<Box<dyn thalweg_core::Mover + 'a>, thalweg_core::Error> {
        Ok(Box::new(Self))
    }
}

impl thalweg_core::Mover for Nothing {
    fn advance(&mut self, _: u64) -> Result<u64, thalweg_core::Error> {
        Ok(0)
    }
}

#[test]
fn a_way_that_fails_leaves_no_sink_in_the_way_of_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let ends: EndPair = format!("file:file@{}", place.path().display()).parse().unwrap();
    let bench = contest::whole(&ends, SinkState::Fresh, &|| Ok(())).unwrap();
    let bench = std::cell::RefCell::new(bench);
    bench.borrow_mut().resize(5000).unwrap();
    let arm = |mechanism: &'static dyn thalweg_core::Mechanism| WholeArm {
        place: &bench,
        mechanism,
        tuning: Tuning::default(),
    };
    let (mut fails, mut works) = (arm(&Nothing), arm(thalweg_core::mechanisms::LAST_RESORT));
    for _ in 0..2 {
        assert!(fails.try_out().is_err());
        works.try_out().unwrap();
        assert!(fails.sample(1).is_err());
        works.sample(1).unwrap();
    }
}
