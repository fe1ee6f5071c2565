//! Estimates the remaining time of a run from the time that the conditions have taken so far.

use std::time::{Duration, Instant};
use thalweg_core::quantity::parse_some_bytes;

use super::{file::StudyCell, result::Condition, settings::Settings};

/// Cost of set-up, warm-up, calibration and verification under one condition, as a number of rounds.
const SET_UP_ROUNDS: usize = 3;
/// This cost if the operations are long, so that they are neither calibrated nor verified.
const SET_UP_ROUNDS_OF_LONG: usize = 1;

/// Returns the expected wall time of one session under one condition, in seconds. Each arm (a compared variant) runs
/// once per round, and one of them twice.
pub fn guess(cell: &StudyCell, place: &Condition, settings: &Settings) -> f64 {
    let set_up = if cell.long { SET_UP_ROUNDS_OF_LONG } else { SET_UP_ROUNDS };
    let rounds = settings.rounds.min(cell.rounds.unwrap_or(usize::MAX)) + set_up;
    let sizes = cell.sizes.iter().filter_map(|size| parse_some_bytes(size).ok());
    let share = place.bytes as f64 / sizes.max().unwrap_or(1).max(1) as f64;
    let operation = cell.operation_seconds.unwrap_or(0.0) * share;
    let sample = settings.sample.as_secs_f64().max(operation);
    (cell.arms.len() + 1) as f64 * sample * rounds as f64
}

/// The expected time of a condition.
#[derive(Clone, Debug)]
pub struct ConditionTime {
    /// Seconds of one session: the last measured time, or a guess until the condition has run once.
    pub seconds: f64,
    /// Number of sessions that measure it and have not started.
    pub sessions_left: usize,
    /// `true` if the current session has not finished it.
    pub is_pending: bool,
}

/// Estimate of the remaining time of the sessions of one study.
#[derive(Clone, Debug)]
pub struct Eta {
    places: Vec<ConditionTime>,
    began: Option<(usize, Instant)>,
    /// Number of sessions after the current one.
    sessions_left: usize,
}

impl Eta {
    /// Creates the estimate before the first of `sessions` sessions.
    pub fn new(places: Vec<ConditionTime>, sessions: usize) -> Self {
        Self { places, began: None, sessions_left: sessions }
    }

    pub fn session(&mut self) {
        for place in &mut self.places {
            place.is_pending = place.sessions_left > 0;
            place.sessions_left = place.sessions_left.saturating_sub(1);
        }
        self.sessions_left = self.sessions_left.saturating_sub(1);
    }

    /// Records that the session starts with a condition; the previous one is finished.
    pub fn begin_condition(&mut self, number: usize) {
        self.settle();
        self.began = Some((number, Instant::now()));
    }

    pub fn session_done(&mut self) {
        self.settle();
        for place in &mut self.places {
            place.is_pending = false;
        }
    }

    fn settle(&mut self) {
        let Some((number, began)) = self.began.take() else { return };
        if let Some(place) = self.places.get_mut(number) {
            (place.seconds, place.is_pending) = (began.elapsed().as_secs_f64(), false);
        }
    }

    /// Returns the remaining time without pauses.
    pub fn left(&self) -> Duration {
        let times = |place: &ConditionTime| place.sessions_left + usize::from(place.is_pending);
        let all: f64 = self.places.iter().map(|place| place.seconds * times(place) as f64).sum();
        let spent = self.began.map_or(0.0, |(number, began)| {
            let guess = self.places.get(number).map_or(0.0, |place| place.seconds);
            began.elapsed().as_secs_f64().min(guess)
        });
        Duration::try_from_secs_f64((all - spent).max(0.0)).unwrap_or_default()
    }

    /// Returns the number of sessions that have not started.
    pub fn sessions_left(&self) -> usize {
        self.sessions_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seconds: f64, sessions_left: usize) -> ConditionTime {
        ConditionTime { seconds, sessions_left, is_pending: false }
    }

    #[test]
    fn guesses_give_way_to_what_was_seen() {
        let mut eta = Eta::new(vec![place(100.0, 3), place(50.0, 3)], 3);
        assert_eq!(eta.left().as_secs(), 450);
        eta.session();
        assert_eq!(eta.left().as_secs(), 450);
        eta.begin_condition(1);
        eta.begin_condition(0);
        let left = eta.left().as_secs_f64();
        assert!((295.0..=301.0).contains(&left), "{left}");
        eta.session_done();
        assert!(eta.left().as_secs_f64() < 1.0 && eta.sessions_left() == 2);
    }

    #[test]
    fn a_condition_counts_only_in_the_sessions_that_measure_it() {
        let mut eta = Eta::new(vec![place(100.0, 1), place(1.0, 3)], 3);
        assert_eq!(eta.left().as_secs(), 103);
        eta.session();
        assert_eq!(eta.left().as_secs(), 103);
        eta.session_done();
        eta.session();
        assert_eq!(eta.left().as_secs(), 2);
    }
}
