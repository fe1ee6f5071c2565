//! The study file: what a TOML file under `studies/` may say. Data only; nothing is run here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::measure::sample::Metric;

/// A published experiment, restated.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The version of this format: 1.
    pub schema: u32,
    /// The short name on the command line: `002`.
    pub id: String,
    /// The name in reports.
    pub title: String,
    /// One line for the list of studies.
    pub summary: String,
    /// Whether it runs only when it is named, not with `all`: a long one of our own.
    #[serde(default)]
    pub only_by_name: bool,
    /// Where the experiment was published, its parameters and its tables.
    pub source: Article,
    /// What is compared with what, and at which sizes and loads.
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    /// The ways that are compared.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// What was published, in a form that can be checked.
    #[serde(rename = "claim", default)]
    pub claims: Vec<Claim>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Article {
    /// Its title, or what the study is about if nothing was published.
    pub title: String,
    /// Parameters as published, and "not given" where they were not.
    #[serde(default)]
    pub parameters: BTreeMap<String, toml::Value>,
    /// Its tables, row by row.
    #[serde(rename = "table", default)]
    pub tables: Vec<Table>,
    /// All else that it has, one by one: what of it is run where, and what is not.
    #[serde(rename = "item", default)]
    pub items: Vec<Item>,
}

/// Something that an article has: docs/articles.md is made of these and of the claims.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    pub what: What,
    pub text: String,
    /// Where it is run, by names: cells, arms, claims.
    #[serde(default)]
    pub cells: Vec<String>,
    #[serde(default)]
    pub arms: Vec<String>,
    #[serde(default)]
    pub claims: Vec<String>,
    /// What of it is not run, and why.
    pub absent: Option<String>,
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The machine, its kernel, its compiler.
    System,
    Program,
    /// Bytes, or how many operations.
    Size,
    /// How it was measured.
    Parameter,
    /// Something it says that is none of the study's claims.
    Claim,
}

impl What {
    /// Its name in study files.
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
pub struct Table {
    /// What it shows, with the unit.
    pub name: String,
    /// Names of the columns, the first one that of the row's name.
    pub columns: Vec<String>,
    /// The rows, as long as `columns`.
    pub rows: Vec<Vec<toml::Value>>,
}

/// Arms that are interleaved with each other, at several sizes and loads.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The name that claims use.
    pub name: String,
    /// Bytes of one operation, as `64KiB`, `7MB` or `16GiB`.
    pub sizes: Vec<String>,
    /// The sizes of a quick run, if not all of them; none leaves the cell out of it.
    pub quick_sizes: Option<Vec<String>>,
    /// The sizes that only a strict run takes: dear ones, whose verdict others give too.
    #[serde(default)]
    pub strict_sizes: Vec<String>,
    /// The most rounds of a session, where one operation takes minutes.
    pub rounds: Option<usize>,
    /// What else the machine does.
    #[serde(default = "idle_only")]
    pub loads: Vec<Load>,
    /// Keeps the arms on one processor, so that where a process wakes up is not what is compared.
    #[serde(default)]
    pub pinned: bool,
    /// Names of the arms; the first one is what the others are compared with.
    pub arms: Vec<String>,
    /// Parameters that all arms have here: a list goes behind the arm's own, anything else is for arms
    /// that do not say it themselves.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub with: toml::Table,
}

impl Cell {
    /// The parameters of an arm in this cell.
    pub fn parameters(&self, arm: &Arm) -> toml::Table {
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

/// What else the machine does while an arm is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Nothing that we started.
    Idle,
    /// A busy thread on every core but one.
    Busy,
    /// One thread that is busy a quarter of the time (study 001's).
    Quarter,
    /// A process that keeps dirtying a file and writing it back.
    Writeback,
}

impl Load {
    /// Its name in study files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Quarter => "quarter",
            Self::Writeback => "writeback",
        }
    }
}

fn idle_only() -> Vec<Load> {
    vec![Load::Idle]
}

/// One way of doing the work.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The name in cells, claims and results.
    pub name: String,
    /// The work that makes it, by its name in [`ARM_KINDS`](crate::arms::ARM_KINDS).
    pub work: String,
    /// Whether the article has it so, or we added it for a fair comparison.
    #[serde(default)]
    pub origin: Origin,
    /// What the reader should know of it: the parameter that flips the result, what it stands for.
    pub note: Option<String>,
    /// The parameters of the work.
    #[serde(default)]
    pub with: toml::Table,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The article's way with the article's parameters.
    #[default]
    Published,
    /// Added: what a fair comparison would have had.
    Fair,
    /// Added: a limit or a baseline, not a way of doing the job.
    Baseline,
}

/// Something the article says.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its number: `002.1`.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: String,
    pub text: String,
    /// The published figure or figures.
    pub published: Option<toml::Value>,
    /// What is to hold, in words.
    pub predicate: Option<String>,
    /// What the article's own text or table says to it: consistent, rounded, wrong, ...
    pub source_check: Option<String>,
    /// What is behind it, in words.
    pub why: Option<String>,
    /// As published: the article's own programs, parameters, sizes and state of the memory. All of
    /// these must hold.
    #[serde(rename = "check", default)]
    pub checks: Vec<Check>,
    /// Why the claim cannot be run as published on this kind of machine.
    pub not_runnable: Option<String>,
    /// More widely: what a fair comparison would have had, and what people use today. All of these must
    /// hold for the second verdict; the first one does not ask them.
    #[serde(rename = "wider", default)]
    pub wider: Vec<Check>,
    /// Ratios that show which parameter flips the result; they enter neither verdict.
    #[serde(rename = "flip", default)]
    pub flips: Vec<Check>,
}

impl Claim {
    /// Every check of the claim: as published, more widely, what flips it. Probes are numbered so.
    pub fn all_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().chain(&self.wider).chain(&self.flips)
    }

    /// Whether it is ours and no article's.
    pub fn is_goal(&self) -> bool {
        self.kind == GOAL
    }
}

/// Whether a study may be called so on the command line, where `all` is every one.
pub fn is_id(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text != "all" && text.chars().all(letter)
}

/// The kind of a claim that is our own.
pub const GOAL: &str = "goal";

/// The kinds of claims: what an article gives is a figure, one figure over another, what it concludes, how it
/// says that something works, or how it measured; and our own.
pub const KINDS: &[&str] = &["number", "ratio", "conclusion", "mechanism", "method", GOAL];

/// One thing to check. Ratios are of the cost per operation of the first arm to the second's; the
/// whole interval inside `within` (ends included) reproduces it, the whole outside contradicts it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "test", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Check {
    Ratio {
        arms: [String; 2],
        at: At,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        /// In words, for the report.
        note: Option<String>,
    },
    /// The (arithmetic) mean of the ratios over all sizes of a cell, session by session.
    MeanRatio {
        arms: [String; 2],
        /// Where; the size is left out.
        at: At,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// One arm under one load to the same arm under another, by the medians of each session.
    LoadRatio {
        arm: String,
        /// Where; the load is left out.
        at: At,
        loads: [Load; 2],
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// Each row's ratio lies within `factor` of the published one.
    Rows {
        arms: [String; 2],
        /// Where; the size is left out.
        at: At,
        #[serde(default)]
        metric: Metric,
        /// Published ratios by size.
        published: BTreeMap<String, f64>,
        within: [f64; 2],
        note: Option<String>,
    },
    /// Among all sizes of these cells there are two where the ratio lies surely on opposite sides
    /// of `around`.
    Opposite {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: Metric,
        /// The range both intervals must be clear of, one on each side.
        around: [f64; 2],
        note: Option<String>,
    },
    /// In every size of these cells the ratio lies surely within.
    Everywhere {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// In at least one size of these cells the ratio lies surely within.
    Somewhere {
        arms: [String; 2],
        cells: Vec<String>,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// In every place of these cells the arm's cost to that of each of the others lies within; the one
    /// that the arm is furthest behind is shown.
    AgainstBest {
        arm: String,
        /// The others. One that cannot run in a place is not the best there.
        rivals: Vec<String>,
        cells: Vec<String>,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// Rank correlation (Spearman) of the arms' costs in one place with those in another.
    RankCorrelation {
        arms: Vec<String>,
        places: [At; 2],
        /// The arms' names in the second place, where they differ.
        second_arms: Option<Vec<String>>,
        #[serde(default)]
        metric: Metric,
        within: [f64; 2],
        note: Option<String>,
    },
    /// What a probe finds (see [`PROBES`](crate::arms::PROBES)): numbers, compared one by one.
    Probe {
        probe: String,
        #[serde(default)]
        with: toml::Table,
        /// The range in which every number it returns must lie.
        within: [f64; 2],
        note: Option<String>,
    },
}

/// A place in the results.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    pub cell: String,
    /// The size, as the cell writes it; the only one if left out.
    pub size: Option<String>,
    #[serde(default = "idle")]
    pub load: Load,
}

impl At {
    /// A cell, whatever the size.
    #[must_use]
    pub fn of_cell(cell: &str) -> Self {
        Self { cell: cell.to_owned(), size: None, load: Load::Idle }
    }

    /// The same at this size alone.
    #[must_use]
    pub fn of_size(&self, size: &str) -> Self {
        Self { size: Some(size.to_owned()), ..self.clone() }
    }
}

fn idle() -> Load {
    Load::Idle
}
