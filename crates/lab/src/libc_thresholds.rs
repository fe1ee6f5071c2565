//! Compares the sizes at which glibc's memcpy switches loops (thresholds) with the best sizes on this machine. Fresh
//! processes that run with other thresholds show whether those thresholds help.
//!
//! A value that helps one size and hurts another is not recommended. A recommended value was measured a second time
//! at every size, and was not worse at any.

pub(crate) mod child;
mod crossover;
mod judge;

pub use child::SIZES;
pub use crossover::Crossover;
pub use judge::{SizeEffect, TriedSetting};

use serde::Serialize;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};
use thalweg_core::Cancelled;
use thalweg_sys::host::{Cache, caches};

use crate::trial::{
    SettingKind, TrialProgram, TrialSetting,
    tunables::{MOVSB, STREAM, Tunable, listed},
};
use thalweg_measure::{
    StopCheck,
    log::{SampleEntry, SampleLog},
    schedule::order,
    stats::Random,
};

/// Paths of glibc's loader, by the ABI of each architecture.
const LOADERS: [&str; 5] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib64/ld64.so.2",
    "/lib/ld64.so.1",
];

/// A size at which libc switches to another loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Threshold {
    pub name: String,
    /// The value of the threshold in a process that starts now, in bytes.
    pub bytes: u64,
    pub what: &'static str,
}

/// The thresholds that are shown, with a description of the loop that starts there.
const SHOWN: [(&str, &str); 3] = [
    (MOVSB, "memcpy switches to rep movsb"),
    (STREAM, "memcpy switches to stores that bypass the caches"),
    ("glibc.cpu.x86_rep_stosb_threshold", "memset switches to rep stosb"),
];

/// The thresholds of a C library, as listed by its loader.
#[derive(Clone, Debug, Serialize)]
pub struct Effective {
    /// The loader that listed them.
    pub loader: PathBuf,
    /// `true` if the program is static and the C library is that of other programs on this machine.
    pub is_of_others: bool,
    pub thresholds: Vec<Threshold>,
    #[serde(skip)]
    tunables: Vec<Tunable>,
}

impl Effective {
    /// Runs the loader of `program`, or the system's if the program is static. The error explains why the thresholds
    /// are unknown.
    pub fn now(program: &Path) -> Result<Self, String> {
        let found = TrialProgram::find(&[OsString::from(program)]).map_err(|e| e.to_string())?;
        match (found.loader, found.unreachable) {
            (Some(loader), None) => Self::of(loader, false),
            (Some(_), Some(why)) => Err(why),
            (None, why) => Self::of_others().map_err(|error| match why {
                Some(why) => format!("{why}; {error}"),
                None => error,
            }),
        }
    }

    /// Runs the loader of the system's shell, then those at the usual paths.
    fn of_others() -> Result<Self, String> {
        let shell = TrialProgram::find(&[OsString::from("sh")]).ok().and_then(|shell| shell.loader);
        let usual = LOADERS.iter().map(PathBuf::from).filter(|loader| loader.exists());
        let mut error =
            "no dynamic loader found: neither `sh` nor the usual paths have one".to_owned();
        for loader in shell.into_iter().chain(usual) {
            match Self::of(loader, true) {
                Ok(found) => return Ok(found),
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    fn of(loader: PathBuf, is_of_others: bool) -> Result<Self, String> {
        let tunables = listed(&loader)?;
        let value = |name: &str| tunables.iter().find(|t| t.name == name).map(|t| t.now);
        let shown = SHOWN.iter().filter_map(|(name, what)| {
            Some(Threshold { name: (*name).to_owned(), bytes: value(name)?, what })
        });
        let thresholds: Vec<Threshold> = shown.collect();
        if thresholds.is_empty() {
            return Err(format!("{} lists no sizes at which memcpy changes", loader.display()));
        }
        Ok(Self { loader, is_of_others, thresholds, tunables })
    }

    /// Returns the values to try for each tunable, one at a time: cache sizes and measured crossovers. For
    /// non-temporal stores, also a quarter of the last cache, the default of glibc 2.38 and later.
    fn candidates(&self, caches: &[Cache], crossovers: &[Crossover]) -> Vec<ThresholdCandidate> {
        let mut all: Vec<ThresholdCandidate> = Vec::new();
        for (name, levels) in [(MOVSB, 1..=2), (STREAM, 3..=u32::MAX)] {
            let Some(tunable) = self.tunables.iter().find(|t| t.name == name) else { continue };
            let of_caches = caches.iter().filter(|cache| levels.contains(&cache.level));
            let crossed = crossovers.iter().filter(|c| c.tunable == name).filter_map(|c| c.bytes);
            let last = caches.iter().max_by_key(|cache| cache.level);
            let newer = last.filter(|_| name == STREAM).map(|cache| cache.bytes / 4);
            let of_caches = of_caches.map(|cache| cache.bytes);
            let mut values: Vec<u64> = of_caches.chain(crossed).chain(newer).collect();
            values.sort_unstable();
            values.dedup();
            values.retain(|v| *v != tunable.now && (tunable.least..=tunable.most).contains(v));
            all.extend(values.into_iter().map(|value| ThresholdCandidate {
                tunable: name,
                text: format!("{name}={value}"),
            }));
        }
        all
    }
}

/// A setting to try.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ThresholdCandidate {
    /// The tunable that it sets; the first one for a combined setting.
    tunable: &'static str,
    text: String,
}

pub struct Measuring<'m> {
    /// The thalweg binary, for the processes under each setting.
    pub program: &'m Path,
    pub seed: u64,
    /// Called before every process.
    pub stop: &'m StopCheck<'m>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ThresholdsResult {
    /// The sizes at which one loop overtakes another on this machine.
    pub crossovers: Vec<Crossover>,
    /// Every setting that was tried alone.
    pub tried: Vec<TriedSetting>,
    /// The best settings and their combination, measured a second time; empty if no setting was good.
    pub confirmed: Vec<TriedSetting>,
    /// The line to put into a program's environment, if any.
    pub advice: Option<ThresholdAdvice>,
    /// The reason why there is no recommendation.
    pub no_advice: Option<String>,
    /// The number of fresh processes that ran.
    pub processes: usize,
}

/// A setting that helps at some size and was not seen to hurt at any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdAdvice {
    /// The line `GLIBC_TUNABLES=...`.
    pub line: String,
    /// The effect of the setting at every size, from the second measurement.
    pub effects: Vec<SizeEffect>,
}

/// Number of rounds of the first measurement. Each round runs every setting once, and one of them
/// a second time.
const FIRST_ROUNDS: usize = 6;
const SECOND_ROUNDS: usize = 10;

/// Measures crossovers in this process, and settings in fresh processes.
pub fn measure(effective: &Effective, how: &Measuring<'_>) -> Result<ThresholdsResult, String> {
    let crossovers = crossover::measured(caches(), how)?;
    let candidates = effective.candidates(caches(), &crossovers);
    let mut run = ThresholdRun { how, random: Random::new(how.seed), processes: 0 };
    let mut found = ThresholdsResult {
        crossovers,
        tried: Vec::new(),
        confirmed: Vec::new(),
        advice: None,
        no_advice: None,
        processes: 0,
    };
    if candidates.is_empty() {
        found.no_advice = Some(
            "no setting to try: every threshold that cache sizes and measured crossovers suggest is already in effect, or libc does not allow it".to_owned(),
        );
        return Ok(found);
    }
    found.tried = run.tried(&candidates, FIRST_ROUNDS)?;
    let finalists = finalists(&candidates, &found.tried);
    if !finalists.is_empty() {
        found.confirmed = run.tried(&finalists, SECOND_ROUNDS)?;
    }
    let best = judge::best(&found.confirmed);
    found.advice = best.map(|best| ThresholdAdvice {
        line: format!("GLIBC_TUNABLES={}", best.tunables),
        effects: best.effects.clone(),
    });
    if found.advice.is_none() {
        found.no_advice = Some(judge::why_none(&found.tried, &found.confirmed));
    }
    found.processes = run.processes;
    Ok(found)
}

/// Returns the best setting of each tunable, and their combination.
fn finalists(candidates: &[ThresholdCandidate], tried: &[TriedSetting]) -> Vec<ThresholdCandidate> {
    let of = |name: &str| {
        let own = candidates.iter().zip(tried).filter(|(candidate, _)| candidate.tunable == name);
        let own: Vec<TriedSetting> = own.map(|(_, tried)| tried.clone()).collect();
        let best = judge::best(&own)?;
        candidates.iter().find(|candidate| candidate.text == best.tunables).cloned()
    };
    let mut finalists: Vec<ThresholdCandidate> =
        [MOVSB, STREAM].into_iter().filter_map(of).collect();
    if let [first, second] = finalists.as_slice() {
        let text = format!("{}:{}", first.text, second.text);
        finalists.push(ThresholdCandidate { tunable: first.tunable, text });
    }
    finalists
}

struct ThresholdRun<'m> {
    how: &'m Measuring<'m>,
    random: Random,
    processes: usize,
}

impl ThresholdRun<'_> {
    /// Runs rounds of the unchanged program and of each setting, every run in a fresh process.
    fn tried(
        &mut self,
        candidates: &[ThresholdCandidate],
        rounds: usize,
    ) -> Result<Vec<TriedSetting>, String> {
        let as_it_is = TrialSetting { name: "as it is".to_owned(), kind: SettingKind::Plain };
        let settings = candidates.iter().map(|candidate| TrialSetting {
            name: candidate.text.clone(),
            kind: SettingKind::Tunables { text: candidate.text.clone() },
        });
        let settings: Vec<TrialSetting> = std::iter::once(as_it_is).chain(settings).collect();
        let mut log = SampleLog::default();
        for setting in &settings {
            log.enter(&setting.name);
        }
        let mut logs = vec![log; SIZES.len()];
        let all: Vec<usize> = (0..settings.len()).collect();
        for round in 0..rounds {
            for log in &mut logs {
                log.rounds.push(Vec::new());
            }
            for arm in order(&all, &mut self.random) {
                let samples = child::run(self.how.program, &settings[arm], self.how.stop);
                let samples = samples.map_err(|failure| match failure.unfit() {
                    Ok(unfit) => unfit.reason,
                    Err(Cancelled) => "interrupted; no results".to_owned(),
                })?;
                self.processes += 1;
                for (log, sample) in logs.iter_mut().zip(samples) {
                    log.rounds[round].push(SampleEntry { arm, sample, cost: sample.wall });
                }
            }
        }
        Ok(judge::tried(&settings[1..], &logs, &mut self.random))
    }
}

#[cfg(test)]
mod tests;
