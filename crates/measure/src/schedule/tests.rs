//! The schedule and the statistics on simulated arms, whose true costs are known.

use super::*;
use crate::{
    outcome::PerByte,
    sample::SampleMetric,
    stats::{self, RatioVerdict, ratio_of_rounds, verdict},
};
use std::{cell::Cell, f64::consts::TAU, rc::Rc};

/// A simulated machine, which adds noise to every sample.
#[derive(Clone)]
struct World {
    now: Rc<Cell<Duration>>,
    random: Rc<std::cell::RefCell<Random>>,
    /// Autocorrelation of the noise of successive samples.
    memory: f64,
    last: Rc<Cell<f64>>,
    /// Relative growth of all times per second.
    drift: f64,
    /// Share of samples that take eight times as long.
    outliers: f64,
    sigma: f64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            now: Rc::default(),
            random: Rc::new(Random::new(seed).into()),
            memory: 0.0,
            last: Rc::default(),
            drift: 0.0,
            outliers: 0.0,
            sigma: 0.05,
        }
    }

    fn factor(&self) -> f64 {
        let mut random = self.random.borrow_mut();
        let (u, v) = (random.unit().max(1e-12), random.unit());
        let normal = (-2.0 * u.ln()).sqrt() * (TAU * v).cos();
        let fresh = (1.0 - self.memory * self.memory).sqrt() * normal;
        self.last.set(self.last.get() * self.memory + fresh);
        let outlier = if random.unit() < self.outliers { 8.0 } else { 1.0 };
        let drift = 1.0 + self.drift * self.now.get().as_secs_f64();
        (self.sigma * self.last.get()).exp() * outlier * drift
    }

    fn arm(&self, name: &'static str, millis: f64) -> Named {
        (name, SampledArm::once(Simulated { world: self.clone(), millis, fails_at: None }))
    }
}

type Named = (&'static str, SampledArm<'static>);

struct Simulated {
    world: World,
    millis: f64,
    fails_at: Option<usize>,
}

impl Arm for Simulated {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
        if let Some(left) = &mut self.fails_at {
            if *left == 0 {
                return Err(SampleFailure::Unfit(Unfit::because("EIO")));
            }
            *left -= 1;
        }
        let wall = Duration::from_secs_f64(self.millis / 1e3 * self.world.factor());
        self.world.now.set(self.world.now.get() + wall);
        Ok(Sample { wall, user: wall, bytes: 1, ..Sample::default() })
    }
}

/// Runs the arms within a budget; the first arm is the reference.
fn run(world: &World, arms: Vec<Named>, budget: Duration, rules: Rules) -> SampleLog {
    try_run(world, arms, budget, rules).unwrap()
}

fn try_run(
    world: &World,
    arms: Vec<Named>,
    budget: Duration,
    rules: Rules,
) -> Result<SampleLog, SampleFailure> {
    let mut log = SampleLog::default();
    let active: Vec<usize> = arms.iter().map(|(name, _)| log.enter(name)).collect();
    let mut arms: Vec<SampledArm<'_>> = arms.into_iter().map(|(_, arm)| arm).collect();
    let now = world.now.clone();
    let mut schedule = Schedule {
        rules,
        clock: &|| now.get(),
        deadline: now.get() + budget,
        stop: &|| Ok(()),
        random: &mut Random::new(world.random.borrow_mut().bits()),
    };
    schedule.run(&mut arms, Lineup { active, reference: 0, kept: vec![] }, &mut log)?;
    Ok(log)
}

/// Returns the share of `runs` simulated machines on which the interval contains the known ratio.
fn coverage(ratio: f64, rounds: usize, runs: u64, shape: impl Fn(&mut World)) -> f64 {
    let rules =
        Rules { most_rounds: rounds, least_rounds: rounds, too_slow: f64::MAX, ..Rules::default() };
    let holds = (0..runs).filter(|seed| {
        let mut world = World::new(*seed);
        shape(&mut world);
        let arms = vec![world.arm("base", 20.0), world.arm("other", 20.0 * ratio)];
        let log = run(&world, arms, Duration::from_secs(3600), rules);
        let pairs = log.paired(1, 0, &SampleMetric::Wall);
        let shown = ratio_of_rounds(&pairs, &mut Random::new(*seed)).unwrap();
        assert_eq!(pairs.len(), rounds);
        shown.lo <= ratio && ratio <= shown.hi
    });
    holds.count() as f64 / runs as f64
}

#[test]
fn a_known_ratio_lies_in_its_interval_nine_times_in_ten_or_more() {
    for rounds in [5, 8, 20] {
        let covered = [
            ("plain", coverage(0.8, rounds, 200, |_| ())),
            ("drift", coverage(0.8, rounds, 200, |w| w.drift = 0.5)),
            ("outliers", coverage(0.8, rounds, 200, |w| w.outliers = 0.05)),
            ("wandering", coverage(0.8, rounds, 200, |w| w.memory = 0.7)),
            (
                "all",
                coverage(1.3, rounds, 200, |w| {
                    (w.memory, w.drift, w.outliers) = (0.5, 0.3, 0.03);
                }),
            ),
        ];
        for (shape, share) in covered {
            assert!(share >= 0.9, "{shape}, {rounds} rounds: {share}");
        }
    }
}

#[test]
fn the_same_thing_twice_shows_no_difference() {
    for (rounds, memory, outliers) in [(5, 0.0, 0.0), (10, 0.6, 0.03), (30, 0.0, 0.05)] {
        let quiet = (0..100).filter(|seed| {
            let mut world = World::new(*seed);
            (world.memory, world.outliers) = (memory, outliers);
            let rules = Rules { most_rounds: rounds, ..Rules::default() };
            let arms = vec![world.arm("a", 20.0), world.arm("a", 20.0), world.arm("b", 30.0)];
            let log = run(&world, arms, Duration::from_secs(3600), rules);
            let mut random = Random::new(*seed);
            let noise = log.noise(&SampleMetric::Wall, &mut random);
            let shown = log.ratio(1, 0, &SampleMetric::Wall, &mut random).unwrap();
            verdict(&shown, noise) == RatioVerdict::NoDifferenceShown
        });
        let quiet = quiet.count();
        assert!(quiet >= 95, "{rounds} rounds, memory {memory}: {quiet} of 100");
    }
}

#[test]
fn a_clear_difference_is_seen_and_a_made_up_claim_is_contradicted() {
    let world = World::new(5);
    let arms = vec![world.arm("a", 20.0), world.arm("b", 10.0)];
    let log = run(&world, arms, Duration::from_secs(1), Rules::default());
    let mut random = Random::new(1);
    let shown = log.ratio(1, 0, &SampleMetric::Cpu, &mut random).unwrap();
    assert_eq!(verdict(&shown, 0.03), RatioVerdict::Faster);
    assert!(shown.lo > 0.1, "ten times faster is not what was simulated: {shown:?}");
}

#[test]
fn every_round_has_every_arm_and_one_of_them_twice_in_changing_order() {
    let world = World::new(3);
    let arms = vec![world.arm("a", 1.0), world.arm("b", 1.0), world.arm("c", 1.0)];
    let rules = Rules { most_rounds: 30, ..Rules::default() };
    let log = run(&world, arms, Duration::from_secs(60), rules);
    assert_eq!((log.rounds.len(), log.doubled(&SampleMetric::Wall).len()), (30, 30));
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for round in &log.rounds {
        let order: Vec<usize> = round.iter().map(|e| e.arm).collect();
        assert_eq!(order.len(), 4);
        assert!((0..3).all(|arm| order.contains(&arm)));
        orders.push(order);
    }
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 10, "{orders:?}");
    assert!((0..3).all(|arm| log.rounds_of(arm) == 30 && log.samples(arm).count() > 30));
}

#[test]
fn the_budget_ends_the_rounds_and_no_round_is_begun_that_would_not_fit() {
    let world = World::new(4);
    let arms = vec![world.arm("a", 20.0), world.arm("b", 20.0)];
    let log = run(&world, arms, Duration::from_secs(1), Rules::default());
    assert!((10..=17).contains(&log.rounds.len()), "{}", log.rounds.len());
    assert!(world.now.get() <= Duration::from_millis(1030), "{:?}", world.now.get());
    assert!(log.rounds.iter().all(|round| round.len() == 3));
}

#[test]
fn an_arm_far_slower_than_the_reference_is_left_out_and_says_so() {
    let world = World::new(6);
    let arms = vec![world.arm("a", 10.0), world.arm("b", 10.0), world.arm("slow", 100.0)];
    let log = run(&world, arms, Duration::from_secs(2), Rules::default());
    let reason = log.arms[2].dropped.clone().unwrap();
    assert!(
        reason.starts_with("dropped after 2 rounds: ") && reason.contains("times the time of a ("),
        "{reason}"
    );
    assert_eq!(log.rounds_of(2), 2);
    assert!(log.arms[1].dropped.is_none() && log.rounds.len() > 20);
    let shown = stats::median(&log.paired(2, 0, &SampleMetric::Wall)).unwrap();
    assert!(shown > 2.0, "what was measured of it is kept");
}

#[test]
fn one_sample_far_out_condemns_no_arm() {
    let dropped = (0..200).filter(|seed| {
        let mut world = World::new(*seed);
        world.outliers = 0.1;
        let arms = vec![world.arm("a", 10.0), world.arm("b", 10.0)];
        let log = run(&world, arms, Duration::from_secs(1), Rules::default());
        log.arms[1].dropped.is_some()
    });
    let dropped = dropped.count();
    assert!(dropped <= 4, "{dropped} of 200");
}

#[test]
fn where_five_rounds_of_all_do_not_fit_the_dearest_go_first() {
    let world = World::new(7);
    let arms = vec![world.arm("a", 50.0), world.arm("b", 90.0), world.arm("c", 150.0)];
    let log = run(&world, arms, Duration::from_millis(1500), Rules::default());
    let reason = log.arms[2].dropped.clone().unwrap();
    assert!(reason.contains("would exceed the budget"), "{reason}");
    assert!(log.arms[1].dropped.is_none());
    assert!(log.rounds_of(0) >= 5, "{}", log.rounds_of(0));
}

#[test]
fn when_it_is_enough_the_least_rounds_are_done_all_the_same() {
    for (enough, rounds) in [(0, 5), (100, 5), (300, 15)] {
        let world = World::new(7);
        let rules = Rules { enough: Duration::from_millis(enough), ..Rules::default() };
        let log = run(&world, vec![world.arm("a", 10.0)], Duration::from_secs(9), rules);
        // A round takes about 20 ms: 10 ms for each of its two samples, with the noise of the
        // simulated machine.
        assert!(log.rounds.len().abs_diff(rounds) <= 2, "{enough}: {}", log.rounds.len());
        assert!(log.rounds.len() >= 5, "{enough}: {}", log.rounds.len());
    }
}

#[test]
fn an_arm_that_fails_under_way_leaves_with_its_reason_and_the_reference_ends_all() {
    let world = World::new(8);
    let failing = |name| -> Named {
        let world = world.clone();
        (name, SampledArm::once(Simulated { world, millis: 10.0, fails_at: Some(3) }))
    };
    let arms = vec![world.arm("a", 10.0), failing("b")];
    let log = run(&world, arms, Duration::from_secs(1), Rules::default());
    assert!(log.arms[1].dropped.as_ref().unwrap().contains("EIO"));
    let broken = try_run(&world, vec![failing("a")], Duration::from_secs(1), Rules::default());
    assert_eq!(broken.unwrap_err(), SampleFailure::Unfit(Unfit::because("EIO")));
}

#[test]
fn stopping_is_noticed_before_the_next_sample() {
    let world = World::new(9);
    let mut arms = vec![world.arm("a", 10.0).1];
    let mut log = SampleLog::default();
    let active = vec![log.enter("a")];
    let now = world.now.clone();
    let mut schedule = Schedule {
        rules: Rules::default(),
        clock: &|| now.get(),
        deadline: Duration::from_secs(9),
        stop: &|| if now.get() > Duration::from_millis(50) { Err(Cancelled) } else { Ok(()) },
        random: &mut Random::new(1),
    };
    let broken = schedule.run(&mut arms, Lineup { active, reference: 0, kept: vec![] }, &mut log);
    assert_eq!(broken, Err(SampleFailure::Cancelled));
    assert!(world.now.get() < Duration::from_millis(100));
}

#[test]
fn among_equals_the_first_arm_may_fail_too_and_all_of_them_end_the_rounds() {
    let world = World::new(10);
    let failing = || -> Named {
        let world = world.clone();
        ("bad", SampledArm::once(Simulated { world, millis: 10.0, fails_at: Some(1) }))
    };
    for (arms, rounds) in
        [(vec![failing(), world.arm("good", 50.0)], 7), (vec![failing(), failing()], 2)]
    {
        let mut log = SampleLog::default();
        let active = arms.iter().map(|(name, _)| log.enter(name)).collect();
        let good = arms[1].0 == "good";
        let mut arms: Vec<SampledArm<'_>> = arms.into_iter().map(|(_, arm)| arm).collect();
        let random = &mut Random::new(1);
        let mut schedule = Schedule::fixed(7, &|| Ok(()), random);
        schedule.run(&mut arms, Lineup::of_equals(active), &mut log).unwrap();
        assert!(log.arms[0].failed && (2..=rounds).contains(&log.rounds.len()));
        assert_eq!(log.rounds_of(1) == 7, good);
    }
}

#[test]
fn arms_whose_samples_hold_different_amounts_of_work_are_compared_per_byte() {
    let mut log = SampleLog::default();
    let sample =
        |millis, bytes| Sample { wall: Duration::from_millis(millis), bytes, ..Sample::default() };
    for name in ["reference", "faster"] {
        log.enter(name);
    }
    // The second arm takes twice the time for sixteen times the bytes, so an eighth of the time per byte.
    let taken = [(0, sample(10, 1000)), (1, sample(20, 16_000))];
    let round = taken.map(|(arm, sample)| SampleEntry { arm, sample, cost: sample.wall });
    log.rounds = vec![round.to_vec(); 3];
    assert!((log.times_slower(1, 0).unwrap() - 0.125).abs() < 1e-9);
    for ratio in log.paired(1, 0, &PerByte(SampleMetric::Wall)) {
        assert!((ratio.exp() - 0.125).abs() < 1e-9);
    }
}
