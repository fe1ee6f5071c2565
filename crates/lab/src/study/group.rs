//! The arms of one place in one session: opened, warmed up, calibrated, interleaved, checked.

use std::time::Duration;
use thalweg_core::{Cancelled, Unfit, alias::Alias};

use super::{
    result::{Place, RoundSample},
    wire::{ArmRun, PlaceLog},
};
use crate::{
    arms::Piece,
    measure::{
        contamination::{Mark, marks_of_study},
        log::Log,
        sample::Sample,
        schedule::{Arm, Broken, Failure, Lineup, Rules, Schedule},
        stats::Random,
    },
};

/// An arm whose helpers are there and whose buffers are not.
pub struct Opened {
    /// Its name.
    pub name: String,
    /// The piece, or why there is none.
    pub piece: Result<Box<dyn Piece>, Unfit>,
}

/// How the rounds are to be.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many.
    pub rounds: usize,
    /// How long a sample is meant to be.
    pub sample: Duration,
}

/// Why a group ended the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// An arm delivered wrong bytes.
    Wrong {
        /// The arm.
        arm: String,
        /// What was seen.
        reason: String,
    },
    /// Somebody asked to stop, or nobody listens any more.
    Cancelled,
}

impl From<Cancelled> for Ended {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Told after each round: rounds done, and 10^9 bytes a second of each arm in it.
pub type OnRound<'r> = dyn FnMut(usize, Vec<(String, f64)>) -> Result<(), Cancelled> + 'r;

/// Runs the group. Every arm that opens is warmed up before any is sampled; a failing arm leaves
/// with its reason; a wrong byte ends everything.
pub fn perform(
    place: &Place,
    opened: Vec<Opened>,
    (pace, random): (Pace, &mut Random),
    on_round: &mut OnRound<'_>,
) -> Result<PlaceLog, Ended> {
    let mut missing = Vec::new();
    let mut players = Vec::new();
    for Opened { name, piece } in opened {
        match piece {
            Ok(piece) => players.push(Player { name, piece, repeats: 1 }),
            Err(unfit) => missing.push((name, unfit.to_string())),
        }
    }
    let prepared = players.into_iter().filter_map(|mut player| match player.prepare() {
        Ok(()) => Some(player),
        Err(reason) => {
            missing.push((player.name, reason));
            None
        }
    });
    let mut players: Vec<Player> = prepared.collect();
    // Warmed up one after the other, the last one's memory is warmer than the first one's.
    let calibrated = players.iter_mut().map(|p| p.calibrate(pace.sample)).collect::<Vec<_>>();
    let mut kept = Vec::new();
    for (player, done) in players.into_iter().zip(calibrated) {
        match done {
            Ok(()) => kept.push(player),
            Err(Failure::Cancelled) => return Err(Ended::Cancelled),
            Err(Failure::Unfit(unfit)) => missing.push((player.name, unfit.to_string())),
        }
    }
    let log = rounds(&mut kept, (pace, random), on_round)?;
    let mut runs = Vec::with_capacity(kept.len());
    let warm: Vec<Option<u64>> =
        kept.iter().map(|p| (!p.piece.is_fresh()).then_some(place.bytes)).collect();
    let marks = marks_of_study(&log, &warm);
    for (number, player) in kept.iter_mut().enumerate() {
        let run = player.finish(&log, number, &marks)?;
        if let Some(reason) = &log.arms[number].dropped {
            missing.push((player.name.clone(), reason.clone()));
        }
        if !run.samples.is_empty() {
            runs.push(run);
        }
    }
    Ok(PlaceLog { place: place.clone(), arms: runs, missing, seconds: 0.0 })
}

/// Round by round, so that somebody can be told between them.
fn rounds(
    players: &mut [Player],
    (pace, random): (Pace, &mut Random),
    on_round: &mut OnRound<'_>,
) -> Result<Log, Ended> {
    let mut log = Log::default();
    let active: Vec<usize> = players.iter().map(|player| log.enter(&player.name)).collect();
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for player in players {
        arms.push(Box::new(player));
    }
    let mut schedule = Schedule {
        rules: Rules::fixed(1),
        clock: &|| Duration::ZERO,
        deadline: Duration::MAX,
        stop: &|| Ok(()),
        random,
    };
    for done in 1..=pace.rounds {
        match schedule.run(&mut arms, Lineup::of_equals(active.clone()), &mut log) {
            Ok(()) => {}
            Err(Broken::Cancelled | Broken::Reference(_)) => return Err(Ended::Cancelled),
        }
        let round = log.rounds.last().into_iter().flatten();
        let rate = |s: &Sample| s.bytes as f64 / 1e9 / s.wall_seconds();
        let rates = round.map(|e| (log.arms[e.arm].name.clone(), rate(&e.sample))).collect();
        if on_round(done, rates).is_err() {
            return Err(Ended::Cancelled);
        }
    }
    Ok(log)
}

struct Player {
    name: String,
    piece: Box<dyn Piece>,
    repeats: u32,
}

impl Arm for &mut Player {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        self.piece.sample(self.repeats)
    }
}

/// Doublings, at most: beyond it a sample is short for another reason than too few operations.
const MOST_DOUBLINGS: usize = 32;

impl Player {
    fn prepare(&mut self) -> Result<(), String> {
        self.piece.warm_up().map_err(|unfit| unfit.to_string())
    }

    /// Finds how many operations fill a sample; one at least.
    fn calibrate(&mut self, sample: Duration) -> Result<(), Failure> {
        for _ in 0..MOST_DOUBLINGS {
            let took = self.piece.sample(self.repeats)?.wall_seconds();
            let wanted = sample.as_secs_f64() / took;
            let scaled = (f64::from(self.repeats) * wanted).round().clamp(1.0, f64::from(u32::MAX));
            if wanted <= 2.0 {
                self.repeats = scaled as u32;
                return Ok(());
            }
            // A first, cold operation says little of the next ones: no faster than eightfold.
            self.repeats = scaled.min(f64::from(self.repeats) * 8.0) as u32;
        }
        Ok(())
    }

    /// Looks at the bytes and for shared pages, and puts the samples together.
    fn finish(&mut self, log: &Log, number: usize, marks: &[Mark]) -> Result<ArmRun, Ended> {
        let mut alias = None;
        let unchecked = log.arms[number].dropped.is_some();
        if !unchecked {
            let wrong =
                |unfit: Unfit| Ended::Wrong { arm: self.name.clone(), reason: unfit.to_string() };
            self.piece.check().map_err(wrong)?;
            alias = self.piece.alias();
        }
        let own: Vec<&Mark> = marks.iter().filter(|mark| mark.arm == number).collect();
        let promises = self.piece.promises();
        let mut words: Vec<String> = own.iter().map(|mark| words_of(mark)).collect();
        let shared = matches!(alias, Some(Ok(Alias::Shared)));
        if shared && promises.is_some_and(|p| p.stable && p.private) {
            words.insert(0, "promises a copy of its own, but shares pages".to_owned());
        }
        if unchecked {
            words.insert(0, "failed under way: nobody looked at its bytes".to_owned());
        }
        let mut marked: Vec<(usize, usize)> =
            own.iter().map(|m| (m.arm, m.round.unwrap_or(0))).collect();
        marked.dedup();
        let samples = samples_of(log, number);
        Ok(ArmRun {
            name: self.name.clone(),
            promises,
            alias: alias.map(|seen| match seen {
                Ok(Alias::Copied) => "copied".to_owned(),
                Ok(Alias::Shared) => "shared".to_owned(),
                Err(unfit) => unfit.to_string(),
            }),
            repeats: self.repeats,
            marked: if unchecked { samples.len() } else { marked.len() },
            marks: words,
            calls_uncounted: self.piece.calls_uncounted(),
            samples,
            unchecked,
        })
    }
}

fn words_of(mark: &Mark) -> String {
    match mark.round {
        Some(round) => format!("round {}: {}", round + 1, mark.text),
        None => mark.text.clone(),
    }
}

fn samples_of(log: &Log, arm: usize) -> Vec<RoundSample> {
    let rounds = log.rounds.iter().enumerate();
    let samples = rounds.flat_map(|(round, entries)| {
        let own = entries.iter().filter(move |entry| entry.arm == arm);
        own.map(move |entry| RoundSample { round, sample: entry.sample })
    });
    samples.collect()
}
