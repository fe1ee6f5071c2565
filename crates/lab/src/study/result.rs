//! What a run of a study leaves behind. `--json` prints it as one object, schema 1; under
//! `studies/results/` the samples lie beside it, schema 2.

use serde::{Deserialize, Serialize};
use thalweg_core::{Guarantees, profile::Ratio};

use super::file::{GOAL, Load, Origin};
use crate::{
    arms::Finding,
    measure::{
        sample::{CallsKind, Metric, Sample},
        stats::Verdict,
    },
};

/// A run of one study.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StudyResult {
    pub study: String,
    /// 1 with the samples inside, 2 without.
    pub schema: u32,
    /// The file beside this one that has the samples; only while there are none inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<String>,
    pub title: String,
    /// Which text of the study was run, and by which it was judged. Results of earlier versions have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<StudyText>,
    /// The machine and what it was doing, as [`Conditions`](crate::measure::conditions::Conditions) writes it.
    pub conditions: serde_json::Value,
    /// How it was measured.
    pub protocol: Protocol,
    /// One entry for each arm, cell, size and load.
    pub arms: Vec<ArmResult>,
    /// Arms that could not run, and why.
    pub missing: Vec<Missing>,
    /// Every arm against the first one of its cell, for both metrics.
    pub ratios: Vec<RatioResult>,
    /// The arms that were sampled twice in a round, to themselves: the noise of the run.
    pub aa: Option<Ratio>,
    /// A difference below this share is no difference shown.
    pub noise: f64,
    /// What harness and meter cost: seconds per sample of an arm that does nothing.
    pub null_seconds: Option<f64>,
    /// How many comparisons were made: at 95 %, one in twenty differs by chance alone.
    pub comparisons: usize,
    /// What the probes found, for the claims that ask one.
    #[serde(default)]
    pub probes: Vec<ProbeResult>,
    /// What each place took, for whoever has to make a run shorter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<PlaceCost>,
    /// The claims and what became of them.
    pub claims: Vec<ClaimResult>,
}

impl StudyResult {
    /// How many samples others took the processor from, or kept the machine busy beside.
    pub fn disturbed(&self) -> usize {
        let sessions = self.arms.iter().flat_map(|arm| &arm.sessions);
        sessions.map(|session| session.disturbed).sum()
    }
}

/// Texts of a study by their hashes, as `xxh3:` and 16 digits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StudyText {
    /// The one that was run; `None` where that was not kept.
    pub ran: Option<String>,
    /// The one whose claims were judged.
    pub judged: String,
}

/// What one probe of one claim found, session by session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProbeResult {
    pub claim: String,
    /// The number of the check in the claim as it was run, from 0: as published, more widely, flips.
    pub check: usize,
    pub probe: String,
    /// What it was asked; by this a later study finds it again. Results of earlier versions have it
    /// not, and are found by `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<toml::Table>,
    /// What it found, one entry for each session.
    pub sessions: Vec<ProbeSession>,
}

/// What a probe found in one session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProbeSession {
    /// The session's number, from 0.
    pub session: usize,
    /// What it found; `None` where it could not look.
    pub finding: Option<Finding>,
    /// Why it could not look.
    pub missing: Option<String>,
}

/// How it was measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Protocol {
    /// quick, standard, strict, or custom.
    pub preset: String,
    /// Fresh processes.
    pub sessions: usize,
    pub rounds: usize,
    /// Seconds between sessions, at least.
    pub pause_seconds: f64,
    /// How long a sample is meant to be.
    pub sample_seconds: f64,
    pub seed: u64,
    /// The processors that the arms were pinned to; empty where they were not.
    pub pinned: Vec<usize>,
    /// The command that repeats the run.
    pub command: String,
    /// When it began, RFC 3339.
    pub began: String,
    /// Seconds on the clock, all in all.
    pub took_seconds: f64,
}

/// Where a figure was taken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Place {
    pub cell: String,
    /// The size as the study writes it.
    pub size: String,
    /// The same in bytes.
    pub bytes: u64,
    pub load: Load,
}

/// What a place took.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlaceCost {
    #[serde(flatten)]
    pub place: Place,
    /// Seconds on the clock in all sessions together: set-up, warming up, rounds, looking at bytes.
    pub seconds: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ArmResult {
    pub name: String,
    #[serde(flatten)]
    pub place: Place,
    pub origin: Origin,
    /// What it promises; `None` where the question makes no sense (a baseline).
    pub promises: Option<Guarantees>,
    /// What the alias probe saw: `copied`, `shared`, or why it could not look.
    pub alias: Option<String>,
    pub note: Option<String>,
    /// Median 10^9 bytes a second.
    pub gb_per_s: f64,
    /// Median processor seconds, user and system, per 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// The same, user alone.
    pub user_s_per_gb: f64,
    /// The part of the processor seconds that a process at the far end of a pipe or a socket had;
    /// `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_cpu_s_per_gb: Option<f64>,
    pub faults_per_gb: f64,
    /// System calls per 10^9 bytes; `None` where nobody counted.
    pub calls_per_gb: Option<f64>,
    /// Which calls those are. Results of earlier versions leave it out: theirs are all counted by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_kind: Option<CallsKind>,
    /// Why nobody counted, though somebody tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_uncounted: Option<String>,
    /// Samples that were marked, of all; none was left out.
    pub marked: usize,
    /// Every sample, session by session.
    pub sessions: Vec<SessionSamples>,
}

/// The samples of one arm in one session.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct SessionSamples {
    /// The session's number, from 0.
    pub session: usize,
    /// Operations in each sample.
    pub repeats: u32,
    /// The samples, in the order taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<RoundSample>,
    /// Signs that a sample measured something else too.
    pub marks: Vec<String>,
    /// How many samples others took the processor from, or kept the machine busy beside; 0 also in results of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "is_none")]
    pub disturbed: usize,
    /// The arm failed under way, so nobody looked at its bytes: its samples are kept, all marked, and
    /// decide nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde hands a reference.
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A sample and the round it was taken in: the arm drawn by lot has two in one round.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct RoundSample {
    /// The round, from 0.
    pub round: usize,
    #[serde(flatten)]
    pub sample: Sample,
}

/// An arm that could not run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Missing {
    pub arm: String,
    #[serde(flatten)]
    pub place: Place,
    pub reason: String,
}

/// One arm against another.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RatioResult {
    pub a: String,
    pub b: String,
    #[serde(flatten)]
    pub place: Place,
    /// Wall or processor time per operation.
    pub metric: Metric,
    /// Cost of `a` over cost of `b`, with its 95 % interval over sessions.
    #[serde(flatten)]
    pub ratio: Ratio,
    pub verdict: Verdict,
    /// Whether both promise the same; if not, they may not be ranked without saying so.
    pub same_promises: bool,
}

/// What became of a claim.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClaimResult {
    pub id: String,
    /// number, ratio, conclusion, mechanism, method or goal.
    pub kind: String,
    pub text: String,
    pub published: Option<String>,
    pub predicate: Option<String>,
    /// What the article's own table says.
    pub source_check: Option<String>,
    /// What was measured: the (first) check's figure.
    pub measured: Option<f64>,
    /// The lower end of its interval.
    pub lo: Option<f64>,
    pub hi: Option<f64>,
    /// As published: with the article's own programs, parameters, sizes and state of the memory.
    pub verdict: ClaimVerdict,
    /// Why, in words; what is missing where it is not runnable.
    pub reason: String,
    /// Check by check, those that decided first.
    pub evidence: Vec<Evidence>,
    /// The verdict under fair conditions of today; `None` where the study asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Wider>,
    /// Which parameter flips it.
    pub flips: Vec<Evidence>,
}

/// What became of a claim more widely.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Wider {
    pub verdict: ClaimVerdict,
    /// Why, in words.
    pub reason: String,
    /// Check by check, those that decided first.
    pub evidence: Vec<Evidence>,
}

impl ClaimResult {
    /// Whether it is our own goal and no article's claim.
    pub fn is_goal(&self) -> bool {
        self.kind == GOAL
    }
}

/// What one check saw.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Evidence {
    /// What was compared, in words.
    pub text: String,
    pub measured: Option<f64>,
    /// The lower end of its interval.
    pub lo: Option<f64>,
    pub hi: Option<f64>,
    /// The range that was to hold; an open end is saved as null.
    #[serde(default, with = "open_ends")]
    pub within: Option<[f64; 2]>,
    /// What it says of the claim.
    pub verdict: ClaimVerdict,
}

/// What a run says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The whole interval satisfies it.
    Reproduced,
    /// The whole interval violates it.
    Contradicted,
    /// The interval does both.
    Undecided,
    /// It could not be run here; the reason says what is missing.
    NotRunnable,
}

impl ClaimVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::Undecided => "undecided",
            Self::NotRunnable => "not runnable",
        }
    }
}

/// JSON has no infinity: an open end of a range is null.
mod open_ends {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Range = Option<[f64; 2]>;

    #[allow(clippy::ref_option)] // Serde hands a reference.
    pub fn serialize<S: Serializer>(range: &Range, to: S) -> Result<S::Ok, S::Error> {
        let end = |end: f64| Some(end).filter(|end| end.is_finite());
        range.map(|[lo, hi]| [end(lo), end(hi)]).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Range, D::Error> {
        let range = Option::<[Option<f64>; 2]>::deserialize(from)?;
        Ok(range.map(|[lo, hi]| [lo.unwrap_or(f64::NEG_INFINITY), hi.unwrap_or(f64::INFINITY)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_with_an_open_end_survives_its_json() {
        let evidence = Evidence {
            text: String::new(),
            measured: Some(1.0),
            lo: None,
            hi: None,
            within: Some([2.0, f64::INFINITY]),
            verdict: ClaimVerdict::Undecided,
        };
        let text = serde_json::to_string(&evidence).unwrap();
        let again: Evidence = serde_json::from_str(&text).unwrap();
        assert_eq!(again.within, Some([2.0, f64::INFINITY]));
        let without = text.replace("\"within\":[2.0,null],", "");
        assert_eq!(serde_json::from_str::<Evidence>(&without).unwrap().within, None);
    }
}
