//! Parses a study file and rejects references to unknown cells (groups of arms that are compared with each other), arms
//! (compared variants), sizes or probes before anything runs.

use std::collections::BTreeSet;

use thalweg_core::{profile::LEAST_NOISE, quantity::parse_some_bytes};

use super::file::{
    Claim, ClaimCheck, ClaimCondition, KINDS, SourceItem, StudyCell, StudyFile, TodayTask, is_id,
};
use crate::arms::Catalogue;
use thalweg_measure::load::BackgroundLoad;

/// Upper limit for the numbers of arms, cells and claims. No study needs more, and a run of more would not finish.
const MOST: usize = 1000;

impl StudyFile {
    /// Parses and validates a study. The error names the location and what would be valid.
    pub fn parse(text: &str, catalogue: &Catalogue) -> Result<Self, String> {
        let wrong = |e: toml::de::Error| e.to_string().trim_end().to_owned();
        let study: Self = toml::from_str(text).map_err(wrong)?;
        let texts: toml::Table = toml::from_str(text).map_err(wrong)?;
        if let Some(odd) = odd_text(&toml::Value::Table(texts)) {
            return Err(format!(
                "{odd:?}: a text may have no control characters except line breaks and tabs"
            ));
        }
        study.check(catalogue)?;
        Ok(study)
    }

    pub fn cell(&self, name: &str) -> Option<&StudyCell> {
        self.cells.iter().find(|cell| cell.name == name)
    }

    fn check(&self, catalogue: &Catalogue) -> Result<(), String> {
        if self.schema != 1 {
            return Err(format!(
                "schema = {}: this version of thalweg supports only schema 1",
                self.schema
            ));
        }
        if !is_id(&self.id) {
            return Err(format!(
                "id = {:?}: an id consists of lower-case letters, digits and -, and is not 'all'",
                self.id
            ));
        }
        for (what, count) in
            [("arms", self.arms.len()), ("cells", self.cells.len()), ("claims", self.claims.len())]
        {
            if count > MOST {
                return Err(format!("{count} {what}: at most {MOST} are allowed"));
            }
        }
        distinct("arm", self.arms.iter().map(|arm| arm.name.as_str()))?;
        distinct("cell", self.cells.iter().map(|cell| cell.name.as_str()))?;
        distinct("claim", self.claims.iter().map(|claim| claim.id.as_str()))?;
        for cell in &self.cells {
            self.check_cell(cell).map_err(|e| format!("cell {:?}: {e}", cell.name))?;
        }
        self.check_arms(catalogue)?;
        for claim in &self.claims {
            self.check_claim(claim, catalogue).map_err(|e| format!("claim {}: {e}", claim.id))?;
        }
        if let Some(card) = &self.card {
            let Some(claim) = self.claims.iter().find(|claim| claim.id == card.claim) else {
                return Err(format!("card: unknown claim {:?}", card.claim));
            };
            if is_blank(claim.quote.as_deref()) {
                return Err(format!("card: claim {} has no quote", card.claim));
            }
        }
        for today in &self.today {
            self.check_today(today).map_err(|e| format!("today {:?}: {e}", today.task))?;
        }
        for item in &self.source.items {
            self.check_item(item).map_err(|e| format!("item {:?}: {e}", item.text))?;
        }
        for table in &self.source.tables {
            if table.rows.iter().any(|row| row.len() != table.columns.len()) {
                return Err(format!(
                    "table {:?}: a row has more or fewer values than columns",
                    table.name
                ));
            }
        }
        Ok(())
    }

    fn check_today(&self, today: &TodayTask) -> Result<(), String> {
        let Some(cell) = self.cell(&today.cell) else {
            let cells = self.cells.iter().map(|cell| cell.name.as_str());
            return Err(unknown("cell", &today.cell, cells));
        };
        let mut sizes = cell.sizes.iter().chain(&cell.full_sizes).map(String::as_str);
        if !sizes.clone().any(|size| size == today.size) {
            return Err(unknown("size", &today.size, &mut sizes));
        }
        let arms = || cell.arms.iter().map(String::as_str);
        match today.arms.iter().find(|arm| !cell.arms.contains(arm)) {
            Some(arm) => Err(unknown("arm", arm, arms())),
            None if today.arms.len() < 2 => Err("it needs at least two arms".to_owned()),
            None => Ok(()),
        }
    }

    fn check_item(&self, item: &SourceItem) -> Result<(), String> {
        if item.cells.is_empty()
            && item.arms.is_empty()
            && item.claims.is_empty()
            && is_blank(item.absent.as_deref())
        {
            return Err("it needs cells, arms or claims, or the reason why it is absent".to_owned());
        }
        let claims = || self.claims.iter().map(|claim| claim.id.as_str());
        let arms = || self.arms.iter().map(|arm| arm.name.as_str());
        let cells = || self.cells.iter().map(|cell| cell.name.as_str());
        let wrong = |what, names: &[String], known: Vec<&str>| {
            let name = names.iter().find(|name| !known.contains(&name.as_str()))?;
            Some(unknown(what, name, known.into_iter()))
        };
        let found = wrong("cell", &item.cells, cells().collect())
            .or_else(|| wrong("arm", &item.arms, arms().collect()))
            .or_else(|| wrong("claim", &item.claims, claims().collect()));
        found.map_or(Ok(()), Err)
    }

    fn check_arms(&self, catalogue: &Catalogue) -> Result<(), String> {
        for arm in &self.arms {
            let Some(kind) = catalogue.arm_kind(&arm.work) else {
                let works = catalogue.arm_kinds.iter().map(|work| work.name);
                let reason = unknown("work", &arm.work, works);
                return Err(format!("arm {:?}: {reason}", arm.name));
            };
            let mut cells =
                self.cells.iter().filter(|cell| cell.arms.contains(&arm.name)).peekable();
            if cells.peek().is_none() {
                return Err(format!("no cell uses arm {:?}", arm.name));
            }
            for cell in cells {
                if let Err(unfit) = (kind.parse)(&cell.parameters(arm)) {
                    return Err(format!("arm {:?} in cell {:?}: {unfit}", arm.name, cell.name));
                }
            }
        }
        Ok(())
    }

    fn check_cell(&self, cell: &StudyCell) -> Result<(), String> {
        if cell.arms.is_empty() || cell.sizes.is_empty() || cell.loads.is_empty() {
            return Err("it needs arms, sizes and loads".to_owned());
        }
        if cell.rounds == Some(0) {
            return Err("rounds = 0: at least one is required".to_owned());
        }
        if cell.sessions.is_some_and(|most| most < 2) {
            return Err(
                "sessions: at least 2, because one session does not show how sessions differ"
                    .to_owned(),
            );
        }
        distinct("arm", cell.arms.iter().map(String::as_str))?;
        distinct("size", cell.sizes.iter().map(String::as_str))?;
        if let Some(name) = cell.arms.iter().find(|name| !self.has_arm(name)) {
            return Err(unknown("arm", name, self.arms.iter().map(|arm| arm.name.as_str())));
        }
        for size in &cell.sizes {
            parse_some_bytes(size)?;
        }
        if let Some(size) = cell.full_sizes.iter().find(|size| !cell.sizes.contains(size)) {
            return Err(format!("full_sizes: {size:?} is not in sizes"));
        }
        match cell.quick_sizes.iter().flatten().find(|size| !cell.sizes.contains(size)) {
            Some(size) => Err(format!("quick_sizes: {size:?} is not in sizes")),
            None => Ok(()),
        }
    }

    fn has_arm(&self, name: &str) -> bool {
        self.arms.iter().any(|arm| arm.name == name)
    }

    fn check_claim(&self, claim: &Claim, catalogue: &Catalogue) -> Result<(), String> {
        if claim.not_runnable.is_some() && is_blank(claim.not_runnable.as_deref()) {
            return Err("not_runnable needs a reason".to_owned());
        }
        if claim.checks.is_empty() == claim.not_runnable.is_none() {
            return Err("it needs either checks or a `not_runnable` with the reason".to_owned());
        }
        if !KINDS.contains(&claim.kind.as_str()) {
            return Err(unknown("kind of claim", &claim.kind, KINDS.iter().copied()));
        }
        claim.checks.iter().chain(&claim.wider).try_for_each(ClaimCheck::can_be_decided)?;
        claim.all_checks().try_for_each(|check| self.check_one(check, catalogue))
    }

    fn check_one(&self, check: &ClaimCheck, catalogue: &Catalogue) -> Result<(), String> {
        is_range(check.within())?;
        match check {
            ClaimCheck::Ratio { arms, at, .. } => self.check_at(at, Some(at.load), arms, true),
            ClaimCheck::MeanRatio { at, .. } if at.size.is_some() => {
                Err("a mean covers all sizes of the cell: remove `size` from `at`".to_owned())
            }
            ClaimCheck::MeanRatio { arms, at, .. } => self.check_at(at, Some(at.load), arms, false),
            ClaimCheck::LoadRatio { loads, .. } if loads[0] == loads[1] => {
                Err("loads: a load is listed twice".to_owned())
            }
            ClaimCheck::LoadRatio { arm, at, loads, .. } => {
                let arms = std::slice::from_ref(arm);
                loads.iter().try_for_each(|load| self.check_at(at, Some(*load), arms, true))
            }
            ClaimCheck::Rows { arms, at, published, .. } => {
                if published.is_empty() || !published.values().all(|value| *value > 0.0) {
                    return Err("published must list sizes, each with a ratio above 0".to_owned());
                }
                let mut sizes = published.keys().map(|size| at.of_size(size));
                sizes.try_for_each(|at| self.check_at(&at, Some(at.load), arms, true))
            }
            ClaimCheck::Everywhere { arms, cells, .. }
            | ClaimCheck::Opposite { arms, cells, .. }
            | ClaimCheck::Somewhere { arms, cells, .. } => {
                if cells.is_empty() {
                    return Err("cells is empty".to_owned());
                }
                cells.iter().try_for_each(|cell| {
                    self.check_at(&ClaimCondition::of_cell(cell), None, arms, false)
                })
            }
            ClaimCheck::AgainstBest { arm, rivals, cells, .. } => {
                if cells.is_empty() || rivals.is_empty() || rivals.contains(arm) {
                    return Err("it needs cells, and rivals that are not the arm itself".to_owned());
                }
                let arms: Vec<String> = rivals.iter().chain([arm]).cloned().collect();
                cells.iter().try_for_each(|cell| {
                    self.check_at(&ClaimCondition::of_cell(cell), None, &arms, false)
                })
            }
            ClaimCheck::RankCorrelation { arms, places, second_arms, .. } => {
                let second = second_arms.as_ref().unwrap_or(arms);
                if arms.len() < 3 || second.len() != arms.len() {
                    return Err(
                        "a rank correlation needs at least three arms, and as many second_arms as arms"
                            .to_owned(),
                    );
                }
                let [at, second_at] = places;
                self.check_at(at, Some(at.load), arms, true)?;
                self.check_at(second_at, Some(second_at.load), second, true)
            }
            ClaimCheck::Probe { probe, with, .. } => match catalogue.probe(probe) {
                Some(known) => (known.parse)(with).map(|_| ()).map_err(|unfit| unfit.to_string()),
                None => Err(unknown("probe", probe, catalogue.probes.iter().map(|p| p.name))),
            },
        }
    }

    /// Checks that the cell has these arms, this load and this size. If `at` has no size and `one_size` is `true`,
    /// the cell must have exactly one size.
    fn check_at(
        &self,
        at: &ClaimCondition,
        load: Option<BackgroundLoad>,
        arms: &[String],
        one_size: bool,
    ) -> Result<(), String> {
        let Some(cell) = self.cell(&at.cell) else {
            return Err(unknown("cell", &at.cell, self.cells.iter().map(|c| c.name.as_str())));
        };
        let within = |reason: String| format!("cell {:?}: {reason}", cell.name);
        if let Some(arm) = arms.iter().find(|arm| !cell.arms.contains(arm)) {
            return Err(within(unknown("arm", arm, cell.arms.iter().map(String::as_str))));
        }
        if let Some((at, arm)) = arms.iter().enumerate().find(|(at, arm)| arms[..*at].contains(arm))
        {
            return Err(within(format!(
                "arm {arm:?} is compared with itself: arm number {} is the same arm",
                at + 1
            )));
        }
        if load.is_some_and(|load| !cell.loads.contains(&load)) {
            return Err(within(format!(
                "the cell is not run under the load {}",
                load.unwrap_or(at.load).name()
            )));
        }
        match &at.size {
            Some(size) if !cell.sizes.contains(size) => {
                Err(within(unknown("size", size, cell.sizes.iter().map(String::as_str))))
            }
            None if one_size && cell.sizes.len() > 1 => {
                Err(within("size is missing: the cell has several sizes".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl ClaimCheck {
    /// Returns the range in which the figure must lie.
    pub fn within(&self) -> [f64; 2] {
        match self {
            Self::Ratio { within, .. }
            | Self::MeanRatio { within, .. }
            | Self::LoadRatio { within, .. }
            | Self::Rows { within, .. }
            | Self::Everywhere { within, .. }
            | Self::Somewhere { within, .. }
            | Self::AgainstBest { within, .. }
            | Self::RankCorrelation { within, .. }
            | Self::Probe { within, .. } => *within,
            Self::Opposite { around, .. } => *around,
        }
    }
}

impl ClaimCheck {
    /// Returns the names of the cells that this check reads.
    pub fn cells(&self) -> Vec<&str> {
        match self {
            Self::Ratio { at, .. }
            | Self::MeanRatio { at, .. }
            | Self::LoadRatio { at, .. }
            | Self::Rows { at, .. } => vec![&at.cell],
            Self::Opposite { cells, .. }
            | Self::Everywhere { cells, .. }
            | Self::Somewhere { cells, .. }
            | Self::AgainstBest { cells, .. } => cells.iter().map(String::as_str).collect(),
            Self::RankCorrelation { places, .. } => {
                places.iter().map(|at| at.cell.as_str()).collect()
            }
            Self::Probe { .. } => Vec::new(),
        }
    }

    /// Returns an error if no run could decide this check. A ratio within `LEAST_NOISE` of an end of its range decides
    /// nothing, so the upper end must be at least `(1 + LEAST_NOISE)^2` times the lower end.
    fn can_be_decided(&self) -> Result<(), String> {
        let [lo, hi] = self.within();
        is_range([lo, hi])?;
        let is_ratio = !matches!(
            self,
            Self::Probe { .. } | Self::RankCorrelation { .. } | Self::Opposite { .. }
        );
        let needed = (1.0 + LEAST_NOISE).powi(2);
        if is_ratio && lo > 0.0 && hi / lo < needed {
            return Err(format!(
                "within = [{lo}, {hi}]: no run can show that a ratio lies in this range, because a figure within \
                 {:.0} % of an end decides nothing; the upper end must be at least {needed:.3} times the lower end",
                LEAST_NOISE * 100.0
            ));
        }
        if matches!(self, Self::RankCorrelation { .. }) && (lo > 1.0 || hi < -1.0) {
            return Err(format!("within = [{lo}, {hi}]: a correlation is from -1 to 1"));
        }
        if is_ratio && lo <= 0.0 && hi.is_infinite() {
            return Err(format!(
                "within = [{lo}, {hi}]: every ratio lies in this range, so no run could contradict it"
            ));
        }
        if hi <= 0.0 && is_ratio {
            return Err(format!(
                "within = [{lo}, {hi}]: a ratio of costs is always greater than 0"
            ));
        }
        Ok(())
    }
}

fn is_blank(reason: Option<&str>) -> bool {
    reason.is_none_or(|reason| reason.trim().is_empty())
}

fn is_range([lo, hi]: [f64; 2]) -> Result<(), String> {
    if lo.is_nan() || hi.is_nan() || lo > hi {
        return Err(format!("[{lo}, {hi}] is not a range: the lower end comes first"));
    }
    Ok(())
}

/// Returns the first text that contains control characters. Studies come from untrusted sources and are printed to a
/// terminal.
fn odd_text(value: &toml::Value) -> Option<String> {
    let is_odd = |text: &str| text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
    match value {
        toml::Value::String(text) => Some(text.clone()).filter(|text| is_odd(text)),
        toml::Value::Array(all) => all.iter().find_map(odd_text),
        toml::Value::Table(table) => table.iter().find_map(|(key, value)| {
            Some(key.clone()).filter(|key| is_odd(key)).or_else(|| odd_text(value))
        }),
        _ => None,
    }
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("unknown {what} {name:?}; known: {known}")
}

fn distinct<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{what} {name:?}: a name must be one line of text"));
        }
        if !seen.insert(name) {
            return Err(format!("{what} {name:?} is given twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
