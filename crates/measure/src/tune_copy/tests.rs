//! Small real runs. They assert nothing about speed.

use super::{file::tune_file, *};
use std::{
    fs,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};
use thalweg_core::{
    Error, Facts, Info, Kind, Mechanism, Mover, Pair, Plan, Profile, Role, Side, Source, Transfer,
    Tuning, mechanisms::LAST_RESORT, profile::Load,
};
use thalweg_sys::Errno;

const BUDGET: Duration = Duration::from_millis(500);

fn job<'j>(sources: &'j [PathBuf], destination: &'j Path, stop: &'j StopCheck<'j>) -> TuneJob<'j> {
    static PLAIN: LazyLock<CopyOptions> = LazyLock::new(CopyOptions::default);
    let (request, needs) = (Request::default(), Guarantees::default());
    let (options, budget, seed) = (&*PLAIN, BUDGET, 1);
    TuneJob { sources, destination, options, request, needs, budget, seed, stop }
}

/// Tunes until the result has at least four rounds. A busy machine needs a larger budget for that.
fn measured(job: &TuneJob<'_>) -> TuneResult {
    for factor in [1, 4, 16, 64] {
        let (request, budget) = (job.request.clone(), job.budget * factor);
        let found = tune(&TuneJob { request, budget, ..*job }).unwrap();
        let large = found.large_file.as_deref().unwrap_or(&found);
        if found.log.rounds.len() > 3 && large.log.rounds.len() > 3 {
            return found;
        }
    }
    panic!("no four rounds in {:?}", job.budget * 64);
}

/// Creates a file in which every byte differs from its neighbours.
fn file_in(folder: &Path, len: usize) -> PathBuf {
    let path = folder.join("source");
    fs::write(&path, (0..len).map(|n| (n % 251) as u8).collect::<Vec<u8>>()).unwrap();
    path
}

fn is_clean(folder: &Path, files: usize) -> bool {
    fs::read_dir(folder).unwrap().count() == files
}

/// Returns two temporary directories: the second is in memory, and the first may be on a disk.
fn directories() -> Vec<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm");
    [tempfile::tempdir().ok(), memory.ok()].into_iter().flatten().collect()
}

#[test]
fn a_short_copy_is_measured_for_a_short_time() {
    let budget = Duration::from_secs(1000);
    let left = |copy: f64| {
        let mut clock = TuneClock::start(budget);
        clock.shorten(copy);
        clock.left().as_secs()
    };
    assert!((90..=100).contains(&left(0.0)), "{}", left(0.0));
    assert!((390..=400).contains(&left(400.0)), "{}", left(400.0));
    // A twentieth of the budget is reserved for the evaluation.
    assert!((940..=950).contains(&left(1e9)) && (940..=950).contains(&left(f64::INFINITY)));
}

#[test]
fn a_file_is_measured_against_cp_and_the_planner_believes_the_cells() {
    for place in directories() {
        let destination = tempfile::tempdir_in(place.path()).unwrap();
        let source = file_in(place.path(), 3 << 20);
        let sources = [source.clone()];
        let found = measured(&job(&sources, destination.path(), &|| Ok(())));
        assert!(is_clean(destination.path(), 0) && is_clean(place.path(), 2));

        let reference = &found.arms[0];
        assert_eq!(reference.name, LAST_RESORT.info().name);
        assert_eq!(reference.ratio_to_read_write.map(|r| (r.lo, r.hi)), Some((1.0, 1.0)));
        for arm in &found.arms {
            let whole = arm.tuning.is_default() && arm.dropped.is_none();
            assert!(arm.rounds >= 2 || !whole, "{arm:?}");
            assert!(arm.ratio_to_cp.is_none_or(|r| r.lo <= r.ratio && r.ratio <= r.hi), "{arm:?}");
        }
        if let Ok(cp) = &found.cp {
            assert!(found.arms.iter().any(|arm| arm.name == cp.command && arm.mechanism.is_none()));
            assert!(cp.startup > 0.0);
            assert!(reference.ratio_to_cp.is_some() && reference.cpu_ratio_to_cp.is_some());
        }
        let doubled = found.log.doubled(&crate::sample::SampleMetric::Wall).len();
        assert!(doubled + 1 >= found.log.rounds.len(), "only the last round may be cut short");

        let mut profile = Profile::new();
        let mut request = Request::default();
        found.teach(&mut profile, &mut request);
        let kept = destination.path().join("copy");
        let (from, to) = (fs::File::open(&source).unwrap(), fs::File::create(&kept).unwrap());
        let facts = Facts::of(&Transfer::between(&from, &to).unwrap());
        let plan = Plan::make(&facts, &request, Some(&profile));
        let chosen = plan.chosen().unwrap();
        let winner = found.winner.unwrap();
        assert_eq!((chosen.mechanism, &chosen.tuning), (winner.mechanism, &winner.tuning));
        assert!(chosen.evidence.is_some());
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(text.as_bytes()).unwrap().cells.len(), profile.cells.len());
    }
}

#[test]
fn a_copy_goes_by_what_it_measured_on_a_busy_machine_and_later_ones_do_not() {
    let place = tempfile::tempdir().unwrap();
    let sources = [file_in(place.path(), 1 << 20)];
    let found = measured(&job(&sources, place.path(), &|| Ok(())));
    let kept = |processors, disturbed| {
        let busy = Some(BusyProcessors { processors, of: 2 });
        let found = TuneResult { busy, disturbed, ..found.clone() };
        let (mut profile, mut request) = (Profile::new(), Request::default());
        found.teach(&mut profile, &mut request);
        assert!(!profile.cells.is_empty() && profile.cells.iter().all(|c| c.load == Load::Idle));
        let loads: Vec<Load> = found.kept().iter().map(|cell| cell.load).collect();
        assert!(loads.is_empty() || loads.len() == found.cells.len());
        loads.first().copied()
    };
    assert_eq!(kept(0.1, 0.1), Some(Load::Idle));
    assert_eq!(kept(1.2, 0.1), Some(Load::Loaded));
    assert_eq!(kept(0.1, 0.8), None);
}

#[test]
fn a_result_is_plain_data() {
    let place = tempfile::tempdir().unwrap();
    let sources = [file_in(place.path(), 10_000)];
    let found = measured(&job(&sources, place.path(), &|| Ok(())));
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["slice"]["placement"], "whole");
    assert_eq!(json["slice"]["bytes"], 10_000);
    assert!(json["conditions"]["machine"]["kernel"].is_string());
    assert!(json["arms"][0]["rounds"].as_u64().unwrap() > 0);
}

#[test]
fn what_cannot_be_read_again_is_not_measured() {
    let place = tempfile::tempdir().unwrap();
    let empty = place.path().join("empty");
    fs::write(&empty, "").unwrap();
    for source in ["/dev/null", "/dev/zero", "/proc/version", empty.to_str().unwrap()] {
        let sources = [PathBuf::from(source)];
        let refusal = tune(&job(&sources, place.path(), &|| Ok(()))).unwrap_err();
        assert!(matches!(refusal, TuneError::NotTunable { .. }), "{source}: {refusal}");
    }
    let none = [place.path().join("none")];
    let refusal = tune(&job(&none, place.path(), &|| Ok(()))).unwrap_err();
    assert!(refusal.to_string().contains("none: No such file"), "{refusal}");
    assert!(is_clean(place.path(), 1));
}

/// Cancels the run after each of these numbers of calls, and checks that only the source is left.
fn stops_cleanly(place: &Path, sources: &[PathBuf], calls: &[usize]) {
    for &after in calls {
        let asked = AtomicUsize::new(0);
        let stop = || {
            let before = asked.fetch_add(1, Ordering::Relaxed);
            if before >= after { Err(Cancelled) } else { Ok(()) }
        };
        let job = TuneJob { budget: BUDGET * 60, ..job(sources, place, &stop) };
        let answer = tune(&job);
        assert!(matches!(answer, Err(TuneError::Cancelled(_))), "after {after}: {answer:?}");
        assert!(is_clean(place, 1), "after {after}");
    }
}

#[test]
fn stopping_leaves_nothing_behind_whenever_it_comes() {
    let place = tempfile::tempdir().unwrap();
    stops_cleanly(place.path(), &[file_in(place.path(), 2 << 20)], &[0, 1, 5, 20, 60]);
}

#[test]
fn one_method_alone_is_measured_against_the_reference() {
    let place = tempfile::tempdir().unwrap();
    let sources = [file_in(place.path(), 1 << 20)];
    let mut job = job(&sources, place.path(), &|| Ok(()));
    job.request.only = Some("splice".to_owned());
    let found = measured(&job);
    let mechanisms: Vec<_> = found.arms.iter().filter_map(|arm| arm.mechanism).collect();
    assert!(mechanisms.iter().all(|name| ["read-write", "splice"].contains(name)));
    assert_eq!(found.winner.map(|winner| winner.mechanism), Some("splice"));
}

/// A copy method with a planted fault.
struct Planted(Fault);

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The last byte of the copy is wrong.
    WrongByte,
    /// The last byte is missing, but the mechanism reports it as copied.
    Short,
    Refused,
}

static PLANTED: Info = Info {
    name: "planted",
    summary: "copies with a fault",
    calls: &[],
    pairs: &[Pair::new(Kind::File, Kind::File, Guarantees::COPIED)],
    knobs: &[],
    role: Role::Mover,
    nature: thalweg_core::Nature::PLAIN,
};

struct PlantedRun<'a> {
    fault: Fault,
    transfer: Transfer<'a>,
}

impl Mechanism for Planted {
    fn info(&self) -> &'static Info {
        &PLANTED
    }

    fn open<'a>(&self, transfer: Transfer<'a>, _: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        if self.0 == Fault::Refused {
            return Err(PLANTED.error("planted", Side::Either, Errno::OPNOTSUPP, 0));
        }
        Ok(Box::new(PlantedRun { fault: self.0, transfer }))
    }
}

impl Mover for PlantedRun<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let (Source::Fd(source), thalweg_core::Sink::Fd(sink)) =
            (&mut self.transfer.source, &mut self.transfer.sink)
        else {
            unreachable!("files only")
        };
        let mut buffer = vec![0; budget as usize];
        let got = source.read(&mut buffer).unwrap();
        if self.fault == Fault::WrongByte {
            buffer[got - 1] ^= 1;
        }
        let missing = usize::from(self.fault == Fault::Short);
        sink.write(&buffer[..got - missing]).unwrap();
        Ok(got as u64)
    }
}

#[test]
fn an_arm_that_copies_wrongly_or_not_at_all_is_unfit_whatever_its_speed() {
    static WRONG: Planted = Planted(Fault::WrongByte);
    static SHORT: Planted = Planted(Fault::Short);
    static REFUSED: Planted = Planted(Fault::Refused);
    let cases: [(&'static dyn Mechanism, &str); 3] =
        [(&WRONG, "a wrong byte at "), (&SHORT, "wrote "), (&REFUSED, "EOPNOTSUPP")];
    for (planted, reason) in cases {
        let place = tempfile::tempdir().unwrap();
        let sources = [file_in(place.path(), 1 << 20)];
        let job = job(&sources, place.path(), &|| Ok(()));
        let found = tune_file(&job, &sources[0], &[LAST_RESORT, planted]).unwrap();
        assert!(found.arms.iter().all(|arm| arm.mechanism != Some("planted")));
        assert!(found.unavailable[0].reason.contains(reason), "{:?}", found.unavailable);
        assert!(found.unfit.contains_key("planted"));
        assert!(found.cells.iter().all(|cell| cell.mechanism != "planted"));
    }
    let place = tempfile::tempdir().unwrap();
    let sources = [file_in(place.path(), 1 << 20)];
    let job = job(&sources, place.path(), &|| Ok(()));
    let hopeless = tune_file(&job, &sources[0], &[&WRONG, &SHORT]);
    assert!(hopeless.is_ok(), "the reference takes part whether or not it is listed");
}

mod tree;
