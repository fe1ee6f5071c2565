//! Estimates the remaining time of a run from the time that the conditions have taken so far.

use std::time::{Duration, Instant};
use thalweg_core::quantity::parse_some_bytes;

use super::{file::StudyCell, result::Condition, settings::Settings};

/// Cost of set-up, warm-up, calibration and verification under one condition, as a number of rounds.
const SET_UP_ROUNDS: usize = 3;

/// Returns the expected wall time of one session under one condition, in seconds, averaged over the sessions. Each arm (a compared variant) runs
/// once per round, and one of them twice.
pub fn guess(cell: &StudyCell, place: &Condition, settings: &Settings) -> f64 {
    let set_up = if cell.long { 0 } else { SET_UP_ROUNDS };
    let rounds = settings.rounds.min(cell.rounds.unwrap_or(usize::MAX)) + set_up;
    let sizes = cell.sizes.iter().filter_map(|size| parse_some_bytes(size).ok());
    let share = place.bytes as f64 / sizes.max().unwrap_or(1).max(1) as f64;
    let operation = cell.operation_seconds.unwrap_or(0.0) * share;
    let sample = settings.sample.as_secs_f64().max(operation);
    let sessions = settings.sessions.max(1);
    let taken = cell.sessions.map_or(1.0, |most| most.min(sessions) as f64 / sessions as f64);
    (cell.arms.len() + 1) as f64 * sample * rounds as f64 * taken
}

/// Estimate of the remaining time of the sessions of one study. A condition counts with its last measured time, or with
/// a guess until it has run once.
#[derive(Clone, Debug)]
pub struct Eta {
    places: Vec<f64>,
    began: Option<(usize, Instant)>,
    /// `true` for each condition of the current session that is not finished.
    left: Vec<bool>,
    /// Number of sessions after the current one.
    sessions_left: usize,
}

impl Eta {
    /// Creates the estimate before the first session. `guesses` are seconds for each condition.
    pub fn new(guesses: Vec<f64>, sessions: usize) -> Self {
        let left = vec![false; guesses.len()];
        Self { places: guesses, began: None, left, sessions_left: sessions }
    }

    pub fn session(&mut self) {
        self.left.fill(true);
        self.sessions_left = self.sessions_left.saturating_sub(1);
    }

    /// Records that the session starts with a condition; the previous one is finished.
    pub fn begin_condition(&mut self, number: usize) {
        self.settle();
        self.began = Some((number, Instant::now()));
    }

    pub fn session_done(&mut self) {
        self.settle();
        self.left.fill(false);
    }

    fn settle(&mut self) {
        let Some((number, began)) = self.began.take() else { return };
        if let (Some(seconds), Some(left)) =
            (self.places.get_mut(number), self.left.get_mut(number))
        {
            *seconds = began.elapsed().as_secs_f64();
            *left = false;
        }
    }

    /// Returns the remaining time without pauses.
    pub fn left(&self) -> Duration {
        let whole: f64 = self.places.iter().sum();
        let session = self.places.iter().zip(&self.left).filter(|(_, left)| **left);
        let session: f64 = session.map(|(seconds, _)| seconds).sum();
        let spent = self.began.map_or(0.0, |(number, began)| {
            let guess = self.places.get(number).copied().unwrap_or(0.0);
            began.elapsed().as_secs_f64().min(guess)
        });
        let seconds = session - spent + whole * self.sessions_left as f64;
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
    }

    /// Returns the number of sessions that have not started.
    pub fn sessions_left(&self) -> usize {
        self.sessions_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_give_way_to_what_was_seen() {
        let mut eta = Eta::new(vec![100.0, 50.0], 3);
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
}
