//! The result of a run of a study, which tests the claims of a published article or goals of this project. `--json`
//! prints it as one object (schema 1). Under `studies/results/` the samples are in a separate file next to it (schema
//! 2).

use serde::{Deserialize, Serialize};
use thalweg_core::{Guarantees, profile::Ratio};

use super::file::{ArmOrigin, GOAL};
use crate::arms::ProbeFinding;
use thalweg_measure::load::BackgroundLoad;
use thalweg_measure::{
    sample::{CallsKind, Sample, SampleMetric},
    stats::RatioVerdict,
};

/// The result of a run of one study.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StudyResult {
    pub study: String,
    /// 1 if the samples are included, 2 if they are in a separate file.
    pub schema: u32,
    /// The file with the samples, in the same directory; `None` if the samples are included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<String>,
    pub title: String,
    /// Hashes of the study's text, as it was run and as it was judged. Absent from results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<StudyText>,
    /// The machine and its state, as written by [`Conditions`](thalweg_measure::conditions::Conditions).
    pub conditions: serde_json::Value,
    /// The parameters of the measurement.
    pub protocol: Protocol,
    /// One entry for each arm (a compared variant), cell (arms that are compared with each other), size and load.
    pub arms: Vec<ArmResult>,
    /// Arms that could not run, with the reason.
    pub missing: Vec<Missing>,
    /// The ratio of every arm to the first one of its cell, for both metrics.
    pub ratios: Vec<RatioResult>,
    /// The noise of the run: the ratio of two samples of one arm in one round.
    pub aa: Option<Ratio>,
    /// A relative difference smaller than this counts as noise.
    pub noise: f64,
    /// Overhead of the harness: seconds per sample of an arm that does nothing.
    pub null_seconds: Option<f64>,
    /// The number of comparisons. At 95 % confidence, one in twenty differs by chance alone.
    pub comparisons: usize,
    /// Results of the probes that claims refer to.
    #[serde(default)]
    pub probes: Vec<ProbeResult>,
    /// The time spent on each condition; shows how to shorten a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<ConditionCost>,
    /// The claims with their verdicts.
    pub claims: Vec<ClaimResult>,
}

impl StudyResult {
    /// Returns the number of rounds with disturbed samples, summed over arms and sessions: other processes took CPU
    /// time from these samples or kept the machine busy.
    pub fn disturbed(&self) -> usize {
        let sessions = self.arms.iter().flat_map(|arm| &arm.sessions);
        sessions.map(|session| session.disturbed).sum()
    }
}

/// Hashes of study texts, as `xxh3:` and 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StudyText {
    /// The text that was run; `None` if it was not recorded.
    pub ran: Option<String>,
    /// The text by which the claims were judged.
    pub judged: String,
}

/// The results of one probe of one claim, per session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProbeResult {
    pub claim: String,
    /// The index of the check in the claim that was run, from 0: first the published checks, then `wider`, then
    /// `flips`.
    pub check: usize,
    pub probe: String,
    /// The parameters of the probe. A later version of the study uses them to find the result. Results of earlier
    /// versions lack this field, and `check` is used to find them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<toml::Table>,
    /// One entry for each session.
    pub sessions: Vec<ProbeSession>,
}

/// The result of a probe in one session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProbeSession {
    /// The session's number, from 0.
    pub session: usize,
    /// The result; `None` if the probe could not run.
    pub finding: Option<ProbeFinding>,
    /// The reason why the probe could not run.
    pub missing: Option<String>,
}

/// The parameters of the measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Protocol {
    /// quick, standard, full, or custom.
    pub preset: String,
    /// The number of sessions, each in a fresh process.
    pub sessions: usize,
    pub rounds: usize,
    /// Minimum pause between sessions, in seconds.
    pub pause_seconds: f64,
    /// Intended duration of a sample, in seconds.
    pub sample_seconds: f64,
    pub seed: u64,
    /// The CPUs to which the arms were pinned; empty if they were not pinned.
    pub pinned: Vec<usize>,
    /// The command that repeats the run.
    pub command: String,
    /// The start time (RFC 3339).
    pub began: String,
    /// Total wall time in seconds.
    pub took_seconds: f64,
    /// Later runs that added sessions, in the order of their sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
}

impl Protocol {
    /// Returns the number of sessions of the run and of all later runs that were added to it.
    pub fn all_sessions(&self) -> usize {
        self.sessions + self.extensions.iter().map(|more| more.sessions).sum::<usize>()
    }

    /// Returns text such as `; 18 more sessions of one-process, channel`, for all later runs.
    pub fn extensions_text(&self) -> String {
        let text = |Extension { cells, sessions, .. }: &Extension| {
            format!("; {sessions} more sessions of {}", cells.join(", "))
        };
        self.extensions.iter().map(text).collect::<Vec<_>>().concat()
    }
}

/// A later run of some cells. Its sessions were added to a result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Extension {
    /// The cells that it measured.
    pub cells: Vec<String>,
    pub sessions: usize,
    pub rounds: usize,
    /// The command that repeats it.
    pub command: String,
    /// The start time (RFC 3339).
    pub began: String,
    /// Total wall time in seconds.
    pub took_seconds: f64,
    /// The hash of the study's text that was run; `None` if it was not recorded.
    pub text: Option<String>,
}

/// A combination of cell, size and load in which a figure was measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Condition {
    pub cell: String,
    /// The size as the study writes it.
    pub size: String,
    /// The size in bytes.
    pub bytes: u64,
    pub load: BackgroundLoad,
}

/// The time spent on one condition.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConditionCost {
    #[serde(flatten)]
    pub place: Condition,
    /// Wall time of all sessions together, in seconds: set-up, warm-up, rounds and verification.
    pub seconds: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ArmResult {
    pub name: String,
    #[serde(flatten)]
    pub place: Condition,
    pub origin: ArmOrigin,
    /// The guarantees of the arm; `None` for a baseline.
    pub promises: Option<Guarantees>,
    /// The result of the alias probe: `copied`, `shared`, or the reason why it could not run.
    pub alias: Option<String>,
    pub note: Option<String>,
    /// Median throughput in 10^9 bytes per second.
    pub gb_per_s: f64,
    /// Median CPU time (user and system), in seconds per 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Median user CPU time, in seconds per 10^9 bytes.
    pub user_s_per_gb: f64,
    /// The part of the CPU time that the peer process of a pipe or socket used; `None` without a peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_cpu_s_per_gb: Option<f64>,
    pub faults_per_gb: f64,
    /// System calls per 10^9 bytes; `None` if they were not counted.
    pub calls_per_gb: Option<f64>,
    /// The kind of calls that were counted. Absent from results of earlier versions, which contain only calls
    /// counted by thalweg itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_kind: Option<CallsKind>,
    /// The reason why counting the calls failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_uncounted: Option<String>,
    /// The number of rounds with a disturbed sample, summed over the sessions. For a session in which the arm failed or
    /// its times are doubted, the number of all samples. `marks` of the session has the reasons. No sample is dropped.
    pub marked: usize,
    /// All samples, per session.
    pub sessions: Vec<SessionSamples>,
}

/// The samples of one arm in one session.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct SessionSamples {
    /// The session's number, from 0.
    pub session: usize,
    /// Operations per sample.
    pub repeats: u32,
    /// The samples, in the order in which they were taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<RoundSample>,
    /// Reservations about the samples: signs of other activity, unverified bytes, or pages shared
    /// despite a guarantee.
    pub marks: Vec<String>,
    /// The number of rounds with a disturbed sample: other processes took CPU time from it or kept the machine busy.
    /// Also 0 in results of earlier versions.
    #[serde(default, skip_serializing_if = "is_none")]
    pub disturbed: usize,
    /// `true` if the arm failed during the session, so that its output was not verified. Its
    /// samples are kept with a reservation, but do not contribute to any verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde passes a reference.
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A sample and its round. In each round, one arm chosen at random has two samples.
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
    pub place: Condition,
    pub reason: String,
}

/// The ratio of one arm to another.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RatioResult {
    pub a: String,
    pub b: String,
    #[serde(flatten)]
    pub place: Condition,
    /// Wall time or CPU time per operation.
    pub metric: SampleMetric,
    /// Cost of `a` divided by the cost of `b`, with its 95 % interval over sessions.
    #[serde(flatten)]
    pub ratio: Ratio,
    pub verdict: RatioVerdict,
    /// `true` if both arms give the same guarantees. Otherwise a ranking must mention the difference.
    pub same_promises: bool,
}

/// A claim with its verdicts.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClaimResult {
    pub id: String,
    /// `number`, `ratio`, `conclusion`, `mechanism`, `method` or `goal`.
    pub kind: String,
    pub text: String,
    pub published: Option<String>,
    pub predicate: Option<String>,
    /// The result of comparing the claim with the article's own table.
    pub source_check: Option<String>,
    /// The measured figure of the first check.
    pub measured: Option<f64>,
    /// The lower end of its interval.
    pub lo: Option<f64>,
    pub hi: Option<f64>,
    /// The verdict as published: with the article's own programs, parameters, sizes and memory state.
    pub verdict: ClaimVerdict,
    /// The reason in words; names what is missing if the claim is not runnable.
    pub reason: String,
    /// The evidence of each check. Checks that agree with the verdict come first.
    pub evidence: Vec<ClaimEvidence>,
    /// The verdict under modern conditions; `None` if the study has no such checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Wider>,
    /// The parameters that flip the result.
    pub flips: Vec<ClaimEvidence>,
}

/// The verdict on a claim under modern conditions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Wider {
    pub verdict: ClaimVerdict,
    /// The reason in words.
    pub reason: String,
    /// The evidence of each check. Checks that agree with the verdict come first.
    pub evidence: Vec<ClaimEvidence>,
}

impl ClaimResult {
    /// Returns an estimate of how many sessions would decide the claim as published; `None` if it is decided, or if a
    /// check has no estimate.
    pub fn sessions_needed(&self) -> Option<usize> {
        let undecided = |check: &&ClaimEvidence| check.verdict == ClaimVerdict::Undecided;
        let needed: Option<Vec<usize>> =
            self.evidence.iter().filter(undecided).map(|check| check.sessions_needed).collect();
        needed?.into_iter().max().filter(|_| self.verdict == ClaimVerdict::Undecided)
    }

    /// Returns `true` if the claim is a goal of thalweg instead of a statement of an article.
    pub fn is_goal(&self) -> bool {
        self.kind == GOAL
    }
}

/// The result of one check.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClaimEvidence {
    /// A description of the comparison.
    pub text: String,
    pub measured: Option<f64>,
    /// The lower end of its interval.
    pub lo: Option<f64>,
    pub hi: Option<f64>,
    /// The range in which the figure must lie; an open end is saved as null.
    #[serde(default, with = "open_ends")]
    pub within: Option<[f64; 2]>,
    /// The verdict of this check alone.
    pub verdict: ClaimVerdict,
    /// The estimated number of sessions that would decide an undecided check; `None` without an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_needed: Option<usize>,
}

/// The verdict of a run on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The whole interval satisfies the claim.
    Reproduced,
    /// The whole interval violates the claim.
    Contradicted,
    /// The interval contains both satisfying and violating values, or this run has too little data.
    Undecided,
    /// The claim could not be run here; the reason names what is missing.
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

/// JSON cannot represent infinity: an open end of a range is null.
mod open_ends {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Range = Option<[f64; 2]>;

    #[allow(clippy::ref_option)] // Serde passes a reference.
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
        let evidence = ClaimEvidence {
            text: String::new(),
            measured: Some(1.0),
            lo: None,
            hi: None,
            within: Some([2.0, f64::INFINITY]),
            verdict: ClaimVerdict::Undecided,
            sessions_needed: None,
        };
        let text = serde_json::to_string(&evidence).unwrap();
        let again: ClaimEvidence = serde_json::from_str(&text).unwrap();
        assert_eq!(again.within, Some([2.0, f64::INFINITY]));
        let without = text.replace("\"within\":[2.0,null],", "");
        assert_eq!(serde_json::from_str::<ClaimEvidence>(&without).unwrap().within, None);
    }
}
