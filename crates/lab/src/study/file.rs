//! The format of study files (TOML, under `studies/`). A study measures what a published article measured, or what this
//! project sets as goals, and tests claims about it. Data types only; nothing runs here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use thalweg_measure::{load::BackgroundLoad, sample::SampleMetric};

/// A published experiment, restated as data.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StudyFile {
    /// The version of this format: 1.
    pub schema: u32,
    /// The short name on the command line, for example `002`.
    pub id: String,
    /// The title shown in reports.
    pub title: String,
    /// One line for the list of studies.
    pub summary: String,
    /// `true` if the study is excluded from `all` and runs only when it is named. Used for long studies of our own.
    #[serde(default)]
    pub only_by_name: bool,
    /// The article: its parameters, tables and other content.
    pub source: Article,
    /// The main claim, shown first in the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// The comparisons: which arms (compared variants), at which sizes and loads.
    #[serde(rename = "cell")]
    pub cells: Vec<StudyCell>,
    /// The variants that are compared.
    #[serde(rename = "arm")]
    pub arms: Vec<StudyArm>,
    /// The published statements, in a form that can be checked.
    #[serde(rename = "claim", default)]
    pub claims: Vec<Claim>,
    /// Tasks of the article for which a run names the fastest method of today.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub today: Vec<TodayTask>,
}

/// A task, and the arms that can do it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TodayTask {
    /// Completes the sentence "To ..., use ...".
    pub task: String,
    pub cell: String,
    pub size: String,
    /// The candidates, all in that cell (arms that are compared with each other).
    pub arms: Vec<String>,
}

/// The main claim of an article, as the report introduces it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The claim with the quote, verdict and figures to show.
    pub claim: String,
    /// An English translation of the claim's quote, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<String>,
    /// Describes the ratio, and says which arm wins if it is above or below 1.
    pub measures: String,
    /// The article's figure in terms of the measured ratio, if the claim's own is of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Article {
    /// The title, or the subject of the study if nothing was published.
    pub title: String,
    /// The published parameters; "not given" for those that the article leaves out.
    #[serde(default)]
    pub parameters: BTreeMap<String, toml::Value>,
    /// The tables of the article, row by row.
    #[serde(rename = "table", default)]
    pub tables: Vec<SourceTable>,
    /// Everything else in the article, item by item: where each one is run, or why it is not.
    #[serde(rename = "item", default)]
    pub items: Vec<SourceItem>,
}

/// One piece of an article's content. docs/benchmarks/articles.md is generated from items and claims.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceItem {
    pub what: ItemKind,
    pub text: String,
    /// The cells, arms and claims that cover this item.
    #[serde(default)]
    pub cells: Vec<String>,
    #[serde(default)]
    pub arms: Vec<String>,
    #[serde(default)]
    pub claims: Vec<String>,
    /// The part of the item that is not run, and the reason.
    pub absent: Option<String>,
}

/// The kind of a [`SourceItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemKind {
    /// The machine, its kernel or its compiler.
    System,
    Program,
    /// A number of bytes or of operations.
    Size,
    /// A parameter of the measurement.
    Parameter,
    /// A statement of the article that is not among the study's claims.
    Claim,
}

impl ItemKind {
    /// Returns the name used in study files.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Program => "program",
            Self::Size => "size",
            Self::Parameter => "parameter",
            Self::Claim => "claim",
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceTable {
    /// The quantity in the table, with its unit.
    pub name: String,
    /// The column names. The first column contains the row names.
    pub columns: Vec<String>,
    /// The rows, each with as many values as `columns`.
    pub rows: Vec<Vec<toml::Value>>,
}

/// Arms that are interleaved with each other, at several sizes and loads.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StudyCell {
    /// The name by which claims refer to this cell.
    pub name: String,
    /// Bytes per operation, for example `64KiB`, `7MB` or `16GiB`.
    pub sizes: Vec<String>,
    /// The sizes of a quick run; `None` means all sizes. An empty list excludes the cell from quick runs.
    pub quick_sizes: Option<Vec<String>>,
    /// Sizes that only a full run measures: expensive ones that are not needed for most verdicts.
    #[serde(default)]
    pub full_sizes: Vec<String>,
    /// Upper limit for the rounds of a session, for operations that take minutes.
    pub rounds: Option<usize>,
    /// Upper limit for the sessions, for operations that take minutes.
    pub sessions: Option<usize>,
    /// `true` if operations take minutes: a sample is one operation, without calibration, and the bytes are not
    /// verified, because that takes several operations. Arms with shorter operations verify the same programs.
    #[serde(default)]
    pub long: bool,
    /// Expected wall time of one operation at the largest size, in seconds, averaged over the arms. The estimate of a
    /// run's duration uses it. Not needed for operations that are shorter than a sample.
    pub operation_seconds: Option<f64>,
    /// The background loads under which the arms run.
    #[serde(default = "idle_only")]
    pub loads: Vec<BackgroundLoad>,
    /// `true` if all arms are pinned to one CPU, so that the CPU on which a process wakes up does not affect the
    /// comparison.
    #[serde(default)]
    pub pinned: bool,
    /// Names of the arms. The other arms are compared with the first one.
    pub arms: Vec<String>,
    /// Parameters for all arms of this cell. A list is appended to the arm's own list; any other value applies only
    /// to arms that do not set the parameter.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub with: toml::Table,
}

impl StudyCell {
    /// Returns the parameters of an arm in this cell.
    pub fn parameters(&self, arm: &StudyArm) -> toml::Table {
        let mut both = arm.with.clone();
        for (key, value) in &self.with {
            match (both.get_mut(key), value) {
                (Some(toml::Value::Array(own)), toml::Value::Array(more)) => {
                    own.extend_from_slice(more);
                }
                (Some(_), _) => {}
                (None, _) => {
                    both.insert(key.clone(), value.clone());
                }
            }
        }
        both
    }
}

fn idle_only() -> Vec<BackgroundLoad> {
    vec![BackgroundLoad::Idle]
}

/// A variant that is measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StudyArm {
    /// The name in cells, claims and results.
    pub name: String,
    /// The work that creates the arm: a name from [`ARM_KINDS`](crate::arms::ARM_KINDS).
    pub work: String,
    /// Origin of the arm: from the article, or added for a fair comparison.
    #[serde(default)]
    pub origin: ArmOrigin,
    /// A note for readers, for example which parameter flips the result or what the arm represents.
    pub note: Option<String>,
    /// The parameters of the work.
    #[serde(default)]
    pub with: toml::Table,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmOrigin {
    /// The article's method with the article's parameters.
    #[default]
    Published,
    /// Added because a fair comparison needs it.
    Fair,
    /// Added as a limit or a baseline; it does not do the whole job.
    Baseline,
}

/// A statement of the article.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The number of the claim, for example `002.1`.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: String,
    pub text: String,
    /// The article's own words, in its own language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// The published figure or figures.
    pub published: Option<toml::Value>,
    /// The condition to verify, in words.
    pub predicate: Option<String>,
    /// The result of comparing the claim with the article's own text or tables: consistent, rounded, wrong, ...
    pub source_check: Option<String>,
    /// The cause of the effect, in words.
    pub why: Option<String>,
    /// Checks "as published": the article's own programs, parameters, sizes and memory state. All must hold.
    #[serde(rename = "check", default)]
    pub checks: Vec<ClaimCheck>,
    /// The reason why the claim cannot be run as published on this kind of machine.
    pub not_runnable: Option<String>,
    /// Checks under modern conditions: what a fair comparison needs and what is in use today. All must hold for the
    /// second verdict; they do not affect the first one.
    #[serde(rename = "wider", default)]
    pub wider: Vec<ClaimCheck>,
    /// Ratios that show which parameter flips the result. They do not affect either verdict.
    #[serde(rename = "flip", default)]
    pub flips: Vec<ClaimCheck>,
}

impl Claim {
    /// Returns all checks of the claim in the order by which probes are numbered: as published, wider, flips.
    pub fn all_checks(&self) -> impl Iterator<Item = &ClaimCheck> {
        self.checks.iter().chain(&self.wider).chain(&self.flips)
    }

    /// Returns `true` if the claim is a goal of thalweg instead of a statement of an article.
    pub fn is_goal(&self) -> bool {
        self.kind == GOAL
    }
}

/// Returns `true` if `text` is a valid study id on the command line. `all` is reserved for all studies.
pub fn is_id(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text != "all" && text.chars().all(letter)
}

/// The kind of claims that are goals of thalweg.
pub const GOAL: &str = "goal";

/// The kinds of claims. Articles contain figures, ratios of figures, conclusions, descriptions of mechanisms, and
/// methods of measurement; `goal` is our own.
pub const KINDS: &[&str] = &["number", "ratio", "conclusion", "mechanism", "method", GOAL];

/// One check of a claim. A ratio is the cost per operation of the first arm divided by that of the second. If the
/// whole interval is inside `within` (ends included), the claim is reproduced; if it is completely outside,
/// contradicted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "test", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClaimCheck {
    Ratio {
        arms: [String; 2],
        at: ClaimCondition,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        /// Explanation for the report.
        note: Option<String>,
    },
    /// The arithmetic mean of the ratios over all sizes of a cell, computed per session.
    MeanRatio {
        arms: [String; 2],
        /// The condition under which the claim holds; it specifies no size.
        at: ClaimCondition,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// The cost of one arm under one load relative to the same arm under another, from the medians of each session.
    LoadRatio {
        arm: String,
        /// The condition under which the claim holds; it specifies no load.
        at: ClaimCondition,
        loads: [BackgroundLoad; 2],
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// For each row, the ratio divided by the published ratio must lie within `within`.
    Rows {
        arms: [String; 2],
        /// The condition under which the claim holds; it specifies no size.
        at: ClaimCondition,
        #[serde(default)]
        metric: SampleMetric,
        /// Published ratios by size.
        published: BTreeMap<String, f64>,
        within: [f64; 2],
        note: Option<String>,
    },
    /// At two of the sizes of these cells, the ratio lies with certainty on opposite sides of `around`.
    Opposite {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: SampleMetric,
        /// One interval must lie above this range and the other below it; neither may touch it.
        around: [f64; 2],
        note: Option<String>,
    },
    /// At every size of these cells, the whole interval of the ratio lies in `within`.
    Everywhere {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// At one or more sizes of these cells, the whole interval of the ratio lies in `within`.
    Somewhere {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// Under every condition of these cells, the ratio of the arm to each rival lies in `within`. The report shows the
    /// rival with the worst verdict, and among equal verdicts that with the greatest ratio.
    AgainstBest {
        arm: String,
        /// The other arms. A rival that cannot run under a condition is ignored for that condition.
        rivals: Vec<String>,
        cells: Vec<String>,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// Rank correlation (Spearman) between the costs of the arms under one condition and under another.
    RankCorrelation {
        arms: Vec<String>,
        places: [ClaimCondition; 2],
        /// The names of the arms under the second condition, if they differ.
        second_arms: Option<Vec<String>>,
        #[serde(default)]
        metric: SampleMetric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// The numbers that a probe returns (see [`PROBES`](crate::arms::PROBES)), compared one by one.
    Probe {
        probe: String,
        #[serde(default)]
        with: toml::Table,
        /// The range in which every number must lie.
        within: [f64; 2],
        note: Option<String>,
    },
}

/// A condition in the results: cell, size and load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimCondition {
    pub cell: String,
    /// The size as written in the cell. May be omitted if the cell has only one.
    pub size: Option<String>,
    #[serde(default = "idle")]
    pub load: BackgroundLoad,
}

impl ClaimCondition {
    /// Returns a condition of `cell` for any size, without background load.
    #[must_use]
    pub fn of_cell(cell: &str) -> Self {
        Self { cell: cell.to_owned(), size: None, load: BackgroundLoad::Idle }
    }

    /// Returns a copy of this condition with the given size.
    #[must_use]
    pub fn of_size(&self, size: &str) -> Self {
        Self { size: Some(size.to_owned()), ..self.clone() }
    }
}

fn idle() -> BackgroundLoad {
    BackgroundLoad::Idle
}
