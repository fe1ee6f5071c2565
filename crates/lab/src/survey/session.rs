//! One session: all ways on one pair, size by size, in a process of its own.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};
use thalweg_core::{
    Facts, Flow, MECHANISMS, Mechanism, Role, Unfit,
    alias::{self, Alias},
    mechanisms::LAST_RESORT,
    profile::LIBC,
    scratch::Site,
};
use thalweg_kernels::{KERNELS, tuned};

use super::{
    arms::{Buffers, Means, Place, SurveyArm, one_knob_turned},
    bench::Bench,
    job::{EndKeys, Line, SessionJob, SizeLog, Way, Ways},
    pair::{EndKind, Ends},
    share::{Share, Shares},
};
use crate::{
    rounds::{Arm, Broken, Cast, Failure, Log, Rules, Schedule},
    stats::Random,
    tune::Stop,
};

/// Measures, and answers line by line. A session that was stopped has no last line.
pub fn run(job: &SessionJob, stop: &Stop<'_>, answer: &mut dyn FnMut(Line)) {
    let session = Session { job, stop, began: Instant::now() };
    match session.run(answer) {
        Ok(()) => answer(Line::Done),
        Err(Failure::Stopped) => {}
        Err(Failure::Unfit(unfit)) => answer(Line::Failed(unfit.reason)),
    }
}

struct Session<'j> {
    job: &'j SessionJob,
    stop: &'j Stop<'j>,
    began: Instant,
}

impl Session<'_> {
    fn run(&self, answer: &mut dyn FnMut(Line)) -> Result<(), Failure> {
        let job = self.job;
        let failed =
            |e: std::io::Error| Failure::Unfit(Unfit::because(format!("{}: {e}", job.ends)));
        let first = job.sizes.first().copied().unwrap_or(1);
        let (place, mut ways) = if job.ends.are_memory() {
            let memory = || "memory".to_owned();
            let keys = EndKeys { source: memory(), sink: memory(), options: Default::default() };
            answer(Line::Ends(keys));
            (Place::Memory(RefCell::new(Buffers::new(job.exact))), self.kernels(answer))
        } else {
            let mut bench = Bench::new(&job.ends, job.sink_state, self.stop).map_err(failed)?;
            bench.resize(first).map_err(failed)?;
            let (facts, keys) = bench.facts()?;
            answer(Line::Ends(keys));
            (Place::Ends(Box::new(RefCell::new(bench))), self.mechanisms(&facts, answer))
        };
        let mut random = Random::new(job.seed);
        let mut shares = Shares::new(&job.sizes, job.rounds);
        for (n, size) in job.sizes.iter().copied().enumerate() {
            let left = job.budget.saturating_sub(self.began.elapsed());
            let Some(share) = shares.next(n, ways.len(), left) else {
                let reason = "it does not fit the budget".to_owned();
                answer(Line::Skipped { size, reason });
                continue;
            };
            if n > 0 && !place.has_room(size) {
                answer(Line::Skipped { size, reason: "there is no room for it".to_owned() });
                continue;
            }
            place.resize(size).map_err(failed)?;
            let done = self.size(&place, &mut ways, (size, share), &mut random, answer)?;
            shares.learn(n, done);
        }
        Ok(())
    }

    /// The mechanisms that may take part; the reference first.
    fn mechanisms(&self, facts: &Facts, answer: &mut dyn FnMut(Line)) -> Vec<(Way, Means)> {
        let mut ways = Vec::new();
        for mechanism in MECHANISMS.iter().filter(|m| m.info().role == Role::Mover) {
            let name = mechanism.info().name;
            let Some(pair) = mechanism.info().pair(facts.source.kind, facts.sink.kind) else {
                continue;
            };
            let tunings = self.tunings(*mechanism);
            if tunings.is_empty() {
                continue;
            }
            let keeps = || keeps_its_promise(*mechanism, *pair, &self.job.ends);
            if let Err(unfit) = mechanism.fits(facts).and_then(|()| keeps()) {
                answer(Line::Unfit { way: Way::plain(name), reason: unfit.reason });
                continue;
            }
            let means = Means::Mechanism(*mechanism);
            ways.extend(tunings.into_iter().map(|way| (way, means)));
        }
        ways.sort_by_key(|(way, _)| *way != Way::plain(LAST_RESORT.info().name));
        ways
    }

    fn tunings(&self, mechanism: &dyn Mechanism) -> Vec<Way> {
        let name = mechanism.info().name;
        let plain = Way::plain(name);
        let named = |ways: &[Way]| {
            ways.iter().filter(|way| way.name == name).cloned().collect::<BTreeSet<Way>>()
        };
        match &self.job.ways {
            Ways::All => {
                let turned = one_knob_turned(mechanism).into_iter();
                let turned = turned.map(|tuning| Way { name: name.to_owned(), tuning });
                std::iter::once(plain).chain(turned).collect()
            }
            Ways::These(ways) => {
                let mut wanted = named(ways);
                wanted.insert(plain);
                wanted.into_iter().collect()
            }
            Ways::Only(ways) => {
                let mut wanted = named(ways);
                if name == LAST_RESORT.info().name {
                    wanted.insert(plain);
                }
                wanted.into_iter().collect()
            }
        }
    }

    /// The copy kernels; the C library's first.
    fn kernels(&self, answer: &mut dyn FnMut(Line)) -> Vec<(Way, Means)> {
        let mut ways = Vec::new();
        for kernel in KERNELS.iter().filter(|kernel| kernel.name != tuned::COPY.name) {
            let way = Way::plain(kernel.name);
            let wanted = match &self.job.ways {
                Ways::Only(ways) => kernel.name == LIBC || ways.contains(&way),
                Ways::All | Ways::These(_) => true,
            };
            match kernel.ready() {
                Some(ready) if wanted => ways.push((way, Means::Kernel(ready))),
                Some(_) => {}
                None => {
                    let reason = "this processor lacks its instructions".to_owned();
                    answer(Line::Unfit { way, reason });
                }
            }
        }
        ways.sort_by_key(|(way, _)| way.name != LIBC);
        ways
    }

    /// All ways at one size: tried, checked, calibrated, sampled. Answers what a transfer of the
    /// reference took.
    fn size(
        &self,
        place: &Place<'_>,
        ways: &mut Vec<(Way, Means)>,
        (size, share): (u64, Share),
        random: &mut Random,
        answer: &mut dyn FnMut(Line),
    ) -> Result<Duration, Failure> {
        let until = self.began.elapsed() + share.allotted;
        let (mut arms, mut memory) = (Vec::new(), Vec::new());
        ways.retain(|(way, means)| {
            let mut arm = SurveyArm::new(way.clone(), *means, place);
            if (self.stop)() == Flow::Stop {
                return true;
            }
            match arm.try_out() {
                Ok(held) => {
                    memory.push(held);
                    arms.push(arm);
                    true
                }
                Err(Failure::Stopped) => true,
                Err(Failure::Unfit(unfit)) => {
                    answer(Line::Unfit { way: way.clone(), reason: unfit.reason });
                    false
                }
            }
        });
        if (self.stop)() == Flow::Stop {
            return Err(Failure::Stopped);
        }
        let Some(reference) = arms.first_mut().filter(|arm| is_reference(&arm.way)) else {
            return Err(Failure::Unfit(Unfit::because("the reference does not work here")));
        };
        let one = reference.calibrate()?;
        let transfers = place.repeat((share.sample.as_secs_f64() / one.as_secs_f64()) as u64);
        let took_part: Vec<Way> = arms.iter().map(|arm| arm.way.clone()).collect();
        let arms: Vec<Box<dyn Arm + '_>> =
            arms.into_iter().map(|arm| Box::new(arm) as Box<dyn Arm + '_>).collect();
        // Two rounds are taken also where the trials have used the time up.
        let round = share.sample.max(one) * 2 * (arms.len() as u32 + 1);
        let until = until.max(self.began.elapsed() + round * LEAST_ROUNDS as u32);
        let log = self.rounds(arms, until, random)?;
        for (arm, way) in took_part.iter().enumerate().filter(|(arm, _)| log.arms[*arm].failed) {
            let reason = log.arms[arm].dropped.clone().unwrap_or_default();
            answer(Line::Unfit { way: way.clone(), reason });
            ways.retain(|(known, _)| known != way);
        }
        answer(Line::Size(SizeLog { size, transfers, ways: took_part, memory, log }));
        Ok(one)
    }

    fn rounds(
        &self,
        mut arms: Vec<Box<dyn Arm + '_>>,
        until: Duration,
        random: &mut Random,
    ) -> Result<Log, Failure> {
        let mut log = Log::default();
        let active = arms.iter().map(|arm| log.enter(arm.name())).collect();
        let rounds = self.job.rounds.max(LEAST_ROUNDS);
        let rules = Rules { least_rounds: LEAST_ROUNDS, most_rounds: rounds, ..Rules::default() };
        let mut schedule = Schedule {
            rules,
            clock: &|| self.began.elapsed(),
            deadline: until,
            stop: self.stop,
            random,
        };
        match schedule.run(&mut arms, Cast { active, reference: 0, kept: Vec::new() }, &mut log) {
            Ok(()) => Ok(log),
            Err(Broken::Stopped) => Err(Failure::Stopped),
            Err(Broken::Reference(unfit)) => Err(Failure::Unfit(unfit)),
        }
    }
}

/// Sessions are what counts, so a few rounds of each are enough.
pub(super) const LEAST_ROUNDS: usize = 2;

fn is_reference(way: &Way) -> bool {
    way.tuning.is_default() && (way.name == LAST_RESORT.info().name || way.name == LIBC)
}

/// A mechanism that says its copies are stable is tried: a change of the source must not show.
fn keeps_its_promise(
    mechanism: &dyn Mechanism,
    pair: thalweg_core::Pair,
    ends: &Ends,
) -> Result<(), Unfit> {
    if !alias::applies(pair) || !pair.gives.stable {
        return Ok(());
    }
    let folder = |end: &EndKind| match end {
        EndKind::File(folder) => folder.clone(),
        _ => std::env::temp_dir(),
    };
    let site = Site { source: folder(&ends.source), sink: folder(&ends.sink) };
    match alias::probe(mechanism, pair, &site)? {
        Alias::Copied => Ok(()),
        Alias::Shared => Err(Unfit::because(
            "breaks its promise: a later change of the source shows in the sink",
        )),
    }
}
