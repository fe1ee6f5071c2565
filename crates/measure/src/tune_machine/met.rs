//! Handles sessions that other processes disturbed: they count for the loaded machine, or are left out.

use serde::Serialize;
use thalweg_core::profile::Load;

use super::{job::ContestLog, pair_survey::PairSurvey};
use crate::{busy::BusyProcessors, contamination::disturbed, other_work::kept_as};

/// Counts of the sessions that were meant for the idle machine, and of those among them that other processes disturbed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OtherWork {
    /// Disturbed sessions. Their samples count for the loaded machine.
    pub as_loaded: usize,
    /// Disturbed sessions that were left out.
    pub left_out: usize,
    /// All sessions meant for the idle machine.
    pub of: usize,
    /// The highest activity of other processes.
    pub most: Option<BusyProcessors>,
}

/// Moves the disturbed sessions from the surveys of the idle machine to those of the loaded machine.
pub(super) fn sorted(surveys: impl Iterator<Item = PairSurvey>) -> (Vec<PairSurvey>, OtherWork) {
    let (mut met, mut sorted) = (OtherWork::default(), Vec::new());
    let mut loaded: Vec<PairSurvey> = Vec::new();
    for mut survey in surveys {
        if survey.load == Load::Idle {
            loaded.extend(met.sort_out(&mut survey));
        }
        sorted.push(survey);
    }
    for survey in loaded {
        match sorted.iter_mut().find(|one| one.is_like(&survey)) {
            Some(known) => known.sessions.extend(survey.sessions),
            None => sorted.push(survey),
        }
    }
    (sorted, met)
}

impl OtherWork {
    /// Removes the disturbed sessions from a survey. Returns those that count for the loaded machine, if any.
    fn sort_out(&mut self, survey: &mut PairSurvey) -> Option<PairSurvey> {
        let is_asked = survey.ends.contest().counts_under(Load::Loaded);
        let mut loaded = Vec::new();
        self.of += survey.sessions.len();
        for session in std::mem::take(&mut survey.sessions) {
            self.most =
                [self.most, session.around].into_iter().flatten().reduce(BusyProcessors::or_busier);
            match session.kept_as() {
                Some(Load::Idle) => survey.sessions.push(session),
                Some(Load::Loaded) if is_asked => loaded.push(session),
                _ => self.left_out += 1,
            }
        }
        self.as_loaded += loaded.len();
        (!loaded.is_empty()).then(|| PairSurvey {
            ends: survey.ends.clone(),
            load: Load::Loaded,
            sink_state: survey.sink_state,
            sessions: loaded,
        })
    }
}

impl PairSurvey {
    fn is_like(&self, other: &Self) -> bool {
        (&self.ends, self.load, self.sink_state) == (&other.ends, other.load, other.sink_state)
    }
}

impl ContestLog {
    /// Returns the load to which the session's samples are attributed, or `None` to discard the session. If other
    /// processes were not measured, the load is [`Load::Idle`].
    fn kept_as(&self) -> Option<Load> {
        let Some(around) = &self.around else { return Some(Load::Idle) };
        let shares = self.sizes.iter().map(|size| disturbed(&size.log));
        let mean = shares.sum::<f64>() / self.sizes.len().max(1) as f64;
        kept_as(around, mean)
    }
}
