//! Simulated sessions whose true costs are known, and small real sessions. No test asserts a speed.

use super::{table::AskedMethod, *};
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_core::{Guarantees, Prefer, Tuning, profile::Cell};

use crate::{
    busy::BusyProcessors,
    log::{SampleEntry, SampleLog},
    sample::Sample,
    schedule::order,
    stats::RatioVerdict,
};

/// Simulated sessions. The time of a mechanism is its true time, multiplied by noise and by a
/// random factor of the session.
struct Simulated {
    /// The true seconds per transfer of a mechanism at a size under a load.
    truth: fn(&TunedMethod, u64, Load) -> f64,
    ways: Vec<TunedMethod>,
    noise: f64,
    mood: f64,
    broken: Option<TunedMethod>,
    random: Random,
    jobs: Vec<ContestJob>,
    /// Number of CPUs that other processes keep busy, one value per check; 0 after the last value.
    looks: Vec<f64>,
    /// The number of a session in which the samples of all but the first rounds wait for a CPU.
    disturbed: Option<usize>,
}

impl Simulated {
    fn new(truth: fn(&TunedMethod, u64, Load) -> f64, ways: &[&str]) -> Self {
        let ways = ways.iter().map(|name| TunedMethod::plain(name)).collect();
        let (random, jobs) = (Random::new(7), Vec::new());
        let (looks, disturbed) = (Vec::new(), None);
        Self { truth, ways, noise: 0.02, mood: 0.02, broken: None, random, jobs, looks, disturbed }
    }

    /// Returns an approximately normal random number with mean 0 and standard deviation `spread`.
    fn normal(&mut self, spread: f64) -> f64 {
        spread * ((0..12).map(|_| self.random.unit()).sum::<f64>() - 6.0)
    }

    fn size(&mut self, job: &ContestJob, ways: &[TunedMethod], size: u64) -> SizeLog {
        let mut log = SampleLog::default();
        for way in ways {
            log.enter(&way.to_string());
        }
        let moods: Vec<f64> = ways.iter().map(|_| self.normal(self.mood)).collect();
        let is_disturbed = self.disturbed.is_some_and(|number| number + 1 == self.jobs.len());
        for round_number in 0..job.rounds {
            let all: Vec<usize> = (0..ways.len()).collect();
            let order = order(&all, &mut self.random);
            let round = order.into_iter().map(|arm| {
                let true_time = (self.truth)(&ways[arm], size, job.load);
                let time = true_time * (moods[arm] + self.normal(self.noise)).exp();
                let wall = Duration::from_secs_f64(time);
                let waits = is_disturbed && round_number * 3 >= job.rounds;
                let (waited, busy_ticks) =
                    if waits { (wall / 2, 100) } else { (Duration::ZERO, 0) };
                let own = Sample { wall, user: wall, bytes: size, ..Sample::default() };
                let sample = Sample { waited, busy_ticks, ..own };
                SampleEntry { arm, sample, cost: wall }
            });
            let round = round.collect();
            log.rounds.push(round);
        }
        let memory = vec![Some(0); ways.len()];
        SizeLog { size, transfers: 1, ways: ways.to_vec(), memory, log }
    }
}

impl Runner for Simulated {
    fn run(&mut self, job: &ContestJob, _: &StopCheck<'_>) -> ContestLog {
        self.jobs.push(job.clone());
        let mut ways = self.ways.clone();
        match &job.ways {
            WantedMethods::All => {
                ways.push(TunedMethod { name: "splice".into(), tuning: GOOD.clone() });
            }
            WantedMethods::These(more) => ways.extend(more.iter().cloned()),
            WantedMethods::Only(_) => {}
        }
        let pipe = || "pipe".to_owned();
        let ends = EndKeys { source: pipe(), sink: pipe(), options: Default::default() };
        let mut log = ContestLog { ends: Some(ends), done: true, ..ContestLog::default() };
        log.sizes = job.sizes.iter().map(|size| self.size(job, &ways, *size)).collect();
        if let Some(way) = self.broken.take() {
            log.unfit.insert(way, "delivered a wrong byte at 7".to_owned());
        }
        log
    }

    fn busy(&mut self) -> Option<BusyProcessors> {
        let processors = if self.looks.is_empty() { 0.0 } else { self.looks.remove(0) };
        Some(BusyProcessors { processors, of: 4 })
    }
}

static GOOD: std::sync::LazyLock<Tuning> =
    std::sync::LazyLock::new(|| Tuning::of("pipe", 64 << 10));

fn plan_of<'p>(pairs: &[&str], stop: &'p StopCheck<'p>) -> SurveyPlan<'p> {
    SurveyPlan {
        pairs: pairs.iter().map(|text| text.parse().unwrap()).collect(),
        depth: Depth::Quick,
        budget: Duration::from_secs(3),
        loads: vec![Load::Idle, Load::Loaded],
        seed: 1,
        stop,
    }
}

fn found(runner: &mut dyn Runner, pairs: &[&str]) -> SurveyResult {
    survey(&plan_of(pairs, &|| Ok(())), runner, &mut |_| ()).unwrap()
}

/// `splice` takes 0.7 of the reference's time when idle and 1.4 when loaded. With its good tuning,
/// it takes a quarter less.
fn known_truth(way: &TunedMethod, size: u64, load: Load) -> f64 {
    let base = 1e-5 + size as f64 * 1e-10;
    let factor = match (way.name.as_str(), load) {
        ("splice", Load::Idle) => 0.7,
        ("splice", Load::Loaded) => 1.4,
        _ => 1.0,
    };
    base * factor * if way.tuning.is_default() { 1.0 } else { 0.75 }
}

fn cell<'c>(cells: &'c [Cell], way: &TunedMethod, load: Load) -> Vec<&'c Cell> {
    let of_it = cells.iter().filter(|cell| cell.mechanism == way.name && cell.load == load);
    of_it.filter(|cell| cell.tuning == way.tuning).collect()
}

#[test]
fn known_ratios_are_recovered_and_the_planner_follows_the_load() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let found = found(&mut runner, &["pipe:pipe"]);
    let tuned = TunedMethod { name: "splice".into(), tuning: GOOD.clone() };
    let sizes = Depth::Quick.sizes(&"pipe:pipe".parse().unwrap());
    for (way, load, truth) in [
        (TunedMethod::plain("splice"), Load::Idle, 0.7),
        (TunedMethod::plain("splice"), Load::Loaded, 1.4),
        (tuned.clone(), Load::Idle, 0.525),
    ] {
        let cells = cell(&found.cells, &way, load);
        assert_eq!(cells.len(), sizes.len(), "{way}");
        for cell in cells {
            assert!((cell.wall.ratio / truth - 1.0).abs() < 0.08, "{way} {load:?}: {cell:?}");
            assert!((cell.wall.lo..=cell.wall.hi).contains(&cell.wall.ratio));
            assert_eq!((cell.sessions, cell.rounds), (3, 30));
        }
    }
    let mut profile = Profile::new();
    found.teach(&mut profile);
    let choice = |load| {
        let keys = found.surveys[0].keys().unwrap();
        let (needs, prefer, sink_state) = (Guarantees::COPIED, Prefer::Wall, SinkState::Fresh);
        let asked = AskedMethod { size: 100_000, needs, prefer, load, sink_state };
        let plan = verdict_on(&profile, keys, &asked).unwrap();
        let chosen = plan.chosen().unwrap();
        TunedMethod { name: chosen.mechanism.into(), tuning: chosen.tuning.clone() }
    };
    assert_eq!(
        (choice(Load::Idle), choice(Load::Loaded)),
        (tuned, TunedMethod::plain("read-write"))
    );
}

#[test]
fn sessions_that_other_work_met_are_of_the_loaded_machine_or_of_none() {
    let counts = |found: &SurveyResult| {
        let of = |load| {
            let of_it = found.surveys.iter().filter(|survey| survey.load == load);
            of_it.map(|survey| survey.sessions.len()).sum::<usize>()
        };
        (of(Load::Idle), of(Load::Loaded), found.met.as_loaded, found.met.left_out)
    };
    let measured = |looks: &[f64], disturbed, loads: &[Load]| {
        let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
        (runner.looks, runner.disturbed) = (looks.to_vec(), disturbed);
        let plan = SurveyPlan { loads: loads.to_vec(), ..plan_of(&["pipe:pipe"], &|| Ok(())) };
        survey(&plan, &mut runner, &mut |_| ()).unwrap()
    };
    let both = [Load::Idle, Load::Loaded];
    let quiet = measured(&[], None, &both);
    assert_eq!(counts(&quiet), (3, 3, 0, 0));
    // The load is checked before the first session (the scout) and after each session.
    let busy = measured(&[0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0], None, &both);
    assert_eq!(counts(&busy), (0, 6, 3, 0));
    assert!(busy.cells.iter().all(|cell| cell.load == Load::Loaded));
    assert!(busy.met.most.is_some_and(|most| most.processors > 2.9));
    let alone = measured(&[3.0; 9], None, &[Load::Idle]);
    assert_eq!(counts(&alone), (0, 3, 3, 0), "where the loaded machine was not to be measured");
    // One busy CPU of four counts neither as idle nor as loaded.
    let between = measured(&[1.0; 9], None, &both);
    assert_eq!(counts(&between), (0, 3, 0, 3));
    let profile = {
        let mut old = Profile::new();
        quiet.teach(&mut old);
        let idle = old.cells.iter().filter(|cell| cell.load == Load::Idle).count();
        between.teach(&mut old);
        (idle, old.cells.iter().filter(|cell| cell.load == Load::Idle).count())
    };
    assert_eq!(profile.0, profile.1, "what was measured before stays");
    // Load occurs only within one session. The checks before and after that session see an idle
    // machine.
    let sessions: Vec<usize> = (1..7).collect();
    let met = |number: &usize| measured(&[], Some(*number), &both).met.left_out;
    assert_eq!(sessions.iter().map(met).sum::<usize>(), 3, "each session that is idle, by itself");
    assert_eq!(measured(&[0.3; 9], None, &both).met.left_out, 0, "something is always going on");
}

#[test]
fn sessions_are_spread_and_the_scout_comes_first() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let found = found(&mut runner, &["pipe:pipe", "pipe:tcp"]);
    assert_eq!((found.sessions, runner.jobs.len()), (14, 14));
    assert!(
        runner.jobs[..2].iter().all(|job| job.ways == WantedMethods::All && job.load == Load::Idle)
    );
    // Each pass has every survey once, and the passes differ.
    let passes: Vec<Vec<String>> = runner.jobs[2..]
        .chunks(4)
        .map(|pass| pass.iter().map(|job| format!("{} {:?}", job.ends, job.load)).collect())
        .collect();
    for pass in &passes {
        let mut sorted = pass.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 4, "{pass:?}");
    }
    assert!(passes.windows(2).any(|two| two[0] != two[1]), "{passes:?}");
}

#[test]
fn ways_that_are_alike_are_a_tie_and_the_earlier_one_is_taken() {
    let mut runner = Simulated::new(|_, size, _| size as f64 * 1e-9, &["read-write", "splice"]);
    runner.mood = 0.0;
    let found = found(&mut runner, &["pipe:pipe"]);
    let mut profile = Profile::new();
    found.teach(&mut profile);
    for row in found.surveys.iter().flat_map(|survey| rows(survey, &profile, Prefer::Wall)) {
        assert_eq!(row.winner, TunedMethod::plain("read-write"), "{row:?}");
        assert_eq!(row.verdict, Some(RatioVerdict::NoDifferenceShown), "{row:?}");
        assert_eq!(row.runner_up.map(|way| way.name), Some("splice".to_owned()));
    }
}

#[test]
fn a_way_that_was_wrong_once_is_out() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let survey_of = |runner: &mut Simulated| {
        let job = ContestJob {
            ends: "pipe:pipe".parse().unwrap(),
            load: Load::Idle,
            sink_state: SinkState::Fresh,
            sizes: vec![4096],
            ways: WantedMethods::These(Vec::new()),
            rounds: 5,
            budget: Duration::ZERO,
            seed: 1,
            exact: false,
        };
        let sessions = (0..3).map(|_| runner.run(&job, &|| Ok(()))).collect();
        let (load, sink_state) = (Load::Idle, SinkState::Fresh);
        PairSurvey { ends: job.ends, load, sink_state, sessions }
    };
    assert_eq!(survey_of(&mut runner).cells("now").len(), 2);
    runner.broken = Some(TunedMethod::plain("splice"));
    let cells = survey_of(&mut runner).cells("now");
    assert!(cells.len() == 1 && cells[0].mechanism == "read-write", "{cells:?}");
    // Without the reference, the ratios would refer to another mechanism.
    runner.broken = Some(TunedMethod::plain("read-write"));
    let survey = survey_of(&mut runner);
    assert_eq!(survey.ways(4096).len(), 1);
    assert_eq!(survey.cells("now"), []);
}

#[test]
fn a_true_profile_has_little_regret_and_a_false_one_much() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let mut profile = Profile::new();
    found(&mut runner, &["pipe:pipe"]).teach(&mut profile);
    let mean = |profile: &Profile, runner: &mut Simulated| {
        let mut surveys = Vec::new();
        for load in [Load::Idle, Load::Loaded] {
            let job = ContestJob {
                ends: "pipe:pipe".parse().unwrap(),
                load,
                sink_state: SinkState::Fresh,
                sizes: vec![5001, 70_001, 900_001],
                ways: WantedMethods::These(vec![TunedMethod {
                    name: "splice".into(),
                    tuning: GOOD.clone(),
                }]),
                rounds: 20,
                budget: Duration::ZERO,
                seed: 1,
                exact: false,
            };
            let sessions = (0..3).map(|_| runner.run(&job, &|| Ok(()))).collect();
            let (ends, sink_state) = (job.ends, job.sink_state);
            surveys.push(PairSurvey { ends, load, sink_state, sessions });
        }
        let regrets: Vec<_> =
            surveys.iter().flat_map(|s| regret::regrets(s, profile, Prefer::Wall)).collect();
        assert_eq!(regrets.len(), 2, "splice promises copies from pipe to pipe: {regrets:?}");
        assert!(regrets.iter().all(|r| r.floor.worst < 0.1 && r.always.len() == 2));
        assert!(regrets.iter().all(|r| r.points.len() == 3 && r.unscored.is_empty()));
        regrets.iter().map(|regret| regret.planner.mean).sum::<f64>() / 2.0
    };
    assert!(mean(&profile, &mut runner) < 0.02);
    for cell in &mut profile.cells {
        let turned = |ratio: &mut thalweg_core::profile::Ratio| ratio.ratio = 1.0 / ratio.ratio;
        turned(&mut cell.wall);
    }
    assert!(mean(&profile, &mut runner) > 0.2);
}

#[test]
fn a_choice_that_failed_in_the_check_is_not_passed_over_in_silence() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let mut profile = Profile::new();
    found(&mut runner, &["pipe:pipe"]).teach(&mut profile);
    let job = ContestJob {
        ends: "pipe:pipe".parse().unwrap(),
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        sizes: vec![5001],
        ways: WantedMethods::These(vec![TunedMethod {
            name: "splice".into(),
            tuning: GOOD.clone(),
        }]),
        rounds: 6,
        budget: Duration::ZERO,
        seed: 1,
        exact: false,
    };
    runner.broken = Some(TunedMethod { name: "splice".into(), tuning: GOOD.clone() });
    let sessions = vec![runner.run(&job, &|| Ok(()))];
    let (ends, load, sink_state) = (job.ends, job.load, job.sink_state);
    let survey = PairSurvey { ends, load, sink_state, sessions };
    let regrets = regret::regrets(&survey, &profile, Prefer::Wall);
    assert_eq!((regrets[0].points.len(), &regrets[0].unscored[..]), (0, &[5001][..]));
}

#[test]
fn what_is_measured_over_both_states_of_a_sink_is_checked_over_both() {
    for (depth, pair) in [
        (Depth::Standard, "file:pipe"),
        (Depth::Standard, "pipe:file"),
        (Depth::Quick, "pipe:file"),
    ] {
        let plan = SurveyPlan { depth, ..plan_of(&[pair], &|| Ok(())) };
        let states = |jobs: &[ContestJob]| {
            let states: Vec<SinkState> = jobs.iter().map(|job| job.sink_state).collect();
            [SinkState::Fresh, SinkState::Resident].map(|state| states.contains(&state))
        };
        let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
        survey(&plan, &mut runner, &mut |_| ()).unwrap();
        let measured = states(&runner.jobs);
        runner.jobs.clear();
        check::check(&plan, &Profile::new(), Prefer::Wall, &mut runner, &mut |_| ()).unwrap();
        assert_eq!(states(&runner.jobs), measured, "{depth:?} {pair}");
        assert_eq!(measured[1], pair == "pipe:file" && depth == Depth::Standard);
    }
}

#[test]
fn the_largest_size_is_measured_last_and_checked_up_to_where_there_is_much_time() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    for (times, most) in [(1, 1 << 28), (3, 1 << 30)] {
        let depth = Depth::Standard;
        let budget = depth.budget() * times;
        let plan = SurveyPlan { depth, budget, ..plan_of(&["memory:memory"], &|| Ok(())) };
        runner.jobs.clear();
        survey(&plan, &mut runner, &mut |_| ()).unwrap();
        assert!(runner.jobs.iter().all(|job| job.sizes.last() == Some(&most)));
        runner.jobs.clear();
        check::check(&plan, &Profile::new(), Prefer::Wall, &mut runner, &mut |_| ()).unwrap();
        let sizes = &runner.jobs[0].sizes;
        assert!(sizes.is_sorted() && (most / 4..most).contains(sizes.last().unwrap()), "{sizes:?}");
    }
}

#[test]
fn stopping_ends_it_after_the_session_that_runs() {
    let mut runner = Simulated::new(known_truth, &["read-write", "splice"]);
    let asked = AtomicUsize::new(0);
    let stop = || {
        let before = asked.fetch_add(1, Ordering::Relaxed);
        if before >= 3 { Err(Cancelled) } else { Ok(()) }
    };
    let stopped = survey(&plan_of(&["pipe:pipe"], &stop), &mut runner, &mut |_| ());
    assert!(stopped.is_err());
    assert_eq!(runner.jobs.len(), 4);
}

#[test]
fn a_session_that_fails_is_reported_once() {
    struct Failing;
    impl Runner for Failing {
        fn run(&mut self, _: &ContestJob, _: &StopCheck<'_>) -> ContestLog {
            ContestLog { failed: Some("no room".into()), ..ContestLog::default() }
        }
    }
    let found = found(&mut Failing, &["pipe:pipe"]);
    assert_eq!(found.troubles, ["pipe:pipe: no room"]);
    assert!(found.cells.is_empty());
}

mod real;
